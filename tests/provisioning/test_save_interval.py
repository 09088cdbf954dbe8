"""Tests of how often a trial saves whose upload does not fit into a preemption notice."""

from __future__ import annotations

import math

import pytest

from tests.provisioning.renting_study import HOUR, RentingStudy
from thriftune.market.checkpoint_schedule import Job, best_schedule
from thriftune.market.lifetime import Exponential
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.baselines import CheapestSpot, OnDemand
from thriftune.provisioning.save_interval import UploadTimes, seconds_until_save
from thriftune.provisioning.workload import StudyWorkload
from thriftune.state import events as ev

LIFE = Exponential(2.0)
GB = 10**9


def spot(notice_seconds: float = 120.0, **settings: object) -> RentingStudy:
    """Return a study on spot machines, whose steps take a minute."""
    machine_type = MachineType("spot", 0.3, survival=LIFE, notice_seconds=notice_seconds)
    workload = StudyWorkload(seconds_per_step=60.0, **settings)  # type: ignore[arg-type]
    study = RentingStudy(CheapestSpot([machine_type], workload))
    study.begin()
    study.machine_arrives("spot-1")
    return study


def uploaded(study: RentingStudy, trial: int, seconds: float, size: int = GB) -> None:
    """Let a step of a trial be saved, with an upload that took this long."""
    step = study.trial(trial).step + 1
    study.report(trial, step, loss=0.5)
    attempt = study.trial(trial).attempts
    name = f"{attempt}-3fa9c1d2/{step:06}"
    study(ev.CheckpointSaved(study.now, trial, attempt, name, step, False, size, seconds))


def save_every(study: RentingStudy) -> float | None:
    return study.policy.save_every(study.trial(0), "spot-1", study.history)


def test_an_upload_that_fits_into_the_notice_changes_nothing() -> None:
    study = spot()
    assert save_every(study) is None
    uploaded(study, 0, 50.0)
    assert save_every(study) is None


def test_an_upload_that_does_not_fit_is_saved_by_the_schedule() -> None:
    study = spot()
    uploaded(study, 0, 90.0)
    every = save_every(study)
    assert every is not None
    assert every == pytest.approx(math.sqrt(2.0 * 90.0 * 2.0 * HOUR), rel=0.35)  # Young and Daly
    slower = spot()
    uploaded(slower, 0, 900.0)
    longer = save_every(slower)
    assert longer is not None
    assert longer > every


def test_without_any_upload_the_stated_time_counts() -> None:
    assert save_every(spot(notice_seconds=0.0)) == 0.0
    stated = save_every(spot(notice_seconds=0.0, save_seconds=10.0))
    assert stated == pytest.approx(math.sqrt(2.0 * 10.0 * 2.0 * HOUR), rel=0.02)


def test_a_slow_upload_counts_although_a_save_is_stated_as_fast() -> None:
    study = spot(save_seconds=1.0)
    assert save_every(study) is None
    uploaded(study, 0, 300.0)
    assert save_every(study) is not None


def test_on_demand_machines_save_only_at_the_end() -> None:
    study = RentingStudy(OnDemand([MachineType("big", 1.0)], StudyWorkload(seconds_per_step=60.0)))
    study.begin()
    study.machine_arrives("big-1")
    uploaded(study, 0, 900.0)
    assert study.policy.save_every(study.trial(0), "big-1", study.history) is None


def test_the_next_attempt_is_placed_with_the_interval() -> None:
    study = spot()
    uploaded(study, 0, 300.0)
    assert study.trial(0).save_every is None
    study(ev.MachineLost(study.now, "spot-1", "gone"))
    study.machine_arrives("spot-2")
    assert study.trial(0).attempts == 2
    assert study.trial(0).save_every == pytest.approx(save_every_of(study, "spot-2"))


def save_every_of(study: RentingStudy, machine: str) -> float | None:
    return study.policy.save_every(study.trial(0), machine, study.history)


def test_the_upload_time_is_that_of_the_machine_type_and_the_size() -> None:
    study = spot()
    times = UploadTimes()
    assert times.seconds(study.trial(0), "spot", study.history) is None
    uploaded(study, 0, 10.0)
    uploaded(study, 0, 30.0)
    assert times.seconds(study.trial(0), "spot", study.history) == 30.0  # the newest
    assert times.seconds(study.trial(0), "other", study.history) == 30.0  # better than nothing
    study(ev.MachineLost(study.now, "spot-1", "gone"))
    assert times.seconds(study.trial(0), "spot", study.history) == 30.0  # by a machine that has ended
    study.machine_arrives("spot-2")
    uploaded(study, 0, 0.0, size=4 * GB)  # nothing had changed, or it is in a folder
    assert times.seconds(study.trial(0), "spot", study.history) == 120.0  # its state has grown


@pytest.mark.parametrize("hours", [0.2, 1.0, 3.0])
def test_the_first_save_is_that_of_the_best_schedule(hours: float) -> None:
    found = seconds_until_save(hours * HOUR, 60.0, 30.0, 600.0, LIFE)
    schedule = best_schedule(Job(hours, 60.0 / HOUR, 30.0 / HOUR, 600.0 / HOUR), LIFE, resolution_hours=hours / 60)
    assert found == schedule.segments[0] * HOUR


def test_long_work_is_planned_a_few_hours_ahead() -> None:
    assert seconds_until_save(math.inf, 60.0, 0.0, 0.0, LIFE) == seconds_until_save(9e5, 60.0, 0.0, 0.0, LIFE)
    assert seconds_until_save(0.0, 60.0, 0.0, 0.0, LIFE) is not None


def test_machines_that_cannot_live_long_enough_have_no_schedule() -> None:
    class Brief(Exponential):
        @property
        def end(self) -> float:
            return 0.01

    assert seconds_until_save(HOUR, 600.0, 0.0, 0.0, Brief(2.0)) is None
