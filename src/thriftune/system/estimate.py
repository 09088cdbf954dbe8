"""Estimate the cost of a trial's steps under each knob setting.

The method is Bayesian linear regression. The logarithm of a step's cost is a sum of these parts:

- the trial's own cost;
- the effect of each knob that is applied, and of several knobs together;
- the effect of each circumstance: each doubling of the trials on the machine, an attempt's first step, each
  doubling of the steps done (some training gets slower or faster), and a setting's first window (threads start,
  and memory is requested for the first time).

Each part has an expected value and a standard error before the first measurement. Each window then makes them more
precise. Two settings can be compared even if one was measured only beside more trials, or only in an attempt's
first step. The standard error of the difference shows how certain the comparison is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thriftune.state.events import UsageMeasured
from thriftune.state.trial_record import TrialRecord, UsageWindow
from thriftune.system.knob_settings import KnobSetting, key, setting_of

Array = npt.NDArray[np.float64]

_TRIAL, _FIRST_STEP = "the trial", "an attempt's first step"
_CIRCUMSTANCES = (
    "each doubling of trials on the machine",
    _FIRST_STEP,
    "each doubling of steps",
    "a setting's first window",
)
_NO_KNOBS = frozenset([_TRIAL, *_CIRCUMSTANCES])
"""The names of the parts of a cost that are not about knobs. The name of a knob's part is the key of its value."""

_TRIAL_ERROR = 10.0
"""The error of the logarithm of a trial's own cost: so large that any cost is possible."""

_EXPECTED = np.array([0.0, 0.1, 0.0, 0.08])
_ERRORS = np.array([0.15, 0.3, 0.2, 0.08])
_TRIALS_DIFFER = np.array([0.05, 0.1, 0.03, 0.04])
"""For each circumstance: its expected effect, the error of that, and its standard deviation between trials."""

_USUAL_NOISE, _USUAL_WEIGHT = 0.1, 2
"""The expected noise: the standard deviation of the logarithm of a step's cost between windows that agree in
setting and circumstances. The weight of this expectation is given as a number of measured differences."""

_LEAST_NOISE = 0.02
"""The smallest noise that is assumed."""

_MOST_COLD_ERROR = 0.2
"""The effect of an attempt's first step is known if its error is less than this."""

_MOST_WEIGHT_OF_OTHERS = 20
"""The most weight of other trials' windows in the noise, as a number of the trial's own windows."""

_BUSY_SHARE = 0.25
"""No core is idle if programs wait for a core for this share of the time."""

_CROWDED_SHARE = 0.4
"""A trial's threads wait for each other if programs wait for a core for this share of the time. A step may then
take twenty times as long. Such a window is no evidence on a setting with more threads."""


class Effect(NamedTuple):
    """The effect of a setting on the cost of a step, relative to another setting.

    - `log_ratio`: the logarithm of the cost divided by that under the other setting.
    - `error`: the standard error of `log_ratio`.
    """

    log_ratio: float
    error: float


NEUTRAL, NEUTRAL_TOGETHER = Effect(0.0, 0.4), Effect(0.0, 0.1)
"""The effect that is expected without any knowledge: of a knob's value, and of several knobs together, in
addition to the sum of their own effects."""


def neutral_prior(part: str) -> Effect:
    """Return the effect that is expected of a knob's part without any knowledge.

    `part`: its key.
    """
    return NEUTRAL if len(setting_of(part)) == 1 else NEUTRAL_TOGETHER


class WindowCost(NamedTuple):
    """The cost of a step in a usage window, and the window's circumstances.

    - `setting`: the key of the window's setting.
    - `trials`: the number of trials on the machine.
    - `cold`: the window contains the attempt's first step.
    - `cost`: the average cost of its steps, in the unit of the study's aim.
    - `step`: its last step.
    - `changed`: the attempt's previous window has another setting.
    - `crowded`: the window is no evidence on the setting's effect; see _CROWDED_SHARE.
    """

    setting: str
    trials: int
    cold: bool
    cost: float
    step: int = 1
    changed: bool = False
    crowded: bool = False

    @property
    def circumstances(self) -> tuple[float, ...]:
        doublings = math.log2(max(1, self.trials)), math.log2(max(1, self.step))
        return doublings[0], float(self.cold), doublings[1], float(self.changed)


def window_costs(windows: Sequence[UsageWindow], cost_of: Callable[[UsageMeasured], float]) -> list[WindowCost]:
    """Return the costs of a trial's windows, in the same order.

    Windows without a cost are left out.

    `cost_of`: returns the cost of a step in a window; 0 if it is not known.
    """
    costs = []
    before: KnobSetting | None = None
    for usage, trials in windows:
        changed = not usage.cold and before is not None and usage.setting != before
        before = usage.setting
        if (cost := cost_of(usage)) > 0.0:
            crowded = "threads" in usage.setting and _waiting_share(usage) > _CROWDED_SHARE
            costs.append(WindowCost(key(usage.setting), trials, usage.cold, cost, usage.step, changed, crowded))
    return costs


def machine_kind(trial: TrialRecord) -> str:
    """Return the kind of the machine on which the trial was measured last.

    Returns an empty string if the trial was never measured.
    """
    return trial.windows[-1].usage.kind if trial.windows else ""


def comparable_windows(trial: TrialRecord) -> list[UsageWindow]:
    """Return the trial's windows on the kind of machine on which it was measured last."""
    return [window for window in trial.windows if window.usage.kind == machine_kind(trial)]


def no_core_is_idle(usage: UsageMeasured) -> bool:
    """Return whether programs used all cores of the machine during a window."""
    return _waiting_share(usage) > _BUSY_SHARE


def _waiting_share(usage: UsageMeasured) -> float:
    """Return the share of a window in which a program waited for a core.

    Returns 0 if it is not known.
    """
    return usage.counters.get("cpu_pressure_seconds", 0.0)


class Evidence(NamedTuple):
    """A trial's evidence on the effects of circumstances, and on noise.

    - `precision`: the precision matrix of the effects.
    - `weighted`: `precision` multiplied by the mean of the effects.
    - `spread`: the sum of squared differences that are due to noise.
    - `free`: the number of these differences.
    """

    precision: Array
    weighted: Array
    spread: float
    free: int

    def plus(self, other: Evidence) -> Evidence:
        sums = self.precision + other.precision, self.weighted + other.weighted
        return Evidence(*sums, self.spread + other.spread, self.free + other.free)

    def minus(self, other: Evidence) -> Evidence:
        rest = self.precision - other.precision, self.weighted - other.weighted
        return Evidence(*rest, self.spread - other.spread, self.free - other.free)


NO_EVIDENCE = Evidence(np.zeros((len(_EXPECTED),) * 2), np.zeros(len(_EXPECTED)), 0.0, 0)


def evidence(costs: Sequence[WindowCost]) -> Evidence:
    """Return a trial's evidence.

    It comes from windows with the same setting in different circumstances.
    """
    groups: dict[str, list[list[float]]] = {}
    for cost in costs:
        if not cost.crowded:
            groups.setdefault(cost.setting, []).append([*cost.circumstances, math.log(cost.cost)])
    spread, free = _spread(costs)
    weight = _noise(spread, free) ** -2
    precision, weighted = NO_EVIDENCE[:2]
    for group in groups.values():
        rows = np.array(group)
        rows -= rows.mean(axis=0)
        seen, logs = rows[:, :-1], rows[:, -1]
        precision = precision + weight * seen.T @ seen
        weighted = weighted + weight * seen.T @ logs
    return Evidence(precision, weighted, spread, free)


class Estimate:
    """The estimated costs of one trial's settings.

    - `costs`: those of the trial's own windows.
    - `others`: the evidence from the study's other trials.
    - `prior`: returns the effect of a knob's part, by its key, that is expected without the trial's own windows.
    """

    def __init__(
        self,
        costs: Sequence[WindowCost],
        others: Evidence = NO_EVIDENCE,
        prior: Callable[[str], Effect] = neutral_prior,
    ) -> None:
        self._prior = prior
        self._windows: dict[str, int] = {}  # the number of windows of each setting, by its key
        self._warm = {cost.setting for cost in costs if not cost.cold}
        for cost in costs:
            self._windows[cost.setting] = self._windows.get(cost.setting, 0) + 1
        spread, free = _spread(costs)
        weight = min(1.0, _MOST_WEIGHT_OF_OTHERS / max(1, others.free))
        self._noise = _noise(spread + weight * others.spread, free + weight * others.free)
        self._fit([cost for cost in costs if not cost.crowded], others)

    def _fit(self, costs: Sequence[WindowCost], others: Evidence) -> None:
        rows = [_parts_of_window(cost) for cost in costs]
        names = [_TRIAL, *_CIRCUMSTANCES, *sorted({name for row in rows for name in row} - _NO_KNOBS)]
        self._place = {name: place for place, name in enumerate(names)}
        circumstances = slice(1, 1 + len(_CIRCUMSTANCES))
        mean, errors = np.zeros(len(names)), np.full(len(names), _TRIAL_ERROR)
        for name in names[circumstances.stop :]:
            mean[self._place[name]], errors[self._place[name]] = self._prior(name)
        precision = np.diag(errors**-2)
        mean[circumstances], covariance = _expected_circumstances(others)
        precision[circumstances, circumstances] = np.linalg.inv(covariance)
        weighted = precision @ mean
        if rows:
            seen = np.zeros((len(rows), len(names)))
            for number, row in enumerate(rows):
                for name, value in row.items():
                    seen[number, self._place[name]] = value
            weight = self._noise**-2
            precision = precision + weight * seen.T @ seen
            weighted = weighted + weight * seen.T @ np.array([math.log(cost.cost) for cost in costs])
        self._covariance = np.linalg.inv(precision)
        self._mean = self._covariance @ weighted

    @property
    def settings(self) -> list[str]:
        """Return the keys of the settings with which the trial was measured."""
        return list(self._windows)

    @property
    def parts(self) -> list[str]:
        """Return the keys of the knobs' parts with which the trial was measured."""
        return [name for name in self._place if name not in _NO_KNOBS]

    def windows(self, setting: KnobSetting) -> int:
        """Return the number of windows in which the trial was measured with this setting."""
        return self._windows.get(key(setting), 0)

    def can_compare(self, setting: KnobSetting) -> bool:
        """Return whether the trial's windows show what a step costs under the setting.

        A window with an attempt's first step shows this only if the effect of a first step is known well enough.
        """
        text, cold = key(setting), self._place[_FIRST_STEP]
        known_cold = self._covariance[cold, cold] < _MOST_COLD_ERROR**2
        return text in self._warm or (text in self._windows and bool(known_cold))

    def effect(self, setting: KnobSetting, than: KnobSetting) -> Effect:
        """Return the effect of a setting relative to that of another."""
        row = dict.fromkeys(_knob_parts(setting), 1.0)
        for name in _knob_parts(than):
            row[name] = row.get(name, 0.0) - 1.0
        return self._sum(row)

    def part(self, name: str) -> Effect:
        """Return the effect of a knob's part. `name`: its key.

        For several knobs, it is the effect in addition to the sum of their own effects.
        """
        return self._sum({name: 1.0})

    def _sum(self, row: Mapping[str, float]) -> Effect:
        log_ratio = variance = 0.0
        places, values = [], []
        for name, value in row.items():
            if name in self._place:
                places.append(self._place[name])
                values.append(value)
            else:
                prior = self._prior(name)
                log_ratio += value * prior.log_ratio
                variance += (value * prior.error) ** 2
        seen = np.array(values)
        log_ratio += float(seen @ self._mean[places])
        variance += float(seen @ self._covariance[np.ix_(places, places)] @ seen)
        return Effect(log_ratio, math.sqrt(max(0.0, variance)))


def _knob_parts(setting: KnobSetting) -> list[str]:
    """Return the keys of a setting's parts: each knob alone, and all knobs together."""
    alone = [key({name: value}) for name, value in setting.items()]
    return [*alone, key(setting)] if len(alone) > 1 else alone


def _parts_of_window(cost: WindowCost) -> dict[str, float]:
    circumstances = dict(zip(_CIRCUMSTANCES, cost.circumstances, strict=True))
    return {_TRIAL: 1.0, **circumstances, **dict.fromkeys(_knob_parts(setting_of(cost.setting)), 1.0)}


def _expected_circumstances(others: Evidence) -> tuple[Array, Array]:
    """Return the expected effects of a trial's circumstances, and their covariance."""
    prior = np.diag(_ERRORS**-2)
    covariance = np.linalg.inv(prior + others.precision).astype(np.float64)
    expected: Array = covariance @ (prior @ _EXPECTED + others.weighted)
    return expected, covariance + np.diag(_TRIALS_DIFFER**2)


def _spread(costs: Sequence[WindowCost]) -> tuple[float, int]:
    """Return Evidence.spread and Evidence.free of a trial's windows.

    They come from the differences of successive windows that agree in setting and circumstances, so that slow
    changes do not count as noise. A difference of two windows has twice the variance of one, so the sum is halved.
    """
    groups: dict[tuple[str, int, bool, bool], list[float]] = {}
    for cost in costs:
        if not cost.crowded:
            group = cost.setting, cost.trials, cost.cold, cost.changed
            groups.setdefault(group, []).append(math.log(cost.cost))
    differences = [later - earlier for group in groups.values() for earlier, later in pairwise(group)]
    return sum(difference**2 for difference in differences) / 2, len(differences)


def _noise(spread: float, free: float) -> float:
    """Return the noise: the standard deviation of the logarithm of a step's cost.

    The arguments are those of Evidence.
    """
    usual = _USUAL_WEIGHT * _USUAL_NOISE**2
    return max(_LEAST_NOISE, math.sqrt((spread + usual) / (free + _USUAL_WEIGHT)))
