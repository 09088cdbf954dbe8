"""What a policy knows of its study."""

from __future__ import annotations

from typing import Any

import pytest

from tests.provisioning.desk import Desk
from thriftune.errors import SettingError
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.provisioning.workload import Workload


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
def test_what_makes_no_sense_is_said(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Workload(**given)


def test_the_deadline_is_of_driving() -> None:
    terms = Workload(deadline_seconds=1000.0)
    where = Desk(PresentMachines())
    assert terms.time_left(where.history, where.now) == 1000.0
    where.begins()
    where.now += 300.0
    assert terms.time_left(where.history, where.now) == 700.0
    where.stop()
    where.now += 5000.0  # nobody drives it
    assert terms.time_left(where.history, where.now) == 700.0
    where.begins()
    where.now += 800.0
    assert terms.time_left(where.history, where.now) == -100.0
    assert Workload().time_left(where.history, where.now) is None
