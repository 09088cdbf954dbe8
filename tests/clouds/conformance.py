"""Tests that every cloud must pass.

The tests of a cloud inherit CloudConformance and define make(). If the cloud rents machines, they inherit
RentingConformance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pytest

from thriftune.clouds.protocol import Cloud
from thriftune.state import events as ev
from thriftune.state.fleet import Fleet


def machines_of(events: list[ev.Event], *event_types: type) -> list[str]:
    """Return the machines of the events of these types."""
    return [event.machine for event in events if isinstance(event, event_types)]  # type: ignore[attr-defined]


def fold(fleet: Fleet, events: list[ev.Event]) -> None:
    """Apply the events as a history does; fail if one of them changes nothing."""
    for event in events:
        match event:
            case ev.MachineRented():
                changed = fleet.apply_rented(event)
            case ev.MachineReady():
                changed = fleet.apply_ready(event)
            case ev.MachineRefused():
                changed = fleet.apply_refused(event)
            case ev.MachineNotice():
                changed = fleet.apply_notice(event)
            case ev.MachineBilled():
                changed = fleet.apply_bill(event)
            case ev.MachineLost(machine=machine) | ev.MachineReleased(machine=machine):
                changed = fleet.apply_end(machine, event.at)
            case _:
                continue
        assert changed, f"{event} changes nothing"
        fleet.validate()


class CloudConformance(ABC):
    unrented: int  # the number of machines that are available without being rented

    @abstractmethod
    def make(self) -> Cloud:
        """Return a cloud that is not open yet."""

    @abstractmethod
    def now(self) -> float: ...

    def wait(self) -> None:  # noqa: B027 (a cloud without a clock has nothing to do)
        """Let some time pass."""

    @pytest.fixture
    def cloud(self) -> Iterator[Cloud]:
        cloud = self.make()
        yield cloud
        cloud.close(self.now())

    def poll_until(self, cloud: Cloud, event_type: type, count: int = 1) -> list[ev.Event]:
        """Poll until the cloud has delivered `count` events of a type; return all events."""
        events: list[ev.Event] = []
        for _ in range(600):
            now = self.now()
            new = cloud.poll_events(now)
            assert all(event.at <= now for event in new)
            events += new
            if len(machines_of(events, event_type)) >= count:
                return events
            self.wait()
        raise AssertionError(f"no {event_type.__name__}; all events: {events}")

    def test_unrented_machines_are_ready_at_once_and_released_at_the_end(self, cloud: Cloud) -> None:
        fleet = Fleet()
        events = cloud.open(self.now())
        assert len(machines_of(events, ev.MachineReady)) == self.unrented
        fold(fleet, events)
        assert all(machine.slots > 0 and machine.price_per_hour >= 0 for machine in fleet.present.values())
        fold(fleet, cloud.close(self.now()))
        assert not fleet.present

    def test_no_event_is_delivered_twice(self, cloud: Cloud) -> None:
        cloud.open(self.now())
        for _ in range(3):
            assert cloud.poll_events(self.now()) == []
            self.wait()

    def test_the_next_event_is_not_in_the_past(self, cloud: Cloud) -> None:
        cloud.open(self.now())
        now = self.now()
        cloud.poll_events(now)
        due = cloud.next_event_at()
        assert due is None or due > now

    def test_releasing_an_unknown_machine_does_nothing(self, cloud: Cloud) -> None:
        cloud.open(self.now())
        assert cloud.release("no such machine", self.now()) == []

    def test_another_driver_finds_the_same_machines(self, cloud: Cloud) -> None:
        first = cloud.open(self.now())
        cloud.close(self.now())
        second = self.make()
        assert machines_of(second.open(self.now()), ev.MachineReady) == machines_of(first, ev.MachineReady)
        second.close(self.now())


class RentingConformance(CloudConformance):
    offer: str

    def start_rented(self) -> None:
        """Let the machine that was rented last start."""

    def end_released(self, cloud: Cloud, machine: str) -> None:
        """Let a released machine end."""

    def rent(self, cloud: Cloud, fleet: Fleet, machine: str) -> list[ev.Event]:
        fleet.apply_rent(ev.Rent(self.now(), machine, self.offer))
        events = cloud.rent(machine, self.offer, None, self.now())
        self.start_rented()
        if machine not in machines_of(events, ev.MachineReady):
            events += self.poll_until(cloud, ev.MachineReady)
        fold(fleet, events)
        return events

    def test_a_machine_is_rented_then_ready_then_released_and_billed(self, cloud: Cloud) -> None:
        fleet = Fleet()
        fold(fleet, cloud.open(self.now()))
        events = self.rent(cloud, fleet, "m1")
        assert machines_of(events, ev.MachineRented, ev.MachineReady) == ["m1", "m1"]
        assert isinstance(events[0], ev.MachineRented)
        machine = fleet.present["m1"]
        assert machine.slots > 0
        assert machine.offer == self.offer
        events = cloud.release("m1", self.now())
        if not events:
            assert cloud.release("m1", self.now()) == []
            self.end_released(cloud, "m1")
            events = self.poll_until(cloud, ev.MachineBilled)
        fold(fleet, events)
        assert [type(event) for event in events] == [ev.MachineReleased, ev.MachineBilled]
        bill = fleet.past[-1].bill
        assert bill is not None
        assert bill.dollars >= 0
        assert cloud.release("m1", self.now()) == []

    def test_an_order_can_be_cancelled(self, cloud: Cloud) -> None:
        cloud.open(self.now())
        assert cloud.rent("m1", self.offer, None, self.now()) == []
        now = self.now()
        assert cloud.release("m1", now) == [ev.MachineReleased(now, "m1")]
        for _ in range(3):
            self.wait()
            assert cloud.poll_events(self.now()) == []

    def test_closing_keeps_rented_machines(self, cloud: Cloud) -> None:
        fleet = Fleet()
        fold(fleet, cloud.open(self.now()))
        self.rent(cloud, fleet, "m1")
        fold(fleet, cloud.close(self.now()))
        assert list(fleet.present) == ["m1"]
        self.end_released(cloud, "m1")
