"""Where does a new stage of a learning curve begin?

When the learning rate drops, a curve that had settled moves again, and what was seen before says little of what
comes. SpotTune Eq. 7 finds such points by fixed thresholds, which suit a loss that moves by half there and hardly
before. A metric that is noisy, or moves by a tenth, needs measures taken from the curve itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Array = npt.NDArray[np.float64]

_BEFORE, _LEAST_BEFORE = 10, 5  # values that a change is compared with
_AFTER, _LEAST_AFTER = 3, 2  # values that confirm it
_LEAST_CALM = 5  # changes
_TIMES = 5.0  # the median change before it
_SHARE = 0.05  # of the range before it
_STANDARD_ERRORS = 7.0  # between the levels before and after


def stage_starts(
    values: Sequence[float] | Array, xi: float = 0.5, epsilon: float = 0.01, steady: int = 5
) -> list[int]:
    """The indices at which stages begin, 0 first: SpotTune Eq. 7, with the paper's thresholds.

    One begins where the value changes by more than `xi` of itself, after `steady` changes of less than `epsilon`.
    """
    y = np.asarray(values, dtype=float)
    if len(y) < steady + 2:
        return [0]
    with np.errstate(all="ignore"):
        rates = np.abs(np.diff(y) / y[:-1])
    settled = sliding_window_view(rates[:-1] < epsilon, steady).all(axis=1)
    return [0, *(int(i) for i in np.flatnonzero(settled & (rates[steady:] > xi)) + steady + 1)]


def level_starts(values: Array) -> list[int]:
    """The indices from which on a curve runs at another level.

    The change there is that of Eq. 7; or five times the median of the ten before it, and a twentieth of the range
    so far. The three values on either side lie apart, and the levels differ by seven standard errors. One value is
    no level: of a curve that has only just jumped, nothing is said yet.
    """
    n = len(values)
    if n < _LEAST_BEFORE + _LEAST_AFTER:
        return []
    changes = np.abs(np.diff(values))
    medians = _medians_before(changes)
    ranges = np.maximum.accumulate(values) - np.minimum.accumulate(values)
    large = np.zeros(n, dtype=bool)
    large[2:] = (changes[1:] > _TIMES * medians) & (changes[1:] > _SHARE * ranges[1:-1])
    large[stage_starts(values)] = True
    return [
        int(i)
        for i in np.flatnonzero(large)
        if _LEAST_BEFORE <= i <= n - _LEAST_AFTER
        and _apart(values[max(0, i - _BEFORE) : i], values[i : i + _AFTER], medians[i - 2])
    ]


def calm_start(values: Array) -> int:
    """The index from which on a noisy curve is calm, as with a learning rate that has dropped; 0 if it is not.

    Every change from there on, five at least, is at most a fifth of the median of the ten before.
    """
    if len(values) < _LEAST_BEFORE + _LEAST_CALM:
        return 0
    changes = np.abs(np.diff(values))
    largest = np.maximum.accumulate(changes[::-1])[::-1]
    calm = largest[1:] * _TIMES <= _medians_before(changes)
    calm[: _LEAST_BEFORE - 2], calm[len(calm) - _LEAST_CALM + 1 :] = False, False
    return int(np.argmax(calm)) + 1 if calm.any() else 0


def _medians_before(changes: Array) -> Array:
    """Of the ten changes, or as many as there are, before the second change, the third and so on."""
    padded = np.concatenate([np.full(_BEFORE - 1, np.nan), changes[:-1]])
    ordered = np.sort(sliding_window_view(padded, _BEFORE), axis=1)  # those that are not there come last
    rows, there = np.arange(len(ordered)), np.minimum(np.arange(1, len(changes)), _BEFORE)
    medians: Array = (ordered[rows, (there - 1) // 2] + ordered[rows, there // 2]) / 2
    return medians


def _apart(before: Array, after: Array, median_change: float) -> bool:
    level = np.median(before)
    middle = (level + after[0]) / 2
    up = after[0] > middle
    if not ((after > middle) == up).all() or not ((before[-3:] < middle) == up).all():
        return False
    noise = median_change / 0.6745 / np.sqrt(2)  # its standard deviation, were it normal
    error = noise * np.sqrt(1 / len(before) + 1 / len(after))
    return bool(abs(after.mean() - level) > _STANDARD_ERRORS * error)
