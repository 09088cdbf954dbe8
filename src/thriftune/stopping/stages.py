"""Where does a new stage of a learning curve begin?

A learning rate that drops makes a curve that had settled move again, so that what was seen before says little of what
comes. SpotTune Eq. 7 has fixed thresholds, that suit a loss which moves by half at such a point, and hardly at all
before. A metric that is noisy, or moves by a tenth, needs a measure taken from the curve itself: `jumps`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_BEFORE, _AFTER, _LEAST_BEFORE, _LEAST_AFTER = 8, 3, 5, 2  # values that a jump is judged by
_RATIO = 2.0  # to the largest of the changes before it
_SIGNIFICANT = 7.0  # standard errors


def stage_starts(
    values: Sequence[float] | Array, xi: float = 0.5, epsilon: float = 0.01, steady: int = 5
) -> list[int]:
    """The indices at which stages begin, 0 first: SpotTune Eq. 7, with the paper's thresholds.

    A stage begins where the value changes by more than `xi` of itself after `steady` changes of less than `epsilon`.
    """
    y = np.asarray(values, dtype=float)
    with np.errstate(all="ignore"):
        rates = np.abs(np.diff(y) / y[:-1])
    quiet = np.lib.stride_tricks.sliding_window_view(rates < epsilon, steady).all(axis=1) if len(y) > steady else []
    return [0] + [i + steady + 1 for i in np.flatnonzero(quiet) if i + steady < len(rates) and rates[i + steady] > xi]


def jumps(values: Array) -> list[int]:
    """The indices after which a curve runs at another level, by its own noise.

    The change there is twice any of the five before it; the values from there on, two at least, all lie beyond the
    middle of it; and the means before and after differ by seven standard errors.
    """
    n = len(values)
    changes = np.abs(np.diff(values))
    if n < _LEAST_BEFORE + _LEAST_AFTER:
        return []
    largest = np.lib.stride_tricks.sliding_window_view(changes, _LEAST_BEFORE - 1).max(axis=1)
    at = np.arange(_LEAST_BEFORE, n - _LEAST_AFTER + 1)
    at = at[changes[at - 1] > _RATIO * largest[at - _LEAST_BEFORE]]
    before, after = at[:, None] - np.arange(1, _BEFORE + 1), at[:, None] + np.arange(_AFTER)
    counts = np.maximum(np.minimum(at, _BEFORE), 1), np.minimum(n - at, _AFTER)
    means, noise = [], np.zeros(len(at))
    for indices, inside in ((before, before >= 0), (after, after < n)):
        near = np.where(inside, values[np.clip(indices, 0, n - 1)], np.nan)
        means.append(np.nanmean(near, axis=1) if len(at) else near.sum(axis=1))
        noise += np.nansum(np.diff(near, axis=1) ** 2, axis=1)
    middle = (means[0] + values[at]) / 2
    side = np.sign(values[at] - middle)[:, None]
    stays = np.where(after < n, (values[np.clip(after, 0, n - 1)] - middle[:, None]) * side > 0, True).all(axis=1)
    # Half the mean square of the differences is the variance of what is not a trend.
    variance = noise / (2 * (counts[0] + counts[1] - 2))
    error = np.sqrt(variance * (1 / counts[0] + 1 / counts[1]))
    return [int(i) for i in at[stays & (np.abs(means[1] - means[0]) > _SIGNIFICANT * error)]]
