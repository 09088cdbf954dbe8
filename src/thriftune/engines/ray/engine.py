"""Trials on a Ray cluster: each worker of a trial has a seat there, and those of one trial are a crew.

Ray places seats, gives each its processors and ends them with their driver. What is kept here: which crew runs
what, and how a run ended whose workers ended in different ways.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thriftune.clouds.ray.cluster import Cluster, ClusterNode
from thriftune.common.clock import WallClock
from thriftune.common.formatting import amounts
from thriftune.common.threads import limited_to
from thriftune.engines import recovery
from thriftune.engines.protocol import WorkerStatus
from thriftune.engines.ray.remote_workers import Held, Seats, last_words, said, wait_until_gone
from thriftune.state.events import Ended, Event, Failed, Killed, Lost
from thriftune.training.run import Run

End = Ended | Failed | Killed | Lost

_TOGETHER_SECONDS = 5.0
"""When one worker of a trial has failed, the others have so long to say how they ended, which may be why."""

_ENDS_SECONDS = 30.0
"""And so long when it has ended well."""

_KILLED_SECONDS = 10.0
"""A seat that does not end its worker in this time is ended itself."""

_NO_ROOM_SECONDS = 3.0
"""A trial for which there is no room where it was placed, because others have it, is to be placed anew after so
long: there may be some elsewhere by then."""

_GONE_SECONDS = 2.0
"""How long the processes of a seat that is gone may take to follow it."""


@dataclass(slots=True, eq=False)
class _Crew:
    """The seats of one run, by the rank of their workers."""

    run: Run
    workers: Mapping[str, int]
    seats: list[Held]
    begun: bool = False  # the seats were told of the run
    told: bool = False  # to end after the next step
    killed: bool = False  # by decision
    ends: dict[int, End] = field(default_factory=dict)  # by rank
    gone: set[int] = field(default_factory=set)  # ranks whose seat is
    cleared: set[int] = field(default_factory=set)  # ranks that were ended because another one had
    over: bool = False

    @property
    def ready(self) -> bool:
        return all(seat.pid is not None for seat in self.seats)


class RayEngine:
    """`node_of`: which node of the cluster a machine is. `worker`: what Ray shall give to each worker. `folder`:
    the study's, visible from all nodes. `variables`: what trials shall have around them. `is_own`: whether nobody
    else uses a machine."""

    def __init__(
        self,
        cluster: Cluster,
        node_of: Callable[[str], ClusterNode],
        worker: Mapping[str, float],
        folder: Path,
        study: str,
        target: Mapping[str, Any],
        variables: Mapping[str, str] | None = None,
        is_own: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._cluster = cluster
        self._clock = WallClock()
        self._worker = worker
        self._folder = folder / "seats"
        self._prefix = f"thriftune-{study}-"
        around = {**limited_to(int(worker.get("CPU", 1))), **(variables or {})}
        self._seats = Seats(cluster, node_of, worker, self._folder, self._prefix, target, around, self, is_own)
        self._crews: dict[tuple[int, int], _Crew] = {}  # by trial and attempt
        self._crew_of: dict[Held, _Crew] = {}
        self._events: list[Event] = []

    # --- the protocol -----------------------------------------------------------------------------------

    def recover(self) -> list[Event]:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._cluster.end_actors(self._prefix)  # they end with their driver; this is for those that would not
        found = [recovery.recover(folder) for folder in sorted(self._folder.iterdir())]
        return sorted((event for events in found for event in events), key=lambda event: event.at)

    def open(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def start(self, run: Run, workers: Mapping[str, int]) -> None:
        crew = _Crew(run, workers, self._seats.take(workers))
        self._crews[run.trial, run.attempt] = crew
        self._crew_of |= dict.fromkeys(crew.seats, crew)
        if crew.ready or len(crew.seats) == 1:  # one alone need not be there to be told
            self._begin(crew)
        if not crew.ready:
            self._seats.later(_NO_ROOM_SECONDS, lambda: self._look_for_room(crew))

    def request_end(self, trial: int, attempt: int) -> None:
        crew = self._crews.get((trial, attempt))
        if crew is None or crew.told:
            return
        crew.told = True
        if crew.ready and crew.begun:
            self._seats.order(crew.seats[0], "request_end", trial, attempt)
        else:  # it has no process yet, as far as is known, and may have to wait for long
            self._call_off(crew, Ended(self._clock.now(), trial, attempt, 0.0, cut=True))

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None:
        if (crew := self._crews.get((trial, attempt))) is not None:
            self._seats.order(crew.seats[0], "acknowledge_report", trial, attempt, number)

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None:
        if (crew := self._crews.get((trial, attempt))) is None:
            return
        if crew.begun:
            self._seats.order(crew.seats[0], "set_knobs", trial, attempt, dict(setting))
        else:
            crew.run = replace(crew.run, system=dict(setting))

    def kill(self, trial: int, attempt: int) -> None:
        crew = self._crews.get((trial, attempt))
        if crew is None or crew.killed:
            return
        crew.killed = True
        if not (crew.ready and crew.begun):
            self._call_off(crew, Killed(self._clock.now(), trial, attempt))
            return
        for seat in crew.seats:
            self._seats.order(seat, "kill", trial, attempt)
        self._seats.later(_KILLED_SECONDS, lambda: self._give_up_on(crew, "did not end its worker when told to"))

    def machine_lost(self, machine: str) -> list[Event]:
        before, self._events = self._events, []
        deadline = time.monotonic() + _GONE_SECONDS  # of all of them: there may be many
        for crew in [each for each in self._crews.values() if machine in each.workers]:
            for rank, seat in enumerate(crew.seats):
                if seat.machine == machine:
                    self._is_gone(crew, rank, f"its machine, {machine}, is gone", deadline=deadline)
            self._conclude(crew, at_once=True)
        self._seats.machine_lost(machine)
        found, self._events = self._events, before
        return found

    def wait(self, timeout: float | None) -> list[Event]:
        self._seats.begin_turn()
        deadline = None if timeout is None else time.monotonic() + timeout
        woken = False
        while not self._events and not woken:
            woken = self._seats.take_in(deadline)
            if deadline is not None and time.monotonic() >= deadline:
                break
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        self._seats.wake()

    def status(self) -> list[WorkerStatus]:
        busy = [_doing(crew, self._worker) for crew in self._crews.values()]
        return busy + [WorkerStatus(seat.machine, seat.pid, None) for seat in self._seats if not seat.taken]

    def close(self) -> None:
        for crew in self._crews.values():
            crew.over = True
        self._crews, self._crew_of = {}, {}
        self._seats.close(_GONE_SECONDS)

    def workers_on(self, machine: str) -> int:
        """Workers for which there is room on the machine that is this engine's."""
        return self._seats.workers_on(machine)

    # --- what seats say ---------------------------------------------------------------------------------

    def seat_ready(self, seat: Held) -> None:
        crew = self._crew_of.get(seat)
        if crew is not None and crew.ready and not crew.begun:
            self._begin(crew)

    def seat_said(self, seat: Held, event: Any) -> None:
        crew = self._crew_of.get(seat)
        if crew is not None:
            self._hear(crew, crew.seats.index(seat), event)
            self._conclude(crew)

    def seat_gone(self, seat: Held, why: str, memory: bool) -> None:
        crew = self._crew_of.get(seat)
        if crew is not None:
            self._is_gone(crew, crew.seats.index(seat), why, memory=memory)
            self._conclude(crew, at_once=not crew.begun)

    # --- how runs begin and end -------------------------------------------------------------------------

    def _begin(self, crew: _Crew) -> None:
        first = crew.seats[0]
        if len(crew.seats) == 1:
            crew.begun = True
            self._seats.order(first, "start", replace(crew.run, workers=1), {})
            self._seats.ask(first)
            return

        def met(seat: Held, port: Any, error: BaseException | None) -> None:
            if crew.over:
                return
            if error is not None:
                self.seat_gone(seat, said(error), False)
                return
            crew.begun = True
            host = f"[{seat.address}]" if ":" in seat.address else seat.address
            meet, key = f"{host}:{port}", secrets.token_hex(16)
            for rank, each in enumerate(crew.seats):
                run = replace(crew.run, workers=len(crew.seats), rank=rank, meet=meet, key=key)
                self._seats.order(each, "start", run, {})

        self._seats.call(first, "say", "port", (first.address,), met)

    def _hear(self, crew: _Crew, rank: int, event: Any) -> None:
        """Of what a seat says at its end, some may have been told before, which the history knows."""
        if (event.trial, event.attempt) != (crew.run.trial, crew.run.attempt):
            return
        if isinstance(event, End):
            crew.ends.setdefault(rank, event)
        elif rank == 0:
            self._events.append(event)

    def _conclude(self, crew: _Crew, *, at_once: bool = False) -> None:
        """Once all its workers have ended, or cannot tell any more, so has the run."""
        if crew.over or not crew.ends:
            return
        missing = [rank for rank in range(len(crew.seats)) if rank not in crew.ends]
        if missing and at_once:
            crew.cleared.update(missing)
            self._end_seats(crew, missing, "another worker of the trial is gone")
        elif missing:
            if len(crew.ends) == 1:  # the first: whoever is left has some time
                well = isinstance(next(iter(crew.ends.values())), Ended)
                self._seats.later(_ENDS_SECONDS if well else _TOGETHER_SECONDS, lambda: self._clear(crew))
            return
        self._settle(crew, verdict(crew.ends, crew.cleared, crew.gone, killed=crew.killed))

    def _clear(self, crew: _Crew) -> None:
        """Ends the workers that go on while another one's has ended."""
        if crew.over:
            return
        for rank, seat in enumerate(crew.seats):
            if rank not in crew.ends:
                crew.cleared.add(rank)
                self._seats.order(seat, "kill", crew.run.trial, crew.run.attempt)
        self._seats.later(_KILLED_SECONDS, lambda: self._give_up_on(crew, "does not answer"))

    def _give_up_on(self, crew: _Crew, why: str) -> None:
        if crew.over:
            return
        self._end_seats(
            crew, [rank for rank in range(len(crew.seats)) if rank not in crew.ends], f"its seat {why}"
        )
        self._conclude(crew, at_once=True)

    def _call_off(self, crew: _Crew, end: End) -> None:
        """A run that has hardly begun, if at all: seats that are not there yet are wanted no more."""
        if crew.begun:
            self._end_seats(crew, range(len(crew.seats)), "")
        first = crew.ends.get(0)
        self._settle(crew, end if first is None or isinstance(first, Lost) else first)

    def _look_for_room(self, crew: _Crew) -> None:
        if not crew.over and not all(map(self._seats.has_room, crew.seats)):
            self._call_off(crew, Ended(self._clock.now(), crew.run.trial, crew.run.attempt, 0.0, cut=True))

    def _settle(self, crew: _Crew, end: End) -> None:
        crew.over = True
        self._events.append(end)
        self._crews.pop((crew.run.trial, crew.run.attempt), None)
        for rank, seat in enumerate(crew.seats):
            self._crew_of.pop(seat, None)
            if rank in crew.gone:
                self._seats.end([seat])
            else:
                self._seats.give_back(seat)

    def _end_seats(self, crew: _Crew, ranks: Collection[int], why: str) -> None:
        self._seats.end([crew.seats[rank] for rank in ranks])
        for rank in ranks:
            self._is_gone(crew, rank, why)

    def _is_gone(
        self, crew: _Crew, rank: int, why: str, *, memory: bool = False, deadline: float | None = None
    ) -> None:
        """What its worker said last counts; if it did not tell how it ended, it is lost."""
        if rank in crew.gone:
            return
        crew.gone.add(rank)
        if rank in crew.ends:
            return
        folder, run = crew.seats[rank].folder, crew.run
        wait_until_gone(folder, _GONE_SECONDS if deadline is None else deadline - time.monotonic())
        for event in last_words(folder):
            self._hear(crew, rank, event)
        if rank not in crew.ends:
            failed = Failed(self._clock.now(), run.trial, run.attempt, "memory", why) if memory else None
            crew.ends[rank] = failed or Lost(self._clock.now(), run.trial, run.attempt, why)


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


def _doing(crew: _Crew, worker: Mapping[str, float]) -> WorkerStatus:
    where = ", ".join(
        machine if count == 1 else f"{count} on {machine}" for machine, count in crew.workers.items()
    )
    waits_for = ""
    if not crew.ready:
        waits_for = f"{amounts(worker)} on {where}"
        if len(crew.seats) > 1:
            waits_for = f"{amounts(worker)} each: {where}"
    return WorkerStatus(where, crew.seats[0].pid, crew.run.trial, waits_for)
