"""Which seats does a driver have on a cluster, and what do they say? All that its side knows of them.

A seat is an actor with room for one worker (seat.py). Seats are kept warm when a trial leaves them, and given to
the next that wants some on their machine, whatever its number of workers: that a trial grows or shrinks costs it
no more than to read its checkpoint. What is missing is asked for together, so that Ray places all or none; but on
machines that are the study's own, where nobody else takes any, machine by machine.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import queue
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from thriftune.clouds.ray.cluster import Cluster, ClusterNode, PlacementGroup
from thriftune.engines import recovery
from thriftune.engines.ray.worker_actor import Order, Seat
from thriftune.errors import ThriftuneError
from thriftune.state.events import Event
from thriftune.training.messages import read_spool

_IDLE_SECONDS = 3.0
"""A seat without a trial is kept for so long; others may want its room."""

_AGAIN_SECONDS, _UNREACHABLE_SECONDS = 0.5, 30.0
"""A seat that cannot be reached is asked again so often, and given up after so long, if Ray does not say before
that it is gone."""

_NODE_SECONDS = 0.5
"""Whether a seat is gone because its node is, is known after so long: its machine is lost then. Before, its trial
would be placed there again, and be lost twice."""

_STILLBORN_LIMIT = 3


@dataclass(slots=True, eq=False)
class Held:
    """A seat, as the driver knows it."""

    machine: str
    address: str
    folder: Path
    group: Group = field(repr=False)
    place: int  # in its group
    pid: int | None = None  # of its actor; None: it is not there yet
    taken: bool = True  # it is somebody's
    gone: bool = False
    hears: bool = False  # it will answer when its worker says something
    heard: int = 0  # answers so far
    orders: list[Order] = field(default_factory=list)  # to be sent with the next question
    unreachable_since: float | None = None
    idle_since: float = 0.0
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1), repr=False)


@dataclass(slots=True, eq=False)
class Group:
    """Seats that were asked for together. Their room is Ray's again when the last of them is gone: one that has
    lost a seat, or a machine, is let go as soon as nobody has any of it."""

    gang: PlacementGroup
    seats: list[Held] = field(default_factory=list)
    broken: bool = False


class Owner(Protocol):
    """Who has the seats, and is told what becomes of them."""

    def seat_ready(self, seat: Held) -> None: ...

    def seat_said(self, seat: Held, event: Event) -> None: ...

    def seat_gone(self, seat: Held, why: str, memory: bool) -> None:
        """And not by our doing. `memory`: the machine had not enough of it."""
        ...


class Seats:
    def __init__(
        self,
        cluster: Cluster,
        node_of: Callable[[str], ClusterNode],
        worker: Mapping[str, float],
        folder: Path,
        prefix: str,
        target: Mapping[str, Any],
        variables: Mapping[str, str],
        owner: Owner,
        is_own: Callable[[str], bool],
    ) -> None:
        self._cluster = cluster
        self._node_of = node_of
        self._worker = worker
        self._folder = folder
        self._prefix = prefix
        self._target = target
        self._variables = variables
        self._owner = owner
        self._is_own = is_own
        self._groups = 0  # ever made
        self._seats: dict[Held, None] = {}
        self._idle: dict[str, dict[Held, None]] = {}  # by machine
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()  # None: wake up
        self._silent: list[Held] = []  # those who have answered and shall be asked again
        self._timers: list[tuple[float, int, Callable[[], None]]] = []  # a heap
        self._timer_numbers = itertools.count()
        self._spent: list[Path] = []  # folders of seats that are gone
        self._stillborn = 0  # seats in a row that ended before they were there

    def __iter__(self) -> Iterator[Held]:
        return iter(self._seats)

    def workers_on(self, machine: str) -> int:
        """Seats that have their room there."""
        return sum(seat.machine == machine and self.has_room(seat) for seat in self._seats)

    def has_room(self, seat: Held) -> bool:
        return seat.pid is not None or seat.group.gang.placed()

    # --- having and giving back -------------------------------------------------------------------------

    def take(self, workers: Mapping[str, int]) -> list[Held]:
        """A seat for each worker, machine by machine: warm ones, and the missing are asked for."""
        found: list[Held | None] = []
        missing: list[str] = []
        for machine, count in workers.items():
            idle = self._idle.get(machine, {})
            for _ in range(count):
                if idle:
                    seat, _ = idle.popitem()
                    seat.taken = True
                    found.append(seat)
                else:
                    found.append(None)
                    missing.append(machine)
        new = iter(self._all_or_none(missing))
        return [next(new) if seat is None else seat for seat in found]

    def _all_or_none(self, machines: Sequence[str]) -> list[Held]:
        """Seats there, in this order. What is asked for together is held together: where all room is the study's,
        there is some for each, and one machine's shall not be held, and billed, for a seat on another."""
        others = [machine for machine in machines if not self._is_own(machine)]
        apart = [[each] * machines.count(each) for each in dict.fromkeys(machines) if self._is_own(each)]
        new: dict[str, list[Held]] = {}
        for together in filter(None, [others, *apart]):
            for seat in self._asked_for(together):
                new.setdefault(seat.machine, []).append(seat)
        return [new[machine].pop(0) for machine in machines]

    def give_back(self, seat: Held) -> None:
        """Its trial has ended."""
        seat.taken, seat.idle_since = False, time.monotonic()
        if seat.gone or seat.pid is None or seat.group.broken:
            self.end([seat])
            return
        self._idle.setdefault(seat.machine, {})[seat] = None
        self.later(_IDLE_SECONDS, lambda since=seat.idle_since: self._let_go(seat, since))  # type: ignore[misc]

    def _let_go(self, seat: Held, since: float) -> None:
        """Of a group, all at once: the room of one alone would be nobody's."""
        if seat.taken or seat.gone or seat.idle_since != since:
            return
        if any(other.taken for other in seat.group.seats):
            self.later(_IDLE_SECONDS, lambda: self._let_go(seat, since))
        else:
            self.end([seat])

    def end(self, seats: Iterable[Held]) -> None:
        """They shall be no more, nor those of their groups that nobody has."""
        for seat in list(seats):
            group = seat.group
            group.broken = True
            if seat in group.seats:
                self._forget(seat)
                group.gang.end_one(seat.place)
            for other in [each for each in group.seats if not each.taken]:
                self._forget(other)
                group.gang.end_one(other.place)
            if not group.seats:
                group.gang.end()

    def machine_lost(self, machine: str) -> None:
        """Those of a machine that is gone, or given back, and that nobody has."""
        self.end(self._idle.get(machine, {}))
        self._idle.pop(machine, None)

    def close(self, patience_seconds: float) -> None:
        seats, self._seats = list(self._seats), {}
        for group in {id(seat.group): seat.group for seat in seats}.values():
            group.gang.end()
        self._idle, self._timers, self._silent = {}, [], []
        deadline = time.monotonic() + patience_seconds
        for seat in seats:
            seat.gone = True
            wait_until_gone(seat.folder, deadline - time.monotonic())

    def _asked_for(self, machines: Sequence[str]) -> list[Held]:
        nodes = [self._node_of(machine) for machine in machines]
        self._groups += 1
        folders = [self._folder / f"{self._groups}-{place}" for place in range(len(machines))]
        paths = [str(Path(path or ".").absolute()) for path in sys.path]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)  # by which a seat finds out whether it is there, too
        arguments = [(str(folder), self._target, self._variables, paths) for folder in folders]
        name = f"{self._prefix}{self._groups}"
        gang = self._cluster.gang(Seat, arguments, [node.id for node in nodes], self._worker, name)
        group = Group(gang)
        for place, (machine, node) in enumerate(zip(machines, nodes, strict=True)):
            group.seats.append(Held(machine, node.address, folders[place], group, place))
        for seat in group.seats:
            self._seats[seat] = None
            self.call(seat, "hear", "hello", (), self._greeted)
        return list(group.seats)

    def _forget(self, seat: Held) -> None:
        seat.gone = True
        self._seats.pop(seat, None)
        self._idle.get(seat.machine, {}).pop(seat, None)
        seat.group.seats.remove(seat)
        self._spent.append(seat.folder)

    # --- talking ----------------------------------------------------------------------------------------

    def call(
        self,
        seat: Held,
        group: str,
        method: str,
        arguments: Sequence[Any],
        then: Callable[[Held, Any, BaseException | None], None],
    ) -> None:
        def told(found: Any, error: BaseException | None) -> None:  # on a thread of Ray's
            self._inbox.put(lambda: None if seat.gone else then(seat, found, error))

        seat.group.gang.call(seat.place, method, *arguments, group=group, then=told)

    def ask(self, seat: Held) -> None:
        """What its worker says next; tells it what it shall do."""
        if seat.gone or seat.hears:
            return
        seat.hears = True
        orders, seat.orders = seat.orders, []
        then: Callable[..., None] = lambda *found: self._answered(orders, *found)  # noqa: E731
        self.call(seat, "hear", "hear", (seat.heard, orders), then)

    def order(self, seat: Held, method: str, *arguments: Any) -> None:
        self._say(seat, (next(seat.numbers), method, arguments))

    def _say(self, seat: Held, order: Order) -> None:
        if seat.gone:
            return
        if not seat.hears:
            seat.orders.append(order)
            return

        def told(_seat: Held, _: Any, error: BaseException | None) -> None:
            if error is not None:  # hear() may be told so, too, or have been, and be asked anew by now
                self.later(_AGAIN_SECONDS, lambda: self._say(seat, order))

        self.call(seat, "say", "say", (order,), told)

    def wake(self) -> None:
        self._inbox.put(None)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timer_numbers), do))

    def begin_turn(self) -> None:
        """All that was said before is recorded."""
        for folder in self._spent:
            shutil.rmtree(folder, ignore_errors=True)
        self._spent.clear()
        silent, self._silent = self._silent, []
        for seat in silent:
            self.ask(seat)

    def take_in(self, deadline: float | None) -> bool:
        """What is there, or is next, before the deadline. True: somebody wants the driver to go on."""
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        ends = [each for each in (deadline, self._timers[0][0] if self._timers else None) if each is not None]
        woken = False
        try:
            item = self._inbox.get(timeout=max(0.0, min(ends) - now) if ends else None)
            while True:
                if item is None:
                    woken = True
                else:
                    item()
                item = self._inbox.get_nowait()
        except queue.Empty:
            return woken

    def _greeted(self, seat: Held, pid: Any, error: BaseException | None) -> None:
        if error is None:
            self._stillborn = 0
            seat.pid = pid
            self.ask(seat)
            self._owner.seat_ready(seat)
            return
        if why := _not_made_for_it(error):
            raise ThriftuneError(f"no worker can be started on {seat.machine} ({seat.address}): {why}")
        self.later(_NODE_SECONDS, lambda: self._was_stillborn(seat, said(error)))

    def _was_stillborn(self, seat: Held, why: str) -> None:
        if seat.gone:  # with its machine
            return
        self._stillborn += 1
        if self._stillborn >= _STILLBORN_LIMIT:
            raise ThriftuneError(f"no worker can be started on {seat.machine} ({seat.address}): {why}")
        self._is_gone(seat, why, memory=False)

    def _answered(self, orders: list[Order], seat: Held, events: Any, error: BaseException | None) -> None:
        seat.hears = False
        if error is None:
            seat.heard += 1
            seat.unreachable_since = None
            self._silent.append(seat)
            for event in events:
                self._owner.seat_said(seat, event)
            return
        if seat.pid is None:  # what is wrong, _greeted is told
            return
        now = time.monotonic()
        seat.unreachable_since = seat.unreachable_since or now
        if _may_come_back(error) and now < seat.unreachable_since + _UNREACHABLE_SECONDS:
            seat.orders = [*orders, *seat.orders]
            self.later(_AGAIN_SECONDS, lambda: self.ask(seat))
        elif seat.taken:
            why, memory = said(error), _out_of_memory(error)
            self.later(_NODE_SECONDS, lambda: self._is_gone(seat, why, memory=memory))
        else:
            self.end([seat])

    def _is_gone(self, seat: Held, why: str, *, memory: bool) -> None:
        if seat.gone:
            return
        if seat.taken:
            self._owner.seat_gone(seat, why, memory)
        else:
            self.end([seat])


# --- what is left of a seat -------------------------------------------------------------------------------


def wait_until_gone(folder: Path, seconds: float) -> None:
    """Waits at most this long for the processes of a seat, which follow it."""
    with contextlib.suppress(OSError):  # its node was lost before it had a folder
        recovery.processes_end_within(folder, seconds)


def last_words(folder: Path) -> list[Event]:
    """What its workers have said, whether that was heard or not."""
    with contextlib.suppress(OSError):
        os.listdir(recovery.spool_folder(folder))  # noqa: PTH208 (has a network's file system look again)
    return [
        event for spool in sorted(recovery.spool_folder(folder).glob("*.spool")) for event in read_spool(spool)
    ]


# --- what Ray's errors mean -------------------------------------------------------------------------------


def _may_come_back(error: BaseException) -> bool:
    return type(error).__name__ == "ActorUnavailableError"


def _not_made_for_it(error: BaseException) -> str:
    """Why no seat can ever be on the node, as it is; empty if it is not that."""
    why = said(error)
    if "No module named 'thriftune" in why:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"{why}; install thriftune there, for Python {version}, as it is here"
    return why.partition("SettingError: ")[2]


def _out_of_memory(error: BaseException) -> bool:
    return "OutOfMemory" in type(error).__name__ or "running low on memory" in str(error)


def said(error: BaseException) -> str:
    """The line that says most: of an error in a seat, its own; else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    return next((line for line in reversed(lines) if "Error:" in line), first)
