"""The engine that runs trials on a Ray cluster.

The workers of an attempt are remote workers, which form a gang. Ray places them, gives each its resources, and
ends them when their driver ends. This module stores which gang runs which attempt. It also decides how an
attempt has ended if its workers ended in different ways.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thriftune.clouds.ray.cluster import Cluster, ClusterNode
from thriftune.common.clock import WallClock
from thriftune.common.formatting import format_resources
from thriftune.common.threads_per_trial import thread_limits, threads_per_trial
from thriftune.engines.protocol import WorkerStatus
from thriftune.engines.ray.actor_errors import error_line
from thriftune.engines.ray.node_files import ActorFiles
from thriftune.engines.ray.remote_workers import RemoteWorker, RemoteWorkerPool
from thriftune.engines.ray.worker_files import NodeFolders, SharedFolders, WorkerFiles
from thriftune.engines.worker import UPLOAD_AFTER_FAILURE_SECONDS, UPLOAD_SECONDS
from thriftune.state.events import Ended, Event, Failed, Killed, Lost, Warned
from thriftune.store.output_files import OutputPiece, store_piece
from thriftune.training.run import Run

End = Ended | Failed | Killed | Lost

_AFTER_FAILURE_SECONDS = 5.0
"""How long the other workers of a gang may take to end after one has failed. One of them may be the cause."""

_AFTER_END_SECONDS = 30.0
"""How long the other workers of a gang may take to end after one has ended without an error."""

_KILL_SECONDS = 10.0
"""How long an actor may take to kill its worker, before the actor is ended."""

_NO_ROOM_SECONDS = 3.0
"""How long a trial waits for resources that other studies use on its machines.

Then its attempt ends, so that it can be placed elsewhere.
"""

_ANOTHER_HAS_ENDED = "another worker of the trial has ended"


@dataclass(slots=True, eq=False)
class _RemoteGang:
    """The remote workers of one attempt, by rank."""

    run: Run
    machines: Mapping[str, int]  # the number of workers on each machine
    workers: list[RemoteWorker]  # by rank
    started: bool = False  # the workers were sent the run
    end_requested: bool = False  # the attempt has an end request
    killed: bool = False  # the driver has decided to kill the attempt
    cancelled: End | None = None  # the end to report for an attempt that is ended before all workers have started
    preempted_at: float | None = None  # the undelivered notice: when a machine is preempted, in monotonic seconds
    ends: dict[int, End] = field(default_factory=dict)  # how the workers have ended, by rank
    lost_ranks: set[int] = field(default_factory=set)  # whose remote worker has ended; not all in `ends`
    cleared_ranks: set[int] = field(default_factory=set)  # ranks that were ended because another rank had ended
    ending: bool = False  # the first worker has ended, and the others have some time to end
    over: bool = False  # the end of the attempt was reported

    @property
    def ready(self) -> bool:
        return all(worker.pid is not None for worker in self.workers)


class RayEngine:
    """Runs trials on the nodes of a Ray cluster.

    - `node_of`: returns the node of a machine.
    - `worker`: the resources of each worker.
    - `folder`: a folder for the engine, which all nodes see unless `trials` is given.
    - `study`: the study's id. It is part of the actors' names.
    - `target`: the training function; see worker.load_target().
    - `variables`: environment variables for the workers.
    - `is_own`: returns whether a machine is rented by this study alone.
    - `trials`: the driver's folder of trials, below which it stores their output. If it is given, the nodes need
      not see any folder of the driver. They keep the files of workers in folders of their own.
    - `driven_before`: an earlier driver may have left files on the nodes.
    """

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
        trials: Path | None = None,
        driven_before: bool = True,
    ) -> None:
        self._cluster = cluster
        self._clock = WallClock()
        self._worker = worker
        self._trials = trials
        self._files: WorkerFiles = (
            SharedFolders(folder) if trials is None else NodeFolders(cluster, study, driven_before)
        )
        function = None  # with a shared folder, workers load it from its path
        if trials is not None and target.get("kind") == "pickled":
            function = Path(target["where"]).read_bytes()
        self._name_prefix = f"thriftune-{study}-"
        environment = {**thread_limits(threads_per_trial(worker.get("CPU", 1))), **(variables or {})}
        self._pool = RemoteWorkerPool(
            cluster, node_of, worker, self._files, self._name_prefix, target, function, environment, self, is_own
        )
        self._gangs: dict[tuple[int, int], _RemoteGang] = {}  # all running gangs, by (trial, attempt)
        self._gang_of: dict[RemoteWorker, _RemoteGang] = {}  # the gang of each busy worker
        self._events: list[Event] = []  # events that the next wait() returns
        self._output_failed = False  # the warning that output cannot be stored was sent

    # --- the protocol -----------------------------------------------------------------------------------

    def recover(self) -> list[Event]:
        self._cluster.end_actors(self._name_prefix)  # they should have ended with their driver
        left = self._files.recover()
        self.worker_output(left.output)
        return sorted(left.events, key=lambda event: event.at)

    def open(self) -> None:
        self._files.open()

    def start(self, run: Run, workers: Mapping[str, int]) -> None:
        gang = _RemoteGang(run, workers, self._pool.acquire(workers))
        self._gangs[run.trial, run.attempt] = gang
        self._gang_of |= dict.fromkeys(gang.workers, gang)
        if gang.ready or len(gang.workers) == 1:  # a single worker gets its run as soon as it has started
            self._start_run(gang)
        if not gang.ready:
            self._pool.call_later(_NO_ROOM_SECONDS, lambda: self._end_without_room(gang))

    def request_end(self, trial: int, attempt: int) -> None:
        gang = self._gangs.get((trial, attempt))
        if gang is None or gang.end_requested:
            return
        gang.end_requested = True
        if gang.ready and gang.started:
            self._pool.send_order(gang.workers[0], "request_end", trial, attempt)
        else:  # it may wait for resources for a long time
            self._cancel(gang, Ended(self._clock.now(), trial, attempt, 0.0, cut=True))

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None:
        if (gang := self._gangs.get((trial, attempt))) is not None:
            self._pool.send_order(gang.workers[0], "acknowledge_report", trial, attempt, number)

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None:
        if (gang := self._gangs.get((trial, attempt))) is None:
            return
        if gang.started:
            self._pool.send_order(gang.workers[0], "set_knobs", trial, attempt, dict(setting))
        else:
            gang.run = replace(gang.run, system=dict(setting))

    def give_notice(self, trial: int, attempt: int, seconds_left: float) -> None:
        if (gang := self._gangs.get((trial, attempt))) is not None:
            gang.preempted_at = time.monotonic() + seconds_left
            self._deliver_notice(gang)

    def kill(self, trial: int, attempt: int) -> None:
        gang = self._gangs.get((trial, attempt))
        if gang is None or gang.killed:
            return
        gang.killed = True
        if not (gang.ready and gang.started):
            self._cancel(gang, Killed(self._clock.now(), trial, attempt))
            return
        for worker in gang.workers:
            self._pool.send_order(worker, "kill", trial, attempt)
        why = "its actor did not kill its worker"
        self._pool.call_later(_KILL_SECONDS, lambda: self._end_remaining_workers(gang, why))

    def machine_lost(self, machine: str) -> list[Event]:
        earlier, self._events = self._events, []
        why = f"its machine, {machine}, is no longer available"
        gangs = [gang for gang in self._gangs.values() if machine in gang.machines]
        for gang in gangs:
            for rank, worker in enumerate(gang.workers):
                if worker.machine != machine and rank not in gang.ends.keys() | gang.lost_ranks:
                    gang.cleared_ranks.add(rank)
        remaining = [(gang, rank) for gang in gangs for rank in range(len(gang.workers)) if rank not in gang.ends]
        self._pool.end(gang.workers[rank] for gang, rank in remaining)
        left_by_all = self._pool.read_files_now([gang.workers[rank] for gang, rank in remaining])
        for (gang, rank), left in zip(remaining, left_by_all, strict=True):
            gang.lost_ranks.add(rank)
            on_machine = gang.workers[rank].machine == machine
            self._take_last(gang, rank, left, why if on_machine else _ANOTHER_HAS_ENDED)
        for gang in gangs:
            self._conclude(gang)
        self._pool.machine_lost(machine)
        events, self._events = self._events, earlier
        return events

    def wait(self, timeout: float | None) -> list[Event]:
        self._pool.events_recorded()
        deadline = None if timeout is None else time.monotonic() + timeout
        woken = False
        while not self._events and not woken:
            woken = self._pool.process_next(deadline)
            if deadline is not None and time.monotonic() >= deadline:
                break
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        self._pool.wake()

    def status(self) -> list[WorkerStatus]:
        busy = [_status_of(gang, self._worker) for gang in self._gangs.values()]
        return busy + [WorkerStatus(worker.machine, worker.pid, None) for worker in self._pool if not worker.busy]

    def close(self) -> None:
        for gang in self._gangs.values():
            gang.over = True
        self._gangs, self._gang_of = {}, {}
        self._pool.close()

    def workers_on(self, machine: str) -> int:
        """Return the number of this engine's workers that have resources on the machine."""
        return self._pool.workers_on(machine)

    # --- events of remote workers -----------------------------------------------------------------------

    def worker_ready(self, worker: RemoteWorker) -> None:
        gang = self._gang_of.get(worker)
        if gang is None or not gang.ready:
            return
        if not gang.started:
            self._start_run(gang)
        self._deliver_notice(gang)

    def worker_event(self, worker: RemoteWorker, event: Any) -> None:
        gang = self._gang_of.get(worker)
        if gang is not None:
            self._take_in(gang, gang.workers.index(worker), event)
            self._conclude(gang)

    def worker_output(self, pieces: Sequence[OutputPiece]) -> None:
        for piece in pieces:
            assert self._trials is not None
            error = store_piece(self._trials / str(piece.trial), piece)
            if error is not None and not self._output_failed:
                self._output_failed = True
                why = f"the output of trials cannot be stored: {error.strerror or error}"
                warned = Warned(
                    self._clock.now(), piece.trial, piece.attempt, f"{why}; the trials go on without it"
                )
                self._events.append(warned)

    def worker_lost(self, worker: RemoteWorker, why: str, out_of_memory: bool) -> None:
        gang = self._gang_of.get(worker)
        if gang is not None:
            self._worker_ended(gang, gang.workers.index(worker), why, out_of_memory=out_of_memory)
            self._conclude(gang, at_once=not gang.started)

    # --- starts and ends of attempts --------------------------------------------------------------------

    def _start_run(self, gang: _RemoteGang) -> None:
        """Send the run to all workers.

        Several workers connect to a port of the machine on which the first one runs.
        """
        first = gang.workers[0]
        if len(gang.workers) == 1:
            gang.started = True
            self._pool.send_order(first, "start", replace(gang.run, workers=1), {})
            self._pool.poll(first)
            return

        def port_found(worker: RemoteWorker, port: Any, error: BaseException | None) -> None:
            if gang.over:
                return
            if error is not None:
                self.worker_lost(worker, error_line(error), False)
                return
            gang.started = True
            host = f"[{worker.address}]" if ":" in worker.address else worker.address
            meet, key = f"{host}:{port}", secrets.token_hex(16)
            for rank, each in enumerate(gang.workers):
                run = replace(gang.run, workers=len(gang.workers), rank=rank, leader_address=meet, gang_key=key)
                self._pool.send_order(each, "start", run, {})
            self._deliver_notice(gang)

        self._pool.call(first, "orders", "find_port", (first.address,), port_found)

    def _deliver_notice(self, gang: _RemoteGang) -> None:
        """Send the attempt its notice if it has one, and if all its workers have started.

        Only rank 0 needs it. Until then the notice waits here, because the workers may start much later.
        """
        if gang.preempted_at is not None and gang.started and gang.ready:
            seconds_left = max(0.0, gang.preempted_at - time.monotonic())
            gang.preempted_at = None
            self._pool.send_order(gang.workers[0], "give_notice", gang.run.trial, gang.run.attempt, seconds_left)

    def _take_in(self, gang: _RemoteGang, rank: int, event: Any) -> None:
        """Process an event of a worker: store its end, and pass on other events of rank 0.

        An event may come twice, from a worker and later from its spool file. The history ignores the repetition.
        """
        if (event.trial, event.attempt) != (gang.run.trial, gang.run.attempt):
            return
        if isinstance(event, End):
            gang.ends.setdefault(rank, event)
        elif rank == 0:
            self._events.append(event)

    def _conclude(self, gang: _RemoteGang, *, at_once: bool = False) -> None:
        """Report the end of the attempt if all its workers have ended.

        If only some have ended, the others are killed after some time. `at_once`: they are ended at once.
        """
        ended = gang.ends.keys() | gang.lost_ranks
        if gang.over or not ended:
            return
        running = [rank for rank in range(len(gang.workers)) if rank not in ended]
        if running and at_once:
            gang.cleared_ranks.update(running)
            self._end_workers(gang, running, _ANOTHER_HAS_ENDED)
        elif running and gang.ends and not gang.ending:
            gang.ending = True
            first = next(iter(gang.ends.values()))
            self._pool.call_later(_seconds_to_end(gang.run, first, running), lambda: self._kill_running(gang))
        if len(gang.ends) == len(gang.workers):  # otherwise, the last events of some are being read
            self._finish(gang, _end_of(gang))

    def _kill_running(self, gang: _RemoteGang) -> None:
        """Kill the workers that still run after the first one has ended.

        Called when the time that they had to end is over.
        """
        if gang.over:
            return
        for rank, worker in enumerate(gang.workers):
            if rank not in gang.ends.keys() | gang.lost_ranks:
                gang.cleared_ranks.add(rank)
                self._pool.send_order(worker, "kill", gang.run.trial, gang.run.attempt)
        why = "its actor does not answer"
        self._pool.call_later(_KILL_SECONDS, lambda: self._end_remaining_workers(gang, why))

    def _end_remaining_workers(self, gang: _RemoteGang, why: str) -> None:
        """End the remote workers whose worker processes were not killed in time."""
        if gang.over:
            return
        self._end_workers(gang, [rank for rank in range(len(gang.workers)) if rank not in gang.ends], why)
        self._conclude(gang, at_once=True)

    def _cancel(self, gang: _RemoteGang, end: End) -> None:
        """End an attempt whose workers have not all started.

        `end`: the end to report, unless rank 0 has already ended in another way than Lost.
        """
        if not gang.started:
            self._finish(gang, end)
            return
        gang.cancelled = gang.cancelled or end
        self._end_workers(gang, range(len(gang.workers)), "")
        self._conclude(gang)

    def _end_without_room(self, gang: _RemoteGang) -> None:
        """End an attempt if Ray has not found resources for all its workers."""
        if not gang.over and not all(map(self._pool.is_placed, gang.workers)):
            self._cancel(gang, Ended(self._clock.now(), gang.run.trial, gang.run.attempt, 0.0, cut=True))

    def _finish(self, gang: _RemoteGang, end: End) -> None:
        """Report the end of the attempt, and return its workers to the pool."""
        gang.over = True
        self._events.append(end)
        self._gangs.pop((gang.run.trial, gang.run.attempt), None)
        for rank, worker in enumerate(gang.workers):
            self._gang_of.pop(worker, None)
            if rank in gang.lost_ranks:
                self._pool.end([worker])
            else:
                self._pool.give_back(worker)

    def _end_workers(self, gang: _RemoteGang, ranks: Collection[int], why: str) -> None:
        self._pool.end([gang.workers[rank] for rank in ranks])
        for rank in ranks:
            self._worker_ended(gang, rank, why)

    def _worker_ended(self, gang: _RemoteGang, rank: int, why: str, *, out_of_memory: bool = False) -> None:
        """Read the last events of a remote worker that has ended.

        If its end is not among them, the worker counts as lost. `out_of_memory`: it counts as failed instead,
        because its machine ran out of memory.
        """
        if rank in gang.lost_ranks:
            return
        gang.lost_ranks.add(rank)
        if rank in gang.ends:
            return
        if not gang.started:
            self._take_last(gang, rank, ActorFiles([], [], False), why, out_of_memory)
            return

        def take(left: ActorFiles) -> None:
            self._take_last(gang, rank, left, why, out_of_memory)
            self._conclude(gang)

        self._pool.read_files(gang.workers[rank], take)

    def _take_last(
        self, gang: _RemoteGang, rank: int, left: ActorFiles, why: str, out_of_memory: bool = False
    ) -> None:
        """Process what a remote worker has left that has ended; see _worker_ended()."""
        self.worker_output(left.output)
        if gang.over:
            return
        for event in left.events:
            self._take_in(gang, rank, event)
        if rank not in gang.ends:
            now, run = self._clock.now(), gang.run
            failed = Failed(now, run.trial, run.attempt, "memory", why) if out_of_memory else None
            gang.ends[rank] = failed or Lost(now, run.trial, run.attempt, why)


def _seconds_to_end(run: Run, first: End, running: Collection[int]) -> float:
    """Return how long the workers that run may take after the first one has ended.

    Only rank 0 uploads checkpoints, when all have done their work. The others do not wait for that.
    """
    ended_well = isinstance(first, Ended)
    seconds = _AFTER_END_SECONDS if ended_well else _AFTER_FAILURE_SECONDS
    if run.objects and 0 in running:
        seconds += UPLOAD_SECONDS if ended_well else UPLOAD_AFTER_FAILURE_SECONDS
    return seconds


def _end_of(gang: _RemoteGang) -> End:
    """Return how an attempt has ended, from the ends of all its workers."""
    if gang.cancelled is not None:
        first = gang.ends[0]
        return gang.cancelled if isinstance(first, Lost) else first
    return end_of_gang(gang.ends, gang.cleared_ranks, gang.lost_ranks, killed=gang.killed)


def end_of_gang(ends: Mapping[int, End], cleared: Collection[int], lost: Collection[int], *, killed: bool) -> End:
    """Return how an attempt with several workers has ended.

    This is the end of the worker that caused the other workers to end.

    - `ends`: how the workers have ended, by rank.
    - `cleared`: ranks that were ended because another rank had ended. Their ends do not count.
    - `lost`: ranks whose remote worker has ended.
    - `killed`: the driver has decided to kill the attempt.
    """
    first = ends[min(ends)]
    if killed:
        return next((end for end in ends.values() if isinstance(end, Killed)), first)
    counted = {rank: ends[rank] for rank in sorted(ends) if rank not in cleared}
    machine_losses = [end for rank, end in counted.items() if rank in lost and isinstance(end, Lost)]
    failures = [end for end in counted.values() if isinstance(end, Failed)]
    # A worker may raise an error because another worker has ended. It does not run out of memory or exit for this
    # reason.
    own_failures = [end for end in failures if end.kind != "raised"]
    if machine_losses or own_failures:
        return (machine_losses or own_failures)[0]
    leader = counted.get(0)
    if isinstance(leader, (Lost, Failed)):  # rank 0 knows why the other workers end
        return leader
    process_losses = [end for end in counted.values() if isinstance(end, Lost)]
    in_order: list[End] = [*process_losses, *sorted(failures, key=lambda end: end.at), *counted.values(), first]
    return in_order[0]


def _status_of(gang: _RemoteGang, worker: Mapping[str, float]) -> WorkerStatus:
    """Return the status of a gang. `worker`: the resources of each worker."""
    where = ", ".join(
        machine if count == 1 else f"{count} on {machine}" for machine, count in gang.machines.items()
    )
    waits_for = ""
    if not gang.ready:
        waits_for = f"{format_resources(worker)} on {where}"
        if len(gang.workers) > 1:
            waits_for = f"{format_resources(worker)} each: {where}"
    return WorkerStatus(where, gang.workers[0].pid, gang.run.trial, waits_for)
