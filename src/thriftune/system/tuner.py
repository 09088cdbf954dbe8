"""How shall each trial use its machine now? Knobs are turned by what was measured, and by what is known.

Pure, like all policy: what it says follows from the study's history and from what past studies knew when the drive
began. A trial's first window is measured with nothing turned. If it looks like work that is known, of this study
or of another one, what was best there is taken at once; else one setting after the other is looked at. A trial
with hyperparameters like those of others begins with what was best for these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from statistics import fmean
from typing import Any, NamedTuple

from thriftune import events as ev
from thriftune.history import History
from thriftune.system.alike import by_parameter
from thriftune.system.knobs import Knob
from thriftune.system.known_work import UNTURNED, Work, key, setting_of
from thriftune.system.probing import (
    MOST_LOOKS,
    Choice,
    Cost,
    Knobs,
    choose,
    in_words,
    measured_effects,
    with_known,
)
from thriftune.system.similarity import Similarity
from thriftune.trial import TrialRecord, Window

AT_A_TIME = "at_a_time"
"""Stands among the knobs of a piece of work, where fewer trials ran beside each other than there was room for."""

_NARROW_GAIN = 0.05
_WORKS_OF_STUDY, _TRIALS_ASKED = 100, 40
"""So many of the last are looked at: there may be thousands."""

_STEPS_UNKNOWN = 20
"""Of a trial that does not say how many steps it has, so many are taken to be left."""

AIMS: Mapping[str, Callable[[ev.Measured, int], float]] = {
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


OWN, KNOWN, OTHERS, PARAMETERS = "its own steps", "known work", "trials like it", "its parameters"
"""What decisions rest on."""


class Knowledge(NamedTuple):
    """What is known of a trial beyond its own measurements: by setting, its cost relative to nothing turned."""

    effects: Mapping[str, float]
    by: str
    source: str
    under: str = UNTURNED  # the setting that its effects are relative to


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
        self._may_narrow = may_narrow and aim == "time"
        # Only caches, by trial: of how many windows what they say, and what its machine has refused; for which
        # kind of machine what past studies say, and this one when it knew so much.
        self._works: dict[int, tuple[int, Work | None]] = {}
        self._refusals: dict[int, tuple[int, set[tuple[str, str]]]] = {}
        self._matched: dict[int, tuple[str, Knowledge | None]] = {}
        self._matched_here: dict[int, tuple[tuple[str, int, int], Knowledge | None]] = {}

    def react(self, event: ev.Event, history: History) -> Iterator[ev.Decision]:
        now = event.at
        if not history.measured and not isinstance(event, ev.Measured):
            return  # nothing is known of anybody: on the way of thousands of short trials
        if isinstance(event, ev.Measured):
            trial = history.trials[event.trial]
            if self._may_narrow:
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
        knobs = self._turnable(trial, history)
        if _is_looking(trial) and knobs.allow(trial.setting) and not trial.harmed:
            return
        choice, by = self._choice(trial, history, knobs)
        by = ev.LOOK if choice.looks else by
        looked = bool(trial.turns) and trial.turns[-1][1].by == ev.LOOK
        if choice.setting != trial.setting or (looked and by != ev.LOOK):
            yield ev.Turn(now, trial.id, choice.setting, choice.why, by)

    def _choice(self, trial: TrialRecord, history: History, knobs: Knobs) -> tuple[Choice, str]:
        """And what it rests on."""
        if trial.harmed:
            failed = f"it failed with {in_words(trial.harmed[-1])}"
            return Choice(knobs.fixed, failed, False), OWN
        own = measured_effects(self._costs(trial), knobs.base)
        knowledge = self._knowledge(trial, history)
        left = self._windows_left(trial, history)
        known = None if knowledge is None else _relative(knowledge, knobs.base)
        if knowledge is None or known is None or self._belied(trial, known):
            if not own.base_looks:
                return Choice(knobs.complete(_first_setting(trial)), "is measured first", False), OWN
            return choose(own, knobs, windows_left=left, every=self._every), OWN
        # What past studies kept was settled; another trial of this one may have looked but once.
        looks = MOST_LOOKS if knowledge.by == KNOWN else 1
        choice = choose(with_known(own, known, knobs.base, looks), knobs, windows_left=left, every=self._every)
        return choice._replace(why=f"{knowledge.source}: {choice.why}"), knowledge.by

    def _belied(self, trial: TrialRecord, known: Mapping[str, float]) -> bool:
        """What is said to be better takes longer than the base did, even when that was cold."""
        windows = _windows(trial)
        if not windows or not windows[0].measured.cold:
            return False
        first, last = windows[0].measured, windows[-1].measured
        said = known.get(key(last.setting), 1.0)
        return said < 1.0 and self._cost_of(last) > self._cost_of(first)

    def _turnable(self, trial: TrialRecord, history: History) -> Knobs:
        """On the cores that are the trial's now."""
        machine = history.machines.get(trial.machine or "")
        usual = self._room.usual_threads
        share = usual
        if machine is not None:
            beside = (history.trials[each] for each in machine.running if each != trial.id)
            staying = 1 + sum(not _is_leaving(each) for each in beside)
            share = self._room.share(machine.slots - machine.others, staying)
        begun = bool(trial.windows) and trial.windows[-1].measured.attempt == trial.attempts
        in_force = trial.windows[-1].measured.setting if begun else {}
        values: dict[str, Sequence[Any]] = {}
        fixed: dict[str, Any] = {}
        for knob in self._knobs:
            if knob.name in in_force and (knob.lasts or knob.restarts):
                fixed[knob.name] = in_force[knob.name]
            elif not (knob.restarts and begun):  # it stays as it is until the trial is started again
                values[knob.name] = list(knob.values(share))
        if "threads" in values:  # where cores are idle, most is to be gained by all of them
            several = sorted((count for count in values.pop("threads") if count != usual), reverse=True)
            values = {"threads": several, **values}
        values |= {name: list(others[1:]) for name, others in self._options.items()}
        refused = self._refused(trial, history)
        values = {name: [each for each in others if (name, key({name: each})) not in refused]
                  for name, others in values.items()}  # fmt: skip
        return Knobs(values, fixed, _first_setting(trial), _harmful(history))

    def _refused(self, trial: TrialRecord, history: History) -> set[tuple[str, str]]:
        """What knobs were to be turned to, and were not: by this trial's process, or by those of two others."""
        others = Counter(each for other in history.measured[-_WORKS_OF_STUDY:] for each in self._refused_by(other))
        return self._refused_by(trial) | {each for each, count in others.items() if count > 1}

    def _refused_by(self, trial: TrialRecord) -> set[tuple[str, str]]:
        state = len(trial.windows)
        if self._refusals.get(trial.id, (-1,))[0] != state:
            found = set()
            ends = [*(begin for begin, _ in trial.turns[1:]), state]
            for (begin, turn), end in zip(trial.turns, ends, strict=False):
                if end - begin >= 2:  # the first of them may have begun before it was told
                    for name in turn.setting.keys() - trial.windows[end - 1].measured.setting.keys():
                        found.add((name, key({name: turn.setting[name]})))
            self._refusals[trial.id] = state, found
        return self._refusals[trial.id][1]

    def _costs(self, trial: TrialRecord) -> list[Cost]:
        warm = (window for window in _windows(trial) if not window.measured.cold)
        return [
            Cost(key(window.measured.setting), window.beside, cost)
            for window in warm
            if (cost := self._cost_of(window.measured)) > 0.0
        ]

    def _cost_of(self, seen: ev.Measured) -> float:
        return self._cost(seen, self._room.usual_threads)

    def _windows_left(self, trial: TrialRecord, history: History) -> float:
        """In this trial, and in half of what the others have left: what is learned serves them, too."""
        steps = max((window.measured.steps for window in trial.windows[-2:]), default=1)
        if history.max_steps is None:
            return _STEPS_UNKNOWN / steps
        to_come = len(history.waiting) + max(0, (self._trials or 0) - len(history.trials))
        return (history.max_steps - trial.step + 0.5 * history.max_steps * to_come) / steps

    # --- what is known ------------------------------------------------------------------------------------

    def _knowledge(self, trial: TrialRecord, history: History) -> Knowledge | None:
        """Of work with a profile like the trial's, with the same turned in it; else of trials with hyperparameters
        like its."""
        profile = _profile(trial)
        if profile is not None:
            kind, base = _kind(trial), key(_first_setting(trial))
            if self._matched.get(trial.id, ("",))[0] != kind:
                past = [work for work in self._known(kind) if work.under == base]
                self._matched[trial.id] = kind, _matching(self._similarity, profile, past, KNOWN)
            here = [work for work in self._of_study(history, kind, besides=trial.id) if work.under == base]
            state = kind, len(here), sum(len(work.effects) for work in here)
            if self._matched_here.get(trial.id, (None,))[0] != state:
                self._matched_here[trial.id] = state, _matching(self._similarity_here, profile, here, OTHERS)
            found = self._matched[trial.id][1] or self._matched_here[trial.id][1]
            if found is not None:
                return found._replace(under=base)
            if base == UNTURNED:
                return None
        return self._by_parameters(trial, history)

    def _by_parameters(self, trial: TrialRecord, history: History) -> Knowledge | None:
        known: list[tuple[Mapping[str, Any], Mapping[str, float]]] = []
        for other in history.measured[-_TRIALS_ASKED:]:
            if other.id != trial.id and not _first_setting(other):
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
        """What its windows say, if they have seen more than its base."""
        if trial.id in self._works and self._works[trial.id][0] == len(trial.windows):
            return self._works[trial.id][1]
        found = None
        profile = _profile(trial)
        base = _first_setting(trial)
        effects = measured_effects(self._costs(trial), base)
        ratios = {each: math.exp(effect.log_ratio) for each, effect in effects.of.items() if effect.looks}
        if profile is not None and ratios:
            found = Work(profile, {**ratios, **_beside(_windows(trial), base)}, key(base))
        self._works[trial.id] = len(trial.windows), found
        return found

    # --- how many at a time -------------------------------------------------------------------------------

    def _narrow(self, trial: TrialRecord, history: History, now: float) -> Iterator[ev.Decision]:
        """Where work like the trial's is known to have got on better with fewer beside each other."""
        knowledge = self._knowledge(trial, history)
        machine = history.machines.get(trial.machine or "")
        if knowledge is None or machine is None or machine.slots in history.narrowed:
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
            yield ev.Narrow(now, machine.slots, count, why)

    def _can_be_had(self, setting: Mapping[str, Any], slots: int, at_a_time: int) -> bool:
        """With so many at a time on a machine with so many slots."""
        share = self._room.share(slots, at_a_time)
        values = {knob.name: knob.values(share) for knob in self._knobs} | dict(self._options)
        return at_a_time < slots and all(value in values.get(name, ()) for name, value in setting.items())


def _relative(knowledge: Knowledge, base: Mapping[str, Any]) -> dict[str, float] | None:
    """What is known, relative to what the trial began with; None: that is not known."""
    ratios = {key: ratio for key, ratio in knowledge.effects.items() if AT_A_TIME not in setting_of(key)}
    ratios = {knowledge.under: 1.0, **ratios}
    if key(base) not in ratios:
        return None
    return {setting: ratio / ratios[key(base)] for setting, ratio in ratios.items()}


def _matching(
    similarity: Similarity, profile: Mapping[str, float], works: Sequence[Work], by: str
) -> Knowledge | None:
    match = similarity.match(profile, works)
    if match is None or not match.confident:
        return None
    source = f"like {'other trials' if by == OTHERS else by} (distance {match.distance:.2g} of {match.limit:.2g})"
    return Knowledge(match.effects, by, source)


def _is_looking(trial: TrialRecord) -> bool:
    """At a setting that no window has shown yet."""
    return bool(trial.turns) and trial.turns[-1][1].by == ev.LOOK and trial.turns[-1][0] == len(trial.windows)


def _is_leaving(trial: TrialRecord) -> bool:
    """A rule has found it not worth another step, of which it hears before it begins that."""
    return trial.asked in ("pause", "stop") and (trial.cut_because or "").startswith("by ")


def _harmful(history: History) -> frozenset[str]:
    """Settings that two trials have failed with."""
    failed = Counter(text for trial in history.harmed for text in {key(setting) for setting in trial.harmed})
    return frozenset(text for text, count in failed.items() if count > 1)


def _kind(trial: TrialRecord) -> str:
    """Of the machine that it was measured on last."""
    return trial.windows[-1].measured.kind if trial.windows else ""


def _windows(trial: TrialRecord) -> list[Window]:
    """On machines of that kind: others cannot be compared."""
    return [window for window in trial.windows if window.measured.kind == _kind(trial)]


def _first_setting(trial: TrialRecord) -> Mapping[str, Any]:
    """What it began with there, with which all else is compared."""
    first = next(iter(_windows(trial)), None)
    return {} if first is None else first.measured.setting


def _profile(trial: TrialRecord) -> Mapping[str, float] | None:
    """Of its first window there."""
    first = next(iter(_windows(trial)), None)
    return None if first is None else first.measured.counters


def _beside(windows: Sequence[Window], base: Mapping[str, Any]) -> dict[str, float]:
    """How much more or less all trials together got done where fewer of them ran: seconds a step, shared by those
    that ran, relative to the base with the most of them."""
    warm = [window for window in windows if not window.measured.cold]
    most = max((window.beside for window in warm), default=1)
    usual = [_seconds(each) / most for each in warm if each.beside == most and each.measured.setting == base]
    fewer: dict[str, list[float]] = {}
    for window in warm:
        if window.beside < most:
            setting = {**window.measured.setting, AT_A_TIME: window.beside}
            fewer.setdefault(key(setting), []).append(_seconds(window) / window.beside)
    enough = {setting: each for setting, each in fewer.items() if len(each) >= MOST_LOOKS <= len(usual)}
    return {setting: fmean(each) / fmean(usual) for setting, each in enough.items()}


def _seconds(window: Window) -> float:
    return window.measured.seconds / window.measured.steps
