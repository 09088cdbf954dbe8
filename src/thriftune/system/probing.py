"""Which setting next, of one trial? Look at another one, or keep the best of those that were looked at.

Pure: what to do follows from what was measured and what is known of similar work. A setting is looked at for one
window of steps. One that is worse is dropped at once; one that seems better, but by no more than such measurements
differ by themselves, is looked at again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from thriftune.system.known_work import UNTURNED, key, setting_of

Setting = Mapping[str, Any]

LEAST_GAIN = 0.03
"""Less than this is not worth a knob that stands otherwise."""

MOST_LOOKS = 3
_WINDOWS_LEFT = 4
"""So many windows must be left to gain something in for another look to be worth its cost."""

_USUAL_NOISE, _LEAST_NOISE, _MOST_NOISE = 0.05, 0.02, 0.3


class Effect(NamedTuple):
    """Of a setting: the logarithm of its cost a step over that of nothing turned, and how many windows say so."""

    log_ratio: float
    looks: int


@dataclass(frozen=True, slots=True)
class Effects:
    """What is known of a trial's settings, by key(); of nothing turned, only in how many windows it was seen."""

    of: Mapping[str, Effect]
    base_looks: int
    noise: float  # how much the logarithms of two like windows differ by themselves

    def error(self, effect: Effect) -> float:
        return self.noise * math.sqrt(1 / max(1, effect.looks) + 1 / max(1, self.base_looks))


class Choice(NamedTuple):
    setting: Setting
    why: str
    looks: bool  # it is looked at, and not known to be good


def measured_effects(costs: Sequence[tuple[str, float]], known: Mapping[str, float] | None = None) -> Effects:
    """`costs`: of windows in their order, the key of the setting and the cost of a step.

    Of a trial that began with something turned, the others are compared with that; `known` says how it compares to
    nothing turned.
    """
    logs: dict[str, list[float]] = {}
    for setting, cost in costs:
        logs.setdefault(setting, []).append(math.log(cost))
    ratios = {**(known or {}), UNTURNED: 1.0}
    comparable = sorted(ratios.keys() & logs)
    base = UNTURNED if UNTURNED in logs else max(comparable, key=lambda each: len(logs[each]), default=None)
    if base is None:
        return Effects({}, 0, _USUAL_NOISE)
    middle = fmean(logs[base]) - math.log(ratios[base])
    found = {each: Effect(fmean(logs[each]) - middle, len(logs[each])) for each in logs if each != UNTURNED}
    return Effects(found, len(logs[base]), _noise(list(logs.values())))


def _noise(groups: Sequence[Sequence[float]]) -> float:
    """By how much windows of the same setting differ. The usual is taken for two of them, so that two that happen
    to be alike do not make a third seem another."""
    spread = [(value - fmean(group)) ** 2 for group in groups for value in group]
    free = sum(len(group) - 1 for group in groups)
    noise = math.sqrt((sum(spread) + 2 * _USUAL_NOISE**2) / (free + 2))
    return min(_MOST_NOISE, max(_LEAST_NOISE, noise))


def with_known(own: Effects, known: Mapping[str, float]) -> Effects:
    """What was measured of the trial itself counts; where it has nothing to say, what similar work has shown."""
    prior = {
        setting: Effect(math.log(ratio), MOST_LOOKS) for setting, ratio in known.items() if setting != UNTURNED
    }
    return Effects({**prior, **own.of}, own.base_looks, own.noise)


def choose(
    effects: Effects,
    values: Mapping[str, Sequence[Any]],
    *,
    windows_left: float,
    every: bool = False,
) -> Choice:
    """`values`: of each knob that may be turned now, what else it may stand at. `every`: look at every combination
    (the paper's grid), instead of one knob after the other from the best so far.
    """
    best, effect = _best(effects, values)
    if effects.base_looks and windows_left >= _WINDOWS_LEFT:
        candidates = _combinations(values) if every else _neighbours(best, values, effects)
        for candidate in candidates:
            seen = effects.of.get(key(candidate))
            if seen is None:
                return Choice(candidate, "looks at it", True)
            if _may_be_better(seen, effects):
                if seen.looks > effects.base_looks:
                    return Choice({}, f"looks again at nothing turned: {in_words(candidate)} seems better", True)
                return Choice(candidate, "looks at it again: it seems better, but not by more than noise", True)
    if effect is None:
        return Choice({}, "nothing better was found" if effects.of else "as it is", False)
    gain = f"{1 - math.exp(effect.log_ratio):.0%} less a step than with nothing turned"
    return Choice(best, f"{gain} (error {effects.error(effect):.0%})", False)


def _may_be_better(seen: Effect | None, effects: Effects) -> bool:
    """By enough, and may as well not be."""
    if seen is None or seen.looks >= MOST_LOOKS:
        return False
    return -2 * effects.error(seen) < seen.log_ratio < -LEAST_GAIN


def _best(effects: Effects, values: Mapping[str, Sequence[Any]]) -> tuple[Setting, Effect | None]:
    """Of those that may be had now; nothing turned unless another is better by enough to be told from noise. Of
    several that are hardly different, the one with the fewest threads, which others can use, and the least turned.
    """
    good = {
        setting: effect
        for setting, effect in effects.of.items()
        if effect.log_ratio < -max(LEAST_GAIN, 1.5 * effects.error(effect))
        and allowed(setting_of(setting), values)
    }
    if not good:
        return {}, None
    least = min(effect.log_ratio for effect in good.values())
    near = [setting for setting, effect in good.items() if effect.log_ratio <= least + LEAST_GAIN]
    chosen = min(near, key=lambda each: (setting_of(each).get("threads", 0), len(setting_of(each)), good[each]))
    return setting_of(chosen), good[chosen]


def allowed(setting: Setting, values: Mapping[str, Sequence[Any]]) -> bool:
    """Whether it may be had now."""
    return all(value in values.get(name, ()) for name, value in setting.items())


def _neighbours(best: Setting, values: Mapping[str, Sequence[Any]], effects: Effects) -> Iterator[Setting]:
    """One knob turned otherwise than in the best; but not where that alone has not helped, as most knobs have
    nothing to do with each other."""
    for name, others in values.items():
        for value in others:
            alone = effects.of.get(key({name: value}))
            helps = alone is None or alone.log_ratio < -LEAST_GAIN or len(best.keys() | {name}) == 1
            if best.get(name) != value and (helps or _may_be_better(alone, effects)):
                yield {**best, name: value}


def _combinations(values: Mapping[str, Sequence[Any]]) -> Iterator[Setting]:
    for combination in itertools.product(*([None, *others] for others in values.values())):
        turned = {name: value for name, value in zip(values, combination, strict=True) if value is not None}
        if turned:
            yield turned


def in_words(setting: Setting) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items()) or "nothing turned"
