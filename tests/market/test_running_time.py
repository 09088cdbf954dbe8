"""Tests of running times: closed forms, simulations and invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from tests.market.known_lifetimes import Bathtub, Exponential, LifetimeDraws, Machine, Steps, Uniform, average
from thriftune.errors import SettingError
from thriftune.market.running_time import (
    expected_hours,
    expected_waste,
    failure_probability,
    lived_hours,
    mean_hours,
    scispot_eq7,
    scispot_eq9,
    scispot_eq10,
)

MACHINES: list[Machine] = [Exponential(), Uniform(), Bathtub(), Bathtub(A=0.4, tau1=0.5), Bathtub(A=0.5, tau1=1.5)]
ANY = st.sampled_from(MACHINES)
QUICK = settings(max_examples=100, deadline=None)


def simulated(machine: Machine, hours: float, age: float, restart: float, seed: int) -> tuple[float, float]:
    """Return the mean hours until a job is done and its tolerance, by simulation."""
    lives = LifetimeDraws(machine, seed)

    def once() -> float:
        life, spent = lives.next(beyond=age) - age, 0.0
        while life <= hours:
            spent += life + restart
            life = lives.next()
        return spent + hours

    return average(once, 4000)


# --- closed forms


@pytest.mark.parametrize("hours", [1e-6, 0.5, 3.0, 12.0, 60.0])
@pytest.mark.parametrize("age", [0.0, 7.0])
def test_constant_hazard_has_the_closed_form_at_any_age(hours: float, age: float) -> None:
    machine, r = Exponential(rate=0.2), 0.3
    grown = math.expm1(0.2 * hours)
    assert expected_hours(machine, hours, age) == pytest.approx(grown / 0.2, rel=1e-9)
    assert expected_hours(machine, hours, age, restart_hours=r) == pytest.approx(grown * (1 / 0.2 + r), rel=1e-9)
    assert failure_probability(machine, hours, age) == pytest.approx(-math.expm1(-0.2 * hours))


def test_uniform_lifetimes_have_the_closed_form() -> None:
    machine = Uniform(end=10.0)
    # A preempted job loses half of its hours on average. A job of T hours is done with probability (10 - T) / 10.
    assert expected_waste(machine, 4.0) == pytest.approx(2.0)
    assert expected_waste(machine, 4.0, 5.0) == pytest.approx(2.0)
    assert expected_waste(machine, 8.0, 5.0) == pytest.approx(2.5)
    assert expected_hours(machine, 4.0) == pytest.approx(4.0 + 0.4 * 2.0 / 0.6)
    assert expected_hours(machine, 4.0, 8.0) == pytest.approx(1.0 + expected_hours(machine, 4.0))
    assert lived_hours(machine, 4.0) == pytest.approx(0.6 * 4.0 + 0.4 * 2.0)


def test_mean_lifetimes() -> None:
    assert mean_hours(Exponential(rate=0.2), age=3.0) == pytest.approx(5.0)
    assert mean_hours(Exponential(rate=1e-6)) == pytest.approx(1e6)
    assert mean_hours(Uniform(end=10.0), age=4.0) == pytest.approx(3.0)
    assert mean_hours(Uniform(end=10.0), age=11.0) == 0.0
    assert mean_hours(Steps((1.0, 2.0), (0.3, 0.3))) == math.inf  # 40 % are never lost


def test_a_forced_end_counts_as_a_loss() -> None:
    machine = Steps((6.0,), (1.0,))  # every machine lives exactly 6 h
    assert failure_probability(machine, [5.99, 6.0, 7.0]) == pytest.approx([0.0, 1.0, 1.0])
    assert expected_waste(machine, 7.0) == pytest.approx(6.0)
    assert expected_waste(machine, 7.0, 4.0) == pytest.approx(2.0)
    assert expected_hours(machine, 5.0, 4.0, restart_hours=0.5) == pytest.approx(2.0 + 0.5 + 5.0)


def test_a_job_longer_than_any_life_takes_forever() -> None:
    assert expected_hours(Bathtub(), 24.0) == math.inf
    assert expected_hours(Bathtub(), 30.0, 3.0) == math.inf
    assert expected_hours(Bathtub(), 23.9) < math.inf
    assert expected_hours(Bathtub(), 0.0) == 0.0
    assert expected_hours(Exponential(1.0), 400.0) == math.inf  # exactly, about e^400 hours


def test_a_machine_past_its_end_counts_as_lost() -> None:
    machine = Bathtub()
    assert failure_probability(machine, 1.0, 25.0) == 1.0
    assert expected_hours(machine, 1.0, 25.0, restart_hours=0.2) == pytest.approx(
        0.2 + expected_hours(machine, 1.0, restart_hours=0.2)
    )


def test_rare_losses_are_computed_exactly() -> None:
    assert expected_waste(Exponential(rate=1e-9), 2.0) == pytest.approx(1.0, rel=1e-6)
    assert math.isnan(float(expected_waste(Steps((6.0,), (1.0,)), 2.0)))  # no machine is lost within 2 h


# --- simulations


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize(("hours", "age", "restart"), [(2.0, 0.0, 0.1), (6.0, 3.0, 0.0), (5.0, 7.5, 0.5)])
def test_expected_hours_equal_a_simulation(machine: Machine, hours: float, age: float, restart: float) -> None:
    mean, error = simulated(machine, hours, age, restart, seed=1)
    assert expected_hours(machine, hours, age, restart_hours=restart) == pytest.approx(mean, abs=error)


def test_expected_waste_equals_a_simulation() -> None:
    machine = Bathtub()
    ages = machine.draw(20_000, np.random.default_rng(2))
    lost = ages[(ages > 16.0) & (ages <= 23.0)] - 16.0
    assert expected_waste(machine, 7.0, 16.0) == pytest.approx(
        lost.mean(), abs=4 * lost.std() / math.sqrt(len(lost))
    )


# --- as printed


@pytest.mark.parametrize("machine", [Bathtub(), Bathtub(A=0.5, tau1=1.5)], ids=str)
def test_the_printed_equations_equal_integrals_of_the_density(machine: Bathtub) -> None:
    def f(t: float) -> float:  # Eq. 2
        early = math.exp(-t / machine.tau1) / machine.tau1
        return machine.A * (early + math.exp((t - machine.b) / machine.tau2) / machine.tau2)

    def integral(low: float, high: float) -> float:
        return float(quad(lambda t: t * f(t), low, high)[0])

    F = float(failure_probability(machine, 6.0))
    assert scispot_eq7(machine, 6.0) == pytest.approx(integral(0.0, 6.0) / F, rel=1e-6)
    assert scispot_eq9(machine, 6.0) == pytest.approx(6.0 + integral(0.0, 6.0), rel=1e-6)
    assert scispot_eq10(machine, 6.0, 17.0) == pytest.approx(6.0 + integral(17.0, 23.0), rel=1e-6)
    assert scispot_eq10(machine, 6.0, 0.0) == pytest.approx(scispot_eq9(machine, 6.0))


def test_one_preemption_at_most_takes_less_time() -> None:
    hours = np.linspace(0.1, 23.0, 40)
    assert (np.asarray(scispot_eq9(Bathtub(), hours)) <= np.asarray(expected_hours(Bathtub(), hours))).all()
    rare = Exponential(rate=1e-5)  # with hardly any second loss, both are equal
    assert scispot_eq9(rare, 5.0) == pytest.approx(expected_hours(rare, 5.0), rel=1e-8)


# --- invariants


@QUICK
@given(ANY, st.floats(0.0, 9.0), st.floats(0.0, 23.0), st.floats(0.0, 2.0))
def test_invariants(machine: Machine, hours: float, age: float, restart: float) -> None:
    expected = float(expected_hours(machine, hours, age, restart_hours=restart))
    assert expected >= hours - 1e-9
    assert expected >= float(expected_hours(machine, hours, age)) - 1e-9
    failure = float(failure_probability(machine, hours, age))
    assert 0.0 <= failure <= 1.0
    if failure > 1e-12:
        assert -1e-9 <= float(expected_waste(machine, hours, age)) <= hours + 1e-9
    # A longer job takes longer: each hour of work takes at least an hour.
    assert float(expected_hours(machine, hours + 0.5, restart_hours=restart)) >= 0.5 - 1e-9 + float(
        expected_hours(machine, hours, restart_hours=restart)
    )


def test_arrays_broadcast_and_floats_give_floats() -> None:
    machine = Bathtub()
    expected = np.asarray(expected_hours(machine, [[1.0], [5.0]], [0.0, 6.0, 30.0]))
    assert expected.shape == (2, 3)
    assert expected[1, 1] == pytest.approx(float(expected_hours(machine, 5.0, 6.0)))
    for function in (expected_hours, expected_waste, failure_probability, lived_hours):
        assert isinstance(function(machine, 2.0, 1.0), float)


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_invalid_hours_are_refused(wrong: float) -> None:
    with pytest.raises(SettingError, match=f"hours {wrong:g} must be a number, 0 or more"):
        expected_hours(Exponential(), [1.0, wrong])
    with pytest.raises(SettingError, match=f"age {wrong:g}"):
        expected_hours(Exponential(), 1.0, wrong)
    with pytest.raises(SettingError, match=f"restart_hours {wrong:g}"):
        expected_hours(Exponential(), 1.0, restart_hours=wrong)


def test_text_is_refused_as_hours() -> None:
    with pytest.raises(SettingError, match="hours 'soon' must be a number"):
        expected_hours(Exponential(), "soon")


def test_a_model_without_survivors_before_its_end_is_allowed() -> None:
    machine = Bathtub(A=0.5, b=22.0)  # F is 1 from about 22 h on; survival at greater ages is 0 / 0
    assert failure_probability(machine, 0.5, 23.0) == 1.0
    assert expected_hours(machine, 1.0, 23.0) == pytest.approx(float(expected_hours(machine, 1.0)))
