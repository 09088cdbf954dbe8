"""The cloud protocol: rents and releases machines, and delivers their events."""

from __future__ import annotations

from typing import Protocol

from thriftune.state.events import Event


class Cloud(Protocol):
    """Owns machines, not policy: carries Rent and Release out, and tells what becomes of the machines."""

    def open(self, now: float) -> list[Event]:
        """The machines that are there without being rented."""
        ...

    def rent(self, machine: str, offer: str, max_price: float | None, now: float) -> list[Event]:
        """What is known at once: that it is refused, or that it is there."""
        ...

    def release(self, machine: str, now: float) -> list[Event]:
        """Also one that has not come yet."""
        ...

    def poll_events(self, now: float) -> list[Event]:
        """What has happened by now and was not told yet: machines that came, notices, losses, bills."""
        ...

    def next_event_at(self) -> float | None:
        """When there may be something to take, if that is known."""
        ...

    def close(self, now: float) -> list[Event]:
        """Lets go of what was there without being rented; what was rented stays until it is released."""
        ...
