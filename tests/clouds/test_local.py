"""Tests the cloud with this machine."""

from __future__ import annotations

import pytest

from tests.clouds.conformance import CloudConformance
from thriftune.clouds.local import LocalCloud
from thriftune.clouds.protocol import Cloud
from thriftune.errors import SettingError
from thriftune.state.events import THIS_MACHINE, MachineReady


class TestConformance(CloudConformance):
    unrented = 1

    def make(self) -> Cloud:
        return LocalCloud(2)

    def now(self) -> float:
        return 100.0


def test_no_other_machine_can_be_rented() -> None:
    cloud = LocalCloud(3)
    [event] = cloud.open(1.0)
    assert isinstance(event, MachineReady)
    assert (event.machine, event.slots) == (THIS_MACHINE, 3)
    with pytest.raises(SettingError, match="no 'big' can be rented, because this study uses only this machine"):
        cloud.rent("m1", "big", None, 2.0)
