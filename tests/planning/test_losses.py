"""Tests of preemption losses against a plain simulation of one attempt after the other."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.market.known_lifetimes import Bathtub, Exponential, LifetimeDraws, Machine, Steps, Uniform
from thriftune.errors import SettingError
from thriftune.planning import CloudProfile, Latency, Profile
from thriftune.planning.allocation import Allocation, StageAllocation
from thriftune.planning.dag import sample_train_seconds
from thriftune.planning.job import Stage
from thriftune.planning.losses import add_preemption_losses, save_interval_seconds

PROFILE = Profile({1: 4.0, 2: 2.5, 4: 1.5}, startup=60.0, checkpoint=20.0)
FOREVER = Exponential(rate=1e-15)
MACHINES: list[Machine] = [
    Exponential(rate=1.5),
    Uniform(end=2.0),
    Bathtub(A=0.5, tau1=0.3),
    Steps((0.3, 3), (0.6, 0.4)),
]


def on(survival: Machine, slots: int = 1, at_a_time: int = 1, workers: int = 1) -> StageAllocation:
    cloud = CloudProfile(slots, 1.0, queue=Latency(100.0, 50.0), init=30.0, survival=survival)
    allocation = Allocation(at_a_time, workers)
    return StageAllocation(cloud, cloud.machines_needed(*allocation), allocation)


def attempt(left: float, life: float, every: float, profile: Profile) -> tuple[float, float]:
    """Simulate an attempt on a machine that lives `life` seconds; return (work left, seconds taken)."""
    now = profile.startup
    while left > 1e-6:
        part = min(every, left)
        if now + part + profile.checkpoint > life:
            return left, life
        now, left = now + part + profile.checkpoint, left - part
    return 0.0, now


def together(
    work: list[float], choice: StageAllocation, every: float, profile: Profile, lives: LifetimeDraws
) -> list[float]:
    """Simulate trials that share their machines, and lose them together; return their seconds."""
    machines = -(-choice.allocation.workers // choice.cloud.slots)
    left, seconds = list(work), [0.0] * len(work)
    while any(left):
        life = 3600.0 * min(lives.next() for _ in range(machines))
        for i, each in enumerate(left):
            if each:
                left[i], took = attempt(each, life, every, profile)
                seconds[i] += took + (130.0 if left[i] else 0.0)
    return seconds


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize(("slots", "at_a_time", "workers"), [(1, 1, 1), (2, 2, 4), (4, 6, 1)])
def test_times_agree_with_a_simulation_of_attempts(
    machine: Machine, slots: int, at_a_time: int, workers: int
) -> None:
    choice, samples = on(machine, slots, at_a_time, workers), 3000
    work: NDArray[np.float64] = np.full((at_a_time, samples), 3000.0)
    work[-1] = 2000.0
    result = add_preemption_losses(work, choice, PROFILE, np.random.default_rng(1))
    every, lives = save_interval_seconds(choice, PROFILE), LifetimeDraws(machine, 2)
    share = max(1, slots // workers)
    plain = np.array(
        [
            [
                seconds
                for first in range(0, at_a_time, share)
                for seconds in together(
                    work[first : first + share, sample].tolist(), choice, every, PROFILE, lives
                )
            ]
            for sample in range(samples)
        ]
    ).T
    for ours, theirs in ((result[0], plain[0]), (result[-1], plain[-1]), (result.max(axis=0), plain.max(axis=0))):
        error = 4.0 * math.hypot(float(ours.std()), float(theirs.std())) / math.sqrt(samples)
        assert ours.mean() == pytest.approx(theirs.mean(), abs=error + 0.002 * theirs.mean())


def test_a_trial_saves_at_the_interval_even_without_preemption() -> None:
    """A trial saves 800 s of work every 300 s: twice before its end, and once at its end.

    On machines that live forever, it saves only at its end.
    """
    machine = Steps((300.0**2 / (2 * 20.0) / 3600.0,), (1.0,))  # Young and Daly: 300 = sqrt(2 * 20 * life)
    choice = on(machine)
    assert save_interval_seconds(choice, PROFILE) == pytest.approx(300.0, rel=1e-6)
    work = np.full((1, 1), 2000.0)
    assert add_preemption_losses(
        work, replace_life(choice, FOREVER), PROFILE, np.random.default_rng(0)
    ) == pytest.approx(60.0 + 2000.0 + 20.0)
    short = add_preemption_losses(np.full((1, 50), 800.0), choice, PROFILE, np.random.default_rng(0))
    assert short == pytest.approx(60.0 + 800.0 + 3 * 20.0)  # before any of these machines is preempted


def replace_life(choice: StageAllocation, survival: Machine) -> StageAllocation:
    return choice._replace(cloud=replace(choice.cloud, survival=survival))


def test_free_saves_happen_after_every_step() -> None:
    choice, free = on(Exponential(rate=1.0), slots=4, workers=2), replace(PROFILE, checkpoint=0.0)
    assert save_interval_seconds(choice, free) == pytest.approx(2.5)
    faster = choice._replace(cloud=replace(choice.cloud, speed=2.0))
    assert save_interval_seconds(faster, free) == pytest.approx(1.25)


def test_the_save_interval_is_at_least_a_step() -> None:
    choice, slow = on(Exponential(rate=100.0)), replace(PROFILE, seconds_per_step={1: 400.0})
    assert save_interval_seconds(choice, PROFILE) == pytest.approx(math.sqrt(2 * 20.0 * 36.0), rel=1e-3)
    assert save_interval_seconds(choice, slow) == pytest.approx(400.0)


@pytest.mark.parametrize("std", [0.0, 1.0])
def test_a_spot_machine_that_lives_forever_is_like_an_on_demand_one(std: float) -> None:
    profile = replace(PROFILE, std=std)
    lossy, safe = on(FOREVER, 4, 4), on(FOREVER, 4, 4)
    safe = safe._replace(cloud=replace(safe.cloud, survival=None))
    result, expected = (
        sample_train_seconds(Stage(4, 100), choice, profile, 500, np.random.default_rng(0))
        for choice in (lossy, safe)
    )
    np.testing.assert_allclose(result, expected)


def test_with_free_saves_only_the_current_step_is_lost() -> None:
    """On machines that live 10.5 steps, a trial of 100 steps loses half a step nine times."""
    profile = Profile({1: 36.0})
    choice = on(Steps((10.5 * 36.0 / 3600.0,), (1.0,)))
    result = add_preemption_losses(np.full((1, 20), 3600.0), choice, profile, np.random.default_rng(0))
    assert result == pytest.approx(3600.0 + 9 * (18.0 + 130.0), rel=0.01)


def test_machines_that_live_too_briefly_for_a_trial_are_rejected() -> None:
    choice = on(Exponential(rate=1000.0))  # machines live 4 s, and a start takes 60 s
    with pytest.raises(
        SettingError, match="a trial of 1 h was preempted 200 times: machines of this type do not live long"
    ):
        add_preemption_losses(np.full((1, 10), 3600.0), choice, PROFILE, np.random.default_rng(0))
