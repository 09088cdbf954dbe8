"""Choose a trial's next knob setting: the best known setting, or one to probe.

The best setting is the one with the lowest expected cost of a step. Built-in knobs are expected to help, so they
are applied first and measured afterwards. Another setting is probed for a window if it is expected to save more
in the remaining windows than the probe costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from thriftune.system.estimate import Effect, Estimate
from thriftune.system.knob_settings import KnobSetting, describe, key, setting_of

LEAST_GAIN = 0.03
"""The least gain that justifies one more knob, or twice the threads. A gain is the decrease of the logarithm of a
step's cost."""

_CHANGE_GAIN = 0.01
"""The least gain that justifies a change of the current setting, so that it does not change with every window."""

_MOST_PROBES = 3
"""The most windows in which a trial probes a setting."""

_LEAST_WINDOWS_LEFT = 4
"""With fewer windows left, no setting is probed, because the probe could not save what it costs."""

_SURE = 1.0
"""A trial begins with a setting if its expected gain exceeds this many standard errors. Otherwise the trial begins
with its usual setting, so that its own windows can show whether the other setting helps."""


class NextSetting(NamedTuple):
    """The setting that a trial gets next.

    - `why`: the reason, for users.
    - `is_probe`: the setting is only probed, because it may be better than the best known one.
    """

    setting: KnobSetting
    why: str
    is_probe: bool


@dataclass(frozen=True, slots=True)
class Possible:
    """The settings that a trial may have now.

    - `values`: the values of each knob or option, without the usual one.
    - `fixed`: the values that cannot change while the attempt runs.
    - `harmful`: the keys of settings with which trials have failed.
    """

    values: Mapping[str, Sequence[object]]
    fixed: KnobSetting = field(default_factory=dict)
    harmful: frozenset[str] = frozenset()

    @property
    def usual(self) -> KnobSetting:
        """Return the setting in which no knob is applied, except for the fixed values."""
        return dict(self.fixed)

    def allows(self, setting: KnobSetting) -> bool:
        return key(setting) not in self.harmful and all(
            self.fixed[name] == value if name in self.fixed else value in self.values.get(name, ())
            for name, value in setting.items()
        )

    def neighbours(self, setting: KnobSetting) -> Iterator[KnobSetting]:
        """Yield the allowed settings that differ from this one in one knob."""
        for name, values in self.values.items():
            if name in self.fixed:
                continue
            without = {other: value for other, value in setting.items() if other != name}
            for candidate in (*({**without, name: value} for value in values), without):
                if candidate != setting and self.allows(candidate):
                    yield candidate


def choose_setting(
    estimate: Estimate, possible: Possible, current: KnobSetting, *, windows_left: float
) -> NextSetting:
    """Choose the setting of a trial's next window.

    - `current`: its present setting.
    - `windows_left`: the number of windows in which the choice can help.
    """
    best = _best(estimate, possible, current)
    usual = possible.usual
    if best != usual and not estimate.windows(best):
        if estimate.windows(usual) and not estimate.can_compare(usual):
            return NextSetting(usual, "it is measured first", False)
        return NextSetting(best, _why(best, estimate, possible), False)
    if estimate.settings and windows_left >= _LEAST_WINDOWS_LEFT:
        for candidate in possible.neighbours(best):
            if estimate.windows(candidate) < _MOST_PROBES and _is_worth_a_probe(
                estimate.effect(candidate, best), windows_left
            ):
                if not estimate.can_compare(best):
                    return NextSetting(best, "it is measured first, before others are probed", False)
                return NextSetting(candidate, "a probe: it may be better", True)
    return NextSetting(best, _why(best, estimate, possible), False)


def first_setting(estimate: Estimate, possible: Possible) -> NextSetting:
    """Choose the setting with which an attempt begins.

    It has only knobs that are almost certain to help.
    """
    best = _best(estimate, possible, possible.usual)
    effect = estimate.effect(best, possible.usual)
    if best != possible.usual and effect.log_ratio + _SURE * effect.error < -LEAST_GAIN:
        return NextSetting(best, _why(best, estimate, possible), False)
    return NextSetting(possible.usual, "it is measured first", False)


def _best(estimate: Estimate, possible: Possible, current: KnobSetting) -> KnobSetting:
    """Return the setting with the lowest expected cost.

    The search changes one knob at a time, so it may miss the best combination.
    """
    best = possible.usual
    if not possible.allows(best):
        return best
    for _ in range(len(possible.values) + 1):
        candidates = [best, *possible.neighbours(best)]
        costs = []
        for candidate in candidates:
            cost = estimate.effect(candidate, possible.usual).log_ratio + _price(candidate)
            costs.append(cost - _CHANGE_GAIN if candidate == current else cost)
        cheapest = candidates[costs.index(min(costs))]
        if cheapest == best:
            break
        best = cheapest
    return best


def _price(setting: KnobSetting) -> float:
    """Return the least gain that justifies a setting.

    It is LEAST_GAIN for each knob, and for each doubling of the threads.
    """
    return LEAST_GAIN * (len(setting) + math.log2(setting.get("threads", 1)))


def _is_worth_a_probe(effect: Effect, windows_left: float) -> bool:
    """Return whether a setting is expected to gain more than a probe costs.

    `effect`: the effect of the setting relative to the best one. It is assumed to be normally distributed. The
    gain is the expected saving in the remaining windows, if the setting is used only if it is better than the best
    one by LEAST_GAIN.
    """
    if not effect.error:
        return False
    worse = effect.log_ratio + LEAST_GAIN
    z = worse / effect.error
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    gain = effect.error * density - worse * math.erfc(z / math.sqrt(2)) / 2
    cost = (
        gain + worse
    )  # the expected loss in the window of the probe, from the part of the distribution that is worse
    return gain * windows_left > cost


def _why(best: KnobSetting, estimate: Estimate, possible: Possible) -> str:
    if best == possible.usual:
        return "nothing better is known" if len(estimate.settings) > 1 else "as it is"
    effect = estimate.effect(best, possible.usual)
    gain = f"{1 - math.exp(effect.log_ratio):.0%} less a step than with {describe(possible.usual)}"
    expected = "" if estimate.windows(best) else " expected"
    return f"{gain}{expected} (error {effect.error:.0%})"


def setting_parts(setting: KnobSetting) -> list[str]:
    """Return a key for each knob of the setting, as if only that knob were set."""
    return [key({name: value}) for name, value in setting.items()]


def usual_effect(part: str, usual_threads: int, aim: str) -> Effect:
    """Return the effect of a setting's part that is expected without any measurement.

    `part`: its key. By the ablation in docs/decisions.md, keeping freed memory and using idle cores help nearly
    always. Nothing is known about other knobs and options.
    """
    setting = setting_of(part)
    if setting == {"memory": "kept"}:
        return Effect(-0.08, 0.1)
    if len(setting) == 1 and aim == "time" and isinstance(threads := setting.get("threads"), int):
        doublings = math.log2(threads / usual_threads)
        return Effect(-0.15 - 0.1 * doublings if doublings > 0 else 0.05, 0.2)
    return Effect(0.0, 0.4) if len(setting) == 1 else Effect(0.0, 0.1)
