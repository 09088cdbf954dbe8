"""Tests of the lifetime sampler and of scaled survival."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.market.known_lifetimes import Bathtub, Exponential, Machine, Steps, Uniform
from thriftune.market.survival import LifetimeSampler, ScaledSurvival, alive

QUANTILES = np.linspace(0.0, 1.0, 20_001)[:-1] + 0.5 / 20_000


@pytest.mark.parametrize("machine", [Exponential(0.5), Exponential(0.01), Uniform(), Bathtub()])
def test_samples_have_the_models_survival(machine: Machine) -> None:
    hours = LifetimeSampler(machine).hours_at(QUANTILES)
    for t in (0.05, 0.3, 1.0, 4.0, 9.0, 23.0):
        alive = float(np.asarray(machine.survival(t))) if t < machine.end else 0.0
        assert (hours > t).mean() == pytest.approx(alive, abs=2e-3)


def test_lifetimes_rise_with_the_quantile_up_to_the_end() -> None:
    hours = LifetimeSampler(Bathtub()).hours_at(QUANTILES)
    assert (np.diff(hours) >= 0.0).all()
    assert hours[0] >= 0.0
    assert hours[-1] <= 24.0
    assert (hours > 23.99).mean() > 0.02  # the machines of the forced end


def test_discrete_lifetimes_are_sampled() -> None:
    hours = LifetimeSampler(Steps((1.0, 5.0, 20.0), (0.2, 0.5, 0.3))).hours_at(QUANTILES)
    for low, high, share in ((0.98, 1.02, 0.2), (4.95, 5.05, 0.5), (19.9, 20.0, 0.3)):
        assert ((hours >= low) & (hours <= high)).mean() == pytest.approx(share, abs=5e-3)


def test_lifetimes_beyond_the_table_are_infinite() -> None:
    hours = LifetimeSampler(Steps((1.0, 5.0), (0.2, 0.3))).hours_at(QUANTILES)
    assert np.isinf(hours).mean() == pytest.approx(0.5, abs=2e-3)
    assert LifetimeSampler(Exponential(1e-9)).hours_at(0.5) == math.inf


def test_a_number_and_an_array_give_the_same() -> None:
    sampler = LifetimeSampler(Exponential(0.5))
    assert sampler.hours_at(0.3) == sampler.hours_at([0.1, 0.3])[1]


@pytest.mark.parametrize("machine", [Exponential(0.5), Uniform(), Bathtub()])
@pytest.mark.parametrize("rate", [0.3, 1.0, 2.5])
def test_scaled_survival_multiplies_the_hazard(machine: Machine, rate: float) -> None:
    scaled, hours = ScaledSurvival(machine, rate), np.array([0.1, 0.5, 2.0])
    assert scaled.end == machine.end
    for age in (0.0, 1.0, 5.0):
        survival = alive(scaled, hours, age)
        assert np.log(survival) == pytest.approx(rate * np.log(alive(machine, hours, age)))
    assert isinstance(scaled.survival(1.0), float)
