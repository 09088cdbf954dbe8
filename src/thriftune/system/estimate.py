"""What does a step of a trial cost with each setting? All that was measured and is known, in one estimate.

The logarithm of a step's cost is a sum: what the trial costs, what each knob that is turned adds, what several do
together, what more trials on the machine add (the same for each doubling of them), what an attempt's first step
adds, what each doubling of the steps so far does, as some training gets slower or quicker as it goes on, and what
the first window of a setting adds, in which threads begin and memory is had for the first time. Of each there is
an expectation before anything is measured, so that every window says what it can, and nothing more: Bayesian
linear regression. Two settings can so be compared that were seen in other company, or of which one was seen at an
attempt's beginning only; the estimate's error tells how well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thriftune.system.known_work import key, setting_of

Setting = Mapping[str, Any]
Array = npt.NDArray[np.float64]

_TRIAL = "the trial"
_CIRCUMSTANCES = (
    "each doubling of trials on the machine",
    "an attempt's first step",
    "each doubling of steps",
    "a knob just turned",
)
"""What a cost is made of, beside what is turned; settings' parts are named by their keys."""

_TRIAL_ERROR, _KNOB_ERROR, _TOGETHER_ERROR = 10.0, 0.4, 0.1
"""How far the logarithms may be from nothing, before anything is known. Knobs hardly work on each other."""

_EXPECTED = np.array([0.0, 0.1, 0.0, 0.08])
_ERRORS = np.array([0.15, 0.3, 0.2, 0.08])
_OTHER_TRIAL_ERRORS = np.array([0.05, 0.1, 0.03, 0.04])
"""Of the circumstances: what is expected, how far that may be off, and by how much trials of a study differ."""

_KNOWN_ERROR = 0.07
"""Of what one window of similar work says of a trial."""

_USUAL_NOISE, _USUAL_WEIGHT = 0.1, 2
_LEAST_NOISE = 0.02
_MOST_OF_OTHERS = 20
"""How much windows differ by themselves is expected to be so much, as if so many had said so; other trials count
like so many more at most."""


class Cost(NamedTuple):
    """What a step cost in a window, with so many trials on the machine; `cold`: an attempt's first is in it.
    `step`: the window's last. `turned`: the window before it, of the same attempt, had another setting.
    `disturbed`: it tells nothing of the setting, but that it was looked at."""

    setting: str  # its key()
    beside: int
    cold: bool
    cost: float
    step: int = 1
    turned: bool = False
    disturbed: bool = False

    @property
    def circumstances(self) -> tuple[float, ...]:
        return math.log2(max(1, self.beside)), float(self.cold), math.log2(max(1, self.step)), float(self.turned)


class Effect(NamedTuple):
    """Of a setting: the logarithm of its cost a step over that of another."""

    log_ratio: float
    error: float


class Evidence(NamedTuple):
    """What trials say of the circumstances, and of noise: `spread` is the sum of so many (`free`) squares."""

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


def evidence(costs: Sequence[Cost]) -> Evidence:
    """Of one trial, by windows of one setting that differ in nothing else."""
    groups: dict[str, list[list[float]]] = {}
    for cost in costs:
        if not cost.disturbed:
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


class Known(NamedTuple):
    """What similar work says: by key of a setting, its cost relative to that of the setting `under`, and in how
    many windows that was seen (one, unless said)."""

    ratios: Mapping[str, float]
    under: Setting
    looks: Mapping[str, int]

    def looks_at(self, text: str) -> int:
        return self.looks.get(text, 1) if text in self.ratios else 0


class Estimate:
    """Of one trial's settings."""

    def __init__(self, costs: Sequence[Cost], others: Evidence = NO_EVIDENCE, known: Sequence[Known] = ()) -> None:
        """`others`: what other trials of the study say. `known`: of each piece of similar work, what it says."""
        self._looks: dict[str, int] = {}
        for cost in costs:
            self._looks[cost.setting] = self._looks.get(cost.setting, 0) + 1
        self.windows = len(costs)
        self.known = known
        spread, free = _spread(costs)
        weight = min(1.0, _MOST_OF_OTHERS / max(1, others.free))
        self.noise = _noise(spread + weight * others.spread, free + weight * others.free)
        self._last = costs[-1] if costs else None
        rows = [(_window(each), math.log(each.cost), self.noise) for each in costs if not each.disturbed]
        for piece in known:
            for text, ratio in piece.ratios.items():
                error = _KNOWN_ERROR / math.sqrt(piece.looks_at(text))
                rows.append((_difference(setting_of(text), piece.under), math.log(ratio), error))
        self._fit(rows, others)

    def _fit(self, rows: Sequence[tuple[Mapping[str, float], float, float]], others: Evidence) -> None:
        names = [_TRIAL, *_CIRCUMSTANCES, *sorted({n for row, _, _ in rows for n in row} - _PARTS)]
        self._place = {name: place for place, name in enumerate(names)}
        expected, covariance = _expected(others)
        mean = np.zeros(len(names))
        around = slice(1, 1 + len(_CIRCUMSTANCES))
        mean[around] = expected
        precision = np.diag([_prior_error(name) ** -2 for name in names])
        precision[around, around] = np.linalg.inv(covariance)
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
        known = [text for piece in self.known for text in (key(piece.under), *piece.ratios)]
        return list(dict.fromkeys([*self._looks, *known]))

    def looks(self, setting: Setting) -> int:
        """Windows that show it, of this trial and of what is known."""
        text = key(setting)
        return self._looks.get(text, 0) + sum(piece.looks_at(text) for piece in self.known)

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
        step, last = (1, key(look_at)) if self._last is None else (self._last.step + 1, self._last.setting)
        look = Cost(key(look_at), beside, False, 1.0, step, turned=key(look_at) != last)
        row, window = _difference(setting, than), _window(look)
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


_PARTS = frozenset([_TRIAL, *_CIRCUMSTANCES])


def _parts(setting: Setting) -> list[str]:
    """Each knob that is turned, and all of them together."""
    alone = [key({name: value}) for name, value in setting.items()]
    return [*alone, key(setting)] if len(alone) > 1 else alone


def _window(cost: Cost) -> dict[str, float]:
    around = dict(zip(_CIRCUMSTANCES, cost.circumstances, strict=True))
    return {_TRIAL: 1.0, **around, **dict.fromkeys(_parts(setting_of(cost.setting)), 1.0)}


def _expected(others: Evidence) -> tuple[Array, Array]:
    """Of the circumstances of a trial, and how sure that is."""
    prior = np.diag(_ERRORS**-2)
    covariance = np.linalg.inv(prior + others.precision).astype(np.float64)
    expected: Array = covariance @ (prior @ _EXPECTED + others.weighted)
    return expected, covariance + np.diag(_OTHER_TRIAL_ERRORS**2)


def _difference(setting: Setting, than: Setting) -> dict[str, float]:
    row = dict.fromkeys(_parts(setting), 1.0)
    for name in _parts(than):
        row[name] = row.get(name, 0.0) - 1.0
    return {name: value for name, value in row.items() if value}


def _prior_error(name: str) -> float:
    if name in _PARTS:
        return _TRIAL_ERROR
    return _KNOB_ERROR if len(setting_of(name)) == 1 else _TOGETHER_ERROR


def _spread(costs: Sequence[Cost]) -> tuple[float, int]:
    """By how much windows differ from the one before that is alike in everything: halves of squares, and of how
    many. What changes slowly does not count."""
    groups: dict[tuple[str, int, bool, bool], list[float]] = {}
    for cost in costs:
        if not cost.disturbed:
            alike = cost.setting, cost.beside, cost.cold, cost.turned
            groups.setdefault(alike, []).append(math.log(cost.cost))
    steps = [later - earlier for group in groups.values() for earlier, later in pairwise(group)]
    return sum(step**2 for step in steps) / 2, len(steps)


def _noise(spread: float, free: float) -> float:
    usual = _USUAL_WEIGHT * _USUAL_NOISE**2
    return max(_LEAST_NOISE, math.sqrt((spread + usual) / (free + _USUAL_WEIGHT)))
