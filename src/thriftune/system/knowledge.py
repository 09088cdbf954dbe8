"""What is known of how a trial uses its machine? By its own windows, by work like it, by its parameters.

Pure: all follows from the study's history, and from what past studies knew when the drive began.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from statistics import fmean
from typing import Any, NamedTuple

from thriftune.errors import ThriftuneError
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord, UsageWindow
from thriftune.system.alike import by_parameter
from thriftune.system.estimate import NO_EVIDENCE, Cost, Estimate, Evidence, Known, evidence
from thriftune.system.known_work import UNTURNED, Work, key, setting_of
from thriftune.system.probing import FAR_WORSE, LEAST_GAIN, MOST_LOOKS
from thriftune.system.similarity import Match, Similarity
from thriftune.system.together import AT_A_TIME, of_a_trial, tellers, together
from thriftune.system.windows import costs_of, first_setting, kind_of, profile_of, profiles_of, windows_of

OWN, KNOWN, OTHERS, PARAMETERS = "its own steps", "known work", "trials like it", "its parameters"
PROCESS = "its process"
"""What decisions rest on."""

_TRIALS_TOLD_OF, _TRIALS_ASKED = 100, 40
"""So many of the last are looked at: there may be thousands."""

_TOLD_ERROR = 0.1
"""An effect whose error is greater is told to others only where it is far from nothing."""

_OTHER_WORK_ERROR = 0.1
"""Work that is alike is not the same."""


class Knowledge(NamedTuple):
    """What is known of a trial beyond its own windows: by setting, its cost relative to that of `under`.

    `told_by`: of settings, how many trials of this study have looked at them; None: past ones have."""

    effects: Mapping[str, float]
    by: str
    source: str
    told_by: Mapping[str, int] | None
    under: str = UNTURNED

    def relative_to(self, base: Mapping[str, Any]) -> Known | None:
        """What is known, relative to what the trial began with; None: that is not known."""
        ratios = {self.under: 1.0, **of_a_trial(self.effects)}
        if key(base) not in ratios:
            return None
        of_base = ratios.pop(key(base))
        # What past studies kept was settled; trials of this one may have looked but once each, and not all of them
        # were like this one.
        if self.told_by is None:
            looks = dict.fromkeys(ratios, MOST_LOOKS)
        else:
            looks = {text: min(count, MOST_LOOKS - 1) for text, count in self.told_by.items()}
            looks[self.under] = MOST_LOOKS - 1  # with which each of them has compared
        return Known({text: ratio / of_base for text, ratio in ratios.items()}, base, looks)


class Learned:
    """- `past`: by kind of machine, what past studies knew.
    - `cost`: what a step cost in a window.
    """

    def __init__(
        self,
        past: Callable[[str], Sequence[Work]],
        similarity: Similarity,
        cost: Callable[[ev.UsageMeasured], float],
    ) -> None:
        self._past = past
        self._similarity, self._similarity_here = similarity, deepcopy(similarity)  # each has caches of its own
        self._cost = cost
        # Only caches, by trial: of how many windows what they say; for which kind of machine, and after how many
        # settings, what past studies say, and this one when it knew so much.
        self._works: dict[int, tuple[int, Work | None]] = {}
        self._evidence: dict[int, tuple[int, Evidence]] = {}
        self._matched: dict[int, tuple[tuple[str, int], Knowledge | None]] = {}
        self._matched_here: dict[int, tuple[tuple[tuple[str, int], int, int], Knowledge | None]] = {}

    def of(self, trial: TrialRecord, history: History) -> Knowledge | None:
        """Of work with a profile like the trial's, with the same turned in it; else of trials with hyperparameters
        like its."""
        profiles = profiles_of(trial)
        if profiles:
            kind, base = kind_of(trial), key(first_setting(trial))
            seen = kind, len(profiles)
            if self._matched.get(trial.id, (None,))[0] != seen:
                self._matched[trial.id] = seen, _matching(self._similarity, profiles, self._past(kind), KNOWN)
            others = list(_others(trial, history))
            own = [self.work(other) for other in others]
            told_by = tellers(own)
            state = seen, len(others), told_by.total()
            if self._matched_here.get(trial.id, (None,))[0] != state:
                found = _matching(self._similarity_here, profiles, together(others, own), OTHERS)
                self._matched_here[trial.id] = state, found and found._replace(told_by=told_by)
            found = self._matched[trial.id][1] or self._matched_here[trial.id][1]
            if found is not None:
                return found._replace(under=base)
            if base == UNTURNED:
                return None
        return self._by_parameters(trial, history)

    def estimate(self, trial: TrialRecord, history: History, known: Known | None) -> Estimate:
        """`known` is left out where what the trial itself has shown belies it."""
        costs, others = self._costs(trial), self._evidence_of_others(trial, history)
        if known is None or _belies(Estimate(costs, others), known):
            return Estimate(costs, others)
        return Estimate(costs, others, [known])

    def works(self, history: History) -> dict[str, list[Work]]:
        """What the study has learned, by kind of machine: of the last of its trials, so as not to crowd out what
        other studies know."""
        by_kind: dict[str, list[TrialRecord]] = {}
        for trial in history.measured_trials:
            by_kind.setdefault(kind_of(trial), []).append(trial)
        found = {}
        for kind, trials in by_kind.items():
            each = [self._evidence_of(trial) for trial in trials]
            total = NO_EVIDENCE
            for evident in each:
                total = total.plus(evident)
            own = [self._seen(trial, total.minus(evident)) for trial, evident in zip(trials, each, strict=True)]
            if told := together(trials, own):
                found[kind] = told[-2 * _TRIALS_TOLD_OF :]
        return found

    def work(self, trial: TrialRecord) -> Work | None:
        """What its windows say, if they have seen more than its base."""
        if trial.id not in self._works or self._works[trial.id][0] != len(trial.windows):
            self._works[trial.id] = len(trial.windows), self._seen(trial, NO_EVIDENCE)
        return self._works[trial.id][1]

    def _seen(self, trial: TrialRecord, others: Evidence) -> Work | None:
        profile, base = profile_of(trial), first_setting(trial)
        estimate = Estimate(self._costs(trial), others)
        ratios = {}
        for text in estimate.settings:
            effect = estimate.effect(setting_of(text), base)
            if text != key(base) and (effect.error < _TOLD_ERROR or abs(effect.log_ratio) > 2 * effect.error):
                ratios[text] = math.exp(effect.log_ratio)
        if profile is None or not ratios:
            return None
        return Work(profile, {**ratios, **_beside(windows_of(trial), base)}, key(base))

    def _costs(self, trial: TrialRecord) -> list[Cost]:
        return costs_of(windows_of(trial), self._cost)

    def _evidence_of_others(self, trial: TrialRecord, history: History) -> Evidence:
        total = NO_EVIDENCE
        for other in _others(trial, history):
            total = total.plus(self._evidence_of(other))
        return total

    def _evidence_of(self, trial: TrialRecord) -> Evidence:
        if self._evidence.get(trial.id, (-1,))[0] != len(trial.windows):
            self._evidence[trial.id] = len(trial.windows), evidence(self._costs(trial))
        return self._evidence[trial.id][1]

    def _by_parameters(self, trial: TrialRecord, history: History) -> Knowledge | None:
        known: list[tuple[Mapping[str, Any], Mapping[str, float]]] = []
        others = [other for other in history.measured_trials[-_TRIALS_ASKED:] if other.id != trial.id]
        for other in others:
            if not first_setting(other):
                work = self.work(other) or self.of(other, history)
                known += [(other.config, work.effects)] if work is not None else []
        found = by_parameter(trial.config, known, history.space)
        if found is None:
            return None
        effects, name = found
        told_by = tellers([self.work(other) for other in others])
        return Knowledge(effects, PARAMETERS, f"as for trials with {name}", told_by)


def _belies(own: Estimate, known: Known) -> bool:
    """Something that both have seen is good for one and not for the other. By how much does not matter: the first
    windows of its own say less than they will; and one of them, unless it is far worse, may have come in a bad
    moment, such as when another trial has not quite left."""
    for text, ratio in known.ratios.items():
        setting = setting_of(text)
        if own.seen(setting) and own.seen(known.under):
            effect, said = own.effect(setting, known.under), math.log(ratio)
            differ = (effect.log_ratio < -LEAST_GAIN) != (said < -LEAST_GAIN)
            sure = own.looks(setting) > 1 or effect.log_ratio > FAR_WORSE
            if differ and sure and abs(effect.log_ratio - said) > 2 * math.hypot(effect.error, _OTHER_WORK_ERROR):
                return True
    return False


def _matching(
    similarity: Similarity, profiles: Mapping[str, Mapping[str, float]], works: Sequence[Work], by: str
) -> Knowledge | None:
    """What work like the trial's says of what it began with, the first of its profiles' settings; and of what it
    has come to by that, what work says that began so: not all have begun with the same."""
    (base, profile), *later = profiles.items()
    match = _alike(similarity, base, profile, works)
    if match is None:
        return None
    effects = dict(match.effects)
    for under, profile in later:
        if under in effects and (further := _alike(similarity, under, profile, works)) is not None:
            ratios = of_a_trial(further.effects)
            effects = {**{text: effects[under] * ratios[text] for text in ratios if text != base}, **effects}
    whose = "other trials" if by == OTHERS else by
    return Knowledge(effects, by, f"like {whose} (distance {match.distance:.2g} of {match.limit:.2g})", None)


def _alike(
    similarity: Similarity, under: str, profile: Mapping[str, float], works: Sequence[Work]
) -> Match | None:
    """Of work that began with the same."""
    match = similarity.match(profile, [work for work in works if work.under == under])
    if not (match is None or isinstance(match, Match)):  # it may be a user's own
        whose = type(similarity).__name__
        raise ThriftuneError(
            f"system: {whose}.match returned {match!r}, which is neither a tt.system.Match nor None"
        )
    return match if match is not None and match.confident else None


def _others(trial: TrialRecord, history: History) -> Iterator[TrialRecord]:
    """That were measured on the same kind of machine."""
    for other in history.measured_trials[-_TRIALS_TOLD_OF:]:
        if other.id != trial.id and kind_of(other) == kind_of(trial):
            yield other


def _beside(windows: Sequence[UsageWindow], base: Mapping[str, Any]) -> dict[str, float]:
    """How much more or less all trials together got done where fewer of them ran: seconds a step, shared by those
    that ran, relative to the base with the most of them."""
    warm = [window for window in windows if not window.usage.cold]
    most = max((window.trials_on_machine for window in warm), default=1)
    usual = [
        _seconds(each) / most for each in warm if each.trials_on_machine == most and each.usage.setting == base
    ]
    fewer: dict[str, list[float]] = {}
    for window in warm:
        if window.trials_on_machine < most:
            setting = {**window.usage.setting, AT_A_TIME: window.trials_on_machine}
            fewer.setdefault(key(setting), []).append(_seconds(window) / window.trials_on_machine)
    enough = {setting: each for setting, each in fewer.items() if len(each) >= MOST_LOOKS <= len(usual)}
    return {setting: fmean(each) / fmean(usual) for setting, each in enough.items()}


def _seconds(window: UsageWindow) -> float:
    return window.usage.seconds / window.usage.steps
