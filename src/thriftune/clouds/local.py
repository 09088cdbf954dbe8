"""The cloud whose only machine is the one on which the driver runs."""

from __future__ import annotations

import os

from thriftune.errors import SettingError
from thriftune.market.catalog import Offer, reference_offer
from thriftune.state.events import THIS_MACHINE, Event, MachineReady, MachineReleased


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


class LocalCloud:
    """A cloud with one machine: the one on which the driver runs.

    The machine cannot be rented. Its price is that of the smallest machine of the catalog with as many cores, so
    that a local study shows a cost, too.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.offer: Offer = reference_offer(cores())

    def open(self, now: float) -> list[Event]:
        price = self.offer.price_per_hour
        return [MachineReady(now, THIS_MACHINE, self.offer.title, self.slots, price)]

    def rent(self, machine: str, offer: str, max_price: float | None, now: float) -> list[Event]:  # noqa: ARG002
        raise SettingError(f"{machine}: no {offer!r} can be rented, because this study uses only this machine")

    def release(self, machine: str, now: float) -> list[Event]:
        return [MachineReleased(now, machine)] if machine == THIS_MACHINE else []

    def poll_events(self, now: float) -> list[Event]:  # noqa: ARG002 (the protocol's)
        return []

    def next_event_at(self) -> float | None:
        return None

    def close(self, now: float) -> list[Event]:
        return self.release(THIS_MACHINE, now)
