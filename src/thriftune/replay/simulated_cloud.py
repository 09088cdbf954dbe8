"""A cloud that rents out machines on a virtual clock, with recorded or drawn preemptions."""

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
from thriftune.replay.preemptions import NoPreemptions, Preemptions
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

_NO_CAPACITY = "no capacity"
_QUEUE_DRAW, _INIT_DRAW = 0, 1  # parts of the seeds of two random numbers a machine


@dataclass(slots=True)
class _SimulatedMachine:
    id: str
    kind: MachineType
    number: int
    max_price: float | None
    position: int  # among the machines of its kind that are held at the same time, from 1
    billed_from: float = 0.0
    handed_over: bool = False
    ended: bool = False  # released, preempted or refused


@dataclass
class SimulatedCloud:
    """A cloud with machines of these kinds. `preemptions`: by kind; a kind without any is never preempted.

    Machines of one kind that are rented in succession at one moment are handed over together. The same requests
    have the same answers: every latency and lifetime is drawn for the number of its machine.
    """

    kinds: Sequence[MachineType]
    preemptions: Mapping[str, Preemptions] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        self._kinds = {kind.name: kind for kind in self.kinds}
        if len(self._kinds) < len(self.kinds):
            raise SettingError(
                f"cloud: two kinds of machines have the same name: {', '.join(k.name for k in self.kinds)}"
            )
        self._machines: dict[str, _SimulatedMachine] = {}
        self._held_positions: dict[str, set[int]] = {name: set() for name in self._kinds}
        self._upcoming: list[tuple[float, int, Event]] = []  # a heap by time, then by order of scheduling
        self._scheduled = 0  # number of events ever scheduled
        self._rented = 0  # number of machines ever rented
        self._last_request: tuple[float, str, float] = (-inf, "", 0.0)  # time, kind, queue seconds
        self.bills: list[Bill] = []  # one for each machine that was handed over and has ended

    @property
    def bill(self) -> Bill:
        """The sum of the bills of all machines that have ended."""
        return sum(self.bills, Bill())

    def kind_of(self, machine: str) -> MachineType:
        return self._machines[machine].kind

    def open(self, now: float) -> list[Event]:  # noqa: ARG002 (the protocol's)
        return []

    def rent(self, machine: str, offer: str, max_price: float | None, now: float) -> list[Event]:
        kind = self._kinds.get(offer)
        if kind is None:
            raise SettingError(f"{offer}: no such machine can be rented; choose one of {', '.join(self._kinds)}")
        position = self._free_position(offer, now, max_price)
        if position is None:
            return [MachineRefused(now, machine, offer, _NO_CAPACITY)]
        self._rented += 1
        if self._last_request[:2] != (now, offer):
            self._last_request = now, offer, self._draw(kind.queue_latency, self._rented, _QUEUE_DRAW)
        self._machines[machine] = _SimulatedMachine(machine, kind, self._rented, max_price, position)
        self._held_positions[offer].add(position)
        self._schedule(MachineRented(now + self._last_request[2], machine, offer, kind.price_at(now)))
        return self.poll_events(now)

    def release(self, machine: str, now: float) -> list[Event]:
        released = self._machines.get(machine)
        if released is None or released.ended:
            return []
        self._end(released)
        return [MachineReleased(now, machine), *self._bill_events(released, now, preempted=False)]

    def close(self, now: float) -> list[Event]:  # noqa: ARG002
        return []

    def next_event_at(self) -> float | None:
        while self._upcoming and self._machines[self._upcoming[0][2].machine].ended:  # type: ignore[attr-defined]
            heappop(self._upcoming)
        return self._upcoming[0][0] if self._upcoming else None

    def poll_events(self, now: float) -> list[Event]:
        events: list[Event] = []
        while (next_at := self.next_event_at()) is not None and next_at <= now:
            event = heappop(self._upcoming)[2]
            if isinstance(event, MachineRented):
                events.append(self._hand_over(event))
            elif isinstance(event, MachineLost):
                machine = self._machines[event.machine]
                self._end(machine)
                events += [event, *self._bill_events(machine, event.at, preempted=True)]
            else:
                events.append(event)
        return events

    def _free_position(self, offer: str, now: float, max_price: float | None) -> int | None:
        """Return the lowest free position; None if no further machine is available."""
        available = self._preemptions_of(offer).available(now, max_price)
        held = self._held_positions[offer]
        position = next(number for number in range(1, len(held) + 2) if number not in held)
        most = self._kinds[offer].max_machines
        fits = (available is None or position <= available) and (most is None or position <= most)
        return position if fits else None

    def _end(self, machine: _SimulatedMachine) -> None:
        machine.ended = True
        self._held_positions[machine.kind.name].discard(machine.position)

    def _draw(self, latency: Latency, number: int, which: int) -> float:
        if not latency.std:
            return latency.mean
        return float(latency.sample((1,), np.random.default_rng((self.seed, number, which)))[0])

    def _preemptions_of(self, offer: str) -> Preemptions:
        return self.preemptions.get(offer, NoPreemptions())

    def _hand_over(self, event: MachineRented) -> Event:
        machine = self._machines[event.machine]
        kind, now = machine.kind, event.at
        preemptions = self._preemptions_of(kind.name)
        available = preemptions.available(now, machine.max_price)
        if available is not None and machine.position > available:  # it was available when it was requested
            self._end(machine)
            return MachineRefused(now, machine.id, kind.name, _NO_CAPACITY)
        machine.billed_from, machine.handed_over = now, True
        price = kind.price_at(now)
        ready_at = now + self._draw(kind.init_latency, machine.number, _INIT_DRAW)
        self._schedule(MachineReady(ready_at, machine.id, kind.name, kind.slots, price))
        lost_at = preemptions.preempted_at(machine.number, machine.position, now, machine.max_price)
        if lost_at < inf:
            if kind.notice_seconds:
                self._schedule(MachineNotice(max(now, lost_at - kind.notice_seconds), machine.id, lost_at))
            self._schedule(MachineLost(lost_at, machine.id, "preempted", revoked=True))
        return MachineRented(now, machine.id, kind.name, price, kind.on_demand_price)

    def _bill_events(self, machine: _SimulatedMachine, now: float, *, preempted: bool) -> list[Event]:
        if not machine.handed_over:
            return []
        kind = machine.kind
        bill = kind.billing.bill(machine.billed_from, now, kind.price, revoked=preempted, gb_moved=kind.data_gb)
        self.bills.append(bill)
        return [MachineBilled(now, machine.id, bill.dollars, float(bill.data), float(bill.refunded))]

    def _schedule(self, event: Event) -> None:
        self._scheduled += 1
        heappush(self._upcoming, (event.at, self._scheduled, event))
