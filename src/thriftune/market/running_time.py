"""How long will a job take on a machine that may be lost? SciSpot section 4.1, without checkpoints.

A job of T hours starts on a machine of age s. With S(u) the probability that this machine lives another u hours,

    lost(T)  = E[L; L <= T] = integral over 0..T of S(u) - S(T)    L: the hours the machine still lives
    lived(T) = E[min(L, T)] = T S(T) + lost(T)

so neither a density is needed, nor anything special for machines that are all ended at the same age. What is lost
begins anew on a fresh machine (of age 0) after a restart of r hours, as often as it takes:

    E[T, s] = lived(T, s) + (1 - S(T, s)) (r + E[T, 0]),    E[T, 0] = T + (lost(T, 0) + (1 - S(T, 0)) r) / S(T, 0)

Functions broadcast over hours and ages, and give floats for floats.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from thriftune.market.survival import Array, Survival, alive, checked

NEVER_HOURS = 1e9
"""More than a hundred thousand years: as far out as that, a model of lifetimes tells nothing."""

_roots, _weights = np.polynomial.legendre.leggauss(5)
QUADRATURE_NODES, QUADRATURE_WEIGHTS = 0.5 * (_roots + 1.0), 0.5 * _weights
"""Gauss-Legendre on 0..1."""

# Panels of the integral over 0..1: even ones, and ever finer ones towards 0, as young machines may die within
# minutes of a job that would take days.
_EDGES = np.union1d(np.linspace(0.0, 1.0, 65), 2.0 ** -np.arange(7.0, 25.0))
_AT = (_EDGES[:-1, None] + np.diff(_EDGES)[:, None] * QUADRATURE_NODES).ravel()
_WEIGHT = (np.diff(_EDGES)[:, None] * QUADRATURE_WEIGHTS).ravel()


def failure_probability(survival: Survival, hours: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
    """That a machine of this age is lost before a job of so many hours is done."""
    told: Array = 1.0 - alive(survival, checked("hours", hours), checked("age", age))
    return told[()]


def lived_hours(survival: Survival, hours: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
    """What a machine of this age is expected to live of the next `hours`: E[min(L, T)]."""
    hours, age = checked("hours", hours), checked("age", age)
    told: Array = hours * alive(survival, hours, age) + _lost(survival, hours, age)
    return told[()]


def expected_waste(survival: Survival, hours: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
    """Hours of work a job loses, given that it is preempted; NaN where it cannot be.

    SciSpot Eq. 6-7, for a machine of any age that has lived so long: a loss at age t costs t - age.
    """
    hours, age = checked("hours", hours), checked("age", age)
    failure = 1.0 - alive(survival, hours, age)
    with np.errstate(invalid="ignore"):
        told: Array = np.where(failure > 0.0, _lost(survival, hours, age) / failure, math.nan)
    return told[()]


def expected_hours(
    survival: Survival, hours: ArrayLike, age: ArrayLike = 0.0, *, restart_hours: float = 0.0
) -> float | Array:
    """Until a job of so many hours is done that starts on a machine of this age, with all its restarts.

    Infinite where no fresh machine lives long enough, as for a job of 24 h on machines that end at 24 h, unless
    the machine at hand is sure to last: such a job needs checkpoints. What would take longer than
    `NEVER_HOURS` is infinite, too.
    """
    hours, age = checked("hours", hours), checked("age", age)
    restart = float(checked("restart_hours", restart_hours))
    here = alive(survival, hours, age)
    lived = hours * here + _lost(survival, hours, age)
    again = restart + _fresh(survival, hours, restart)
    told: Array = lived + (1.0 - here) * np.where(here < 1.0, again, 0.0)  # 0 times inf is 0 here
    return told[()]


def mean_hours(survival: Survival, age: float = 0.0) -> float:
    """What a machine of this age is expected to live yet; inf where that has no bound."""
    if survival.end < math.inf:
        return float(lived_hours(survival, max(0.0, survival.end - age), age))
    total, start, step = 0.0, 0.0, 1.0
    while step < 1e12:
        left = float(alive(survival, start, age))
        further = left * float(lived_hours(survival, step, age + start)) if left else 0.0
        total += further
        if further <= 1e-12 * total:
            return total
        start, step = start + step, 2.0 * step
    return math.inf


def scispot_eq7(survival: Survival, hours: ArrayLike) -> float | Array:
    """E[W1(T)] as printed: what a job on a fresh machine loses, given that it is preempted."""
    return expected_waste(survival, hours)


def scispot_eq9(survival: Survival, hours: ArrayLike) -> float | Array:
    """E[T] as printed: a job on a fresh machine that is preempted once at most."""
    return scispot_eq10(survival, hours, 0.0)


def scispot_eq10(survival: Survival, hours: ArrayLike, age: ArrayLike) -> float | Array:
    """E[T_s] as printed, T + integral over s..s+T of t f(t) dt: one preemption at most, charged with the whole age
    of the machine, and its density not that of a machine that has lived to s. `expected_hours` is what was
    meant."""
    hours, age = checked("hours", hours), checked("age", age)
    reached = alive(survival, age)
    failure = reached * (1.0 - alive(survival, hours, age))
    told: Array = hours + reached * _lost(survival, hours, age) + age * failure
    return told[()]


def _fresh(survival: Survival, hours: Array, restart: float) -> Array:
    """E[T, 0]"""
    here = alive(survival, hours)
    wasted = _lost(survival, hours, np.zeros(())) + (1.0 - here) * restart
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        told: Array = np.where(here > 0.0, hours + wasted / here, math.inf)
    told[told > NEVER_HOURS] = math.inf
    return told


def _lost(survival: Survival, hours: Array, age: Array) -> Array:
    """E[L; L <= T], summed as it stands: T - T S(T) would lose the digits of a rare loss."""
    reach = np.clip(survival.end - age, 0.0, hours)[..., None]  # past `end` there is nothing to integrate
    until = alive(survival, hours, age)[..., None]
    told: Array = reach[..., 0] * ((alive(survival, reach * _AT, age[..., None]) - until) @ _WEIGHT)
    return told
