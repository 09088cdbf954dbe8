"""Tests of the workload that policies are given."""

from __future__ import annotations

from typing import Any

import pytest

from tests.provisioning.renting_study import RentingStudy
from thriftune.errors import SettingError
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.provisioning.workload import StudyWorkload


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"at_a_time": 0}, "at_a_time: 0"),
        ({"at_a_time": 1.5}, "at_a_time: 1.5"),
        ({"trials": 0}, "trials: 0"),
        ({"deadline_seconds": -5.0}, "deadline_seconds: -5.0 must be a finite number, above 0"),
        ({"seconds_per_step": 0.0}, "seconds_per_step: 0.0 must be a finite number, above 0"),
        ({"restart_seconds": -1.0}, "restart_seconds: -1.0 must be a finite number, 0 or more"),
        ({"save_seconds": float("nan")}, "save_seconds: nan must be a finite number, 0 or more"),
    ],
)
def test_invalid_fields_are_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        StudyWorkload(**given)


def test_the_deadline_counts_only_time_while_driven() -> None:
    workload = StudyWorkload(deadline_seconds=1000.0)
    study = RentingStudy(PresentMachines())
    assert workload.time_left(study.history, study.now) == 1000.0
    study.begin()
    study.now += 300.0
    assert workload.time_left(study.history, study.now) == 700.0
    study.stop()
    study.now += 5000.0  # the study is not driven
    assert workload.time_left(study.history, study.now) == 700.0
    study.begin()
    study.now += 800.0
    assert workload.time_left(study.history, study.now) == -100.0
    assert StudyWorkload().time_left(study.history, study.now) is None
