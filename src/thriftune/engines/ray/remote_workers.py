"""The remote workers of a driver on a Ray cluster.

A remote worker is an actor with one worker process (worker_actor.py). When its trial ends, it stays warm for the
next trial on its machine, even if that trial has another number of workers. A trial that gets more or fewer
workers therefore only has to load its checkpoint.

The resources of several new workers are requested together, so that Ray places all of them or none. On machines
that the study has rented, no other study can take the resources. There they are requested separately for each
machine.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import queue
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from thriftune.clouds.ray.cluster import ActorGroup, Cluster, ClusterNode
from thriftune.engines.ray.actor_errors import error_line, is_out_of_memory, is_temporary, unsuitable_node
from thriftune.engines.ray.node_files import ActorFiles
from thriftune.engines.ray.worker_actor import LEAVE, Answer, Order, WorkerActor
from thriftune.engines.ray.worker_files import PROCESSES_END_SECONDS, WorkerFiles, WorkerPlace
from thriftune.errors import ThriftuneError
from thriftune.state.events import Event
from thriftune.store.output_files import OutputPiece

_IDLE_SECONDS = 3.0
"""How long an idle remote worker waits for another trial, before its resources become free for other studies."""

_RETRY_SECONDS = 0.5
"""How long to wait before a call that has failed is repeated."""

_UNREACHABLE_SECONDS = 30.0
"""How long an actor may be unreachable before it counts as lost. Ray may report its end earlier."""

_NODE_SECONDS = 0.5
"""How long to wait before a lost worker is reported.

If its node has ended, the cloud notices it within this time, and the driver ends the attempt with its machine. If
the worker were reported first, the driver would place the trial on the same machine again, and lose it twice.
"""

_MAX_FAILED_STARTS = 3
"""A study stops after this many successive actors that could not start a worker."""


@dataclass(slots=True, eq=False)
class RemoteWorker:
    """A worker behind an actor, as the driver knows it."""

    machine: str
    address: str  # the address of the machine
    place: WorkerPlace  # the place of the actor's files
    reservation: Reservation = field(repr=False)
    index: int  # its position in the reservation
    pid: int | None = None  # the process id of the actor; None until it has started
    busy: bool = True  # it belongs to a gang
    ended: bool = False  # it was ended or lost; no calls are made to it any more
    left: bool = False  # it has ended its processes and removed its files
    polling: bool = False  # a call of next_events() is under way
    answers: int = 0  # answers of next_events() that were received
    unsent_orders: list[Order] = field(default_factory=list)  # for the next call of next_events()
    unreachable_since: float | None = None  # monotonic seconds; None if the last call succeeded
    idle_since: float = 0.0  # monotonic seconds; has no meaning while it is busy
    order_numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1), repr=False)


@dataclass(slots=True, eq=False)
class Reservation:
    """Remote workers whose resources were requested together.

    Ray gets the resources back when all workers of a reservation have ended.
    """

    actors: ActorGroup
    workers: list[RemoteWorker] = field(default_factory=list)  # all and only workers that have not ended
    incomplete: bool = False  # one of its workers has ended; the others end when they become idle


class RemoteWorkerListener(Protocol):
    """Receives the events of busy remote workers."""

    def worker_ready(self, worker: RemoteWorker) -> None:
        """Handle the start of a worker."""

    def worker_event(self, worker: RemoteWorker, event: Event) -> None:
        """Handle an event that a worker has sent."""

    def worker_output(self, pieces: Sequence[OutputPiece]) -> None:
        """Handle output of a worker, before the events that were sent with it.

        The worker may be idle.
        """

    def worker_lost(self, worker: RemoteWorker, why: str, out_of_memory: bool) -> None:
        """Handle the end of a worker, other than by end().

        `out_of_memory`: its machine had too little memory.
        """


class RemoteWorkerPool:
    """All remote workers of one driver.

    Only the driver's thread calls the methods, except wake(). Results of calls to actors arrive on threads of
    Ray, and wait in a queue until process_next() processes them.
    """

    def __init__(
        self,
        cluster: Cluster,
        node_of: Callable[[str], ClusterNode],
        resources: Mapping[str, float],
        files: WorkerFiles,
        name_prefix: str,
        target: Mapping[str, Any],
        function: bytes | None,
        variables: Mapping[str, str],
        listener: RemoteWorkerListener,
        is_own: Callable[[str], bool],
    ) -> None:
        """Create an empty pool.

        - `node_of`: returns the node of a machine.
        - `resources`: the resources of each worker.
        - `files`: the files of the workers.
        - `name_prefix`: the beginning of the actors' names.
        - `target`, `function`, `variables`: see WorkerActor.
        - `is_own`: returns whether a machine is rented by this study alone.
        """
        self._cluster = cluster
        self._node_of = node_of
        self._resources = resources
        self._files = files
        self._name_prefix = name_prefix
        self._target = target
        self._function = function
        self._function_reference: Any = None  # to the function in Ray's object store, when it is there
        self._variables = variables
        self._listener = listener
        self._is_own = is_own
        self._reservation_count = 0  # number of reservations made until now
        self._workers: dict[RemoteWorker, None] = {}  # all and only workers that have not ended, in order of start
        self._idle: dict[str, dict[RemoteWorker, None]] = {}  # all and only workers that are not busy, by machine
        # Actions that process the results of calls to actors; None: wake() was called.
        self._results: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._to_poll: list[RemoteWorker] = []  # workers whose last events the driver has not recorded yet
        self._timers: list[
            tuple[float, int, Callable[[], None]]
        ] = []  # a heap of (time when due in monotonic seconds, number, action)
        self._timer_numbers = itertools.count()
        self._unused_places: list[WorkerPlace] = []  # of ended workers; removed when their events are recorded
        self._unread_places: set[WorkerPlace] = set()  # all and only places that are being read
        self._failed_starts = 0  # successive actors that have not started

    def __iter__(self) -> Iterator[RemoteWorker]:
        return iter(self._workers)

    def workers_on(self, machine: str) -> int:
        """Return the number of workers that have resources on the machine."""
        return sum(worker.machine == machine and self.is_placed(worker) for worker in self._workers)

    def is_placed(self, worker: RemoteWorker) -> bool:
        """Return whether Ray has found resources for the worker."""
        return worker.pid is not None or worker.reservation.actors.placed()

    # --- starting and ending ----------------------------------------------------------------------------

    def acquire(self, workers: Mapping[str, int]) -> list[RemoteWorker]:
        """Return workers for an attempt, in the order of `workers`. They become busy.

        Idle workers are used first. If they do not suffice, new ones are started.

        `workers`: the number of workers on each machine.
        """
        idle_or_missing: list[RemoteWorker | None] = []
        missing: list[str] = []
        for machine, count in workers.items():
            idle = self._idle.get(machine, {})
            for _ in range(count):
                if idle:
                    worker, _ = idle.popitem()
                    worker.busy = True
                    idle_or_missing.append(worker)
                else:
                    idle_or_missing.append(None)
                    missing.append(machine)
        started = iter(self._start_all(missing))
        return [next(started) if worker is None else worker for worker in idle_or_missing]

    def _start_all(self, machines: Sequence[str]) -> list[RemoteWorker]:
        """Start a worker on each of these machines, and return them in this order.

        Workers on shared machines get one reservation, so that Ray places all or none of them. Each rented machine
        gets its own reservation. All its workers fit there, and the machine can be released without waiting for
        workers on other machines.
        """
        shared = [machine for machine in machines if not self._is_own(machine)]
        own = [[machine] * machines.count(machine) for machine in dict.fromkeys(machines) if self._is_own(machine)]
        started: dict[str, list[RemoteWorker]] = {}
        for together in filter(None, [shared, *own]):
            for worker in self._reserve(together):
                started.setdefault(worker.machine, []).append(worker)
        return [started[machine].pop(0) for machine in machines]

    def _reserve(self, machines: Sequence[str]) -> list[RemoteWorker]:
        """Start a worker on each of these machines, in one reservation."""
        nodes = [self._node_of(machine) for machine in machines]
        self._reservation_count += 1
        if self._function is not None and self._function_reference is None:
            self._function_reference = self._cluster.store_value(self._function)
        places = [
            self._files.new_place(node.id, f"{self._reservation_count}-{index}")
            for index, node in enumerate(nodes)
        ]
        paths = [str(Path(path or ".").absolute()) for path in sys.path]
        common = self._target, self._variables, paths, self._function_reference
        arguments = [(self._files.actor_argument(place), *common) for place in places]
        name = f"{self._name_prefix}{self._reservation_count}"
        node_ids = [node.id for node in nodes]
        reservation = Reservation(
            self._cluster.start_actors(WorkerActor, arguments, node_ids, self._resources, name)
        )
        for index, (machine, node) in enumerate(zip(machines, nodes, strict=True)):
            reservation.workers.append(RemoteWorker(machine, node.address, places[index], reservation, index))
        for worker in reservation.workers:
            self._workers[worker] = None
            self.call(worker, "events", "open", (), self._opened)
        return list(reservation.workers)

    def give_back(self, worker: RemoteWorker) -> None:
        """Make a worker idle after its attempt, or end it if it cannot be used again."""
        worker.busy, worker.idle_since = False, time.monotonic()
        if worker.ended or worker.pid is None or worker.reservation.incomplete:
            self.end([worker])
            return
        self._idle.setdefault(worker.machine, {})[worker] = None
        self._end_later(worker, worker.idle_since)

    def _end_later(self, worker: RemoteWorker, idle_since: float) -> None:
        self.call_later(_IDLE_SECONDS, lambda: self._end_if_idle(worker, idle_since))

    def _end_if_idle(self, worker: RemoteWorker, idle_since: float) -> None:
        """End a worker if it has been idle since this time, with its reservation.

        If another worker of the reservation is busy, this is tried again later, because Ray would not get the
        resources back.
        """
        if worker.busy or worker.ended or worker.idle_since != idle_since:
            return
        if any(other.busy for other in worker.reservation.workers):
            self._end_later(worker, idle_since)
        else:
            self.end([worker])

    def end(self, workers: Iterable[RemoteWorker]) -> None:
        """End these workers at once, and the idle workers of their reservations."""
        for worker in list(workers):
            reservation = worker.reservation
            reservation.incomplete = True
            idle = [other for other in reservation.workers if not other.busy and other is not worker]
            for each in [worker, *idle]:
                if each in reservation.workers:
                    self._remove(each)
                    reservation.actors.end_one(each.index)
            if not reservation.workers:
                reservation.actors.end()

    def machine_lost(self, machine: str) -> None:
        """End the idle workers of a machine that is lost or released."""
        self.end(self._idle.get(machine, {}))
        self._idle.pop(machine, None)

    def close(self) -> None:
        """End all workers, and wait some seconds for their processes to end."""
        workers, self._workers = list(self._workers), {}
        recorded = [worker for worker in workers if not worker.busy and worker not in self._to_poll]
        self._idle, self._timers, self._to_poll = {}, [], []
        if self._files.on_nodes:
            self._let_leave(recorded)
        for reservation in {id(worker.reservation): worker.reservation for worker in workers}.values():
            reservation.actors.end()
        for worker in workers:
            worker.ended = True
        remaining = [worker.place for worker in workers if not worker.left]
        self._files.close(remaining, [worker.place for worker in recorded if not worker.left])

    def _let_leave(self, workers: Sequence[RemoteWorker]) -> None:
        """Make idle workers end their processes and remove their files; wait some seconds until they have.

        Faster than tasks on the nodes, for which Ray may have to start processes.
        """
        for worker in workers:
            self.send_order(worker, LEAVE)
        deadline = time.monotonic() + PROCESSES_END_SECONDS
        while time.monotonic() < deadline and any(not worker.left for worker in workers):
            with contextlib.suppress(ThriftuneError):  # a worker that could not be started is ended in any case
                self.process_next(deadline)

    def _remove(self, worker: RemoteWorker) -> None:
        worker.ended = True
        self._workers.pop(worker, None)
        self._idle.get(worker.machine, {}).pop(worker, None)
        worker.reservation.workers.remove(worker)
        self._unused_places.append(worker.place)

    # --- files of ended workers -------------------------------------------------------------------------

    def read_files(self, worker: RemoteWorker, on_files: Callable[[ActorFiles], None]) -> None:
        """Read what a worker that has ended has left; process_next() calls `on_files` with it."""
        self._unread_places.add(worker.place)

        def take(files: ActorFiles) -> None:
            self._unread_places.discard(worker.place)
            on_files(files)

        self._files.read(worker.place, lambda files: self._results.put(lambda: take(files)))

    def read_files_now(self, workers: Sequence[RemoteWorker]) -> list[ActorFiles]:
        """Return what workers that have ended have left, in this order."""
        if not workers:
            return []
        running_nodes = {node.id for node in self._cluster.nodes()}
        return self._files.read_now([worker.place for worker in workers], running_nodes)

    # --- calls to actors --------------------------------------------------------------------------------

    def call(
        self,
        worker: RemoteWorker,
        thread: str,
        method: str,
        arguments: Sequence[Any],
        on_result: Callable[[RemoteWorker, Any, BaseException | None], None],
    ) -> None:
        """Call a method of the worker's actor, without waiting for it.

        - `thread`: the thread of the actor that runs the method; see WorkerActor.
        - `on_result`: called by process_next() with (worker, result, None) or (worker, None, error), unless the
          worker has ended.
        """

        def enqueue(result: Any, error: BaseException | None) -> None:  # called on a thread of Ray
            self._results.put(lambda: None if worker.ended else on_result(worker, result, error))

        worker.reservation.actors.call(worker.index, method, *arguments, thread=thread, on_result=enqueue)

    def poll(self, worker: RemoteWorker) -> None:
        """Send the worker its unsent orders, and request its next events.

        Does not wait for the answer.
        """
        if worker.ended or worker.polling:
            return
        worker.polling = True
        orders, worker.unsent_orders = worker.unsent_orders, []
        on_result: Callable[..., None] = lambda *result: self._events_received(orders, *result)  # noqa: E731
        self.call(worker, "events", "next_events", (worker.answers, orders), on_result)

    def send_order(self, worker: RemoteWorker, method: str, *arguments: Any) -> None:
        """Make the worker's local engine call a method."""
        self._send(worker, (next(worker.order_numbers), method, arguments))

    def _send(self, worker: RemoteWorker, order: Order) -> None:
        if worker.ended:
            return
        if not worker.polling:
            worker.unsent_orders.append(order)
            return

        def sent(_worker: RemoteWorker, _: Any, error: BaseException | None) -> None:
            if error is not None:  # the call of next_events() may also fail, and will be repeated
                self.call_later(_RETRY_SECONDS, lambda: self._send(worker, order))

        self.call(worker, "orders", "give_order", (order,), sent)

    def wake(self) -> None:
        """Make process_next() return.

        Safe from a signal handler and from other threads.
        """
        self._results.put(None)

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Make process_next() call `action` after this time."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timer_numbers), action))

    def events_recorded(self) -> None:
        """Remove files of ended workers, and poll the other workers again.

        Called when the driver has recorded all events.
        """
        unused = [place for place in self._unused_places if place not in self._unread_places]
        if unused:
            self._files.remove(unused)
            self._unused_places = [place for place in self._unused_places if place in self._unread_places]
        to_poll, self._to_poll = self._to_poll, []
        for worker in to_poll:
            self.poll(worker)

    def process_next(self, deadline: float | None) -> bool:
        """Process all results that have arrived; wait for one if there is none.

        Also runs timers that are due. Returns at the latest at the deadline, which is in monotonic seconds.
        Returns whether wake() was called.
        """
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        next_timer = self._timers[0][0] if self._timers else None
        ends = [each for each in (deadline, next_timer) if each is not None]
        woken = False
        try:
            process = self._results.get(timeout=max(0.0, min(ends) - now) if ends else None)
            while True:
                if process is None:
                    woken = True
                else:
                    process()
                process = self._results.get_nowait()
        except queue.Empty:
            return woken

    # --- results of calls -------------------------------------------------------------------------------

    def _opened(self, worker: RemoteWorker, pid: Any, error: BaseException | None) -> None:
        """Process the result of open()."""
        if error is None:
            self._failed_starts = 0
            worker.pid = pid
            self.poll(worker)
            self._listener.worker_ready(worker)
            return
        if why := unsuitable_node(error):
            raise ThriftuneError(_cannot_start(worker, why))
        self.call_later(_NODE_SECONDS, lambda: self._start_failed(worker, error_line(error)))

    def _start_failed(self, worker: RemoteWorker, why: str) -> None:
        if worker.ended:  # its machine was lost
            return
        self._failed_starts += 1
        if self._failed_starts >= _MAX_FAILED_STARTS:
            raise ThriftuneError(_cannot_start(worker, why))
        self._lost(worker, why, out_of_memory=False)

    def _events_received(
        self, orders: list[Order], worker: RemoteWorker, answer: Answer, error: BaseException | None
    ) -> None:
        """Process the result of next_events(), which was called with these orders."""
        worker.polling = False
        if error is None:
            worker.answers += 1
            worker.unreachable_since = None
            worker.left = answer.left
            if not worker.left:
                self._to_poll.append(worker)
            self._listener.worker_output(answer.output)
            for event in answer.events:
                self._listener.worker_event(worker, event)
            return
        if worker.pid is None:  # open() has also failed, which _opened() handles
            return
        now = time.monotonic()
        worker.unreachable_since = worker.unreachable_since or now
        if is_temporary(error) and now < worker.unreachable_since + _UNREACHABLE_SECONDS:
            worker.unsent_orders = [*orders, *worker.unsent_orders]
            self.call_later(_RETRY_SECONDS, lambda: self.poll(worker))
        elif worker.busy:
            why, out_of_memory = error_line(error), is_out_of_memory(error)
            self.call_later(_NODE_SECONDS, lambda: self._lost(worker, why, out_of_memory=out_of_memory))
        else:
            self.end([worker])

    def _lost(self, worker: RemoteWorker, why: str, *, out_of_memory: bool) -> None:
        if worker.ended:
            return
        if worker.busy:
            self._listener.worker_lost(worker, why, out_of_memory)
        else:
            self.end([worker])


def _cannot_start(worker: RemoteWorker, why: str) -> str:
    return f"no worker can be started on {worker.machine} ({worker.address}): {why}"
