"""Tests of the driver of a study whose log is shipped: what waits for the object store, and what ends a drive."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import MagicMock

import pytest

from tests.support.tables import Table
from thriftune.common.clock import WallClock
from thriftune.errors import StoreConflict
from thriftune.loop.driver import Driver
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.state import events as ev
from thriftune.state.history import History


class RentsOne(PresentMachines):
    """A policy that rents one machine at the start, and releases it at a tick."""

    def react(self, event: ev.Event, history: History) -> Sequence[ev.Decision]:
        match event:
            case ev.DriverStarted():
                return [ev.Rent(event.at, "a", "spot")]
            case ev.Tick() if history.machines:
                return [ev.Release(event.at, "a")]
        return []


@pytest.fixture
def parts() -> MagicMock:
    """Return a mock that records the calls of the driver's parts in order."""
    parts = MagicMock()
    for call in (parts.cloud.rent, parts.cloud.release, parts.cloud.poll_events, parts.engine.machine_lost):
        call.return_value = []
    parts.cloud.next_event_at.return_value = None
    parts.engine.wait.return_value = []
    parts.store.take_requests.return_value = []
    return parts


def driver_of(parts: MagicMock, provisioner: PresentMachines | None = None) -> Driver:
    """`provisioner`: by default, it rents one machine."""
    conductor = Table(slots=0, trials=1, provisioner=provisioner or RentsOne()).conductor
    return Driver(
        parts.store, conductor, parts.engine, parts.cloud, WallClock(), parts.view, shipping=parts.shipping
    )


def test_a_cloud_is_called_when_the_object_store_knows_of_it(parts: MagicMock) -> None:
    driver_of(parts)._process([ev.DriverStarted(1.0, 1, "here")], 1.0)
    names = [name for name, _, _ in parts.mock_calls]
    order = ["store.append", "store.sync", "shipping.wait_until_shipped", "cloud.rent"]
    assert [name for name in names if name in order] == order


def test_trials_start_when_the_object_store_knows_of_the_drive(parts: MagicMock) -> None:
    """Another machine reads the checkpoints of the drives that its log has."""
    driver = driver_of(parts, PresentMachines())
    driver._process([ev.DriverStarted(1.0, 1, "here"), ev.MachineReady(1.0, "b", "own", 1, 0.0)], 1.0)
    names = [name for name, _, _ in parts.mock_calls]
    order = ["store.append", "store.sync", "shipping.wait_until_shipped", "engine.start"]
    assert [name for name in names if name in order] == order


def test_an_attempt_is_shipped_while_its_worker_starts(parts: MagicMock) -> None:
    driver = driver_of(parts, PresentMachines())
    driver._process([ev.DriverStarted(1.0, 1, "here")], 1.0)
    parts.reset_mock()
    driver._process([ev.MachineReady(1.0, "b", "own", 1, 0.0)], 1.0)
    names = [name for name, _, _ in parts.mock_calls]
    order = ["store.append", "shipping.ship_soon", "engine.start"]
    assert [name for name in names if name in order] == order
    parts.shipping.wait_until_shipped.assert_not_called()


def test_a_machine_is_not_rented_by_a_driver_that_was_replaced(parts: MagicMock) -> None:
    parts.shipping.wait_until_shipped.side_effect = StoreConflict("another driver")
    with pytest.raises(StoreConflict):
        driver_of(parts)._process([ev.DriverStarted(1.0, 1, "here")], 1.0)
    parts.cloud.rent.assert_not_called()


def test_reports_do_not_wait_for_the_object_store(parts: MagicMock) -> None:
    driver = driver_of(parts)
    driver._process([ev.MachineReady(1.0, "b", "own", 1, 0.0)], 1.0)
    driver._process([ev.Reported(2.0, 0, 1, 1, 1, {"loss": 1.0}, saved=False)], 2.0)
    parts.shipping.wait_until_shipped.assert_not_called()


def test_a_driver_that_was_replaced_stops_and_ends_its_workers(parts: MagicMock) -> None:
    parts.shipping.raise_if_lost.side_effect = StoreConflict("another driver")
    parts.engine.recover.return_value = []
    parts.cloud.open.return_value = []
    with pytest.raises(StoreConflict):
        driver_of(parts).run()
    parts.engine.close.assert_called_once()
    parts.cloud.close.assert_not_called()
