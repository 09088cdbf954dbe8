"""The protocol of clouds, which rent and release machines."""

from __future__ import annotations

from typing import Protocol

from thriftune.state.events import Event


class Cloud(Protocol):
    """A service that rents and releases machines, and reports what happens to them.

    It owns machines, not policy: it carries out Rent and Release.

    The driver calls open() first, then rent(), release() and poll_events() in any order, then close().
    Each `now` is in unix seconds.
    """

    def open(self, now: float) -> list[Event]:
        """Return a MachineReady for each machine that is available without being rented."""
        ...

    def rent(self, machine: str, offer: str, max_price: float | None, now: float) -> list[Event]:
        """Order a machine; return the events that are known at once, such as a refusal."""
        ...

    def release(self, machine: str, now: float) -> list[Event]:
        """Release a machine, or cancel its order if it is not ready yet.

        Returns the events known at once.
        """
        ...

    def poll_events(self, now: float) -> list[Event]:
        """Return the events since the last call: machines ready or lost, notices, bills."""
        ...

    def next_event_at(self) -> float | None:
        """Return when poll_events() may have new events, in unix seconds.

        Returns None if that is not known.
        """
        ...

    def close(self, now: float) -> list[Event]:
        """Release the machines that were not rented.

        Rented machines stay until release() is called.
        """
        ...
