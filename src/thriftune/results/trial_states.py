"""Count a study's trials by state, and name the states as people read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord


def state_of(trial: TrialRecord, has_driver: bool) -> State:
    """Return a trial's state; a RUNNING trial of a study without a driver is WAITING.

    The log of a study whose driver was killed still has its trials as running, until the next driver starts.
    """
    if trial.state is State.RUNNING and not has_driver and trial.machine != ev.OUTSIDE:
        return State.WAITING
    return trial.state


def state_word(state: State, finished: bool) -> str:
    """Return a state as people read it. In a finished study, a paused trial counts as stopped early."""
    if state is State.STOPPED or (finished and state is State.PAUSED):
        return "stopped early"
    return state.lower()


def count_states(history: History, has_driver: bool) -> Counter[State]:
    """Count the trials in each state that has any, in the order of a trial's life, without known results."""
    trials_by_state = Counter(state_of(history.trials[i], has_driver) for i in history.created_ids)
    return Counter({state: trials_by_state[state] for state in State if trials_by_state[state]})


def count_state_words(numbers: Mapping[State, int], finished: bool) -> dict[str, int]:
    """Return the number of trials by the word for their state."""
    trials_by_word: Counter[str] = Counter()
    for state in (State.WAITING, State.RUNNING, State.COMPLETED, State.PAUSED, State.STOPPED, State.FAILED):
        if count := numbers.get(state, 0):
            trials_by_word[state_word(state, finished)] += count
    return dict(trials_by_word)


def existing_trials(history: History) -> str:
    """Return the numbers of a study's trials, such as "its trials are 0 to 11"."""
    last = len(history.trials) - 1
    if last <= 0:
        return "it has no trials" if last else "its only trial is 0"
    return f"its trials are 0 {'and' if last == 1 else 'to'} {last}"


def counts_line(history: History, has_driver: bool) -> str:
    """Return the number of trials in each state, such as "2 completed, 6 stopped early"."""
    trials_by_word = count_state_words(count_states(history, has_driver), history.finish_reason is not None)
    return ", ".join(f"{count} {word}" for word, count in trials_by_word.items()) or "no trials yet"
