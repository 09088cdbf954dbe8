"""Who rents us machines? The cloud protocol."""

from __future__ import annotations

from typing import Protocol

from thriftune.events import Event


class Cloud(Protocol):
    """Owns machines, not policy: carries Rent and Release out, and tells what becomes of the machines."""

    def open(self, now: float) -> list[Event]:
        """The machines that are there without being rented."""
        ...

    def rent(self, machine: str, offer: str, now: float) -> list[Event]: ...

    def release(self, machine: str, now: float) -> list[Event]: ...

    def close(self, now: float) -> list[Event]:
        """Lets go of what was there without being rented; what was rented stays until it is released."""
        ...
