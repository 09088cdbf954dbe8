"""What does a step of a trial cost with each setting? All that was measured and is known, in one estimate.

The logarithm of a step's cost is a sum: what the trial costs, what each knob that is turned adds, what several do
together, what more trials on the machine add (the same for each doubling of them), and what an attempt's first
step adds. Of each there is an expectation before anything is measured, so that every window says what it can, and
nothing more: Bayesian linear regression. Two settings can so be compared that were seen in other company, or of
which one was seen at an attempt's beginning only; the estimate's error tells how well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thriftune.system.known_work import key, setting_of

Setting = Mapping[str, Any]
Array = npt.NDArray[np.float64]

_TRIAL, _COMPANY, _COLD = "the trial", "each doubling of trials on the machine", "an attempt's first step"
"""What a cost is made of, beside what is turned; settings' parts are named by their keys."""

_TRIAL_ERROR, _KNOB_ERROR, _TOGETHER_ERROR = 10.0, 0.4, 0.1
"""How far the logarithms may be from nothing, before anything is known. Knobs hardly work on each other."""

_COMPANY_EXPECTED, _COMPANY_ERROR = 0.0, 0.15
_COLD_EXPECTED, _COLD_ERROR = 0.1, 0.3
_OTHER_TRIAL_ERRORS = np.array([0.05, 0.1])
"""By how much these two differ from one trial of a study to another."""

_KNOWN_ERROR = 0.07
"""Of what one window of similar work says of a trial."""

_USUAL_NOISE, _LEAST_NOISE, _MOST_NOISE = 0.05, 0.02, 0.3


class Cost(NamedTuple):
    """What a step cost in a window, with so many trials on the machine; `cold`: an attempt's first is in it."""

    setting: str  # its key()
    beside: int
    cold: bool
    cost: float


class Effect(NamedTuple):
    """Of a setting: the logarithm of its cost a step over that of another."""

    log_ratio: float
    error: float


class Circumstances(NamedTuple):
    """What is expected of company and of first steps, by what was seen of other trials."""

    expected: Array
    covariance: Array


class Evidence(NamedTuple):
    """What one trial says of company and of first steps; several are added up."""

    precision: Array
    weighted: Array


def evidence(costs: Sequence[Cost]) -> Evidence:
    """By windows of one setting that differ in nothing else."""
    precision, weighted = np.zeros((2, 2)), np.zeros(2)
    groups: dict[str, list[tuple[float, float, float]]] = {}
    for cost in costs:
        row = math.log2(max(1, cost.beside)), float(cost.cold), math.log(cost.cost)
        groups.setdefault(cost.setting, []).append(row)
    for group in groups.values():
        rows = np.array(group)
        rows -= rows.mean(axis=0)
        seen, logs = rows[:, :2], rows[:, 2]
        precision += seen.T @ seen
        weighted += seen.T @ logs
    return Evidence(precision / _USUAL_NOISE**2, weighted / _USUAL_NOISE**2)


def circumstances(seen: Iterable[Evidence]) -> Circumstances:
    errors = np.array([_COMPANY_ERROR, _COLD_ERROR])
    precision = np.diag(errors**-2)
    weighted = precision @ np.array([_COMPANY_EXPECTED, _COLD_EXPECTED])
    for each in seen:
        precision = precision + each.precision
        weighted = weighted + each.weighted
    covariance = np.linalg.inv(precision)
    return Circumstances(covariance @ weighted, covariance + np.diag(_OTHER_TRIAL_ERRORS**2))


class Known(NamedTuple):
    """What similar work says: by key of a setting, its cost relative to that of the setting `under`, and in how
    many windows that was seen."""

    ratios: Mapping[str, float]
    under: Setting
    looks: int


class Estimate:
    """Of one trial's settings."""

    def __init__(
        self, costs: Sequence[Cost], expected: Circumstances | None = None, known: Known | None = None
    ) -> None:
        self._looks: dict[str, int] = {}
        for cost in costs:
            self._looks[cost.setting] = self._looks.get(cost.setting, 0) + 1
        self.windows = len(costs)
        self.known = known
        self.noise = _noise(costs)
        rows = [(_window(setting_of(c.setting), c.beside, c.cold), math.log(c.cost), self.noise) for c in costs]
        if known is not None:
            error = _KNOWN_ERROR / math.sqrt(known.looks)
            for text, ratio in known.ratios.items():
                rows.append((_difference(setting_of(text), known.under), math.log(ratio), error))
        self._fit(rows, expected or circumstances(()))

    def _fit(self, rows: Sequence[tuple[Mapping[str, float], float, float]], expected: Circumstances) -> None:
        names = [_TRIAL, _COMPANY, _COLD, *sorted({n for row, _, _ in rows for n in row} - _PARTS)]
        self._place = {name: place for place, name in enumerate(names)}
        mean = np.zeros(len(names))
        mean[1:3] = expected.expected
        precision = np.diag([_prior_error(name) ** -2 for name in names])
        precision[1:3, 1:3] = np.linalg.inv(expected.covariance)
        weighted = precision @ mean
        if rows:
            seen = np.zeros((len(rows), len(names)))
            for number, (row, _, _) in enumerate(rows):
                for name, value in row.items():
                    seen[number, self._place[name]] = value
            weights = np.array([error**-2 for _, _, error in rows])
            precision = precision + (seen * weights[:, None]).T @ seen
            weighted = weighted + seen.T @ (weights * np.array([log for _, log, _ in rows]))
        self._covariance = np.linalg.inv(precision)
        self._mean = self._covariance @ weighted

    @property
    def settings(self) -> list[str]:
        """Keys of those that were seen, or are known."""
        known = [] if self.known is None else [key(self.known.under), *self.known.ratios]
        return list(dict.fromkeys([*self._looks, *known]))

    def looks(self, setting: Setting) -> int:
        """Windows that show it, of this trial and of what is known."""
        known = self.known is not None and key(setting) in self.known.ratios
        return self._looks.get(key(setting), 0) + (self.known.looks if self.known is not None and known else 0)

    def seen(self, setting: Setting) -> bool:
        """In this trial itself."""
        return key(setting) in self._looks

    def effect(self, setting: Setting, than: Setting) -> Effect:
        row = _difference(setting, than)
        places = [(self._place[name], value) for name, value in row.items() if name in self._place]
        log_ratio = sum(value * float(self._mean[place]) for place, value in places)
        return Effect(log_ratio, math.sqrt(max(0.0, self._shared(row, row))))

    def error_after(self, setting: Setting, than: Setting, look_at: Setting, beside: int) -> float:
        """What the error of the effect would be after one more window."""
        row, window = _difference(setting, than), _window(look_at, beside, False)
        told = self._shared(row, window) ** 2 / (self._shared(window, window) + self.noise**2)
        return math.sqrt(max(0.0, self._shared(row, row) - told))

    def _shared(self, one: Mapping[str, float], other: Mapping[str, float]) -> float:
        """The covariance of two sums."""
        total = 0.0
        for name, value in one.items():
            if name not in self._place:
                total += value * other.get(name, 0.0) * _prior_error(name) ** 2
                continue
            row = self._covariance[self._place[name]]
            total += value * sum(v * float(row[self._place[n]]) for n, v in other.items() if n in self._place)
        return total


_PARTS = frozenset([_TRIAL, _COMPANY, _COLD])


def _parts(setting: Setting) -> list[str]:
    """Each knob that is turned, and all of them together."""
    alone = [key({name: value}) for name, value in setting.items()]
    return [*alone, key(setting)] if len(alone) > 1 else alone


def _window(setting: Setting, beside: int, cold: bool) -> dict[str, float]:
    row = {_TRIAL: 1.0, _COMPANY: math.log2(max(1, beside)), _COLD: float(cold)}
    return row | dict.fromkeys(_parts(setting), 1.0)


def _difference(setting: Setting, than: Setting) -> dict[str, float]:
    row = dict.fromkeys(_parts(setting), 1.0)
    for name in _parts(than):
        row[name] = row.get(name, 0.0) - 1.0
    return {name: value for name, value in row.items() if value}


def _prior_error(name: str) -> float:
    if name in _PARTS:
        return _TRIAL_ERROR
    return _KNOB_ERROR if len(setting_of(name)) == 1 else _TOGETHER_ERROR


def _noise(costs: Sequence[Cost]) -> float:
    """By how much the logarithms of windows differ that are alike in everything. The usual is taken for two of
    them, so that two that happen to agree do not make a third seem another."""
    groups: dict[tuple[str, int, bool], list[float]] = {}
    for setting, beside, cold, cost in costs:
        groups.setdefault((setting, beside, cold), []).append(math.log(cost))
    spread = sum((value - fmean(group)) ** 2 for group in groups.values() for value in group)
    free = sum(len(group) - 1 for group in groups.values())
    noise = math.sqrt((spread + 2 * _USUAL_NOISE**2) / (free + 2))
    return min(_MOST_NOISE, max(_LEAST_NOISE, noise))
