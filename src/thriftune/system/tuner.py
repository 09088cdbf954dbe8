"""Decide the next knob setting of each trial of a study.

The decisions follow from the study's history alone. This module reads no clock and no files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.system.checks import MOST_VALUES
from thriftune.system.estimate import Effect, Estimate, no_core_is_idle
from thriftune.system.knob_settings import KnobSetting, describe, key
from thriftune.system.knobs import Knob
from thriftune.system.knowledge import OTHERS, OWN, PROCESS, Knowledge
from thriftune.system.next_setting import (
    NextSetting,
    Possible,
    choose_setting,
    first_setting,
    setting_parts,
    usual_effect,
)

_TRIALS_WITH_REFUSALS = 100
"""Refusals are collected only from this many trials, the latest, because a study may have thousands."""

_MOST_REFUSALS = 3
"""A knob that has refused this many values is not tried with other values, because each would take two windows."""

_ANY_VALUE = ""
"""The key that stands for all values of a knob among refused values; no value has it."""

_UNKNOWN_STEPS_LEFT = 20
"""The number of steps that a trial is expected to have left if the study has no max_steps."""

COSTS: Mapping[str, Callable[[ev.UsageMeasured, int], float]] = {
    "time": lambda usage, _: usage.seconds / usage.steps,
    "energy": lambda usage, _: usage.joules / usage.steps,
    "dollars": lambda usage, usual: usage.seconds * usage.setting.get("threads", usual) / usage.steps,
}
"""The cost of a step in a window, by aim. The second argument is the usual number of threads. For dollars, a
step costs more if it uses more cores, because other trials could use them."""


class CoreShares(NamedTuple):
    """The division of a machine's cores among its trials.

    - `cores_per_slot`: the cores of a machine divided by its slots.
    """

    cores_per_slot: float

    @property
    def usual_threads(self) -> int:
        """Return the number of threads of a trial while no knob is applied."""
        return max(1, int(self.cores_per_slot))

    def share(self, slots: int, running: int) -> int:
        """Return the number of cores for each running trial of a machine.

        The cores of idle slots are divided among the trials.

        - `slots`: the slots of the machine.
        - `running`: the number of trials that run there.
        """
        return max(self.usual_threads, int(slots * self.cores_per_slot + 1e-6) // max(1, running))


class SystemTuner:
    """The tuner of a study. It implements the protocol Tuner.

    - `trials`: the number of trials that the study shall have; None if it is not known.
    - `aim`: a key of COSTS.
    """

    def __init__(
        self,
        knobs: Sequence[Knob],
        options: Mapping[str, Sequence[Any]],
        cores: CoreShares,
        *,
        trials: int | None = None,
        aim: str = "time",
    ) -> None:
        self._knobs = knobs
        self._options = options
        self._cores = cores
        self._trials = trials

        def usual(part: str) -> Effect:
            return usual_effect(part, cores.usual_threads, aim)

        self._knowledge = Knowledge(usual, lambda usage: COSTS[aim](usage, cores.usual_threads))
        # Cache by trial id; the first element is the number of windows it covers.
        self._refusals: dict[int, tuple[int, set[tuple[str, str]]]] = {}

    def react(self, event: ev.Event, history: History) -> Iterator[ev.Decision]:
        now = event.at
        if isinstance(event, ev.UsageMeasured):
            yield from self._decide(history.trials[event.trial], history, now)
        elif not history.measured_trials:
            return  # nothing was measured, as in a study with thousands of short trials
        elif isinstance(event, ev.Place):
            yield from self._decide_all(event.workers or [event.machine], history, now)
        elif isinstance(event, (ev.Ended, ev.Failed, ev.Killed, ev.Lost)):
            attempts = history.trials[event.trial].past_attempts
            yield from self._decide_all(attempts[-1].workers if attempts else (), history, now)
        elif isinstance(event, ev.MachineShared):
            yield from self._decide_all([event.machine], history, now)

    def _decide_all(self, machines: Iterable[str], history: History, now: float) -> Iterator[ev.Decision]:
        for machine in machines:
            if machine in history.machines:
                for trial_id in list(history.machines[machine].running):
                    yield from self._decide(history.trials[trial_id], history, now)

    def _decide(self, trial: TrialRecord, history: History, now: float) -> Iterator[ev.Decision]:
        if sum(trial.workers.values()) > 1:  # a plan may give a trial more workers in a later stage
            if trial.knob_setting:
                yield ev.SetKnobs(now, trial.id, {}, "trials with several workers are not tuned", OWN)
            return
        possible = self._possible(trial, history)
        if _is_probing(trial) and possible.allows(trial.knob_setting) and not trial.failed_settings:
            return
        chosen, by = self._choose(trial, history, possible)
        probed = bool(trial.knob_changes) and trial.knob_changes[-1][1].by == ev.PROBE
        if chosen.setting != trial.knob_setting or (probed and by != ev.PROBE):
            yield ev.SetKnobs(now, trial.id, chosen.setting, chosen.why, by)

    def _choose(self, trial: TrialRecord, history: History, possible: Possible) -> tuple[NextSetting, str]:
        """Return the trial's next setting, and its evidence: a value of SetKnobs.by."""
        if trial.failed_settings:
            why = f"it failed with {describe(trial.failed_settings[-1])}"
            return NextSetting(possible.usual, why, False), OWN
        estimate = self._knowledge.estimate(trial, history)
        if not estimate.settings:
            chosen = first_setting(estimate, possible)
        else:
            left = self._windows_left(trial, history)
            chosen = choose_setting(estimate, possible, trial.knob_setting, windows_left=left)
        if chosen.is_probe:
            return chosen, ev.PROBE
        if chosen.setting == possible.fixed and _is_inherited(chosen.setting, trial):
            return chosen._replace(why="its process has it from before"), PROCESS
        return chosen, self._basis(chosen.setting, trial, history, estimate)

    def _basis(self, setting: KnobSetting, trial: TrialRecord, history: History, estimate: Estimate) -> str:
        """Return the evidence for a setting: the weakest evidence for any of its knobs."""
        if estimate.windows(setting) or not setting:
            return OWN
        sources = {self._knowledge.source(part, trial, history) for part in setting_parts(setting)}
        return ev.PROBE if None in sources else OTHERS if OTHERS in sources else OWN

    def _possible(self, trial: TrialRecord, history: History) -> Possible:
        """Return the settings that the trial may have now."""
        last = trial.windows[-1].usage if trial.windows else None
        begun = last is not None and last.attempt == trial.attempts
        in_force = last.setting if last is not None and (begun or not trial.failed_settings) else {}
        share = self._share(trial, history, begun)
        # Options come first, because users choose them. A short trial cannot try all values.
        values: dict[str, Sequence[Any]] = {name: list(others[1:]) for name, others in self._options.items()}
        fixed: dict[str, Any] = {}
        for knob in self._knobs:
            if knob.name in in_force and (knob.lasts or (knob.restarts and begun)):
                fixed[knob.name] = in_force[knob.name]
            elif not (knob.restarts and begun):  # otherwise it cannot change until the next attempt
                values[knob.name] = list(knob.values(share))[:MOST_VALUES]
        if "threads" in values:  # first, because idle cores help most
            usual = self._cores.usual_threads
            counts = sorted((count for count in values.pop("threads") if count != usual), reverse=True)
            values = {"threads": counts, **values}
        refused = self._refused(trial, history)
        allowed = {
            name: [value for value in others if (name, key({name: value})) not in refused]
            for name, others in values.items()
            if (name, _ANY_VALUE) not in refused
        }
        return Possible(allowed, fixed, _harmful(history))

    def _share(self, trial: TrialRecord, history: History, begun: bool) -> int:
        """Return how many cores the trial may use now. `begun`: its attempt has a window."""
        usual = self._cores.usual_threads
        machine = history.machines.get(trial.machine or "")
        last = trial.windows[-1].usage if trial.windows else None
        if machine is None or (last is not None and "threads" not in last.setting and no_core_is_idle(last)):
            return usual  # another program uses the idle cores
        slots = machine.slots - machine.slots_of_others
        # Several trials often begin at the same time. A trial that begins gets no idle cores while another may
        # follow: both would be slow until the first one returns the cores after a whole step.
        if not begun and len(machine.running) >= slots:
            return usual
        others = [history.trials[each] for each in machine.running if each != trial.id]
        leaving = sum(map(_is_stopping, others)) if self._no_trial_follows(history) else 0
        return self._cores.share(slots, 1 + len(others) - leaving)

    def _no_trial_follows(self, history: History) -> bool:
        """Return whether a slot that becomes free stays free."""
        all_created = self._trials is not None and len(history.created_ids) >= self._trials
        return all_created and not history.waiting and not history.counts[State.PAUSED]

    def _refused(self, trial: TrialRecord, history: History) -> set[tuple[str, str]]:
        """Return the values that this trial has refused, or that two trials have refused.

        Returns pairs as in _refused_by().
        """
        counts = Counter(
            refusal
            for other in history.measured_trials[-_TRIALS_WITH_REFUSALS:]
            for refusal in self._refused_by(other)
        )
        return self._refused_by(trial) | {refusal for refusal, count in counts.items() if count > 1}

    def _refused_by(self, trial: TrialRecord) -> set[tuple[str, str]]:
        """Return (knob, key of the value) for each value that a trial has refused.

        A value was refused if it was decided for the trial, but the trial's later windows do not have it.
        """
        windows = len(trial.windows)
        if self._refusals.get(trial.id, (-1,))[0] != windows:
            refused: set[tuple[str, str]] = set()
            ends = [*(begin for begin, _ in trial.knob_changes[1:]), windows]
            for (begin, change), end in zip(trial.knob_changes, ends, strict=False):
                if end - begin >= 2:  # the first window may have begun before the change arrived
                    for name in change.setting.keys() - trial.windows[end - 1].usage.setting.keys():
                        refused.add((name, key({name: change.setting[name]})))
            counts = Counter(name for name, _ in refused)
            refused |= {(name, _ANY_VALUE) for name, count in counts.items() if count >= _MOST_REFUSALS}
            self._refusals[trial.id] = windows, refused
        return self._refusals[trial.id][1]

    def _windows_left(self, trial: TrialRecord, history: History) -> float:
        """Return the number of windows in which the choice of a setting can help.

        These are the windows left in this trial, and half of those in trials that have not started. Later trials
        use what this one has shown.
        """
        steps = max((window.usage.steps for window in trial.windows[-2:]), default=1)
        if history.max_steps is None:
            return _UNKNOWN_STEPS_LEFT / steps
        to_come = len(history.waiting) + max(0, (self._trials or 0) - len(history.created_ids))
        return (history.max_steps - trial.step + 0.5 * history.max_steps * to_come) / steps


def _is_probing(trial: TrialRecord) -> bool:
    """Return whether the trial has a setting to probe, and no window of it yet."""
    if not trial.knob_changes:
        return False
    windows, change = trial.knob_changes[-1]
    return change.by == ev.PROBE and windows == len(trial.windows)


def _is_inherited(setting: KnobSetting, trial: TrialRecord) -> bool:
    """Return whether the setting was never chosen for the trial.

    The worker process then has it from an earlier trial.
    """
    chosen = (change.setting for _, change in trial.knob_changes if change.by != PROCESS)
    return bool(setting) and setting not in chosen


def _is_stopping(trial: TrialRecord) -> bool:
    """Return whether a stopping rule has decided to stop the trial."""
    return trial.end_request in ("stop", "converge") and "by " in (trial.end_reason or "")


def _harmful(history: History) -> frozenset[str]:
    """Return the keys of settings with which at least two trials have failed."""
    failed = Counter(
        text for trial in history.failed_with_knobs for text in {key(setting) for setting in trial.failed_settings}
    )
    return frozenset(text for text, count in failed.items() if count > 1)
