"""How shall each trial use its machine now? Knobs are turned by what was measured, and by what is known.

Pure, like all policy: what it says follows from the study's history and from what past studies knew when the drive
began. A trial's first window is measured with nothing turned. If it looks like work that is known, of this study
or of another one, what was best there is taken at once; else one setting after the other is looked at. A trial
with hyperparameters like those of others begins with what was best for these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.system.checks import MOST_VALUES
from thriftune.system.knobs import Knob
from thriftune.system.knowledge import OWN, PROCESS, Learned
from thriftune.system.known_work import Work, key, setting_of
from thriftune.system.probing import Choice, Knobs, choose, in_words
from thriftune.system.similarity import Similarity
from thriftune.system.together import AT_A_TIME
from thriftune.system.windows import first_setting, is_busy

_NARROW_GAIN = 0.05

_TRIALS_ASKED = 100
"""So many of the last are asked what their machines have refused: there may be thousands."""

_VALUES_REFUSED = 3
"""A knob that was refused so many of its values is not tried with the others: each takes two windows."""

_ANY = ""
"""Among what was refused, stands for all values of a knob; no value's key is that."""

_STEPS_UNKNOWN = 20
"""Of a trial that does not say how many steps it has, so many are taken to be left."""

AIMS: Mapping[str, Callable[[ev.UsageMeasured, int], float]] = {
    "time": lambda seen, _: seen.seconds / seen.steps,
    "energy": lambda seen, _: seen.joules / seen.steps,
    "dollars": lambda seen, usual: seen.seconds * seen.setting.get("threads", usual) / seen.steps,
}
"""What a step costs. Cores that a trial does not use are another's: by dollars, each that it uses is paid for.
With nothing turned, it uses the usual number."""


class Room(NamedTuple):
    """`cores_a_slot`: of a machine, for each trial that it has room for."""

    cores_a_slot: float

    @property
    def usual_threads(self) -> int:
        """Which a trial has with nothing turned."""
        return max(1, int(self.cores_a_slot))

    def share(self, slots: int, running: int) -> int:
        """Cores for each of so many trials on a machine with so many slots."""
        return max(self.usual_threads, int(slots * self.cores_a_slot + 1e-6) // max(1, running))


class SystemTuner:
    """- `known`: by kind of machine, what past studies knew.
    - `trials`: how many the study is to have, if that is known.
    - `may_narrow`: fewer trials at a time than there is room for may be better.
    """

    def __init__(
        self,
        knobs: Sequence[Knob],
        options: Mapping[str, Sequence[Any]],
        room: Room,
        known: Callable[[str], Sequence[Work]],
        similarity: Similarity,
        *,
        trials: int | None = None,
        aim: str = "time",
        every: bool = False,
        may_narrow: bool = False,
    ) -> None:
        self._knobs = knobs
        self._options = options
        self._room = room
        self._learned = Learned(known, similarity, lambda seen: AIMS[aim](seen, room.usual_threads))
        self._trials = trials
        self._every = every
        self._may_narrow = may_narrow and aim == "time"
        # Only a cache: by trial, of how many windows what its machine has refused.
        self._refusals: dict[int, tuple[int, set[tuple[str, str]]]] = {}

    def react(self, event: ev.Event, history: History) -> Iterator[ev.Decision]:
        now = event.at
        if not history.measured_trials and not isinstance(event, ev.UsageMeasured):
            return  # nothing is known of anybody: on the way of thousands of short trials
        if isinstance(event, ev.UsageMeasured):
            trial = history.trials[event.trial]
            if self._may_narrow:
                yield from self._narrow(trial, history, now)
            yield from self._turn(trial, history, now)
        elif isinstance(event, ev.Place):
            yield from self._turn_all(event.workers or [event.machine], history, now)
        elif isinstance(event, (ev.Ended, ev.Failed, ev.Killed, ev.Lost)):
            stays = history.trials[event.trial].past_attempts
            yield from self._turn_all(stays[-1].workers if stays else (), history, now)
        elif isinstance(event, ev.MachineShared):
            yield from self._turn_all([event.machine], history, now)

    def works(self, history: History) -> dict[str, list[Work]]:
        """What the study has learned, by kind of machine, for others to know."""
        return self._learned.works(history)

    # --- one trial ----------------------------------------------------------------------------------------

    def _turn_all(self, machines: Iterable[str], history: History, now: float) -> Iterator[ev.Decision]:
        for machine in machines:
            if machine in history.machines:
                for trial_id in list(history.machines[machine].running):
                    yield from self._turn(history.trials[trial_id], history, now)

    def _turn(self, trial: TrialRecord, history: History, now: float) -> Iterator[ev.Decision]:
        knobs = self._turnable(trial, history)
        if _is_looking(trial) and knobs.allow(trial.knob_setting) and not trial.failed_settings:
            return
        choice, by = self._choice(trial, history, knobs)
        by = ev.PROBE if choice.looks else by
        looked = bool(trial.knob_changes) and trial.knob_changes[-1][1].by == ev.PROBE
        if choice.setting != trial.knob_setting or (looked and by != ev.PROBE):
            yield ev.SetKnobs(now, trial.id, choice.setting, choice.why, by)

    def _choice(self, trial: TrialRecord, history: History, knobs: Knobs) -> tuple[Choice, str]:
        """And what it rests on."""
        if trial.failed_settings:
            failed = f"it failed with {in_words(trial.failed_settings[-1])}"
            return Choice(knobs.fixed, failed, False), OWN
        knowledge = self._learned.of(trial, history)
        known = None if knowledge is None else knowledge.relative_to(knobs.base)
        estimate = self._learned.estimate(trial, history, known)
        left, beside = self._windows_left(trial, history), _beside(trial, history)
        choice = choose(estimate, knobs, windows_left=left, beside=beside, every=self._every)
        if not estimate.windows and choice.setting and choice.setting == knobs.fixed:
            return choice._replace(why="its process has it from before"), PROCESS
        looked = {key(turn.setting) for _, turn in trial.knob_changes if turn.by == ev.PROBE}
        if knowledge is None or not estimate.known or choice.looks:
            inherited = bool(choice.setting) and not looked and choice.setting == knobs.fixed == knobs.base
            return choice, PROCESS if inherited else OWN
        if key(choice.setting) in looked or (looked and choice.setting == knobs.home):
            return choice, OWN  # it has found out by itself
        return choice._replace(why=f"{knowledge.source}: {choice.why}"), knowledge.by

    def _turnable(self, trial: TrialRecord, history: History) -> Knobs:
        """On the cores that are the trial's now."""
        machine = history.machines.get(trial.machine or "")
        usual = self._room.usual_threads
        last = trial.windows[-1].usage if trial.windows else None
        begun = last is not None and last.attempt == trial.attempts
        share = usual
        if machine is not None:
            room = machine.slots - machine.slots_of_others
            # A trial that begins is often one of several: those that come after it would wait for a whole step of
            # its until the cores are given back, and both are slowed down by threads that share a core. Where a
            # slot is free when all else is decided, nobody comes.
            if begun or len(machine.running) < room:
                beside = [history.trials[each] for each in machine.running if each != trial.id]
                leaving = sum(map(_is_leaving, beside)) if self._nobody_comes(history) else 0
                share = self._room.share(room, 1 + len(beside) - leaving)
        if last is not None and "threads" not in last.setting and is_busy(last):
            share = usual  # some other program has these cores
        in_force = last.setting if last is not None and (begun or not trial.failed_settings) else {}
        # A user's own code lets them vary since they are thought to matter: short trials do not come to all.
        values: dict[str, Sequence[Any]] = {name: list(others[1:]) for name, others in self._options.items()}
        fixed: dict[str, Any] = {}
        for knob in self._knobs:
            if knob.name in in_force and (knob.lasts or (knob.restarts and begun)):
                fixed[knob.name] = in_force[knob.name]
            elif not (knob.restarts and begun):  # it stays as it is until the trial is started again
                values[knob.name] = list(knob.values(share))[:MOST_VALUES]
        if "threads" in values:  # where cores are idle, most is to be gained by all of them
            several = sorted((count for count in values.pop("threads") if count != usual), reverse=True)
            values = {"threads": several, **values}
        refused = self._refused(trial, history)
        values = {name: [each for each in others if (name, key({name: each})) not in refused]
                  for name, others in values.items() if (name, _ANY) not in refused}  # fmt: skip
        return Knobs(values, fixed, first_setting(trial), _harmful(history))

    def _nobody_comes(self, history: History) -> bool:
        """To a slot that is left."""
        made = self._trials is not None and len(history.created_ids) >= self._trials
        return made and not history.waiting and not history.counts[State.PAUSED]

    def _refused(self, trial: TrialRecord, history: History) -> set[tuple[str, str]]:
        """What knobs were to be turned to, and were not: by this trial's process, or by those of two others.
        A knob with _ANY is not to be turned to anything."""
        others = Counter(
            each for other in history.measured_trials[-_TRIALS_ASKED:] for each in self._refused_by(other)
        )
        return self._refused_by(trial) | {each for each, count in others.items() if count > 1}

    def _refused_by(self, trial: TrialRecord) -> set[tuple[str, str]]:
        state = len(trial.windows)
        if self._refusals.get(trial.id, (-1,))[0] != state:
            found: set[tuple[str, str]] = set()
            ends = [*(begin for begin, _ in trial.knob_changes[1:]), state]
            for (begin, turn), end in zip(trial.knob_changes, ends, strict=False):
                if end - begin >= 2:  # the first of them may have begun before it was told
                    for name in turn.setting.keys() - trial.windows[end - 1].usage.setting.keys():
                        found.add((name, key({name: turn.setting[name]})))
            values_refused = Counter(name for name, _ in found)
            found |= {(name, _ANY) for name, count in values_refused.items() if count >= _VALUES_REFUSED}
            self._refusals[trial.id] = state, found
        return self._refusals[trial.id][1]

    def _windows_left(self, trial: TrialRecord, history: History) -> float:
        """In this trial, and in half of what the others have left: what is learned serves them, too."""
        steps = max((window.usage.steps for window in trial.windows[-2:]), default=1)
        if history.max_steps is None:
            return _STEPS_UNKNOWN / steps
        to_come = len(history.waiting) + max(0, (self._trials or 0) - len(history.created_ids))
        return (history.max_steps - trial.step + 0.5 * history.max_steps * to_come) / steps

    # --- how many at a time -------------------------------------------------------------------------------

    def _narrow(self, trial: TrialRecord, history: History, now: float) -> Iterator[ev.Decision]:
        """Where work like the trial's is known to have got on better with fewer beside each other."""
        knowledge = self._learned.of(trial, history)
        machine = history.machines.get(trial.machine or "")
        if knowledge is None or machine is None or machine.slots in history.trial_limits:
            return
        plain, fewer = [1.0], []
        for text, ratio in knowledge.effects.items():
            setting = setting_of(text)
            count = setting.pop(AT_A_TIME, None)
            if count is not None and self._can_be_had(setting, machine.slots, count):
                fewer.append((ratio, count))
            elif count is None and "threads" not in setting:
                # What more threads do was seen where there was room for them, with fewer beside each other.
                plain.append(ratio)
        ratio, count = min(fewer, default=(1.0, 0))
        if ratio < (1 - _NARROW_GAIN) * min(plain):
            gain = f"{1 - ratio / min(plain):.0%} less time for the same work"
            why = f"{knowledge.source}: {count} at a time, each with more cores: {gain}"
            yield ev.LimitTrialsPerMachine(now, machine.slots, count, why)

    def _can_be_had(self, setting: Mapping[str, Any], slots: int, at_a_time: int) -> bool:
        """With so many at a time on a machine with so many slots."""
        share = self._room.share(slots, at_a_time)
        values = {knob.name: knob.values(share) for knob in self._knobs} | dict(self._options)
        return at_a_time < slots and all(value in values.get(name, ()) for name, value in setting.items())


def _is_looking(trial: TrialRecord) -> bool:
    """At a setting that no window has shown yet."""
    return (
        bool(trial.knob_changes)
        and trial.knob_changes[-1][1].by == ev.PROBE
        and trial.knob_changes[-1][0] == len(trial.windows)
    )


def _beside(trial: TrialRecord, history: History) -> int:
    """How many trials there are on its machine, with it."""
    machine = history.machines.get(trial.machine or "")
    return 1 if machine is None else max(1, len(machine.running))


def _is_leaving(trial: TrialRecord) -> bool:
    """A rule has found it not worth another step, of which it hears before it begins that. One that is only to
    pause may go on at once, or make place for another that was set aside."""
    return trial.end_request in ("stop", "converge") and "by " in (trial.end_reason or "")


def _harmful(history: History) -> frozenset[str]:
    """Settings that two trials have failed with."""
    failed = Counter(
        text for trial in history.failed_with_knobs for text in {key(setting) for setting in trial.failed_settings}
    )
    return frozenset(text for text, count in failed.items() if count > 1)
