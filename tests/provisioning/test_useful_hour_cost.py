"""Tests of the cost of a useful hour: by hand, and against sampled lifetimes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from thriftune.provisioning.useful_hour_cost import (
    UNUSABLE,
    cost_of_rotation,
    cost_until_preempted,
    cost_until_refund_ends,
)

DRAWN = 200_000


def lives(hazard: float, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).exponential(1.0 / hazard, DRAWN)


def test_a_machine_without_hazard_costs_its_price() -> None:
    worth = cost_until_preempted(2.0, 0.0, 0.1, 0.05, 0.3)
    assert (worth.dollars, worth.useful_share, worth.rotates) == (2.0, 1.0, False)


def test_a_preempted_machine_also_costs_restarts_and_lost_work() -> None:
    worth = cost_until_preempted(2.0, 0.5, 0.2, 0.0, 0.4)
    assert worth.dollars == pytest.approx(2.0 * 1.3)
    assert worth.useful_share == pytest.approx(1.0 / 1.3)


def test_the_queue_time_is_not_billed() -> None:
    worth = cost_until_preempted(2.0, 0.5, 0.2, 0.2, 0.4)
    assert worth.dollars == pytest.approx(2.0 * 1.2)
    assert worth.useful_share == pytest.approx(1.0 / 1.3)


def test_the_time_for_saves_is_billed() -> None:
    worth = cost_until_preempted(2.0, 0.5, 0.2, 0.2, 0.4, overhead=0.1)
    assert worth.dollars == pytest.approx(2.0 * 1.3)
    assert worth.useful_share == pytest.approx(1.0 / 1.4)


@pytest.mark.parametrize(("hazard", "start", "unbilled", "redo"), [(0.1, 0.05, 0.02, 0.1), (0.3, 0.1, 0.0, 0.02)])
def test_cost_until_preempted_agrees_with_samples(
    hazard: float, start: float, unbilled: float, redo: float
) -> None:
    life = lives(hazard)
    work = np.maximum(0.0, life - (start - unbilled) - redo).sum()
    worth = cost_until_preempted(3.0, hazard, start, unbilled, redo)
    assert worth.dollars == pytest.approx(3.0 * life.sum() / work, rel=0.02)
    assert worth.useful_share == pytest.approx(work / (life + unbilled).sum(), rel=0.02)


def test_rotation_without_preemptions_pays_all_and_restarts() -> None:
    worth = cost_of_rotation(1.0, 0.0, 0.25, 0.05, 0.0, 1.0)
    assert worth.dollars == pytest.approx(1.0 / 0.8)
    assert worth.useful_share == pytest.approx(0.8 / 1.05)
    assert worth.rotates


def test_rotation_does_not_pay_for_preempted_machines() -> None:
    """This is SpotTune's Eq. 2, except that preempted machines do less than an hour of work."""
    lost = 1.0 - math.exp(-1.0)
    worth = cost_of_rotation(1.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    assert worth.dollars == pytest.approx((1.0 - lost) / lost)
    assert worth.useful_share == pytest.approx(1.0)


def test_rotation_without_time_to_work_is_unusable() -> None:
    assert cost_of_rotation(1.0, 1.0, 0.7, 0.0, 0.0, 1.0) is UNUSABLE
    assert cost_of_rotation(1.0, 5.0, 0.0, 0.0, 0.5, 1.0) is UNUSABLE
    assert UNUSABLE.dollars == math.inf


@pytest.mark.parametrize("overhead", [0.0, 0.2])
@pytest.mark.parametrize(("hazard", "free"), [(0.3, 1.0), (2.0, 1.0), (1.0, 0.5)])
def test_rotation_agrees_with_samples(hazard: float, free: float, overhead: float) -> None:
    start, unbilled, redo = 0.06, 0.02, 0.05
    life = lives(hazard)
    placed = np.minimum(life, free)
    work = (placed - (start - unbilled) - redo * (life < free)) / (1.0 + overhead)
    worth = cost_of_rotation(2.0, hazard, start, unbilled, redo, free, overhead)
    assert worth.dollars == pytest.approx(2.0 * free * (life >= free).sum() / work.sum(), rel=0.02)
    assert worth.useful_share == pytest.approx(work.sum() / (placed + unbilled).sum(), rel=0.02)


@pytest.mark.parametrize("age", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("hazard", [0.2, 1.5])
def test_cost_until_refund_ends_agrees_with_samples(hazard: float, age: float) -> None:
    free, redo = 1.0, 0.03
    life = age + lives(hazard)
    work = (np.minimum(life, free) - age - redo * (life < free)).sum()
    more = 2.0 * (free * (life >= free) - age).sum()
    worth = cost_until_refund_ends(2.0, hazard, age, redo, free)
    assert worth.dollars == pytest.approx(max(0.0, more / work), rel=0.03, abs=0.01)
    assert worth.useful_share <= 1.0


def test_staying_is_free_if_a_refund_is_likely() -> None:
    assert cost_until_refund_ends(2.0, 3.0, 0.5, 0.0, 1.0).dollars == 0.0


def test_staying_without_hazard_costs_the_price() -> None:
    worth = cost_until_refund_ends(2.0, 0.0, 0.5, 0.0, 1.0)
    assert worth.dollars == pytest.approx(2.0)
    assert worth.useful_share == pytest.approx(1.0)
