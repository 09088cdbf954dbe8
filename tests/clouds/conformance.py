"""What every cloud must do. A cloud's own tests inherit CloudConformance, or, if machines can be rented of it,
RentingConformance, and say how to make one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pytest

from thriftune.clouds.protocol import Cloud
from thriftune.state import events as ev
from thriftune.state.fleet import Fleet


def of(events: list[ev.Event], *kinds: type) -> list[str]:
    """The machines of the events of these kinds."""
    return [event.machine for event in events if isinstance(event, kinds)]  # type: ignore[attr-defined]


def fold(fleet: Fleet, events: list[ev.Event]) -> None:
    """As the history does. Nothing that a cloud tells may be in vain."""
    for event in events:
        match event:
            case ev.MachineRented():
                new = fleet.rented(event)
            case ev.MachineReady():
                new = fleet.ready(event)
            case ev.MachineRefused():
                new = fleet.was_refused(event)
            case ev.MachineNotice():
                new = fleet.notice(event)
            case ev.MachineBilled():
                new = fleet.billed(event)
            case ev.MachineLost(machine=machine) | ev.MachineReleased(machine=machine):
                new = fleet.gone(machine, event.at)
            case _:
                continue
        assert new, f"{event} tells nothing new"
        fleet.validate()


class CloudConformance(ABC):
    there: int  # machines that are there without being rented

    @abstractmethod
    def make(self) -> Cloud:
        """One that is not opened."""

    @abstractmethod
    def now(self) -> float: ...

    def wait(self) -> None:  # noqa: B027 (a cloud of no time has nothing to do)
        """Lets some time pass."""

    @pytest.fixture
    def cloud(self) -> Iterator[Cloud]:
        cloud = self.make()
        yield cloud
        cloud.close(self.now())

    def take(self, cloud: Cloud, kind: type, count: int = 1) -> list[ev.Event]:
        """Until so many events of a kind were told; returns all."""
        found: list[ev.Event] = []
        for _ in range(600):
            now = self.now()
            told = cloud.poll_events(now)
            assert all(event.at <= now for event in told)
            found += told
            if len(of(found, kind)) >= count:
                return found
            self.wait()
        raise AssertionError(f"no {kind.__name__} came; all that did: {found}")

    def test_what_is_there_is_told_at_once_and_let_go_at_the_end(self, cloud: Cloud) -> None:
        fleet = Fleet()
        events = cloud.open(self.now())
        assert len(of(events, ev.MachineReady)) == self.there
        fold(fleet, events)
        assert all(machine.slots > 0 and machine.price_per_hour >= 0 for machine in fleet.present.values())
        fold(fleet, cloud.close(self.now()))
        assert not fleet.present

    def test_nothing_is_told_twice(self, cloud: Cloud) -> None:
        cloud.open(self.now())
        for _ in range(3):
            assert cloud.poll_events(self.now()) == []
            self.wait()

    def test_when_to_look_again_is_not_in_the_past(self, cloud: Cloud) -> None:
        cloud.open(self.now())
        now = self.now()
        cloud.poll_events(now)
        due = cloud.next_event_at()
        assert due is None or due > now

    def test_nobody_has_a_machine_of_that_name(self, cloud: Cloud) -> None:
        cloud.open(self.now())
        assert cloud.release("no such machine", self.now()) == []

    def test_another_driver_finds_what_is_there(self, cloud: Cloud) -> None:
        first = cloud.open(self.now())
        cloud.close(self.now())
        second = self.make()
        assert of(second.open(self.now()), ev.MachineReady) == of(first, ev.MachineReady)
        second.close(self.now())


class RentingConformance(CloudConformance):
    offer: str

    def come(self) -> None:
        """What was rented last may come now."""

    def go(self, cloud: Cloud, machine: str) -> None:
        """What was released may go now."""

    def rented(self, cloud: Cloud, fleet: Fleet, machine: str) -> list[ev.Event]:
        fleet.rent(ev.Rent(self.now(), machine, self.offer))
        events = cloud.rent(machine, self.offer, None, self.now())
        self.come()
        if machine not in of(events, ev.MachineReady):
            events += self.take(cloud, ev.MachineReady)
        fold(fleet, events)
        return events

    def test_a_machine_is_rented_then_ready_then_released_and_billed(self, cloud: Cloud) -> None:
        fleet = Fleet()
        fold(fleet, cloud.open(self.now()))
        events = self.rented(cloud, fleet, "m1")
        assert of(events, ev.MachineRented, ev.MachineReady) == ["m1", "m1"]
        assert isinstance(events[0], ev.MachineRented)
        machine = fleet.present["m1"]
        assert machine.slots > 0
        assert machine.offer == self.offer
        events = cloud.release("m1", self.now())
        if not events:
            assert cloud.release("m1", self.now()) == []
            self.go(cloud, "m1")
            events = self.take(cloud, ev.MachineBilled)
        fold(fleet, events)
        assert [type(event) for event in events] == [ev.MachineReleased, ev.MachineBilled]
        bill = fleet.past[-1].bill
        assert bill is not None
        assert bill.dollars >= 0
        assert cloud.release("m1", self.now()) == []

    def test_one_that_has_not_come_can_be_released(self, cloud: Cloud) -> None:
        cloud.open(self.now())
        assert cloud.rent("m1", self.offer, None, self.now()) == []
        now = self.now()
        assert cloud.release("m1", now) == [ev.MachineReleased(now, "m1")]
        for _ in range(3):
            self.wait()
            assert cloud.poll_events(self.now()) == []

    def test_closing_leaves_what_is_rented(self, cloud: Cloud) -> None:
        fleet = Fleet()
        fold(fleet, cloud.open(self.now()))
        self.rented(cloud, fleet, "m1")
        fold(fleet, cloud.close(self.now()))
        assert list(fleet.present) == ["m1"]
        self.go(cloud, "m1")
