"""Keep or renew: against the expected hours themselves, drawn lives, and hazards that have no threshold."""

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
"""Half of all machines are lost at 6 h, and few before or after."""


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([*MACHINES, HUMP]), st.floats(0.01, 23.0), st.floats(0.0, 23.0), st.floats(0.0, 1.0))
def test_it_keeps_what_is_sooner_done(machine: Machine, hours: float, age: float, restart: float) -> None:
    new = restart + float(expected_hours(machine, hours, restart_hours=restart))
    old = float(expected_hours(machine, hours, age, restart_hours=restart))
    kept = reuse(machine, hours, age, restart_hours=restart)
    if age + hours >= machine.end:
        assert not kept
    elif abs(old - new) > 1e-6 * new:
        assert kept == (old < new)


def test_machines_without_memory_are_always_kept() -> None:
    ages, hours = np.meshgrid(np.linspace(0.0, 50.0, 11), np.linspace(0.1, 30.0, 11))
    assert np.all(reuse(Exponential(), hours, ages))
    assert np.all(ReuseTable(Exponential(), longest_hours=30.0).up_to == pytest.approx(30.0))


def test_who_only_ages_is_kept_for_what_a_new_start_costs() -> None:
    assert not reuse(Uniform(), 2.0, 1.0)
    assert reuse(Uniform(), 2.0, 1.0, restart_hours=1.0)
    assert not reuse(Uniform(), 2.0, 7.9, restart_hours=1.0)


def test_the_bathtub_keeps_grown_machines_for_what_they_live_to_end() -> None:
    machine = Bathtub()
    assert reuse(machine, 6.0, 10.0)
    assert not reuse(machine, 6.0, 17.9)  # SciSpot Fig. 7: a job of 6 h, after 18 h
    table = ReuseTable(machine)
    np.testing.assert_array_equal(table.up_to, table.longest)  # one threshold at every age
    grown = (table.ages > 2.0) & (table.ages < 22.0)
    assert (np.diff(table.up_to[grown]) < 0.0).all()
    assert (table.up_to < 24.0 - table.ages + 1e-9).all()


def test_a_hump_keeps_the_short_and_the_long_but_not_those_between() -> None:
    np.testing.assert_array_equal(reuse(HUMP, [1.0, 3.0, 12.0], 4.0), [True, False, True])
    table = ReuseTable(HUMP)
    at = int(np.argmin(abs(table.ages - 4.0)))
    assert table.up_to[at] == pytest.approx(2.0, abs=0.1)
    assert table.longest[at] > 12.0
    np.testing.assert_array_equal(table.reuse([1.0, 3.0, 12.0], 4.0), [True, False, True])


@pytest.mark.parametrize("machine", [*MACHINES, HUMP], ids=str)
@pytest.mark.parametrize("restart", [0.0, 0.2])
def test_the_table_says_the_same(machine: Machine, restart: float) -> None:
    table = ReuseTable(machine, restart_hours=restart, resolution_hours=0.1)
    random = np.random.default_rng(3)
    ages, hours = random.uniform(0.0, machine.end, (2, 2000))
    told = np.asarray(table.reuse(hours, ages))
    # The same, or within a step of where the answer changes.
    near = np.zeros(len(ages), dtype=bool)
    for d_age in (-0.1, 0.0, 0.1):
        for d_hours in (-0.1, 0.0, 0.1):
            shifted = np.maximum(hours + d_hours, 1e-3), np.maximum(ages + d_age, 0.0)
            near |= told == reuse(machine, *shifted, restart_hours=restart)
    assert near.all()
    assert np.mean(told == reuse(machine, hours, ages, restart_hours=restart)) > 0.98


def test_the_frontier_is_where_both_take_as_long() -> None:
    machine, table = Bathtub(), ReuseTable(Bathtub(), restart_hours=0.1, resolution_hours=0.05)
    for age in (3.0, 10.0, 20.0):
        hours = table.up_to[int(np.argmin(abs(table.ages - age)))]
        new = 0.1 + float(expected_hours(machine, hours, restart_hours=0.1))
        assert expected_hours(machine, hours, age, restart_hours=0.1) == pytest.approx(new, rel=1e-3)


def test_no_job_is_kept_by_a_machine_that_should_be_gone() -> None:
    table = ReuseTable(Bathtub())
    assert not table.reuse(0.1, 24.0)
    assert not table.reuse(0.1, 30.0)
    assert not table.reuse(40.0, 1.0)


def test_what_it_cannot_know_is_said() -> None:
    with pytest.raises(SettingError, match="give longest_hours="):
        ReuseTable(Exponential())
    with pytest.raises(SettingError, match="up to 12 h, and was asked for a job of 13 h at age 2 h"):
        ReuseTable(Exponential(), longest_hours=12.0).reuse(13.0, 2.0)
    with pytest.raises(SettingError, match="resolution_hours 0"):
        ReuseTable(Bathtub(), resolution_hours=0.0)
    with pytest.raises(SettingError, match="hours nan"):
        reuse(Bathtub(), math.nan, 1.0)


def test_a_table_that_would_be_too_large_is_refused() -> None:
    with pytest.raises(SettingError, match=r"into 100000 steps, and 2000 is the most: give 5 or more"):
        ReuseTable(Exponential(), longest_hours=1e4)
