"""When to save: closed forms, the process itself drawn many times, the best of all schedules by brute force."""

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
    """The mean of the hours until the job is done, and its error, by killing machines at ages that are drawn."""
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
def test_without_memory_it_is_dalys_sum_over_the_segments(age: float) -> None:
    job, rate = Job(10.0, 0.1, restart_hours=0.3, age=age), 0.2
    told = even_schedule(job, Exponential(rate), 2.5)
    assert told.segments == (2.5,) * 4
    by_segment = [math.expm1(rate * 2.6)] * 3 + [math.expm1(rate * 2.5)]
    assert told.expected_hours == pytest.approx((1 / rate + 0.3) * sum(by_segment), rel=1e-9)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("age", [0.0, 6.0, 9.5])
def test_without_checkpoints_it_is_the_running_time(machine: Machine, age: float) -> None:
    told = even_schedule(Job(5.0, 0.1, restart_hours=0.2, age=age), machine, math.inf)
    assert told.expected_hours == pytest.approx(float(expected_hours(machine, 5.0, age, restart_hours=0.2)))


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("age", [0.0, 7.0])
def test_it_is_what_drawing_many_lives_gives(machine: Machine, age: float) -> None:
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


def test_what_can_never_be_saved_takes_forever() -> None:
    job = Job(30.0, 0.1)
    assert even_schedule(job, Bathtub(), math.inf).expected_hours == math.inf
    assert even_schedule(job, Bathtub(), 23.95).expected_hours == math.inf  # the work, but not the checkpoint
    assert best_schedule(job, Bathtub(), resolution_hours=0.25).expected_hours < 40.0
    surely = Steps((6.0,), (1.0,))
    assert fixed_schedule(Job(5.0, 0.1), surely, [5.0]).expected_hours == pytest.approx(5.0)  # no loss to fear


def test_young_daly() -> None:
    assert young_daly_hours(0.1, 20.0) == pytest.approx(2.0)
    assert young_daly_hours(0.1, math.inf) == math.inf
    assert young_daly_schedule(Job(4.0, 0.1), Exponential(1 / 20)).segments == pytest.approx([2.0, 2.0])
    assert len(young_daly_schedule(Job(4.0, 0.0), Exponential()).segments) == 100


# --- the best


def brute_force(machine: Machine, pieces: int, c: int, r: float) -> list[float]:
    """V(n, 0) by n, with pieces of an hour and checkpoints of c hours: by trying every segment, without a grid."""
    fresh = [0.0]

    @cache
    def best(n: int, age: int, again: float | None) -> float:
        """`again`: what a loss costs, now that it is known; None: at the start of a fresh machine."""
        if n == 0:
            return 0.0
        told = math.inf
        for k in range(1, n + 1):
            takes = k + (c if k < n else 0)
            lives = float(machine.survival(takes, age)) if age + takes < machine.end else 0.0
            spent = float(lived_hours(machine, takes, age))
            then = best(n - k, age + takes, r + fresh[n - k] if n > k else 0.0) if lives > 0.0 else 0.0
            if again is None:
                told = min(told, (spent + lives * then + (1 - lives) * r) / lives) if lives else told
            else:
                told = min(told, spent + lives * then + (1 - lives) * again)
        return told

    while len(fresh) <= pieces:
        fresh += [best(len(fresh), 0, None)]
    return fresh


@pytest.mark.parametrize("machine", [*MACHINES, Steps((2.0, 6.0, 11.0, 30.0), (0.2, 0.4, 0.3, 0.1))], ids=str)
@pytest.mark.parametrize(("c", "r"), [(1, 0.0), (1, 0.7), (2, 0.3)])
def test_it_is_the_best_of_all_there_are(machine: Machine, c: int, r: float) -> None:
    table = CheckpointTable(
        machine, 8.0, checkpoint_hours=c, restart_hours=r, oldest_hours=0.0, resolution_hours=1.0
    )
    assert list(table.hours) == pytest.approx(brute_force(machine, 8, c, r), rel=2e-3)
    told = best_schedule(Job(8.0, c, restart_hours=r), machine, resolution_hours=1.0)
    assert told.expected_hours <= table.hours[-1] * (1 + 2e-3)  # what was promised


@settings(max_examples=40, deadline=None)
@given(
    ANY,
    st.floats(0.3, 20.0),
    st.floats(0.005, 0.3),
    st.floats(0.0, 0.5),
    st.floats(0.0, 23.5),
    st.integers(1, 40),
)
def test_never_worse_than_young_daly_or_any_interval(
    machine: Machine, work: float, c: float, r: float, age: float, parts: int
) -> None:
    job = Job(work, c, restart_hours=r, age=age)
    told = best_schedule(job, machine, resolution_hours=max(0.1, work / 80))
    assert sum(told.segments) == pytest.approx(work)
    assert min(told.segments) > 0.0
    assert told.expected_hours >= work
    assert told.expected_hours <= young_daly_schedule(job, machine).expected_hours
    # An interval of its own grid may be better only by what an age off the grid is rounded: at the end of a
    # machine's life, where minutes decide, by 2 % at a resolution as coarse as this.
    pieces = max(1, math.ceil(work / max(0.1, work / 80) - 1e-9))
    on_grid = work / pieces * max(1, pieces // parts)
    assert told.expected_hours <= even_schedule(job, machine, on_grid).expected_hours * 1.03


def test_it_saves_often_where_machines_die_and_seldom_where_they_do_not() -> None:
    told = best_schedule(Job(20.0, 1 / 60, restart_hours=0.1), Bathtub())
    assert max(told.segments[:4]) < 0.6
    assert max(told.segments) > 10.0
    grown = best_schedule(Job(4.0, 1 / 60, restart_hours=0.1, age=10.0), Bathtub())
    assert grown.segments == pytest.approx([4.0])


def test_without_memory_nothing_is_gained_by_age() -> None:
    young = best_schedule(Job(6.0, 0.05), Exponential())
    old = best_schedule(Job(6.0, 0.05, age=40.0), Exponential())
    assert old.expected_hours == pytest.approx(young.expected_hours, rel=1e-4)
    # Against the best even interval: all there is to find.
    even = min(even_schedule(Job(6.0, 0.05), Exponential(), 6.0 / n).expected_hours for n in range(1, 40))
    assert young.expected_hours == pytest.approx(even, rel=1e-3)


def test_a_finer_grid_is_better_or_nearly_the_same() -> None:
    job = Job(12.0, 5 / 60, restart_hours=0.1, age=3.0)
    coarse, fine = (best_schedule(job, Bathtub(), resolution_hours=h).expected_hours for h in (0.5, 0.05))
    assert fine <= coarse * 1.0005
    assert fine == pytest.approx(coarse, rel=0.02)


def test_a_table_also_answers_for_work_and_ages_off_its_grid() -> None:
    told = best_schedule(Job(12.0, 0.02), Exponential())
    for left, age in [(11.987, 3.21), (0.001, 500.0), (12.0, 1e6)]:
        assert 0.0 < told.next_segment(left, age) <= left


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(SettingError, match="work_hours 0 must be a number above 0"):
        Job(0.0, 0.1)
    with pytest.raises(SettingError, match="checkpoint_hours -1"):
        Job(1.0, -1.0)
    with pytest.raises(SettingError, match="segments add up to 3 h, and the job has 4 h"):
        fixed_schedule(Job(4.0, 0.1), Exponential(), [1.0, 2.0])
    with pytest.raises(SettingError, match="segments: -1 must be"):
        fixed_schedule(Job(4.0, 0.1), Exponential(), [5.0, -1.0])
    with pytest.raises(SettingError, match=r"cuts 100 h of work into 2000 pieces.*give 0\.1 or more"):
        best_schedule(Job(100.0, 0.1), Exponential())
    with pytest.raises(SettingError, match="no machine lives to do"):
        best_schedule(Job(30.0, 9.0), Uniform(end=10.0), resolution_hours=2.0)


def test_cheap_checkpoints_are_not_without_number() -> None:
    machine = Exponential()
    assert len(young_daly_schedule(Job(12.0, 1e-12), machine).segments) <= 2001
    with pytest.raises(SettingError, match="interval_hours 1e-06: would save"):
        even_schedule(Job(12.0, 1e-3), machine, 1e-6)
    with pytest.raises(SettingError, match="must be a second or more"):
        Job(1e-9, 0.1)
