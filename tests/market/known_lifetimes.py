"""Lifetime models with known formulas, for the tests of the market package."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Exponential:
    rate: float = 0.125
    end: float = math.inf

    def survival(self, t: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
        probability: Array = np.exp(-self.rate * (np.asarray(t) + 0.0 * np.asarray(age)))
        return probability[()]

    def draw(self, n: int, random: np.random.Generator) -> Array:
        return random.exponential(1.0 / self.rate, n)


@dataclass(frozen=True)
class Uniform:
    """Lifetimes distributed uniformly up to the end."""

    end: float = 10.0

    def survival(self, t: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
        age = np.asarray(age, dtype=float)
        probability: Array = np.clip((self.end - age - np.asarray(t)) / (self.end - age), 0.0, 1.0)
        return probability[()]

    def draw(self, n: int, random: np.random.Generator) -> Array:
        return random.uniform(0.0, self.end, n)


@dataclass(frozen=True)
class Bathtub:
    """SciSpot's bathtub, Eq. 1; machines that reach 24 h end there."""

    A: float = 0.45
    tau1: float = 1.0
    tau2: float = 0.8
    b: float = 24.0
    end: float = 24.0

    def lives_to(self, age: ArrayLike) -> Array:
        age = np.asarray(age, dtype=float)
        with np.errstate(over="ignore"):
            F = self.A * (1.0 - np.exp(-age / self.tau1) + np.exp((age - self.b) / self.tau2))
        return np.where(age >= self.end, 0.0, np.clip(1.0 - F, 0.0, 1.0))

    def survival(self, t: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
        probability: Array = self.lives_to(np.asarray(t) + np.asarray(age)) / self.lives_to(age)
        return probability[()]

    def draw(self, n: int, random: np.random.Generator) -> Array:
        """Draw lifetimes from a grid of a million ages."""
        ages = np.linspace(0.0, self.end, 1_000_001)
        hours: Array = ages[np.searchsorted(-self.lives_to(ages), -random.uniform(size=n))]
        return hours


@dataclass(frozen=True)
class Steps:
    """Lifetimes with a few discrete values: `shares` of machines are lost at `ages`."""

    ages: tuple[float, ...]
    shares: tuple[float, ...]

    @property
    def end(self) -> float:
        return self.ages[-1] if math.isclose(sum(self.shares), 1.0) else math.inf

    def lives_to(self, age: ArrayLike) -> Array:
        later = np.asarray(self.ages) > np.asarray(age, dtype=float)[..., None]
        probability: Array = (1.0 - sum(self.shares)) + later @ np.asarray(self.shares)
        return probability

    def survival(self, t: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
        probability: Array = self.lives_to(np.asarray(t) + np.asarray(age)) / self.lives_to(age)
        return probability[()]

    def draw(self, n: int, random: np.random.Generator) -> Array:
        index = np.searchsorted(np.cumsum(self.shares), random.uniform(size=n), side="right")
        hours: Array = np.array([*self.ages, math.inf])[index]
        return hours


Machine = Exponential | Uniform | Bathtub | Steps


class LifetimeDraws:
    """A stream of lifetimes drawn from a model."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self._machine, self._random = machine, np.random.default_rng(seed)
        self._drawn: list[float] = []

    def next(self, beyond: float = 0.0) -> float:
        """Return the next lifetime that is longer than `beyond`."""
        while True:
            if not self._drawn:
                self._drawn = self._machine.draw(20_000, self._random).tolist()
            if (life := self._drawn.pop()) > beyond:
                return life


def average(once: Callable[[], float], times: int) -> tuple[float, float]:
    """Return the mean of repeated draws and its tolerance.

    The tolerance is four standard errors, plus an allowance for losses so rare that none was drawn.
    """
    values = np.array([once() for _ in range(times)])
    return float(values.mean()), 4.0 * float(values.std()) / math.sqrt(times) + 5e-3
