"""This machine: always there, never rented; priced as if it were, so that money is never out of sight."""

from __future__ import annotations

import os

from thriftune.errors import SettingError
from thriftune.market.catalog import Offer, reference_offer
from thriftune.state.events import THIS_MACHINE, Event, MachineReady, MachineReleased


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0))


class LocalCloud:
    """The one machine the driver runs on. Its price is that of the smallest rented one with as many cores."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.offer: Offer = reference_offer(cores())

    def open(self, now: float) -> list[Event]:
        price = self.offer.price_per_hour
        return [MachineReady(now, THIS_MACHINE, self.offer.title, self.slots, price)]

    def rent(self, machine: str, offer: str, max_price: float | None, now: float) -> list[Event]:  # noqa: ARG002
        raise SettingError(f"{machine}: this machine is all there is; no {offer!r} can be rented at {now}")

    def release(self, machine: str, now: float) -> list[Event]:
        return [MachineReleased(now, machine)] if machine == THIS_MACHINE else []

    def poll_events(self, now: float) -> list[Event]:  # noqa: ARG002 (the protocol's)
        return []

    def next_event_at(self) -> float | None:
        return None

    def close(self, now: float) -> list[Event]:
        return self.release(THIS_MACHINE, now)
