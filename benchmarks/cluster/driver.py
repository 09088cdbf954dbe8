"""Measures how many decisions a second the driver makes, with 1,000 trials running on 100 nodes of 10 slots.

Everything that decides is that of a real study: the driver, the conductor, the history, the searcher, the
stopping rule, the SQLite store on disk, the policy that fills machines, and the cloud that makes nodes machines.
Two parts are fakes. The cluster is a list of nodes, and the trials of the engine answer at once.

The benchmark counts the decisions (Create, Place, Stop and so on) and all events (decisions and reports of
trials) in the log, from the moment at which 1,000 trials run until the end. "One event a cycle" is the worst case,
in which no two trials report at the same time. Otherwise, each cycle of the driver takes in the events of a
hundred trials.

It also measures the real engine for Ray with 1,000 gangs: the events a second through its wait(). One thread of
this process answers for the actors, and its time counts, too.
"""

from __future__ import annotations

import argparse
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

from benchmarks.common import Row, main, say, scratch
from thriftune.clouds.ray.cloud import RayCloud
from thriftune.clouds.ray.cluster import Cluster, ClusterNode, OnResult
from thriftune.common.clock import WallClock
from thriftune.engines.protocol import WorkerStatus
from thriftune.engines.ray.engine import RayEngine
from thriftune.engines.ray.worker_actor import Answer
from thriftune.launch.runtime import wanted
from thriftune.loop.conductor import Conductor
from thriftune.loop.driver import Driver
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.results.loading import load_history
from thriftune.search.random import Random
from thriftune.show.progress import SilentView
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state.events import Decision, Ended, Event, Place, Reported
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS
from thriftune.store.opening import open_store
from thriftune.training.run import Run

NODES, SLOTS = 100, 10
STEPS = 4  # of each trial
TRIALS, ROUNDS = 4000, 3
DECISIONS_BAR = 1000
TOGETHER = 100  # events in a cycle of the driver, if it is not one
WORKER = {"CPU": 1.0}
RULES: dict[str, dict[str, Any]] = {"none": {}, "asha": {"min_steps": 1}}


class Nodes:
    """A fake cluster, with the methods that the cloud and the engine call."""

    def __init__(self, count: int, slots: int) -> None:
        resources = {"CPU": float(slots), "memory": 1e9}
        numbers = range(1, count + 1)  # no other study uses them
        self._nodes = [
            ClusterNode(f"{each:056x}", "127.0.0.1", resources, {}, available=resources) for each in numbers
        ]
        self._notes: dict[str, bytes] = {}

    def nodes(self) -> list[ClusterNode]:
        return self._nodes

    def write_note(self, key: str, value: bytes) -> None:
        self._notes[key] = value

    def read_notes(self, prefix: str) -> dict[str, bytes]:
        return {key: value for key, value in self._notes.items() if key.startswith(prefix)}

    def delete_note(self, key: str) -> None:
        self._notes.pop(key, None)

    def end_actors(self, prefix: str) -> None:
        pass

    def start_actors(
        self,
        actor_class: type,  # noqa: ARG002
        arguments: Sequence[Sequence[Any]],
        nodes: Sequence[str],  # noqa: ARG002
        resources: Mapping[str, float],  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> FakeActors:
        return FakeActors(len(arguments))


@dataclass(slots=True)
class Attempt:
    """A running attempt of a fake trial."""

    run: Run
    step: int = 0
    end_requested: bool = False

    def next_event(self, now: float) -> Reported | Ended:
        """Return the report of the next step, or the end."""
        trial, attempt = self.run.trial, self.run.attempt
        if self.end_requested or self.step == STEPS:
            return Ended(now, trial, attempt, 0.0, cut=self.end_requested)
        self.step += 1
        loss = self.run.config["x"] + 1.0 / self.step
        return Reported(now, trial, attempt, self.step, self.step, {"loss": loss})


class InstantEngine:
    """An engine whose trials take no time. Each wait() returns the next events of `together` trials."""

    def __init__(self, clock: WallClock, together: int, slots: int) -> None:
        self._clock = clock
        self._slots = slots
        self.full_at = 0.0  # CPU seconds of this process when all slots were taken
        self._together = together
        self._queue: deque[Attempt] = deque()  # the running attempts, in order of their next events
        self._running: dict[tuple[int, int], Attempt] = {}

    def recover(self) -> list[Event]:
        return []

    def open(self) -> None:
        pass

    def start(self, run: Run, workers: Mapping[str, int]) -> None:  # noqa: ARG002
        attempt = self._running[run.trial, run.attempt] = Attempt(run)
        self._queue.append(attempt)
        if len(self._running) == self._slots and not self.full_at:
            self.full_at = time.process_time()

    def request_end(self, trial: int, attempt: int) -> None:
        if (running := self._running.get((trial, attempt))) is not None:
            running.end_requested = True

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None:
        pass

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None:
        pass

    def give_notice(self, trial: int, attempt: int, seconds_left: float) -> None:
        pass

    def kill(self, trial: int, attempt: int) -> None:
        self.request_end(trial, attempt)

    def wait(self, timeout: float | None) -> list[Event]:  # noqa: ARG002
        now = self._clock.now()
        events: list[Event] = []
        for _ in range(min(self._together, len(self._queue))):
            attempt = self._queue.popleft()
            event = attempt.next_event(now)
            if isinstance(event, Reported):
                self._queue.append(attempt)
            else:
                del self._running[event.trial, event.attempt]
            events.append(event)
        return events

    def wake(self) -> None:
        pass

    def machine_lost(self, machine: str) -> list[Event]:  # noqa: ARG002
        return []

    def status(self) -> list[WorkerStatus]:
        return []

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Measurement:
    """What was counted from the moment at which all slots were taken."""

    seconds: float
    cpu_seconds: float  # fewer than `seconds` on a busy machine
    decisions: int
    events: int


def drive(rule: str, trials: int, nodes: int, together: int) -> Measurement:
    """Run a study to its end, and count its decisions and events."""
    spec = Spec(
        "busy",
        Space({"x": Float(0.0, 1.0), "y": Float(1e-4, 1.0, log=True)}),
        (Objective("loss", maximize=False),),
        0,
        searcher="random",
        stopping=rule,
        stopping_options=RULES[rule],
        trials=trials,
        max_steps=STEPS,
        workers=None,
        engine="ray",
    )
    clock = WallClock()
    with scratch() as folder, open_store(folder / "studies.db") as store:
        store.create(spec.name, spec.to_json(), clock.now())
        history = spec.new_history()
        cluster = cast(Cluster, Nodes(nodes, SLOTS))
        cloud = RayCloud(cluster, "busy/1", WORKER, wants=partial(wanted, spec, history, 1))
        stopper = STOPPERS.make(rule, RULES[rule])
        conductor = Conductor(spec, history, Random(), PresentMachines(), stopper)
        engine = InstantEngine(clock, together, nodes * SLOTS)
        with store.drive(spec.name):
            Driver(store, conductor, engine, cloud, clock, SilentView()).run()
        cpu_seconds = time.process_time() - engine.full_at
        log = store.read(spec.name)
        assert load_history(store, spec).finish_reason
    placed = [number for number, entry in enumerate(log) if isinstance(entry, Place)]
    full = placed[nodes * SLOTS - 1]  # the entry by which all slots are taken for the first time
    counted = log[full:]
    decisions = sum(isinstance(entry, Decision) for entry in counted)
    return Measurement(counted[-1].at - counted[0].at, cpu_seconds, decisions, len(counted))


# --- the engine for Ray -------------------------------------------------------------------------------------


@dataclass(slots=True)
class FakeActors:
    """A group of actors that do not exist: a thread answers for all of them."""

    size: int
    attempts: list[Attempt | None] = field(default_factory=list)  # the one that each actor runs

    def __post_init__(self) -> None:
        self.attempts = [None] * self.size

    def call(
        self,
        index: int,
        method: str,
        *arguments: Any,
        thread: str,  # noqa: ARG002
        on_result: OnResult | None = None,
    ) -> None:
        _CALLS.put((self, index, method, arguments, on_result))

    def end(self) -> None:
        pass

    def answer(self, index: int, method: str, arguments: Sequence[Any]) -> Any:
        """Return the result of a method; None for next_events() without an attempt, which has no result yet."""
        if method != "next_events":
            return 1
        for _, order, order_arguments in arguments[1]:
            if order == "start":
                self.attempts[index] = Attempt(order_arguments[0])
        attempt = self.attempts[index]
        if attempt is None:
            return None
        event = attempt.next_event(time.time())
        if isinstance(event, Ended):
            self.attempts[index] = None
        return Answer([event], [])


_CALLS: queue.SimpleQueue[tuple[FakeActors, int, str, Sequence[Any], OnResult | None] | None] = queue.SimpleQueue()


@contextmanager
def answering() -> Iterator[None]:
    """Answer all calls of actors on another thread."""

    def answer_calls() -> None:
        waiting: dict[tuple[int, int], OnResult] = {}  # calls of next_events() that have no result yet
        while (call := _CALLS.get()) is not None:
            actors, index, method, arguments, on_result = call
            if method == "give_order":
                _, order, order_arguments = arguments[0]
                events_wanted = waiting.pop((id(actors), index), None)
                if order == "start":
                    actors.attempts[index] = Attempt(order_arguments[0])
                if events_wanted is not None:
                    events_wanted(actors.answer(index, "next_events", (0, ())), None)
            result = actors.answer(index, method, arguments)
            if result is None and on_result is not None:
                waiting[id(actors), index] = on_result
            elif on_result is not None:
                on_result(result, None)

    thread = threading.Thread(target=answer_calls, daemon=True)
    thread.start()
    try:
        yield
    finally:
        _CALLS.put(None)
        thread.join()


def through_wait(folder: Path, nodes: int, trials: int) -> float:
    """Return the events a second through RayEngine.wait(), from the moment at which all gangs were started."""
    machines = {
        f"node-{number}": ClusterNode(f"{number:056x}", "127.0.0.1", WORKER, {}) for number in range(nodes)
    }
    engine = RayEngine(
        cast(Cluster, Nodes(nodes, SLOTS)), machines.__getitem__, WORKER, folder, "busy", {"kind": "none"}
    )
    places = [{machine: 1} for machine in machines for _ in range(SLOTS)]
    free, taken = deque(places), dict[int, dict[str, int]]()
    ended = events = number = 0
    with answering(), closing(engine):
        engine.recover()
        engine.open()
        started = 0.0
        while ended < trials:
            while free and number < trials:
                taken[number] = free.popleft()
                engine.start(Run(number, 1, {"x": 0.5}, 0, ("loss",), STEPS, 0, "", 2, False), taken[number])
                number += 1
            started = started or time.perf_counter()
            for event in engine.wait(1.0):
                events += 1
                if isinstance(event, Ended):
                    ended += 1
                    free.append(taken.pop(event.trial))
        return events / (time.perf_counter() - started)


def measure(options: argparse.Namespace) -> list[Row]:
    nodes, trials, rounds = (2, 60, 1) if options.quick else (NODES, TRIALS, ROUNDS)
    rows = []
    for rule in RULES:
        for together in (TOGETHER, 1):
            runs = [drive(rule, trials, nodes, together) for _ in range(rounds)]
            decisions = [run.decisions / run.seconds for run in runs]
            events = [run.events / run.seconds for run in runs]
            cpu = [run.decisions / run.cpu_seconds for run in runs]
            how = "one event a cycle" if together == 1 else f"{together} events a cycle"
            say(f"stopping {rule}, {how}: done")
            rows.append(
                Row(
                    f"{nodes * SLOTS:,} trials on {nodes} nodes, stopping {rule}, {how}",
                    f"{median(decisions):,.0f} decisions ({min(decisions):,.0f} to {max(decisions):,.0f}) and "
                    f"{median(events):,.0f} events in all a second; {median(cpu):,.0f} decisions a second of CPU",
                    f"over {DECISIONS_BAR:,} a second",
                    None if options.quick else median(decisions) > DECISIONS_BAR,
                    {"decisions_per_second": decisions, "events_per_second": events, "of_cpu": cpu},
                )
            )
    rates = []
    for _ in range(rounds):
        with scratch() as folder:
            rates.append(through_wait(folder, nodes, trials))
    figure = f"{median(rates):,.0f} events a second ({min(rates):,.0f} to {max(rates):,.0f})"
    rows.append(Row(f"the engine for Ray, {nodes * SLOTS:,} gangs", figure, data={"events_per_second": rates}))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
