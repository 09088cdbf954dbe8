"""What do a study's trials say together of what settings do? To each of them, and to studies that come later."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from thriftune.state.trial_record import TrialRecord
from thriftune.system.estimate import Estimate, Known
from thriftune.system.known_work import Work, key, setting_of
from thriftune.system.windows import first_profiles_of, first_setting

AT_A_TIME = "at_a_time"
"""Stands among the knobs of a piece of work, where fewer trials ran beside each other than there was room for."""

_STUDY_ERROR = 0.15
"""What a study's trials say together is told of each of them, where it may be off by no more than this."""

_TRIALS_DIFFER, _TRIALS_WEIGHT = 0.15, 2
"""By how much a setting does more for one trial than for another is expected to be so much, as if so many had said
so: what a single one has found is told of no other."""


def together(trials: Sequence[TrialRecord], own: Sequence[Work | None]) -> list[Work]:
    """Of each trial what its own windows say, and of what it has not looked at, what they say together: few trials
    look at much, and not from what the next one begins with."""
    pooled = Estimate((), known=[_as_known(work) for work in own if work is not None])
    differ = _differ(pooled, [work for work in own if work is not None])
    found = []
    for trial, work in zip(trials, own, strict=True):
        base = first_setting(trial)
        effects = {}
        for text in pooled.settings:
            effect = pooled.effect(setting_of(text), base)
            if text != key(base) and math.hypot(effect.error, differ(text)) < _STUDY_ERROR:
                effects[text] = math.exp(effect.log_ratio)
        effects |= {} if work is None else work.effects
        if effects:
            found += [Work(profile, effects, key(base)) for profile in first_profiles_of(trial)]
    return found


def _differ(pooled: Estimate, own: Sequence[Work]) -> Callable[[str], float]:
    """Of each setting, by how much what it does for a trial differs from what it does for all of them."""
    squares: dict[str, list[float]] = {}
    for work in own:
        for text, ratio in of_a_trial(work.effects).items():
            effect = pooled.effect(setting_of(text), setting_of(work.under))
            for each in (text, work.under):  # neither is more than the other what it is compared with
                squares.setdefault(each, []).append((math.log(ratio) - effect.log_ratio) ** 2)

    def differ(text: str) -> float:
        seen = squares[text]
        usual = _TRIALS_WEIGHT * _TRIALS_DIFFER**2
        return math.sqrt((usual + sum(seen)) / (_TRIALS_WEIGHT + len(seen) - 1))

    return differ


def tellers(own: Sequence[Work | None]) -> Counter[str]:
    """Of each setting, how many of them tell of it."""
    return Counter(text for work in own if work is not None for text in work.effects)


def _as_known(work: Work) -> Known:
    return Known(of_a_trial(work.effects), setting_of(work.under), {})


def of_a_trial(effects: Mapping[str, float]) -> dict[str, float]:
    """Those that are not of how many ran at a time."""
    return {text: ratio for text, ratio in effects.items() if AT_A_TIME not in setting_of(text)}
