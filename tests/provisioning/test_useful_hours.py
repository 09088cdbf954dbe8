"""What a useful hour costs: by hand, and against the process itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from thriftune.provisioning.useful_hours import NEVER, held, rotated, staying

DRAWN = 200_000


def lives(hazard: float, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).exponential(1.0 / hazard, DRAWN)


def test_one_that_is_never_lost_costs_its_price() -> None:
    worth = held(2.0, 0.0, 0.1, 0.05, 0.3)
    assert (worth.dollars, worth.useful, worth.rotates) == (2.0, 1.0, False)


def test_one_that_is_lost_costs_its_starts_and_what_is_done_again() -> None:
    worth = held(2.0, 0.5, 0.2, 0.0, 0.4)
    assert worth.dollars == pytest.approx(2.0 * 1.3)
    assert worth.useful == pytest.approx(1.0 / 1.3)


def test_to_wait_for_a_machine_takes_time_and_costs_nothing() -> None:
    worth = held(2.0, 0.5, 0.2, 0.2, 0.4)
    assert worth.dollars == pytest.approx(2.0 * 1.2)
    assert worth.useful == pytest.approx(1.0 / 1.3)


def test_saving_is_paid_for() -> None:
    worth = held(2.0, 0.5, 0.2, 0.2, 0.4, overhead=0.1)
    assert worth.dollars == pytest.approx(2.0 * 1.3)
    assert worth.useful == pytest.approx(1.0 / 1.4)


@pytest.mark.parametrize(("hazard", "start", "unbilled", "redo"), [(0.1, 0.05, 0.02, 0.1), (0.3, 0.1, 0.0, 0.02)])
def test_held_as_machines_go_where_losses_are_not_too_many(
    hazard: float, start: float, unbilled: float, redo: float
) -> None:
    life = lives(hazard)
    work = np.maximum(0.0, life - (start - unbilled) - redo).sum()
    worth = held(3.0, hazard, start, unbilled, redo)
    assert worth.dollars == pytest.approx(3.0 * life.sum() / work, rel=0.02)
    assert worth.useful == pytest.approx(work / (life + unbilled).sum(), rel=0.02)


def test_in_turns_without_losses_all_is_paid_and_starts_again() -> None:
    worth = rotated(1.0, 0.0, 0.25, 0.05, 0.0, 1.0)
    assert worth.dollars == pytest.approx(1.0 / 0.8)
    assert worth.useful == pytest.approx(0.8 / 1.05)
    assert worth.rotates


def test_in_turns_what_is_taken_is_free() -> None:
    """SpotTune's Eq. 2, but for the work of those that are lost, which is not a whole hour's."""
    lost = 1.0 - math.exp(-1.0)
    worth = rotated(1.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    assert worth.dollars == pytest.approx((1.0 - lost) / lost)
    assert worth.useful == pytest.approx(1.0)


def test_in_turns_there_must_be_time_to_work() -> None:
    assert rotated(1.0, 1.0, 0.7, 0.0, 0.0, 1.0) is NEVER
    assert rotated(1.0, 5.0, 0.0, 0.0, 0.5, 1.0) is NEVER
    assert NEVER.dollars == math.inf


@pytest.mark.parametrize("overhead", [0.0, 0.2])
@pytest.mark.parametrize(("hazard", "free"), [(0.3, 1.0), (2.0, 1.0), (1.0, 0.5)])
def test_in_turns_as_machines_go(hazard: float, free: float, overhead: float) -> None:
    start, unbilled, redo = 0.06, 0.02, 0.05
    life = lives(hazard)
    there = np.minimum(life, free)
    work = (there - (start - unbilled) - redo * (life < free)) / (1.0 + overhead)
    worth = rotated(2.0, hazard, start, unbilled, redo, free, overhead)
    assert worth.dollars == pytest.approx(2.0 * free * (life >= free).sum() / work.sum(), rel=0.02)
    assert worth.useful == pytest.approx(work.sum() / (there + unbilled).sum(), rel=0.02)


@pytest.mark.parametrize("age", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("hazard", [0.2, 1.5])
def test_to_stay_costs_what_is_paid_then_and_not_if_one_leaves_now(hazard: float, age: float) -> None:
    free, redo = 1.0, 0.03
    life = age + lives(hazard)
    work = (np.minimum(life, free) - age - redo * (life < free)).sum()
    more = 2.0 * (free * (life >= free) - age).sum()
    worth = staying(2.0, hazard, age, redo, free)
    assert worth.dollars == pytest.approx(max(0.0, more / work), rel=0.03, abs=0.01)
    assert worth.useful <= 1.0


def test_to_stay_is_free_where_it_is_likely_to_be_let_off() -> None:
    assert staying(2.0, 3.0, 0.5, 0.0, 1.0).dollars == 0.0


def test_at_the_end_of_the_free_time_nothing_is_left_to_gain() -> None:
    worth = staying(2.0, 0.0, 0.5, 0.0, 1.0)
    assert worth.dollars == pytest.approx(2.0)
    assert worth.useful == pytest.approx(1.0)
