"""The protocol of clouds, which rent and release machines."""

from __future__ import annotations

from typing import Protocol

from thriftune.state.events import Event


class Cloud(Protocol):
    """A service that rents and releases machines, and reports their events.

    It makes no decisions. It carries out the decisions Rent and Release.

    The driver calls open() first, then rent(), release() and poll_events() in any order, then close().
    Each `now` is in unix seconds.
    """

    def open(self, now: float) -> list[Event]:
        """Return the events of machines that are present already.

        They include a MachineReady for each machine that need not be rented.
        """
        ...

    def rent(self, machine: str, offer: str, max_price: float | None, now: float) -> list[Event]:
        """Order a machine; return the events that are known at once, such as a refusal.

        - `machine`: the id that the new machine gets.
        - `max_price`: dollars an hour. The provider may preempt the machine at a higher price. None: no limit.
        """
        ...

    def release(self, machine: str, now: float) -> list[Event]:
        """Release a machine, or cancel its order if it is not ready yet.

        Returns the events that are known at once.
        """
        ...

    def poll_events(self, now: float) -> list[Event]:
        """Return the events since the last call.

        Examples are machines that are ready or lost, notices and bills.
        """
        ...

    def next_event_at(self) -> float | None:
        """Return when poll_events() may have new events, in unix seconds.

        Returns None if that is not known.
        """
        ...

    def close(self, now: float) -> list[Event]:
        """Release the machines that were not rented; return the events of this.

        Rented machines stay until release() is called.
        """
        ...
