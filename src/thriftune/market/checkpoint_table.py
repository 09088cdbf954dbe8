"""Optimal checkpoints by work left and machine age, by dynamic programming.

Work is cut into N pieces of h hours, and ages are multiples of h. The notation:

- c, r: the hours that a checkpoint and a restart take.
- S(a): the probability that a machine lives to age a; T(a): the integral of S from a to the end.
- V(n, a): the expected hours until n pieces of work are done on a machine of age a.
- R(n) = r + V(n, 0): the expected hours after a loss.
- b = a + (n - m) h + c: the age of the machine once m pieces are left.

The next segment leaves m < n pieces:

    V(n, a) = R(n) + min over m < n of (T(a) - T(b) + S(b) (V(m, b) - R(n))) / S(a),

where m = 0 needs no checkpoint (c = 0) and V(0, .) = 0. At a = 0, V(n, 0) is on both sides of the equation.
Solving for it gives

    V(n, 0) = min over m of (T(0) - T(b) + S(b) V(m, b) + (1 - S(b)) r) / S(b).

For all a, n and m, b lies between two grid ages at the same fraction of h. V is interpolated there; S and T are
exact.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from thriftune.errors import SettingError
from thriftune.market.running_time import QUADRATURE_NODES, QUADRATURE_WEIGHTS
from thriftune.market.survival import HOURS_TOLERANCE, Array, Survival, alive, count_cells

MAX_PIECES = 1000  # pieces of work; time and memory grow with the square of their number


class CheckpointTable:
    """The optimal next segment by work left and machine age.

    The job has at most `work_hours` of work. `oldest_hours` is the age of the oldest machine on which the job may
    start. It bounds the ages in the table if the machines have no age limit. `hours` has the expected hours on a
    new machine, by pieces of work left.
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
        pieces = count_cells(work_hours, resolution_hours, MAX_PIECES, "work")
        self._h = work_hours / pieces
        # The job cannot reach greater ages without a loss, even if checkpoints take as long as the work.
        horizon = min(survival.end, oldest_hours + 3.0 * work_hours + 2.0 * checkpoint_hours)
        ages = math.ceil(horizon / self._h - 1e-9)
        # If machines may live past the horizon, the table is wrong for ages near the horizon. Machines of these
        # ages use the entries of the last valid age.
        known = horizon if horizon == survival.end else horizon - work_hours - checkpoint_hours
        self._last = min(ages, math.floor(known / self._h + 1e-9))
        self._segments, self.hours = _solve(
            survival, pieces, self._h, ages, horizon, c=checkpoint_hours, r=restart_hours
        )

    def next_segment(self, left_hours: float, age: float) -> float:
        """Return the hours of work before the next checkpoint, at most `left_hours`.

        After the segment, the work left is a whole number of pieces.
        """
        left = min(max(1, round(left_hours / self._h)), len(self._segments) - 1)
        # Rounded up to the older grid age: a segment must not end just after the machine's end.
        segment = int(self._segments[left, min(math.ceil(age / self._h - 1e-6), self._last)])
        return left_hours - (left - segment) * self._h


def _solve(
    survival: Survival, pieces: int, h: float, ages: int, horizon: float, *, c: float, r: float
) -> tuple[NDArray[np.int32], Array]:
    """Return the best next segment by pieces left and age, and V(n, 0) by n.

    The segments are in pieces of work, the ages in multiples of h.
    """
    grid = h * np.arange(pieces + ages + 1.0)
    S, T = _survival_and_integral(survival, grid, horizon)
    saved_S, saved_T = _survival_and_integral(survival, grid + c, horizon)  # after a checkpoint
    S_at_age, T_at_age = S[: ages + 1], T[: ages + 1]
    dead = S_at_age <= 0.0
    whole, part = divmod(c / h, 1.0)
    before = np.minimum(np.arange(ages + 1) + int(whole), ages)
    after = np.minimum(before + 1, ages)

    best = np.zeros((pieces + 1, ages + 1), dtype=np.int32)
    fresh = np.zeros(pieces + 1)
    # `reached` has S(b), and `gained` has S(b) V(m, b) - T(b). In row m, for m pieces left, column m + j is for
    # b = j h + c. The columns from n on are then for the ages a = 0, h, 2 h and so on in every row. Row 0 is the
    # end of the job, which needs no checkpoint.
    columns = pieces + ages + 1
    reached, gained = np.zeros((2, pieces + 1, columns))
    reached[0], gained[0] = S, -T
    for n in range(1, pieces + 1):
        reached_new, spent = reached[:n, n], T[0] + gained[:n, n]  # on a new machine
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            candidates = np.where(reached_new > 0.0, (spent + (1.0 - reached_new) * r) / reached_new, math.inf)
        fresh[n] = candidates.min()
        if math.isinf(fresh[n]):
            raise SettingError(
                f"resolution_hours {h:g}: no machine lives long enough for {n * h:g} h of work in segments of "
                f"this length, each with a checkpoint of {c:g} h; give a smaller resolution"
            )
        after_loss = r + fresh[n]
        window = slice(n, n + ages + 1)
        values = gained[:n, window] - after_loss * reached[:n, window]
        chosen = values.argmin(axis=0)
        best[n] = n - chosen
        best[n, 0] = n - candidates.argmin()
        least = T_at_age + values[chosen, np.arange(ages + 1)]
        V = after_loss + np.where(dead, 0.0, least / np.where(dead, 1.0, S_at_age))
        V[0] = fresh[n]
        reached[n, window] = saved_S[: ages + 1]
        gained[n, window] = (
            saved_S[: ages + 1] * ((1.0 - part) * V[before] + part * V[after]) - saved_T[: ages + 1]
        )
    return best, fresh


def _survival_and_integral(survival: Survival, ages: Array, horizon: float) -> tuple[Array, Array]:
    """Return S and T at these rising ages; at the horizon all machines count as lost."""
    edges = np.append(np.minimum(ages, horizon), horizon)
    widths = np.diff(edges)
    cells = widths * (alive(survival, edges[:-1, None] + widths[:, None] * QUADRATURE_NODES) @ QUADRATURE_WEIGHTS)
    return np.where(ages < horizon - HOURS_TOLERANCE, alive(survival, ages), 0.0), np.cumsum(cells[::-1])[::-1]
