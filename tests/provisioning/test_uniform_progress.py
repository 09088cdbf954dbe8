"""The four rules of uniform progress."""

from __future__ import annotations

from typing import Any

import pytest

from tests.provisioning.desk import HOUR, Desk
from tests.provisioning.studies import Where, a_spec, by_room, run
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.renting_policy import PATIENCE_SECONDS
from thriftune.provisioning.uniform_progress import UniformProgress
from thriftune.provisioning.workload import Workload
from thriftune.replay.preemptions import AvailabilityPreemptions
from thriftune.replay.simulated_engine import Curve

SPOT = MachineType("spot", 0.3, survival=Exponential(3.0), queue=60.0, init=60.0)
STAYS = MachineType("stays", 1.0, queue=60.0, init=60.0)


def desk(hours: float = 20.0, kinds: tuple[MachineType, ...] = (SPOT, STAYS)) -> Desk:
    """10 hours of work; a changeover takes 120 seconds."""
    terms = Workload(deadline_seconds=hours * HOUR, seconds_per_step=360.0)
    return Desk(UniformProgress(kinds, terms), trials=1)


def test_spot_whenever_it_is_to_be_had() -> None:
    where = desk()
    assert where.begins() == ["rent spot-1"]
    where.comes("spot-1")
    where.later(5 * HOUR)  # far behind, and on it goes
    assert where.is_lost("spot-1") == ["rent spot-2"]


def test_the_cheapest_spot_machine_by_the_step() -> None:
    quick = MachineType("quick", 0.5, speed=2.0, survival=Exponential(3.0))
    assert desk(kinds=(SPOT, quick, STAYS)).begins() == ["rent quick-1"]


def test_without_a_machine_and_not_behind_it_waits() -> None:
    where = desk()
    where.begins()
    assert where.refuses("spot-1") == []


def test_without_a_machine_and_behind_it_goes_on_demand() -> None:
    where = desk()
    where.begins()
    where.refuses("spot-1")
    assert where.later(PATIENCE_SECONDS) == ["rent spot-2"]
    assert where.refuses("spot-2") == ["rent stays-3"]


def test_on_demand_until_it_is_ahead_by_two_changeovers() -> None:
    where = desk()
    where.begins()
    where.later(HOUR)
    where.refuses("spot-1")
    where.comes("stays-2")
    # 20 h for 100 steps: 0.05 of the work an hour is expected.
    assert where.works(0, 1, 5, 360.0) == []  # 0.05 after 1.5 h, where 0.075 is expected
    assert where.works(0, 6, 10, 360.0) == []  # 0.10 after 2 h, but 0.103 is expected two changeovers later
    assert where.works(0, 11, 13, 360.0) == ["move 0/1"]  # 0.12 after 2.25 h, where 0.116 is
    assert where.end(0, cut=True) == ["release stays-2", "rent spot-3"]


def test_with_no_time_to_lose_it_goes_on_demand_and_stays() -> None:
    where = desk(hours=10.0)
    assert where.begins() == ["rent stays-1"]
    where.comes("stays-1")
    assert where.works(0, 1, 99, 360.0) == []


def test_with_no_time_to_lose_a_spot_machine_is_not_taken() -> None:
    where = desk(hours=11.0)
    assert where.begins() == ["rent spot-1"]
    where.later(HOUR)
    assert where.comes("spot-1") == ["rent stays-2", "release spot-1"]


def test_on_a_spot_machine_it_stays_until_that_is_taken() -> None:
    where = desk(hours=10.5)
    where.begins()
    where.comes("spot-1")
    assert where.works(0, 1, 3, 3000.0) == []
    assert where.is_lost("spot-1") == ["rent stays-2"]


@pytest.mark.parametrize("seed", range(6))
def test_one_trial_is_never_late(seed: int) -> None:
    flat = Curve(range(1, 21), [{"loss": 1.0}] * 20, [300.0] * 20)
    terms = Workload(1, 1, deadline_seconds=2.6 * HOUR, seconds_per_step=300.0)
    ran = run(UniformProgress, by_room(seed), terms, a_spec(1), curves=lambda _: flat)
    assert ran.now <= 2.6 * HOUR


@pytest.mark.parametrize(
    ("kinds", "hours", "message"),
    [
        ([SPOT, STAYS], None, "goes by a deadline; give one"),
        ([SPOT], 1.0, "needs a spot machine and one that is not taken away"),
        ([STAYS], 1.0, "needs a spot machine and one that is not taken away"),
    ],
)
def test_what_it_needs_is_said(kinds: list[MachineType], hours: Any, message: str) -> None:
    with pytest.raises(SettingError, match=f"uniform_progress: {message}"):
        UniformProgress(kinds, Workload(deadline_seconds=hours and hours * HOUR))


def test_the_trials_that_come_after_count() -> None:
    kinds = [MachineType("spot", 0.9, survival=Exponential(500.0)), MachineType("stays", 1.0)]
    flat = Curve(range(1, 11), [{"loss": 1.0}] * 10, [600.0] * 10)
    terms = Workload(1, 4, deadline_seconds=10 * HOUR, seconds_per_step=600.0)
    nowhere = Where(kinds, {"spot": AvailabilityPreemptions([0.0], [0], 1e9)})
    ran = run(UniformProgress, nowhere, terms, a_spec(4, steps=10), curves=lambda _: flat)
    assert ran.now <= 10 * HOUR
