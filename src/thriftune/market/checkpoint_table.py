"""What is the best next checkpoint, with so much work left on a machine of this age?

Dynamic programming. Work is cut into N pieces of h hours, ages are multiples of h. V(n, a) is the expected time
until n pieces are done that are left on a machine of age a; with R(n) = r + V(n, 0) that of a loss, S(a) the
probability that a machine lives to age a, and T(a) the integral of S from a on,

    V(n, a) = R(n) + min over m < n of (T(a) - T(b) + S(b) (V(m, b) - R(n))) / S(a),    b = a + (n - m) h + c,

where m = 0 needs no checkpoint (c = 0 there) and V(0, .) = 0. At a = 0 both sides hold V(n, 0), and it is solved
for each m:

    V(n, 0) = min over m of (T(0) - T(b) + S(b) V(m, b) + (1 - S(b)) r) / S(b).

b is off the grid by the same part of h for all a, n and m: V is linear between two ages, S and T are exact there.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from thriftune.errors import SettingError
from thriftune.market.running_time import QUADRATURE_NODES, QUADRATURE_WEIGHTS
from thriftune.market.survival import HOURS_TOLERANCE, Array, Survival, alive

MAX_PIECES = 1000


class CheckpointTable:
    """The next segment by work left and age, for a job of so much work; `best_schedule` uses it.

    `oldest_hours`: the age of the oldest machine on which the job may start; without it, the table would not know
    how far to look where machines have no end.
    """

    def __init__(
        self,
        survival: Survival,
        work_hours: float,
        *,
        checkpoint_hours: float,
        restart_hours: float,
        oldest_hours: float,
        resolution_hours: float,
    ) -> None:
        pieces = max(1, math.ceil(work_hours / resolution_hours - 1e-9))
        if pieces > MAX_PIECES:
            raise SettingError(
                f"resolution_hours {resolution_hours:g} cuts {work_hours:g} h of work into {pieces} pieces, and "
                f"{MAX_PIECES} is the most: give {work_hours / MAX_PIECES:g} or more"
            )
        self._h = work_hours / pieces
        # Beyond what the job could live to see, ages need not be told apart: as much again for checkpoints.
        horizon = min(survival.end, oldest_hours + 3.0 * work_hours + 2.0 * checkpoint_hours)
        ages = math.ceil(horizon / self._h - 1e-9)
        # Short of `end`, the horizon is none for the machine: who is older than this looks up this age instead.
        known = horizon if horizon == survival.end else horizon - work_hours - checkpoint_hours
        self._last = min(ages, math.floor(known / self._h + 1e-9))
        self._segments, self.hours = _solve(
            survival, pieces, self._h, ages, horizon, c=checkpoint_hours, r=restart_hours
        )

    def next_segment(self, left_hours: float, age: float) -> float:
        """Hours of work until the next checkpoint, or all that are left. Work is left in whole pieces again then,
        whatever it was before."""
        left = min(max(1, round(left_hours / self._h)), len(self._segments) - 1)
        # The older of two ages: a segment that just ends before the machine does must not end just after.
        segment = int(self._segments[left, min(math.ceil(age / self._h - 1e-6), self._last)])
        return left_hours - (left - segment) * self._h


def _solve(
    survival: Survival, pieces: int, h: float, ages: int, horizon: float, *, c: float, r: float
) -> tuple[NDArray[np.int32], Array]:
    """The best segments, in pieces, by pieces left and age; and V(n, 0) by n."""
    grid = h * np.arange(pieces + ages + 1.0)
    S, T = _lives(survival, grid, horizon)
    saved_S, saved_T = _lives(survival, grid + c, horizon)
    here_S, here_T = S[: ages + 1], T[: ages + 1]
    dead = here_S <= 0.0
    whole, part = divmod(c / h, 1.0)
    before = np.minimum(np.arange(ages + 1) + int(whole), ages)
    after = np.minimum(before + 1, ages)

    best = np.zeros((pieces + 1, ages + 1), dtype=np.int32)
    fresh = np.zeros(pieces + 1)
    # Row m, column m + j: of m pieces left after a segment that began at age 0 plus j pieces. For one n and all
    # ages these are the same columns in every row. Row 0 is the end of the job.
    columns = pieces + ages + 1
    reached, gained = np.zeros((2, pieces + 1, columns))
    reached[0], gained[0] = S, -T
    for n in range(1, pieces + 1):
        alive_then, spent = reached[:n, n], T[0] + gained[:n, n]  # on a fresh machine; `spent` holds S V already
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            candidates = np.where(alive_then > 0.0, (spent + (1.0 - alive_then) * r) / alive_then, math.inf)
        fresh[n] = candidates.min()
        if math.isinf(fresh[n]):
            raise SettingError(
                f"resolution_hours {h:g}: no machine lives to do {n * h:g} h of work in such steps, each followed "
                f"by a checkpoint of {c:g} h: give a smaller one"
            )
        again = r + fresh[n]
        window = slice(n, n + ages + 1)
        values = gained[:n, window] - again * reached[:n, window]
        chosen = values.argmin(axis=0)
        best[n] = n - chosen
        best[n, 0] = n - candidates.argmin()
        least = here_T + values[chosen, np.arange(ages + 1)]
        V = again + np.where(dead, 0.0, least / np.where(dead, 1.0, here_S))
        V[0] = fresh[n]
        reached[n, window] = saved_S[: ages + 1]
        gained[n, window] = (
            saved_S[: ages + 1] * ((1.0 - part) * V[before] + part * V[after]) - saved_T[: ages + 1]
        )
    return best, fresh


def _lives(survival: Survival, ages: Array, horizon: float) -> tuple[Array, Array]:
    """S and T at these rising ages; at the horizon all machines count as lost."""
    edges = np.append(np.minimum(ages, horizon), horizon)
    widths = np.diff(edges)
    cells = widths * (alive(survival, edges[:-1, None] + widths[:, None] * QUADRATURE_NODES) @ QUADRATURE_WEIGHTS)
    return np.where(ages < horizon - HOURS_TOLERANCE, alive(survival, ages), 0.0), np.cumsum(cells[::-1])[::-1]
