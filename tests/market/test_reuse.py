"""Tests of the choice between an old and a new machine, against expected hours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.market.known_lifetimes import Bathtub, Exponential, Machine, Steps, Uniform
from thriftune.errors import SettingError
from thriftune.market.reuse import ReuseTable, reuse
from thriftune.market.running_time import expected_hours

MACHINES: list[Machine] = [Uniform(), Bathtub(), Bathtub(A=0.5, tau1=1.5), Bathtub(A=0.4, tau1=5.0)]
HUMP = Steps((0.5, 6.0, 24.0), (0.1, 0.5, 0.4))
"""Half of all machines are lost at 6 h: the hazard has a hump."""


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([*MACHINES, HUMP]), st.floats(0.01, 23.0), st.floats(0.0, 23.0), st.floats(0.0, 1.0))
def test_reuse_chooses_the_sooner_end(machine: Machine, hours: float, age: float, restart: float) -> None:
    new = restart + float(expected_hours(machine, hours, restart_hours=restart))
    old = float(expected_hours(machine, hours, age, restart_hours=restart))
    reused = reuse(machine, hours, age, restart_hours=restart)
    if age + hours >= machine.end:
        assert not reused
    elif abs(old - new) > 1e-6 * new:
        assert reused == (old < new)


def test_machines_with_constant_hazard_are_always_reused() -> None:
    ages, hours = np.meshgrid(np.linspace(0.0, 50.0, 11), np.linspace(0.1, 30.0, 11))
    assert np.all(reuse(Exponential(), hours, ages))
    assert np.all(ReuseTable(Exponential(), longest_hours=30.0).up_to == pytest.approx(30.0))


def test_an_ageing_machine_is_reused_only_to_save_a_restart() -> None:
    assert not reuse(Uniform(), 2.0, 1.0)
    assert reuse(Uniform(), 2.0, 1.0, restart_hours=1.0)
    assert not reuse(Uniform(), 2.0, 7.9, restart_hours=1.0)


def test_bathtub_machines_are_reused_for_jobs_they_can_finish() -> None:
    machine = Bathtub()
    assert reuse(machine, 6.0, 10.0)
    assert not reuse(machine, 6.0, 17.9)  # SciSpot Fig. 7: no reuse for a job of 6 h after 18 h
    table = ReuseTable(machine)
    np.testing.assert_array_equal(table.up_to, table.longest)  # one threshold at every age
    grown = (table.ages > 2.0) & (table.ages < 22.0)
    assert (np.diff(table.up_to[grown]) < 0.0).all()
    assert (table.up_to < 24.0 - table.ages + 1e-9).all()


def test_with_a_hump_short_and_long_jobs_reuse_the_machine() -> None:
    np.testing.assert_array_equal(reuse(HUMP, [1.0, 3.0, 12.0], 4.0), [True, False, True])
    table = ReuseTable(HUMP)
    row = int(np.argmin(abs(table.ages - 4.0)))
    assert table.up_to[row] == pytest.approx(2.0, abs=0.1)
    assert table.longest[row] > 12.0
    np.testing.assert_array_equal(table.reuse([1.0, 3.0, 12.0], 4.0), [True, False, True])


@pytest.mark.parametrize("machine", [*MACHINES, HUMP], ids=str)
@pytest.mark.parametrize("restart", [0.0, 0.2])
def test_the_table_equals_the_function(machine: Machine, restart: float) -> None:
    table = ReuseTable(machine, restart_hours=restart, resolution_hours=0.1)
    random = np.random.default_rng(3)
    ages, hours = random.uniform(0.0, machine.end, (2, 2000))
    answers = np.asarray(table.reuse(hours, ages))
    # Answers may differ within one step of where the answer changes.
    near = np.zeros(len(ages), dtype=bool)
    for d_age in (-0.1, 0.0, 0.1):
        for d_hours in (-0.1, 0.0, 0.1):
            shifted = np.maximum(hours + d_hours, 1e-3), np.maximum(ages + d_age, 0.0)
            near |= answers == reuse(machine, *shifted, restart_hours=restart)
    assert near.all()
    assert np.mean(answers == reuse(machine, hours, ages, restart_hours=restart)) > 0.98


def test_both_machines_take_as_long_at_the_frontier() -> None:
    machine, table = Bathtub(), ReuseTable(Bathtub(), restart_hours=0.1, resolution_hours=0.05)
    for age in (3.0, 10.0, 20.0):
        hours = table.up_to[int(np.argmin(abs(table.ages - age)))]
        new = 0.1 + float(expected_hours(machine, hours, restart_hours=0.1))
        assert expected_hours(machine, hours, age, restart_hours=0.1) == pytest.approx(new, rel=1e-3)


def test_a_machine_past_its_end_is_not_reused() -> None:
    table = ReuseTable(Bathtub())
    assert not table.reuse(0.1, 24.0)
    assert not table.reuse(0.1, 30.0)
    assert not table.reuse(40.0, 1.0)


def test_queries_beyond_the_table_and_invalid_values_are_errors() -> None:
    with pytest.raises(SettingError, match="give longest_hours="):
        ReuseTable(Exponential())
    with pytest.raises(SettingError, match="a job of 13 h at age 2 h is beyond the table, which ends at 12 h"):
        ReuseTable(Exponential(), longest_hours=12.0).reuse(13.0, 2.0)
    with pytest.raises(SettingError, match="resolution_hours 0"):
        ReuseTable(Bathtub(), resolution_hours=0.0)
    with pytest.raises(SettingError, match="hours nan"):
        reuse(Bathtub(), math.nan, 1.0)


def test_a_table_that_is_too_large_is_refused() -> None:
    with pytest.raises(SettingError, match=r"into 100000 pieces, and 2000 is the maximum; give 5 or more"):
        ReuseTable(Exponential(), longest_hours=1e4)
