"""Detection of the steps at which a new stage of a learning curve begins.

When the learning rate drops, a curve that had settled moves again, and earlier values say little about later ones.
SpotTune Eq. 7 finds such steps by fixed thresholds, which suit a loss that changes by half there and hardly
before. For a noisy metric, or one that changes by a tenth, the thresholds are derived from the curve itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Array = npt.NDArray[np.float64]

_BEFORE, _MIN_BEFORE = 10, 5  # numbers of values before a change that it is compared with
_AFTER, _MIN_AFTER = 3, 2  # numbers of values after a change that confirm it
_MIN_CALM = 5  # the least number of changes
_LARGE_IN_MEDIANS = 5.0  # a large change, in units of the median change before it
_LARGE_IN_RANGE = 0.05  # a large change, as a share of the range of the values before it
_LEVEL_DISTANCE_ERRORS = 7.0  # the least distance between the levels before and after a change


def stage_starts(
    values: Sequence[float] | Array, xi: float = 0.5, epsilon: float = 0.01, steady: int = 5
) -> list[int]:
    """Return the indices at which stages begin, 0 first: SpotTune Eq. 7 with the paper's thresholds.

    A stage begins where the value changes by more than the share `xi`, after `steady` changes of less than
    `epsilon`.
    """
    y = np.asarray(values, dtype=float)
    if len(y) < steady + 2:
        return [0]
    with np.errstate(all="ignore"):
        rates = np.abs(np.diff(y) / y[:-1])
    settled = sliding_window_view(rates[:-1] < epsilon, steady).all(axis=1)
    return [0, *(int(i) for i in np.flatnonzero(settled & (rates[steady:] > xi)) + steady + 1)]


def level_starts(values: Array) -> list[int]:
    """Return the indices at which a curve changes to another level.

    The change meets Eq. 7, or is five times the median of the ten before it and a twentieth of the range until
    then. The three values on either side do not overlap, and the levels differ by seven standard errors. A single
    value is no level, so the curve's last value starts none.
    """
    n = len(values)
    if n < _MIN_BEFORE + _MIN_AFTER:
        return []
    changes = np.abs(np.diff(values))
    medians = _medians_before(changes)
    ranges = np.maximum.accumulate(values) - np.minimum.accumulate(values)
    large = np.zeros(n, dtype=bool)
    large[2:] = (changes[1:] > _LARGE_IN_MEDIANS * medians) & (changes[1:] > _LARGE_IN_RANGE * ranges[1:-1])
    large[stage_starts(values)] = True
    return [
        int(i)
        for i in np.flatnonzero(large)
        if _MIN_BEFORE <= i <= n - _MIN_AFTER
        and _levels_differ(values[max(0, i - _BEFORE) : i], values[i : i + _AFTER], medians[i - 2])
    ]


def calm_start(values: Array) -> int:
    """Return the index from which a noisy curve is calm, as after a learning rate drop; 0 if it is not.

    Every change from there on, five at least, is at most a fifth of the median of the ten before.
    """
    if len(values) < _MIN_BEFORE + _MIN_CALM:
        return 0
    changes = np.abs(np.diff(values))
    largest = np.maximum.accumulate(changes[::-1])[::-1]
    calm = largest[1:] * _LARGE_IN_MEDIANS <= _medians_before(changes)
    calm[: _MIN_BEFORE - 2], calm[len(calm) - _MIN_CALM + 1 :] = False, False
    return int(np.argmax(calm)) + 1 if calm.any() else 0


def _medians_before(changes: Array) -> Array:
    """Return the median of up to ten changes before each change from the second one on."""
    padded = np.concatenate([np.full(_BEFORE - 1, np.nan), changes[:-1]])
    ordered = np.sort(sliding_window_view(padded, _BEFORE), axis=1)  # NaN, for missing changes, comes last
    rows, counts = np.arange(len(ordered)), np.minimum(np.arange(1, len(changes)), _BEFORE)
    medians: Array = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
    return medians


def _levels_differ(before: Array, after: Array, median_change: float) -> bool:
    level = np.median(before)
    midpoint = (level + after[0]) / 2
    up = after[0] > midpoint
    if not ((after > midpoint) == up).all() or not ((before[-3:] < midpoint) == up).all():
        return False
    noise = median_change / 0.6745 / np.sqrt(2)  # its standard deviation if it is normal
    error = noise * np.sqrt(1 / len(before) + 1 / len(after))
    return bool(abs(after.mean() - level) > _LEVEL_DISTANCE_ERRORS * error)
