"""Nobody: machines that are rented on a virtual clock, come when they would and cost what they would."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from thriftune.errors import SettingError
from thriftune.events import Event, MachineReady, MachineReleased, MachineRented
from thriftune.planning.cloud import CloudProfile


class SimulatedCloud:
    """Machines of these kinds, as many as are wanted. Those that are rented at one moment are handed over at one.

    Its driver asks with `due` when something happens, and takes it when the clock is there.
    """

    def __init__(self, kinds: Sequence[CloudProfile], rng: np.random.Generator) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._rng = rng
        self._coming: list[tuple[float, int, Event]] = []  # a heap
        self._count = 0
        self._queued: tuple[float, str, float] = (-1.0, "", 0.0)  # when, which kind, how long
        self._since: dict[str, tuple[float, CloudProfile]] = {}  # handed over and billed
        self.dollars = 0.0  # of machines that were let go, and of data

    def open(self, now: float) -> list[Event]:  # noqa: ARG002 (the protocol's)
        return []

    def rent(self, machine: str, offer: str, now: float) -> list[Event]:
        kind = self._kinds.get(offer)
        if kind is None:
            raise SettingError(f"{offer}: no such machine can be rented; there are {', '.join(self._kinds)}")
        if self._queued[:2] != (now, offer):
            self._queued = now, offer, float(kind.queue_latency.sample((1,), self._rng)[0])
        handed_over = now + self._queued[2]
        ready = handed_over + float(kind.init_latency.sample((1,), self._rng)[0])
        self._schedule(MachineRented(handed_over, machine, offer, kind.price_per_hour))
        self._schedule(MachineReady(ready, machine, offer, kind.slots, kind.price_per_hour))
        return []

    def release(self, machine: str, now: float) -> list[Event]:
        if machine in self._since:
            since, kind = self._since.pop(machine)
            if kind.billing == "per_instance":
                self.dollars += max(kind.minimum, now - since) * kind.dollars_per_second
        self._coming = [each for each in self._coming if getattr(each[2], "machine", None) != machine]
        return [MachineReleased(now, machine)]

    def close(self, now: float) -> list[Event]:  # noqa: ARG002
        return []

    def due(self) -> float | None:
        """When something happens next."""
        return self._coming[0][0] if self._coming else None

    def take(self, now: float) -> list[Event]:
        """What has happened by now."""
        found: list[Event] = []
        while self._coming and self._coming[0][0] <= now:
            event = heappop(self._coming)[2]
            if isinstance(event, MachineRented):
                kind = self._kinds[event.offer]
                self._since[event.machine] = event.at, kind
                self.dollars += kind.data_gb * kind.data_price
            found.append(event)
        return found

    def _schedule(self, event: Event) -> None:
        self._count += 1
        heappush(self._coming, (event.at, self._count, event))
