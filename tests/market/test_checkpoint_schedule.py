"""Tests of checkpoint schedules, with simulations and a brute-force optimum."""

from __future__ import annotations

import math
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.market.known_lifetimes import Bathtub, Exponential, LifetimeDraws, Machine, Steps, Uniform, average
from thriftune.errors import SettingError
from thriftune.market.checkpoint_schedule import (
    Job,
    Schedule,
    best_schedule,
    even_schedule,
    fixed_schedule,
    young_daly_hours,
    young_daly_schedule,
)
from thriftune.market.checkpoint_table import CheckpointTable
from thriftune.market.running_time import expected_hours, lived_hours

MACHINES: list[Machine] = [Exponential(), Uniform(), Bathtub(), Bathtub(A=0.5, tau1=1.5), Bathtub(A=0.4, tau1=0.5)]
ANY = st.sampled_from(MACHINES)


def simulated(schedule: Schedule, job: Job, machine: Machine, seed: int) -> tuple[float, float]:
    """Return the mean hours until the job is done and its tolerance, by simulation."""
    lives = LifetimeDraws(machine, seed)

    def once() -> float:
        left, age, spent = job.work_hours, job.age, 0.0
        life = lives.next(beyond=age)
        while left > 1e-9:
            segment = min(left, schedule.next_segment(left, age))
            takes = segment + (job.checkpoint_hours if segment < left - 1e-9 else 0.0)
            if age + takes < life:
                left, age, spent = left - segment, age + takes, spent + takes
            else:
                spent += life - age + job.restart_hours
                age, life = 0.0, lives.next()
        return spent

    return average(once, 2000)


# --- the evaluator


@pytest.mark.parametrize("age", [0.0, 5.0])
def test_constant_hazard_has_dalys_closed_form(age: float) -> None:
    job, rate = Job(10.0, 0.1, restart_hours=0.3, age=age), 0.2
    schedule = even_schedule(job, Exponential(rate), 2.5)
    assert schedule.segments == (2.5,) * 4
    by_segment = [math.expm1(rate * 2.6)] * 3 + [math.expm1(rate * 2.5)]
    assert schedule.expected_hours == pytest.approx((1 / rate + 0.3) * sum(by_segment), rel=1e-9)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("age", [0.0, 6.0, 9.5])
def test_without_checkpoints_it_equals_the_running_time(machine: Machine, age: float) -> None:
    schedule = even_schedule(Job(5.0, 0.1, restart_hours=0.2, age=age), machine, math.inf)
    assert schedule.expected_hours == pytest.approx(float(expected_hours(machine, 5.0, age, restart_hours=0.2)))


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("age", [0.0, 7.0])
def test_expected_hours_equal_a_simulation(machine: Machine, age: float) -> None:
    job = Job(8.0, 0.1, restart_hours=0.25, age=age)
    for seed, schedule in enumerate(
        (
            even_schedule(job, machine, 1.7),
            fixed_schedule(job, machine, [0.5, 4.0, 1.5, 2.0]),
            best_schedule(job, machine, resolution_hours=0.25),
        )
    ):
        mean, error = simulated(schedule, job, machine, seed)
        assert schedule.expected_hours == pytest.approx(mean, abs=error)


def test_work_that_cannot_be_saved_takes_forever() -> None:
    job = Job(30.0, 0.1)
    assert even_schedule(job, Bathtub(), math.inf).expected_hours == math.inf
    # Long enough for the work, but not for the checkpoint.
    assert even_schedule(job, Bathtub(), 23.95).expected_hours == math.inf
    assert best_schedule(job, Bathtub(), resolution_hours=0.25).expected_hours < 40.0
    surely = Steps((6.0,), (1.0,))
    assert fixed_schedule(Job(5.0, 0.1), surely, [5.0]).expected_hours == pytest.approx(5.0)  # no loss is possible


def test_young_daly() -> None:
    assert young_daly_hours(0.1, 20.0) == pytest.approx(2.0)
    assert young_daly_hours(0.1, math.inf) == math.inf
    assert young_daly_schedule(Job(4.0, 0.1), Exponential(1 / 20)).segments == pytest.approx([2.0, 2.0])
    assert len(young_daly_schedule(Job(4.0, 0.0), Exponential()).segments) == 100


# --- the optimal schedule


def brute_force(machine: Machine, pieces: int, c: int, r: float) -> list[float]:
    """Return V(n, 0) by n, by trying every segment.

    Pieces have an hour, and checkpoints c hours.
    """
    fresh = [0.0]

    @cache
    def best(n: int, age: int, after_loss: float | None) -> float:
        """Return V(n, age).

        `after_loss` is the cost of a loss; it is None at the start of a new machine.
        """
        if n == 0:
            return 0.0
        least = math.inf
        for k in range(1, n + 1):
            takes = k + (c if k < n else 0)
            lives = float(machine.survival(takes, age)) if age + takes < machine.end else 0.0
            spent = float(lived_hours(machine, takes, age))
            then = best(n - k, age + takes, r + fresh[n - k] if n > k else 0.0) if lives > 0.0 else 0.0
            if after_loss is None:
                least = min(least, (spent + lives * then + (1 - lives) * r) / lives) if lives else least
            else:
                least = min(least, spent + lives * then + (1 - lives) * after_loss)
        return least

    while len(fresh) <= pieces:
        fresh += [best(len(fresh), 0, None)]
    return fresh


@pytest.mark.parametrize("machine", [*MACHINES, Steps((2.0, 6.0, 11.0, 30.0), (0.2, 0.4, 0.3, 0.1))], ids=str)
@pytest.mark.parametrize(("c", "r"), [(1, 0.0), (1, 0.7), (2, 0.3)])
def test_the_table_equals_the_brute_force_optimum(machine: Machine, c: int, r: float) -> None:
    table = CheckpointTable(
        machine, 8.0, checkpoint_hours=c, restart_hours=r, oldest_hours=0.0, resolution_hours=1.0
    )
    assert list(table.hours) == pytest.approx(brute_force(machine, 8, c, r), rel=2e-3)
    schedule = best_schedule(Job(8.0, c, restart_hours=r), machine, resolution_hours=1.0)
    assert schedule.expected_hours <= table.hours[-1] * (1 + 2e-3)  # the table's optimum


@settings(max_examples=40, deadline=None)
@given(
    ANY,
    st.floats(0.3, 20.0),
    st.floats(0.005, 0.3),
    st.floats(0.0, 0.5),
    st.floats(0.0, 23.5),
    st.integers(1, 40),
)
def test_the_best_schedule_is_no_worse_than_even_intervals(
    machine: Machine, work: float, c: float, r: float, age: float, parts: int
) -> None:
    job = Job(work, c, restart_hours=r, age=age)
    schedule = best_schedule(job, machine, resolution_hours=max(0.1, work / 80))
    assert sum(schedule.segments) == pytest.approx(work)
    assert min(schedule.segments) > 0.0
    assert schedule.expected_hours >= work
    assert schedule.expected_hours <= young_daly_schedule(job, machine).expected_hours
    # Ages between grid points are rounded. At the end of a machine's life, where minutes matter, an even interval
    # may therefore be better by 2 % at this coarse resolution.
    pieces = max(1, math.ceil(work / max(0.1, work / 80) - 1e-9))
    on_grid = work / pieces * max(1, pieces // parts)
    assert schedule.expected_hours <= even_schedule(job, machine, on_grid).expected_hours * 1.03


def test_checkpoints_are_frequent_when_the_hazard_is_high() -> None:
    schedule = best_schedule(Job(20.0, 1 / 60, restart_hours=0.1), Bathtub())
    assert max(schedule.segments[:4]) < 0.6
    assert max(schedule.segments) > 10.0
    older = best_schedule(Job(4.0, 1 / 60, restart_hours=0.1, age=10.0), Bathtub())
    assert older.segments == pytest.approx([4.0])


def test_with_constant_hazard_age_does_not_matter() -> None:
    young = best_schedule(Job(6.0, 0.05), Exponential())
    old = best_schedule(Job(6.0, 0.05, age=40.0), Exponential())
    assert old.expected_hours == pytest.approx(young.expected_hours, rel=1e-4)
    # With constant hazard the best even interval is the optimum.
    even = min(even_schedule(Job(6.0, 0.05), Exponential(), 6.0 / n).expected_hours for n in range(1, 40))
    assert young.expected_hours == pytest.approx(even, rel=1e-3)


def test_a_finer_grid_is_no_worse() -> None:
    job = Job(12.0, 5 / 60, restart_hours=0.1, age=3.0)
    coarse, fine = (best_schedule(job, Bathtub(), resolution_hours=h).expected_hours for h in (0.5, 0.05))
    assert fine <= coarse * 1.0005
    assert fine == pytest.approx(coarse, rel=0.02)


def test_work_and_ages_off_the_grid_are_allowed() -> None:
    schedule = best_schedule(Job(12.0, 0.02), Exponential())
    for left, age in [(11.987, 3.21), (0.001, 500.0), (12.0, 1e6)]:
        assert 0.0 < schedule.next_segment(left, age) <= left


def test_invalid_jobs_and_schedules_are_refused() -> None:
    with pytest.raises(SettingError, match="work_hours 0 must be a number above 0"):
        Job(0.0, 0.1)
    with pytest.raises(SettingError, match="checkpoint_hours -1"):
        Job(1.0, -1.0)
    with pytest.raises(SettingError, match="segments add up to 3 h, but the job has 4 h"):
        fixed_schedule(Job(4.0, 0.1), Exponential(), [1.0, 2.0])
    with pytest.raises(SettingError, match="segments: -1 must be"):
        fixed_schedule(Job(4.0, 0.1), Exponential(), [5.0, -1.0])
    with pytest.raises(SettingError, match=r"cuts 100 h of work into 2000 pieces.*give 0\.1 or more"):
        best_schedule(Job(100.0, 0.1), Exponential())
    with pytest.raises(SettingError, match="no machine lives long enough for"):
        best_schedule(Job(30.0, 9.0), Uniform(end=10.0), resolution_hours=2.0)


def test_the_number_of_checkpoints_is_limited() -> None:
    machine = Exponential()
    assert len(young_daly_schedule(Job(12.0, 1e-12), machine).segments) <= 2001
    with pytest.raises(SettingError, match="interval_hours 1e-06: needs"):
        even_schedule(Job(12.0, 1e-3), machine, 1e-6)
    with pytest.raises(SettingError, match="must be a second or more"):
        Job(1e-9, 0.1)
