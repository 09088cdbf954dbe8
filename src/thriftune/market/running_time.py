"""Expected running times of jobs without checkpoints (SciSpot section 4.1).

Machines may be preempted. A job of T hours starts on a machine of age s. Let S(u) be the probability that this
machine lives another u hours, and L the hours that it still lives. Let E[L; L <= T] be the expectation of L if L
counts as 0 wherever it is above T:

    lost(T)  = E[L; L <= T] = integral over 0..T of S(u) - S(T)
    lived(T) = E[min(L, T)] = T S(T) + lost(T)

These formulas need no density, so a forced end of life is no special case. Below, the age s is a second argument
of S, lost and lived. A preempted job starts again on a new machine, of age 0, after a restart of r hours, as often
as necessary. Its expected hours are

    E[T, s] = lived(T, s) + (1 - S(T, s)) (r + E[T, 0]),    E[T, 0] = T + (lost(T, 0) + (1 - S(T, 0)) r) / S(T, 0)

Functions broadcast over hours and ages. They return a float if all arguments are numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from thriftune.market.survival import Array, Survival, alive, checked

NEVER_HOURS = 1e9
"""More than a hundred thousand years. Longer expected times count as infinite, because no model of lifetimes is
valid for them."""

_MEAN_TOLERANCE = 1e-12  # the integral for the mean lifetime ends when a step adds less than this share of it
_MAX_STEP_HOURS = 1e12  # the longest step of that integral; a mean that needs longer steps is infinite

_roots, _weights = np.polynomial.legendre.leggauss(5)
QUADRATURE_NODES, QUADRATURE_WEIGHTS = 0.5 * (_roots + 1.0), 0.5 * _weights
"""Nodes and weights of the Gauss-Legendre quadrature over 0..1."""

# The panels of the integral over 0..1 are even, and finer towards 0, because a new machine may be lost within
# minutes of a job that takes days.
_EDGES = np.union1d(np.linspace(0.0, 1.0, 65), 2.0 ** -np.arange(7.0, 25.0))
_PANEL_NODES = (_EDGES[:-1, None] + np.diff(_EDGES)[:, None] * QUADRATURE_NODES).ravel()
_PANEL_WEIGHTS = (np.diff(_EDGES)[:, None] * QUADRATURE_WEIGHTS).ravel()


def failure_probability(survival: Survival, hours: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
    """Return the probability that a machine is lost within the next `hours`.

    The machine has age `age`.
    """
    probability: Array = 1.0 - alive(survival, checked("hours", hours), checked("age", age))
    return probability[()]


def lived_hours(survival: Survival, hours: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
    """Return the expected hours that a machine lives within the next `hours`.

    This is E[min(L, T)] for a machine of age `age`.
    """
    hours, age = checked("hours", hours), checked("age", age)
    lived: Array = hours * alive(survival, hours, age) + _lost(survival, hours, age)
    return lived[()]


def expected_waste(survival: Survival, hours: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
    """Return the expected hours of work that a preempted job loses.

    The result is NaN if the job cannot be preempted. This is SciSpot Eq. 6-7 for a machine that is alive at `age`:
    a preemption at age t loses t - age hours.
    """
    hours, age = checked("hours", hours), checked("age", age)
    failure = 1.0 - alive(survival, hours, age)
    with np.errstate(invalid="ignore"):
        waste: Array = np.where(failure > 0.0, _lost(survival, hours, age) / failure, math.nan)
    return waste[()]


def expected_hours(
    survival: Survival, hours: ArrayLike, age: ArrayLike = 0.0, *, restart_hours: float = 0.0
) -> float | Array:
    """Return the expected hours until a job is done, with all restarts.

    The job starts on a machine of age `age`. The result is infinite if the first machine may be lost and no new
    machine can live long enough. An example is a job of 24 h on machines that end at 24 h. Such a job needs
    checkpoints. A result above `NEVER_HOURS` counts as infinite, too.
    """
    hours, age = checked("hours", hours), checked("age", age)
    restart = float(checked("restart_hours", restart_hours))
    alive_at_end = alive(survival, hours, age)
    lived = hours * alive_at_end + _lost(survival, hours, age)
    after_loss = restart + _hours_on_new_machine(survival, hours, restart)
    # The inner where() avoids 0 times infinity if no loss is possible.
    expected: Array = lived + (1.0 - alive_at_end) * np.where(alive_at_end < 1.0, after_loss, 0.0)
    return expected[()]


def mean_hours(survival: Survival, age: float = 0.0) -> float:
    """Return the expected remaining lifetime of a machine; it may be infinite."""
    if survival.end < math.inf:
        return float(lived_hours(survival, max(0.0, survival.end - age), age))
    total, start, step = 0.0, 0.0, 1.0
    while step < _MAX_STEP_HOURS:
        left = float(alive(survival, start, age))
        further = left * float(lived_hours(survival, step, age + start)) if left else 0.0
        total += further
        if further <= _MEAN_TOLERANCE * total:
            return total
        start, step = start + step, 2.0 * step
    return math.inf


def scispot_eq7(survival: Survival, hours: ArrayLike) -> float | Array:
    """Return E[W1(T)] of SciSpot Eq. 7, as printed there.

    These are the hours that a preempted job on a new machine loses.
    """
    return expected_waste(survival, hours)


def scispot_eq9(survival: Survival, hours: ArrayLike) -> float | Array:
    """Return E[T] of SciSpot Eq. 9, as printed there.

    These are the expected hours of a job on a new machine, with at most one preemption.
    """
    return scispot_eq10(survival, hours, 0.0)


def scispot_eq10(survival: Survival, hours: ArrayLike, age: ArrayLike) -> float | Array:
    """Return E[T_s] of SciSpot Eq. 10: T + integral over s..s+T of t f(t) dt.

    The printed formula allows one preemption, which loses the machine's whole age. Its density f is not
    conditioned on being alive at age s. `expected_hours` corrects both.
    """
    hours, age = checked("hours", hours), checked("age", age)
    reached = alive(survival, age)
    failure = reached * (1.0 - alive(survival, hours, age))
    printed: Array = hours + reached * _lost(survival, hours, age) + age * failure
    return printed[()]


def _hours_on_new_machine(survival: Survival, hours: Array, restart: float) -> Array:
    """Return E[T, 0] as the module's docstring defines it."""
    alive_at_end = alive(survival, hours)
    wasted = _lost(survival, hours, np.zeros(())) + (1.0 - alive_at_end) * restart
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        expected: Array = np.where(alive_at_end > 0.0, hours + wasted / alive_at_end, math.inf)
    expected[expected > NEVER_HOURS] = math.inf
    return expected


def _lost(survival: Survival, hours: Array, age: Array) -> Array:
    """Return lost(T, s) as the module's docstring defines it, in hours.

    The difference S(u) - S(T) is integrated as a whole, because two separate integrals would lose the digits of a
    rare loss.
    """
    reach = np.clip(survival.end - age, 0.0, hours)[..., None]  # nothing lives past `end`
    alive_at_end = alive(survival, hours, age)[..., None]
    alive_at_nodes = alive(survival, reach * _PANEL_NODES, age[..., None])
    lost: Array = reach[..., 0] * ((alive_at_nodes - alive_at_end) @ _PANEL_WEIGHTS)
    return lost
