"""Which setting next, of one trial? Look at another one, or keep the best of those that were looked at.

Pure: what to do follows from what was measured and what is known of similar work. A setting is looked at for one
window of steps. One that is worse is dropped at once; one that seems better, but by no more than such measurements
differ by themselves, is looked at again. All is relative to the setting that a trial began with, its base.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from thriftune.system.known_work import key, setting_of

Setting = Mapping[str, Any]

LEAST_GAIN = 0.03
"""Less than this is not worth a knob that stands otherwise."""

MOST_LOOKS = 3
_WINDOWS_LEFT = 4
"""So many windows must be left to gain something in for another look to be worth its cost."""

_USUAL_NOISE, _LEAST_NOISE, _MOST_NOISE = 0.05, 0.02, 0.3


class Cost(NamedTuple):
    """What a step cost in a window, with so many trials on the machine."""

    setting: str  # its key()
    beside: int
    cost: float


class Effect(NamedTuple):
    """Of a setting: the logarithm of its cost a step over that of the base, and how many windows say so.

    None of them can be compared with the base (`looks` is 0) where the base was only seen in other company.
    """

    log_ratio: float
    looks: int


@dataclass(frozen=True, slots=True)
class Effects:
    """What is known of a trial's settings, by key(); of the base itself, in how many windows it was seen.

    - `noise`: how much the logarithms of two like windows differ by themselves.
    """

    of: Mapping[str, Effect]
    base_looks: int
    noise: float = _USUAL_NOISE

    def error(self, effect: Effect) -> float:
        return self.noise * math.sqrt(1 / max(1, effect.looks) + 1 / max(1, self.base_looks))


class Choice(NamedTuple):
    setting: Setting
    why: str
    looks: bool  # it is looked at, and not known to be good


@dataclass(frozen=True, slots=True)
class Knobs:
    """What may be turned now.

    - `values`: of each knob, what else it may stand at.
    - `fixed`: what cannot be changed while the attempt runs.
    - `base`: what the trial began with.
    - `harmful`: keys of settings that trials have failed with.
    """

    values: Mapping[str, Sequence[Any]]
    fixed: Setting = field(default_factory=dict)
    base: Setting = field(default_factory=dict)
    harmful: frozenset[str] = frozenset()

    def allow(self, setting: Setting) -> bool:
        """Whether it may be had now."""
        return key(setting) not in self.harmful and all(
            name in self.fixed or value in self.values.get(name, ()) for name, value in setting.items()
        )

    def complete(self, setting: Setting) -> Setting:
        """With what cannot be changed."""
        return {**setting, **self.fixed}


def measured_effects(costs: Sequence[Cost], base: Setting) -> Effects:
    """Windows are compared with those of the base with as many trials beside them, which slow each other down."""
    logs: dict[str, dict[int, list[float]]] = {}
    for setting, beside, cost in costs:
        logs.setdefault(setting, {}).setdefault(beside, []).append(math.log(cost))
    of_base = logs.pop(key(base), {})
    if not of_base:
        return Effects({}, 0)
    found = {setting: _effect(groups, of_base) for setting, groups in logs.items()}
    groups = [group for by_beside in (of_base, *logs.values()) for group in by_beside.values()]
    return Effects(found, sum(map(len, of_base.values())), _noise(groups))


def _effect(groups: Mapping[int, Sequence[float]], of_base: Mapping[int, Sequence[float]]) -> Effect:
    alike = {beside: group for beside, group in groups.items() if beside in of_base}
    looks = sum(map(len, alike.values()))
    if looks:
        total = sum(len(group) * (fmean(group) - fmean(of_base[beside])) for beside, group in alike.items())
        return Effect(total / looks, looks)
    both = (list(itertools.chain(*each.values())) for each in (groups, of_base))
    turned, unturned = map(fmean, both)
    return Effect(turned - unturned, 0)


def _noise(groups: Sequence[Sequence[float]]) -> float:
    """By how much windows of the same setting differ. The usual is taken for two of them, so that two that happen
    to be alike do not make a third seem another."""
    spread = [(value - fmean(group)) ** 2 for group in groups for value in group]
    free = sum(len(group) - 1 for group in groups)
    noise = math.sqrt((sum(spread) + 2 * _USUAL_NOISE**2) / (free + 2))
    return min(_MOST_NOISE, max(_LEAST_NOISE, noise))


def with_known(own: Effects, known: Mapping[str, float], base: Setting, looks: int = MOST_LOOKS) -> Effects:
    """What was measured of the trial itself counts; where it has nothing to say, what similar work has shown in
    so many windows."""
    prior = {each: Effect(math.log(ratio), looks) for each, ratio in known.items() if each != key(base)}
    compared = {each: effect for each, effect in own.of.items() if effect.looks or each not in prior}
    return Effects({**prior, **compared}, own.base_looks, own.noise)


def choose(effects: Effects, knobs: Knobs, *, windows_left: float, every: bool = False) -> Choice:
    """`every`: look at every combination (the paper's grid), instead of one knob after the other from the best."""
    best, effect = _best(effects, knobs)
    if effects.base_looks and windows_left >= _WINDOWS_LEFT:
        for candidate in _combinations(knobs) if every else _neighbours(best, knobs, effects):
            if candidate == knobs.base:
                continue
            seen = effects.of.get(key(candidate))
            if seen is None:
                return Choice(candidate, "looks at it", True)
            if seen.looks == 0 and seen.log_ratio < -LEAST_GAIN and knobs.allow(knobs.base):
                again = f"looks again at {in_words(knobs.base)}: others were beside it before"
                return Choice(knobs.base, again, True)
            if _may_be_better(seen, effects):
                if seen.looks > effects.base_looks and knobs.allow(knobs.base):
                    again = f"looks again at {in_words(knobs.base)}: {in_words(candidate)} seems better"
                    return Choice(knobs.base, again, True)
                return Choice(candidate, "looks at it again: it seems better, but not by more than noise", True)
    if effect is None:
        return Choice(best, "nothing better was found" if effects.of else "as it is", False)
    gain = f"{1 - math.exp(effect.log_ratio):.0%} less a step than with {in_words(knobs.base)}"
    return Choice(best, f"{gain} (error {effects.error(effect):.0%})", False)


def _may_be_better(seen: Effect | None, effects: Effects) -> bool:
    """By enough, and may as well not be."""
    if seen is None or not 0 < seen.looks < MOST_LOOKS:
        return False
    return -2 * effects.error(seen) < seen.log_ratio < -LEAST_GAIN


def _best(effects: Effects, knobs: Knobs) -> tuple[Setting, Effect | None]:
    """Of those that may be had now; the base, or what of it may be had, unless another is better by enough to be
    told from noise. Of several that are hardly different, the one with the fewest threads, which others can use,
    and the least turned.
    """
    good = {}
    for text, effect in effects.of.items():
        setting = setting_of(text)
        had = knobs.allow(setting) and knobs.complete(setting) == setting
        if had and effect.looks and effect.log_ratio < -max(LEAST_GAIN, 1.5 * effects.error(effect)):
            good[text] = effect
    if not good:
        rest = {name: value for name, value in knobs.base.items() if knobs.allow({name: value})}
        return knobs.complete(rest if knobs.allow(rest) else {}), None
    least = min(effect.log_ratio for effect in good.values())
    near = [setting for setting, effect in good.items() if effect.log_ratio <= least + LEAST_GAIN]
    chosen = min(near, key=lambda each: (setting_of(each).get("threads", 0), len(setting_of(each)), good[each]))
    return setting_of(chosen), good[chosen]


def _neighbours(best: Setting, knobs: Knobs, effects: Effects) -> Iterator[Setting]:
    """One knob turned otherwise than in the best; but not where that alone has not helped, as most knobs have
    nothing to do with each other."""
    for name, others in knobs.values.items():
        for value in others:
            alone = effects.of.get(key({**knobs.base, name: value}))
            helps = alone is None or alone.looks == 0 or alone.log_ratio < -LEAST_GAIN or best == knobs.base
            candidate = knobs.complete({**best, name: value})
            if candidate != best and helps and knobs.allow(candidate):
                yield candidate
    for name in sorted(best.keys() & knobs.base.keys() - knobs.fixed.keys()):  # it need not be good here
        alone = effects.of.get(key(_without(knobs.base, name)))
        if alone is None or alone.looks == 0 or alone.log_ratio < -LEAST_GAIN:
            yield _without(best, name)


def _without(setting: Setting, name: str) -> Setting:
    return {other: value for other, value in setting.items() if other != name}


def _combinations(knobs: Knobs) -> Iterator[Setting]:
    for combination in itertools.product(*([None, *others] for others in knobs.values.values())):
        turned = {name: value for name, value in zip(knobs.values, combination, strict=True) if value is not None}
        candidate = knobs.complete(turned)
        if candidate != knobs.complete({}) and candidate != knobs.base and knobs.allow(candidate):
            yield candidate


def in_words(setting: Setting) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "nothing turned"
