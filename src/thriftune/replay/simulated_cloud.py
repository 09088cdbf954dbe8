"""Nobody: machines that are rented on a virtual clock. They come, cost and are taken away as the trace says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

import numpy as np

from thriftune.errors import SettingError
from thriftune.market.billing import Bill
from thriftune.planning.latency import Latency
from thriftune.planning.machine_types import MachineType
from thriftune.replay.preemptions import Fate, Lasting
from thriftune.state.events import (
    Event,
    MachineBilled,
    MachineLost,
    MachineNotice,
    MachineReady,
    MachineRefused,
    MachineReleased,
    MachineRented,
)

_NONE = "there is none to be had"


@dataclass(slots=True)
class _Machine:
    id: str
    kind: MachineType
    number: int
    max_price: float | None
    seat: int
    since: float = 0.0  # handed over and billed
    there: bool = False
    gone: bool = False


@dataclass
class SimulatedCloud:
    """Machines of these kinds. `fates`: by kind, when they are taken away; else never.

    Those of a kind that are rented one after the other at one moment are handed over at one. The same requests
    have the same answers: every latency and life is drawn for the number of its machine.
    """

    kinds: Sequence[MachineType]
    fates: Mapping[str, Fate] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self._kinds = {kind.name: kind for kind in self.kinds}
        if len(self._kinds) < len(self.kinds):
            raise SettingError(f"cloud: {', '.join(k.name for k in self.kinds)}: each needs a name of its own")
        self._machines: dict[str, _Machine] = {}
        self._taken: dict[str, set[int]] = {name: set() for name in self._kinds}  # seats
        self._coming: list[tuple[float, int, Event]] = []  # a heap
        self._count = 0  # of what ever came
        self._rented = 0
        self._queued: tuple[float, str, float] = (-inf, "", 0.0)  # when, which kind, how long
        self.bills: list[Bill] = []  # of machines that are gone

    @property
    def bill(self) -> Bill:
        """Of all machines that are gone, together."""
        return sum(self.bills, Bill())

    def kind_of(self, machine: str) -> MachineType:
        return self._machines[machine].kind

    def open(self, now: float) -> list[Event]:  # noqa: ARG002 (the protocol's)
        return []

    def rent(self, machine: str, offer: str, max_price: float | None, now: float) -> list[Event]:
        kind = self._kinds.get(offer)
        if kind is None:
            raise SettingError(f"{offer}: no such machine can be rented; there are {', '.join(self._kinds)}")
        seat = self._seat(offer, now, max_price)
        if seat is None:
            return [MachineRefused(now, machine, offer, _NONE)]
        self._rented += 1
        if self._queued[:2] != (now, offer):
            self._queued = now, offer, self._drawn(kind.queue_latency, self._rented, 0)
        self._machines[machine] = _Machine(machine, kind, self._rented, max_price, seat)
        self._taken[offer].add(seat)
        self._schedule(MachineRented(now + self._queued[2], machine, offer, kind.price_at(now)))
        return self.poll_events(now)

    def release(self, machine: str, now: float) -> list[Event]:
        found = self._machines.get(machine)
        if found is None or found.gone:
            return []
        self._let_go(found)
        return [MachineReleased(now, machine), *self._billed(found, now, revoked=False)]

    def close(self, now: float) -> list[Event]:  # noqa: ARG002
        return []

    def next_event_at(self) -> float | None:
        while self._coming and self._machines[self._coming[0][2].machine].gone:  # type: ignore[attr-defined]
            heappop(self._coming)
        return self._coming[0][0] if self._coming else None

    def poll_events(self, now: float) -> list[Event]:
        found: list[Event] = []
        while (at := self.next_event_at()) is not None and at <= now:
            event = heappop(self._coming)[2]
            if isinstance(event, MachineRented):
                found.append(self._hand_over(event))
            elif isinstance(event, MachineLost):
                machine = self._machines[event.machine]
                self._let_go(machine)
                found += [event, *self._billed(machine, event.at, revoked=True)]
            else:
                found.append(event)
        return found

    def _seat(self, offer: str, now: float, max_price: float | None) -> int | None:
        """The lowest that is free; None: there is none."""
        room = self._fate(offer).room(now, max_price)
        taken = self._taken[offer]
        seat = next(number for number in range(1, len(taken) + 2) if number not in taken)
        most = self._kinds[offer].most
        return seat if (room is None or seat <= room) and (most is None or seat <= most) else None

    def _let_go(self, machine: _Machine) -> None:
        machine.gone = True
        self._taken[machine.kind.name].discard(machine.seat)

    def _drawn(self, latency: Latency, number: int, what: int) -> float:
        if not latency.std:
            return latency.mean
        return float(latency.sample((1,), np.random.default_rng((self.seed, number, what)))[0])

    def _fate(self, offer: str) -> Fate:
        return self.fates.get(offer, Lasting())

    def _hand_over(self, event: MachineRented) -> Event:
        machine = self._machines[event.machine]
        kind, at = machine.kind, event.at
        fate = self._fate(kind.name)
        room = fate.room(at, machine.max_price)
        if room is not None and machine.seat > room:  # it was, when it was asked for
            self._let_go(machine)
            return MachineRefused(at, machine.id, kind.name, _NONE)
        machine.since, machine.there = at, True
        price = kind.price_at(at)
        ready = at + self._drawn(kind.init_latency, machine.number, 1)
        self._schedule(MachineReady(ready, machine.id, kind.name, kind.slots, price))
        end = fate.end(machine.number, machine.seat, at, machine.max_price)
        if end < inf:
            if kind.notice_seconds:
                self._schedule(MachineNotice(max(at, end - kind.notice_seconds), machine.id, end))
            self._schedule(MachineLost(end, machine.id, "taken away", revoked=True))
        return MachineRented(at, machine.id, kind.name, price, kind.on_demand_price)

    def _billed(self, machine: _Machine, at: float, *, revoked: bool) -> list[Event]:
        if not machine.there:
            return []
        kind = machine.kind
        bill = kind.billing.bill(machine.since, at, kind.price, revoked=revoked, gb_moved=kind.data_gb)
        self.bills.append(bill)
        return [MachineBilled(at, machine.id, bill.dollars, float(bill.data), float(bill.refunded))]

    def _schedule(self, event: Event) -> None:
        self._count += 1
        heappush(self._coming, (event.at, self._count, event))
