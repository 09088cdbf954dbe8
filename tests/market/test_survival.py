"""LifetimeSampler that are drawn from whatever says how long machines live."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.market.known_lifetimes import Bathtub, Exponential, Machine, Steps, Uniform
from thriftune.market.survival import LifetimeSampler, ScaledSurvival, alive

DRAWN = np.linspace(0.0, 1.0, 20_001)[:-1] + 0.5 / 20_000


@pytest.mark.parametrize("machine", [Exponential(0.5), Exponential(0.01), Uniform(), Bathtub()])
def test_as_many_live_as_the_model_says(machine: Machine) -> None:
    hours = LifetimeSampler(machine).hours_at(DRAWN)
    for t in (0.05, 0.3, 1.0, 4.0, 9.0, 23.0):
        alive = float(np.asarray(machine.survival(t))) if t < machine.end else 0.0
        assert (hours > t).mean() == pytest.approx(alive, abs=2e-3)


def test_later_numbers_live_longer_and_none_beyond_the_end() -> None:
    hours = LifetimeSampler(Bathtub()).hours_at(DRAWN)
    assert (np.diff(hours) >= 0.0).all()
    assert hours[0] >= 0.0
    assert hours[-1] <= 24.0
    assert (hours > 23.99).mean() > 0.02  # whoever lives so long is ended there


def test_the_ages_at_which_machines_are_lost_are_met() -> None:
    hours = LifetimeSampler(Steps((1.0, 5.0, 20.0), (0.2, 0.5, 0.3))).hours_at(DRAWN)
    for low, high, share in ((0.98, 1.02, 0.2), (4.95, 5.05, 0.5), (19.9, 20.0, 0.3)):
        assert ((hours >= low) & (hours <= high)).mean() == pytest.approx(share, abs=5e-3)


def test_who_outlives_all_that_is_known_lives_for_ever() -> None:
    hours = LifetimeSampler(Steps((1.0, 5.0), (0.2, 0.3))).hours_at(DRAWN)
    assert np.isinf(hours).mean() == pytest.approx(0.5, abs=2e-3)
    assert LifetimeSampler(Exponential(1e-9)).hours_at(0.5) == math.inf


def test_one_or_many_are_told_alike() -> None:
    lives = LifetimeSampler(Exponential(0.5))
    assert lives.hours_at(0.3) == lives.hours_at([0.1, 0.3])[1]


@pytest.mark.parametrize("machine", [Exponential(0.5), Uniform(), Bathtub()])
@pytest.mark.parametrize("rate", [0.3, 1.0, 2.5])
def test_a_rate_of_losses_is_that_many_times_as_high_at_every_age(machine: Machine, rate: float) -> None:
    scaled, hours = ScaledSurvival(machine, rate), np.array([0.1, 0.5, 2.0])
    assert scaled.end == machine.end
    for age in (0.0, 1.0, 5.0):
        told = alive(scaled, hours, age)
        assert np.log(told) == pytest.approx(rate * np.log(alive(machine, hours, age)))
    assert isinstance(scaled.survival(1.0), float)
