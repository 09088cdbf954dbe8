"""Trials on a Ray cluster: each worker of a trial in a seat, which is an actor; those of one trial are a crew.

Ray places crews (all their seats, or none), gives each seat its processors and ends them with their driver. What
is kept here: which crew runs what, and what it means that a seat is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import queue
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thriftune.cluster import Cluster, Gang, Node
from thriftune.engines import Doing
from thriftune.engines.local import LocalEngine
from thriftune.engines.seat import Order, Seat
from thriftune.engines.wire import read_spool
from thriftune.errors import ThriftuneError
from thriftune.events import Ended, Event, Failed, Killed, Lost
from thriftune.trial import Run

End = Ended | Failed | Killed | Lost

_IDLE_SECONDS = 10.0
"""A crew without a trial is kept warm for so long; others may want its room."""

_TOGETHER_SECONDS = 5.0
"""When one worker of a trial has failed, the others have so long to say how they ended, which may be why."""

_ENDS_SECONDS = 30.0
"""And so long when it has ended well."""

_KILLED_SECONDS = 10.0
"""A seat that does not end its worker in this time is ended itself."""

_AGAIN_SECONDS, _UNREACHABLE_SECONDS = 0.5, 30.0
"""A seat that cannot be reached is asked again so often, and given up after so long, if Ray does not say before
that it is gone."""

_GONE_SECONDS = 2.0
"""How long the processes of a seat that is gone may take to follow it."""

_STILLBORN_LIMIT = 3


@dataclass(slots=True)
class _Seat:
    rank: int
    machine: str
    address: str
    folder: Path
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    pid: int | None = None  # of its actor; None: it is not there yet
    hears: bool = False  # it will answer when its worker says something
    heard: int = 0  # answers so far
    orders: list[Order] = field(default_factory=list)  # to be sent with the next question
    unreachable_since: float | None = None
    gone: bool = False


@dataclass(slots=True)
class _Crew:
    number: int
    workers: tuple[tuple[str, int], ...]
    seats: list[_Seat]
    gang: Gang
    run: Run | None = None
    begun: bool = False  # the seats were told of the run
    told: bool = False  # to end after the next step
    killed: bool = False  # by decision
    ends: dict[int, End] = field(default_factory=dict)  # by rank, of the current run
    cleared: set[int] = field(default_factory=set)  # ranks whose worker was ended because another one's had
    over: bool = False  # it takes no run any more
    idle_since: float = 0.0

    @property
    def ready(self) -> bool:
        return all(seat.pid is not None for seat in self.seats)


class RayEngine:
    """Trials in crews, which are kept warm from one trial to the next of the same shape.

    `node_of`: which node of the cluster a machine is. `worker`: what Ray shall give to each
    worker. `folder`: the study's, visible from all nodes. `variables`: what trials shall have around them.
    """

    def __init__(
        self,
        cluster: Cluster,
        node_of: Callable[[str], Node],
        worker: Mapping[str, float],
        folder: Path,
        study: str,
        target: Mapping[str, Any],
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._cluster = cluster
        self._node_of = node_of
        self._worker = worker
        self._seats = folder / "seats"
        self._prefix = f"thriftune-{study}-"
        self._target = target
        self._variables = {**_threads(worker), **(variables or {})}
        self._crews: dict[int, _Crew] = {}
        self._by_attempt: dict[tuple[int, int], _Crew] = {}
        self._idle: dict[tuple[tuple[str, int], ...], list[_Crew]] = {}
        self._next = 0
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()  # None: wake up
        self._events: list[Event] = []
        self._silent: list[
            tuple[_Crew, _Seat]
        ] = []  # those whose answer was taken in and who shall be asked again
        self._timers: list[tuple[float, int, Callable[[], None]]] = []  # a heap
        self._timer_numbers = itertools.count()
        self._spent: list[Path] = []  # folders of seats that are gone, all of whose words will be recorded by then
        self._stillborn = 0  # crews in a row that ended before all their seats were there

    # --- the protocol -----------------------------------------------------------------------------------

    def recover(self) -> list[Event]:
        self._seats.mkdir(parents=True, exist_ok=True)
        self._cluster.end_actors(self._prefix)  # they end with their driver; this is for those that would not
        found = [LocalEngine(folder, 1, {}).recover() for folder in sorted(self._seats.iterdir())]
        return sorted((event for events in found for event in events), key=lambda event: event.at)

    def open(self) -> None:
        shutil.rmtree(self._seats, ignore_errors=True)
        self._seats.mkdir(parents=True)

    def start(self, run: Run, workers: Mapping[str, int]) -> None:
        shape = tuple(workers.items())
        fit = self._idle.get(shape)
        crew = fit.pop() if fit else self._new_crew(shape)
        crew.run, crew.begun, crew.told, crew.killed = run, False, False, False
        self._by_attempt[run.trial, run.attempt] = crew
        if crew.ready or len(crew.seats) == 1:  # one alone need not be there to be told
            self._begin(crew)

    def tell_to_end(self, trial: int, attempt: int) -> None:
        crew = self._by_attempt.get((trial, attempt))
        if crew is None or crew.told:
            return
        crew.told = True
        if crew.ready and crew.begun:
            self._order(crew, crew.seats[0], "tell_to_end", trial, attempt)
        else:  # it has no process yet, as far as is known, and may have to wait for long
            self._call_off(crew, Ended(time.time(), trial, attempt, 0.0, cut=True))

    def answer(self, trial: int, attempt: int, number: int) -> None:
        if (crew := self._by_attempt.get((trial, attempt))) is not None:
            self._order(crew, crew.seats[0], "answer", trial, attempt, number)

    def kill(self, trial: int, attempt: int) -> None:
        crew = self._by_attempt.get((trial, attempt))
        if crew is None or crew.killed:
            return
        crew.killed = True
        if not (crew.ready and crew.begun):
            self._call_off(crew, Killed(time.time(), trial, attempt))
            return
        run = crew.run
        for seat in crew.seats:
            self._order(crew, seat, "kill", trial, attempt)
        self._later(_KILLED_SECONDS, lambda: self._give_up_on(crew, run, "did not end its worker when told to"))

    def lose(self, machine: str) -> list[Event]:
        before, self._events = self._events, []
        for crew in [each for each in self._crews.values() if machine in dict(each.workers)]:
            for seat in crew.seats:
                if seat.machine == machine:
                    self._seat_gone(crew, seat, f"its machine, {machine}, is gone")
            self._conclude(crew, at_once=True)
        found, self._events = self._events, before
        return found

    def wait(self, timeout: float | None) -> list[Event]:
        for folder in self._spent:
            shutil.rmtree(folder, ignore_errors=True)
        self._spent.clear()
        silent, self._silent = self._silent, []
        for crew, seat in silent:
            self._ask(crew, seat)
        deadline = None if timeout is None else time.monotonic() + timeout
        woken = False
        while not self._events and not woken:
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            if self._events:
                break
            ends = [each for each in (deadline, self._timers[0][0] if self._timers else None) if each is not None]
            left = max(0.0, min(ends) - now) if ends else None
            woken = self._take_in(left)
            if deadline is not None and time.monotonic() >= deadline:
                break
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        self._inbox.put(None)

    def doing(self) -> list[Doing]:
        return [_doing(crew, self._worker) for crew in self._crews.values()]

    def close(self) -> None:
        crews, self._crews = list(self._crews.values()), {}
        self._idle, self._timers, self._silent = {}, [], []
        self._by_attempt = {}
        for crew in crews:
            crew.over = True
            crew.gang.end()
        deadline = time.monotonic() + _GONE_SECONDS
        for crew in crews:
            for seat in crew.seats:
                _wait_until_gone(seat.folder, deadline - time.monotonic())

    # --- crews ------------------------------------------------------------------------------------------

    def _new_crew(self, shape: tuple[tuple[str, int], ...]) -> _Crew:
        machines = dict(shape)
        for crew in [each for each in self._crews.values() if each.run is None]:
            if not machines.keys().isdisjoint(dict(crew.workers)):  # it may be in the room that this one needs
                self._dismiss(crew)
        number = self._next
        self._next += 1
        seats: list[_Seat] = []
        nodes, arguments = [], []
        for machine, count in shape:
            node = self._node_of(machine)
            for _ in range(count):
                seat = _Seat(len(seats), machine, node.address, self._seats / f"{number}-{len(seats)}")
                seats.append(seat)
                nodes.append(node.id)
                paths = [str(Path(path or ".").absolute()) for path in sys.path]
                arguments.append((str(seat.folder), self._target, self._variables, paths))
        name = f"{self._prefix}{number}"
        gang = self._cluster.gang(Seat, arguments, nodes, self._worker, name)
        crew = _Crew(number, shape, seats, gang)
        self._crews[number] = crew
        for seat in seats:
            self._call(crew, seat, "hear", "hello", (), self._greeted)
        return crew

    def _greeted(self, crew: _Crew, seat: _Seat, found: Any, error: BaseException | None) -> None:
        if crew.over:
            return
        if error is not None:
            self._stillborn += 1
            if self._stillborn >= _STILLBORN_LIMIT and not _machine_is_to_blame(error):
                raise ThriftuneError(f"no worker can be started on {seat.machine}: {_said(error)}")
            self._seat_gone(crew, seat, _said(error))
            self._conclude(crew, at_once=True)
            return
        seat.pid = found
        if crew.ready:
            self._stillborn = 0
            for each in crew.seats:
                self._ask(crew, each)
            if crew.run is not None and not crew.begun:
                self._begin(crew)

    def _begin(self, crew: _Crew) -> None:
        run = crew.run
        assert run is not None
        if len(crew.seats) == 1:
            crew.begun = True
            self._order(crew, crew.seats[0], "start", replace(run, workers=1), {})
            self._ask(crew, crew.seats[0])
            return
        first = crew.seats[0]
        self._call(crew, first, "say", "port", (first.address,), lambda *found: self._meet(run, *found))

    def _meet(self, run: Run, crew: _Crew, seat: _Seat, port: Any, error: BaseException | None) -> None:
        if crew.run is not run or crew.over:
            return
        if error is not None:
            self._seat_gone(crew, seat, _said(error))
            self._conclude(crew, at_once=True)
            return
        crew.begun = True
        host = f"[{seat.address}]" if ":" in seat.address else seat.address
        shared = replace(run, workers=len(crew.seats), meet=f"{host}:{port}", key=secrets.token_hex(16))
        for each in crew.seats:
            self._order(crew, each, "start", replace(shared, rank=each.rank), {})

    def _dismiss(self, crew: _Crew) -> None:
        """It ends, and its room is Ray's again."""
        crew.over = True
        self._crews.pop(crew.number, None)
        if (idle := self._idle.get(crew.workers)) and crew in idle:
            idle.remove(crew)
        crew.gang.end()
        self._spent += [seat.folder for seat in crew.seats]

    def _rest(self, crew: _Crew) -> None:
        """It has no run, and is there for the next one."""
        crew.idle_since = since = time.monotonic()
        self._idle.setdefault(crew.workers, []).append(crew)

        def go() -> None:
            if crew.run is None and crew.idle_since == since and not crew.over:
                self._dismiss(crew)

        self._later(_IDLE_SECONDS, go)

    # --- talking ----------------------------------------------------------------------------------------

    def _call(
        self,
        crew: _Crew,
        seat: _Seat,
        group: str,
        method: str,
        arguments: Sequence[Any],
        then: Callable[[_Crew, _Seat, Any, BaseException | None], None],
    ) -> None:
        def told(found: Any, error: BaseException | None) -> None:  # on a thread of Ray's
            self._inbox.put(lambda: then(crew, seat, found, error))

        crew.gang.call(seat.rank, method, *arguments, group=group, then=told)

    def _ask(self, crew: _Crew, seat: _Seat) -> None:
        """What its worker says next; tells it what it shall do."""
        if crew.over or seat.gone or seat.hears:
            return
        seat.hears = True
        orders, seat.orders = seat.orders, []
        then: Callable[..., None] = lambda *found: self._answered(orders, *found)  # noqa: E731
        self._call(crew, seat, "hear", "hear", (seat.heard, orders), then)

    def _order(self, crew: _Crew, seat: _Seat, method: str, *arguments: Any) -> None:
        order = (next(seat.numbers), method, arguments)
        if seat.hears:

            def told(_crew: _Crew, _seat: _Seat, _: Any, error: BaseException | None) -> None:
                if error is not None:  # hear() will be told so, too
                    seat.orders.append(order)

            self._call(crew, seat, "say", "say", (order,), told)
        else:
            seat.orders.append(order)

    def _answered(
        self, orders: list[Order], crew: _Crew, seat: _Seat, events: Any, error: BaseException | None
    ) -> None:
        seat.hears = False
        if crew.over or seat.gone:
            return
        if error is None:
            seat.heard += 1
            seat.unreachable_since = None
            for event in events:
                self._hear(crew, seat, event)
            self._silent.append((crew, seat))
            return
        now = time.monotonic()
        seat.unreachable_since = seat.unreachable_since or now
        if _may_come_back(error) and now < seat.unreachable_since + _UNREACHABLE_SECONDS:
            seat.orders = [*orders, *seat.orders]
            self._later(_AGAIN_SECONDS, lambda: self._ask(crew, seat))
            return
        self._seat_gone(crew, seat, _said(error), memory=_out_of_memory(error))
        self._conclude(crew)

    def _take_in(self, seconds: float | None) -> bool:
        """What is there, after waiting so long for the first of it. True: somebody wants the driver to go on."""
        woken = False
        try:
            item = self._inbox.get(timeout=seconds)
            while True:
                if item is None:
                    woken = True
                else:
                    item()
                item = self._inbox.get_nowait()
        except queue.Empty:
            return woken

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timer_numbers), do))

    # --- how runs end -----------------------------------------------------------------------------------

    def _hear(self, crew: _Crew, seat: _Seat, event: Any) -> None:
        run = crew.run
        if run is None or (event.trial, event.attempt) != (run.trial, run.attempt):
            return
        if isinstance(event, End):
            crew.ends.setdefault(seat.rank, event)
            self._conclude(crew)
        elif seat.rank == 0:
            self._events.append(event)

    def _conclude(self, crew: _Crew, *, at_once: bool = False) -> None:
        """Once all its workers have ended, or cannot tell any more, so has the run."""
        run = crew.run
        if run is None:
            if any(seat.gone for seat in crew.seats) and not crew.over:
                self._dismiss(crew)
            return
        if not crew.ends:
            return
        missing = [seat for seat in crew.seats if seat.rank not in crew.ends]
        if missing and at_once:
            crew.gang.end()
            for seat in missing:
                self._seat_gone(crew, seat, "another worker of the trial is gone")
            missing = []
        if missing:
            if len(crew.ends) == 1:  # the first: whoever is left has some time
                well = isinstance(next(iter(crew.ends.values())), Ended)
                self._later(_ENDS_SECONDS if well else _TOGETHER_SECONDS, lambda: self._clear(crew, run))
            return
        gone = {seat.rank for seat in crew.seats if seat.gone}
        self._settle(crew, verdict(crew.ends, crew.cleared, gone, killed=crew.killed))

    def _clear(self, crew: _Crew, run: Run) -> None:
        """Ends the workers that go on while another one's has ended."""
        if crew.run is not run:
            return
        for seat in crew.seats:
            if seat.rank not in crew.ends:
                crew.cleared.add(seat.rank)
                self._order(crew, seat, "kill", run.trial, run.attempt)
        self._later(_KILLED_SECONDS, lambda: self._give_up_on(crew, run, "does not answer"))

    def _give_up_on(self, crew: _Crew, run: Run | None, why: str) -> None:
        if run is None or crew.run is not run:
            return
        crew.gang.end()
        for seat in crew.seats:
            if seat.rank not in crew.ends:
                self._seat_gone(crew, seat, f"its seat {why}")
        self._conclude(crew, at_once=True)

    def _call_off(self, crew: _Crew, end: End) -> None:
        """A run that has hardly begun, if at all: its crew goes with it."""
        crew.gang.end()
        for seat in crew.seats:
            self._seat_gone(crew, seat, "")
        first = crew.ends.get(0)
        self._settle(crew, end if first is None or isinstance(first, Lost) else first)

    def _settle(self, crew: _Crew, end: End) -> None:
        run = crew.run
        assert run is not None
        self._events.append(end)
        self._by_attempt.pop((run.trial, run.attempt), None)
        begun = crew.begun
        crew.run, crew.ends, crew.cleared = None, {}, set()
        if any(seat.gone for seat in crew.seats) or not (begun or crew.ready):
            self._dismiss(crew)
        else:
            self._rest(crew)

    def _seat_gone(self, crew: _Crew, seat: _Seat, why: str, *, memory: bool = False) -> None:
        if seat.gone:
            return
        seat.gone = True
        run = crew.run
        if run is None or seat.rank in crew.ends:
            return
        _wait_until_gone(seat.folder, _GONE_SECONDS)
        for event in _last_words(seat.folder):
            self._hear_last(crew, seat, event)
        if seat.rank not in crew.ends:
            end = Failed(time.time(), run.trial, run.attempt, "memory", why) if memory else None
            crew.ends[seat.rank] = end or Lost(time.time(), run.trial, run.attempt, why)

    def _hear_last(self, crew: _Crew, seat: _Seat, event: Any) -> None:
        """Some of it may have been told before, which the history knows."""
        run = crew.run
        if run is None or (event.trial, event.attempt) != (run.trial, run.attempt):
            return
        if isinstance(event, End):
            crew.ends.setdefault(seat.rank, event)
        elif seat.rank == 0:
            self._events.append(event)


def verdict(ends: Mapping[int, End], cleared: Collection[int], gone: Collection[int], *, killed: bool) -> End:
    """How the run of several workers ended: by what happened to one of them first, and not by what that did to the
    others. `cleared`: ranks that were ended because of it; `gone`: those whose seat is."""
    first = ends[min(ends)]
    if killed:
        return next((end for end in ends.values() if isinstance(end, Killed)), first)
    told = {rank: ends[rank] for rank in sorted(ends) if rank not in cleared}
    lost = [end for rank, end in told.items() if rank in gone and isinstance(end, Lost)]
    failed = [end for end in told.values() if isinstance(end, Failed)]
    by_itself = [end for end in failed if end.kind != "raised"]  # who raises may do so because of another
    if lost or by_itself:
        return (lost or by_itself)[0]
    leader = told.get(0)
    if isinstance(leader, (Lost, Failed)):  # it is told by the others why they end
        return leader
    outside = [end for end in told.values() if isinstance(end, Lost)]
    followed: list[End] = [*outside, *sorted(failed, key=lambda end: end.at), *told.values(), first]
    return followed[0]


def _doing(crew: _Crew, worker: Mapping[str, float]) -> Doing:
    run, first = crew.run, crew.seats[0]
    where = ", ".join(machine if count == 1 else f"{count} on {machine}" for machine, count in crew.workers)
    waits_for = ""
    if run is not None and not crew.ready:
        each = ", ".join(f"{amount:g} {name}" for name, amount in worker.items())
        waits_for = f"{each} on {where}" if len(crew.seats) == 1 else f"{each} each: {where}"
    return Doing(where, first.pid, None if run is None else run.trial, waits_for)


def _threads(worker: Mapping[str, float]) -> dict[str, str]:
    """So that the workers of a node share its cores instead of fighting for them."""
    share = str(max(1, int(worker.get("CPU", 1))))
    return {f"{name}_NUM_THREADS": share for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB")}


# --- what is left of a seat -------------------------------------------------------------------------------


def _wait_until_gone(folder: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    with contextlib.suppress(OSError), (folder / "alive").open("a") as alive:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)


def _last_words(folder: Path) -> list[Event]:
    with contextlib.suppress(OSError):
        os.listdir(folder / "spools")  # noqa: PTH208 (has a network's file system look again)
    return [event for spool in sorted((folder / "spools").glob("*.spool")) for event in read_spool(spool)]


# --- what Ray's errors mean -------------------------------------------------------------------------------


def _may_come_back(error: BaseException) -> bool:
    return type(error).__name__ == "ActorUnavailableError"


def _machine_is_to_blame(error: BaseException) -> bool:
    """Its node is gone, and not only the actor."""
    said = str(error)
    return "node" in said and ("died" in said or "dead" in said or "terminated" in said)


def _out_of_memory(error: BaseException) -> bool:
    return "OutOfMemory" in type(error).__name__ or "running low on memory" in str(error)


def _said(error: BaseException) -> str:
    """The line that says most: of an error in a seat, its own; else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(
        (line for line in reversed(lines) if "Error:" in line), lines[0] if lines else type(error).__name__
    )
