"""How shall each trial use its machine now? Knobs are turned by what was measured, and by what is known.

Pure, like all policy: what it says follows from the study's history and from what past studies knew when the drive
began. A trial's first window is measured with nothing turned. If it looks like work that is known, of this study
or of another one, what was best there is taken at once; else one setting after the other is looked at. A trial
with hyperparameters like those of others begins with what was best for these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from statistics import fmean
from typing import Any, NamedTuple

from thriftune import events as ev
from thriftune.history import History
from thriftune.system.alike import by_parameter
from thriftune.system.knobs import Knob
from thriftune.system.known_work import Work, key, setting_of
from thriftune.system.probing import MOST_LOOKS, Choice, allowed, choose, measured_effects, with_known
from thriftune.system.similarity import Similarity
from thriftune.trial import TrialRecord, Window

AT_A_TIME = "at_a_time"
"""Stands among the knobs of a piece of work, where fewer trials ran beside each other than there was room for."""

_NARROW_GAIN = 0.05
_WORKS_OF_STUDY, _TRIALS_ASKED = 100, 40
"""So many of the last are looked at: there may be thousands."""

_STEPS_UNKNOWN = 20
"""Of a trial that does not say how many steps it has, so many are taken to be left."""

Cost = Callable[[ev.Measured], float]

AIMS: Mapping[str, Cost] = {
    "time": lambda seen: seen.seconds / seen.steps,
    "energy": lambda seen: seen.joules / seen.steps,
    "dollars": lambda seen: seen.seconds * seen.setting.get("threads", 1) / seen.steps,
}
"""What a step costs. Cores that a trial does not use are another's: by dollars, each that it uses is paid for."""


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


OWN, KNOWN, OTHERS, PARAMETERS = "its own steps", "known work", "trials like it", "its parameters"
"""What decisions rest on."""


class Knowledge(NamedTuple):
    """What is known of a trial beyond its own measurements: by setting, its cost relative to nothing turned."""

    effects: Mapping[str, float]
    by: str
    source: str
    distance: float = 0.0


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
        self._known = known
        self._similarity, self._similarity_here = similarity, deepcopy(similarity)  # each has caches of its own
        self._trials = trials
        self._cost = AIMS[aim]
        self._every = every
        self._may_narrow = may_narrow
        self._works: dict[int, tuple[int, Work | None]] = {}  # trial -> of how many windows, and what they say
        self._refusals: dict[str, set[str]] = {}  # by kind of machine
        # By trial: for which kind of machine what past studies say, and this one when it knew so much.
        self._matched: dict[int, tuple[str, Knowledge | None]] = {}
        self._matched_here: dict[int, tuple[tuple[str, int, int], Knowledge | None]] = {}

    def react(self, event: ev.Event, history: History) -> Iterator[ev.Decision]:
        now = event.at
        if not history.measured and not isinstance(event, ev.Measured):
            return  # nothing is known of anybody: on the way of thousands of short trials
        if isinstance(event, ev.Measured):
            trial = history.trials[event.trial]
            if self._may_narrow and history.narrowed is None:
                yield from self._narrow(trial, history, now)
            yield from self._turn(trial, history, now)
        elif isinstance(event, ev.Place):
            yield from self._turn_all(event.workers or [event.machine], history, now)
        elif isinstance(event, (ev.Ended, ev.Failed, ev.Killed, ev.Lost)):
            stays = history.trials[event.trial].stays
            yield from self._turn_all(stays[-1].workers if stays else (), history, now)
        elif isinstance(event, ev.MachineShared):
            yield from self._turn_all([event.machine], history, now)

    def works(self, history: History) -> dict[str, list[Work]]:
        """What the study has learned, by kind of machine, for others to know."""
        found: dict[str, list[Work]] = {}
        for trial in history.measured:
            if (work := self._work(trial)) is not None:
                found.setdefault(_kind(trial), []).append(work)
        return found

    # --- one trial ----------------------------------------------------------------------------------------

    def _turn_all(self, machines: Iterable[str], history: History, now: float) -> Iterator[ev.Decision]:
        for machine in machines:
            if machine in history.machines:
                for trial_id in list(history.machines[machine].running):
                    yield from self._turn(history.trials[trial_id], history, now)

    def _turn(self, trial: TrialRecord, history: History, now: float) -> Iterator[ev.Decision]:
        values = self._values(trial, history)
        if _is_looking(trial) and allowed(trial.setting, values):
            return
        choice, by = self._choice(trial, history, values)
        by = ev.LOOK if choice.looks else by
        looked = bool(trial.turns) and trial.turns[-1][1].by == ev.LOOK
        if choice.setting != trial.setting or (looked and by != ev.LOOK):
            yield ev.Turn(now, trial.id, choice.setting, choice.why, by)

    def _choice(
        self, trial: TrialRecord, history: History, values: Mapping[str, Sequence[Any]]
    ) -> tuple[Choice, str]:
        """And what it rests on."""
        knowledge = self._knowledge(trial, history)
        left = self._windows_left(trial, history)
        if knowledge is None:
            own = measured_effects(self._costs(trial))
            if not own.base_looks:
                return Choice({}, "is measured first", False), OWN
            return choose(own, values, windows_left=left, every=self._every), OWN
        known = {each: ratio for each, ratio in knowledge.effects.items() if AT_A_TIME not in setting_of(each)}
        effects = with_known(measured_effects(self._costs(trial), known), known)
        choice = choose(effects, values, windows_left=left, every=self._every)
        return choice._replace(why=f"{knowledge.source}: {choice.why}"), knowledge.by

    def _values(self, trial: TrialRecord, history: History) -> dict[str, Sequence[Any]]:
        """What each knob may be turned to, on the cores that are the trial's now."""
        machine = history.machines.get(trial.machine or "")
        usual = self._room.usual_threads
        share = usual
        if machine is not None:
            # Those that are told to end are gone by its next step.
            staying = sum(history.trials[each].asked is None for each in machine.running if each != trial.id) + 1
            share = self._room.share(machine.slots - machine.others, staying)
        refused = self._refused(trial)
        found: dict[str, Sequence[Any]] = {}
        begun = bool(trial.windows) and trial.windows[-1].measured.attempt == trial.attempts
        for knob in self._knobs:
            if knob.name in refused:
                continue
            if knob.restarts and begun:  # it stays as it is until the trial is started again
                found[knob.name] = [trial.setting[knob.name]] if knob.name in trial.setting else []
            else:
                found[knob.name] = list(knob.values(share))
        if "threads" in found:  # where cores are idle, most is to be gained by all of them
            several = sorted((count for count in found.pop("threads") if count != usual), reverse=True)
            found = {"threads": several, **found}
        return {**found, **{name: list(others[1:]) for name, others in self._options.items()}}

    def _refused(self, trial: TrialRecord) -> set[str]:
        """Knobs that were to be turned, and did not: its machine does not let them, and so no other trial."""
        ends = [*(begin for begin, _ in trial.turns[1:]), len(trial.windows)]
        found = self._refusals.setdefault(_kind(trial), set())
        for (begin, turn), end in zip(trial.turns, ends, strict=False):
            if end - begin >= 2:  # the first of them may have begun before it was told
                found |= turn.setting.keys() - trial.windows[end - 1].measured.setting.keys()
        return found

    def _costs(self, trial: TrialRecord) -> list[tuple[str, float]]:
        seen = (window.measured for window in _windows(trial) if not window.measured.cold)
        return [(key(each.setting), cost) for each in seen if (cost := self._cost(each)) > 0.0]

    def _windows_left(self, trial: TrialRecord, history: History) -> float:
        """In this trial, and in half of what the others have left: what is learned serves them, too."""
        steps = max((window.measured.steps for window in trial.windows[-2:]), default=1)
        if history.max_steps is None:
            return _STEPS_UNKNOWN / steps
        to_come = len(history.waiting) + max(0, (self._trials or 0) - len(history.trials))
        return (history.max_steps - trial.step + 0.5 * history.max_steps * to_come) / steps

    # --- what is known ------------------------------------------------------------------------------------

    def _knowledge(self, trial: TrialRecord, history: History) -> Knowledge | None:
        """Of work with a profile like the trial's, else of trials with hyperparameters like its."""
        profile = _profile(trial)
        if profile is None:
            return self._by_parameters(trial, history)
        kind = _kind(trial)
        if self._matched.get(trial.id, ("",))[0] != kind:
            self._matched[trial.id] = kind, _matching(self._similarity, profile, self._known(kind), KNOWN)
        here = self._of_study(history, kind, besides=trial.id)
        state = kind, len(here), sum(len(work.effects) for work in here)
        if self._matched_here.get(trial.id, (None,))[0] != state:
            found = _matching(self._similarity_here, profile, here, OTHERS)
            self._matched_here[trial.id] = state, found
        matches = [each for _, each in (self._matched_here[trial.id], self._matched[trial.id]) if each is not None]
        return min(matches, key=lambda each: each.distance, default=None)

    def _by_parameters(self, trial: TrialRecord, history: History) -> Knowledge | None:
        known: list[tuple[Mapping[str, Any], Mapping[str, float]]] = []
        for other in history.measured[-_TRIALS_ASKED:]:
            if other.id != trial.id and _profile(other) is not None:
                work = self._work(other) or self._knowledge(other, history)
                known += [(other.config, work.effects)] if work is not None else []
        found = by_parameter(trial.config, known, history.space)
        if found is None:
            return None
        effects, name = found
        return Knowledge(effects, PARAMETERS, f"as for trials with {name}")

    def _of_study(self, history: History, kind: str, besides: int) -> list[Work]:
        like = (each for each in history.measured[-_WORKS_OF_STUDY:] if each.id != besides and _kind(each) == kind)
        return [work for each in like if (work := self._work(each)) is not None]

    def _work(self, trial: TrialRecord) -> Work | None:
        """What its windows say, if they have seen more than nothing turned."""
        if trial.id in self._works and self._works[trial.id][0] == len(trial.windows):
            return self._works[trial.id][1]
        found = None
        profile = _profile(trial)
        if profile is not None:
            effects = measured_effects(self._costs(trial))
            ratios = {setting: math.exp(effect.log_ratio) for setting, effect in effects.of.items()}
            if ratios:
                found = Work(profile, {**ratios, **_beside(_windows(trial))})
        self._works[trial.id] = len(trial.windows), found
        return found

    # --- how many at a time -------------------------------------------------------------------------------

    def _narrow(self, trial: TrialRecord, history: History, now: float) -> Iterator[ev.Decision]:
        """Where work like the trial's is known to have got on better with fewer beside each other."""
        knowledge = self._knowledge(trial, history)
        if knowledge is None or not any(AT_A_TIME in setting_of(each) for each in knowledge.effects):
            return
        fewer, ratio = min(
            (each for each in knowledge.effects.items() if AT_A_TIME in setting_of(each[0])),
            key=lambda each: each[1],
        )
        # What more threads do was seen where there was room for them, with fewer beside each other.
        plain = (
            each for each in knowledge.effects.items() if not {AT_A_TIME, "threads"} & setting_of(each[0]).keys()
        )
        others = [1.0, *(ratio for _, ratio in plain)]
        if ratio < (1 - _NARROW_GAIN) * min(others):
            count = int(setting_of(fewer)[AT_A_TIME])
            gain = f"{1 - ratio / min(others):.0%} more work done in the same time"
            yield ev.Narrow(now, count, f"{knowledge.source}: {count} at a time, each with more cores: {gain}")


def _matching(
    similarity: Similarity, profile: Mapping[str, float], works: Sequence[Work], by: str
) -> Knowledge | None:
    match = similarity.match(profile, works)
    if match is None or not match.confident:
        return None
    source = f"like {'other trials' if by == OTHERS else by} (distance {match.distance:.2g} of {match.limit:.2g})"
    return Knowledge(match.effects, by, source, match.distance)


def _is_looking(trial: TrialRecord) -> bool:
    """At a setting that no window has shown yet."""
    return bool(trial.turns) and trial.turns[-1][1].by == ev.LOOK and trial.turns[-1][0] == len(trial.windows)


def _kind(trial: TrialRecord) -> str:
    """Of the machine that it was measured on last."""
    return trial.windows[-1].measured.kind if trial.windows else ""


def _windows(trial: TrialRecord) -> list[Window]:
    """On machines of that kind: others cannot be compared."""
    return [window for window in trial.windows if window.measured.kind == _kind(trial)]


def _profile(trial: TrialRecord) -> Mapping[str, float] | None:
    """Of its first window there, if nothing was turned in it."""
    first = next(iter(_windows(trial)), None)
    return None if first is None or first.measured.setting else first.measured.counters


def _beside(windows: Sequence[Window]) -> dict[str, float]:
    """How much more or less all trials together got done where fewer of them ran: seconds a step, shared by those
    that ran, relative to nothing turned with the most of them."""
    warm = [window for window in windows if not window.measured.cold]
    most = max((window.beside for window in warm), default=1)
    usual = [_seconds(each) / most for each in warm if each.beside == most and not each.measured.setting]
    fewer: dict[str, list[float]] = {}
    for window in warm:
        if window.beside < most:
            setting = {**window.measured.setting, AT_A_TIME: window.beside}
            fewer.setdefault(key(setting), []).append(_seconds(window) / window.beside)
    enough = {setting: each for setting, each in fewer.items() if len(each) >= MOST_LOOKS <= len(usual)}
    return {setting: fmean(each) / fmean(usual) for setting, each in enough.items()}


def _seconds(window: Window) -> float:
    return window.measured.seconds / window.measured.steps
