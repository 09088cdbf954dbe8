"""Lifetimes that the tests of the market know everything about."""

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
        told: Array = np.exp(-self.rate * (np.asarray(t) + 0.0 * np.asarray(age)))
        return told[()]

    def draw(self, n: int, random: np.random.Generator) -> Array:
        return random.exponential(1.0 / self.rate, n)


@dataclass(frozen=True)
class Uniform:
    """Lost at any age up to the end alike."""

    end: float = 10.0

    def survival(self, t: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
        age = np.asarray(age, dtype=float)
        told: Array = np.clip((self.end - age - np.asarray(t)) / (self.end - age), 0.0, 1.0)
        return told[()]

    def draw(self, n: int, random: np.random.Generator) -> Array:
        return random.uniform(0.0, self.end, n)


@dataclass(frozen=True)
class Bathtub:
    """SciSpot Eq. 1; whoever lives to 24 h is ended there."""

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
        told: Array = self.lives_to(np.asarray(t) + np.asarray(age)) / self.lives_to(age)
        return told[()]

    def draw(self, n: int, random: np.random.Generator) -> Array:
        """To the nearest of a million ages."""
        ages = np.linspace(0.0, self.end, 1_000_001)
        told: Array = ages[np.searchsorted(-self.lives_to(ages), -random.uniform(size=n))]
        return told


@dataclass(frozen=True)
class Steps:
    """Lost at one of a few ages, as the empirical distribution says: shares of all, by age."""

    ages: tuple[float, ...]
    shares: tuple[float, ...]

    @property
    def end(self) -> float:
        return self.ages[-1] if math.isclose(sum(self.shares), 1.0) else math.inf

    def lives_to(self, age: ArrayLike) -> Array:
        later = np.asarray(self.ages) > np.asarray(age, dtype=float)[..., None]
        told: Array = (1.0 - sum(self.shares)) + later @ np.asarray(self.shares)
        return told

    def survival(self, t: ArrayLike, age: ArrayLike = 0.0) -> float | Array:
        told: Array = self.lives_to(np.asarray(t) + np.asarray(age)) / self.lives_to(age)
        return told[()]

    def draw(self, n: int, random: np.random.Generator) -> Array:
        at = np.searchsorted(np.cumsum(self.shares), random.uniform(size=n), side="right")
        told: Array = np.array([*self.ages, math.inf])[at]
        return told


Machine = Exponential | Uniform | Bathtub | Steps


class LifetimeDraws:
    """Machines one after the other: the ages at which they are lost, drawn."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self._machine, self._random = machine, np.random.default_rng(seed)
        self._drawn: list[float] = []

    def next(self, beyond: float = 0.0) -> float:
        """Of one that has lived to this age."""
        while True:
            if not self._drawn:
                self._drawn = self._machine.draw(20_000, self._random).tolist()
            if (life := self._drawn.pop()) > beyond:
                return life


def average(once: Callable[[], float], times: int) -> tuple[float, float]:
    """The mean, and four standard errors of it, or what a loss may add that is so rare that none was drawn."""
    told = np.array([once() for _ in range(times)])
    return float(told.mean()), 4.0 * float(told.std()) / math.sqrt(times) + 5e-3
