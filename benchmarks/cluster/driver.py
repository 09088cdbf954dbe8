"""How many decisions a second does the driver take with 1,000 trials running on 100 nodes of 10 slots?

All that decides is what a real study has: driver, conductor, history, searcher, rule, SQLite store on disk, the
policy that fills machines that are there, and the nodes of a cluster taken for machines. What stands in is the
cluster, which is a list of nodes, and the engine: its trials answer as soon as they are asked.

Counted are the decisions that are in the log at the end (Create, Place, Stop and so on) and all events (these, and
what trials said), from the moment 1,000 trials run to the end. "One event a turn" is the worst case, where no two
trials speak at the same time; else every turn takes in what a hundred of them said.

And the bookkeeping of the real engine for Ray with 1,000 crews: events a second through its wait(), where one
thread of this process answers for the actors, whose time counts, too.
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
from thriftune.clouds.ray.cluster import Cluster, ClusterNode, Told
from thriftune.common.clock import WallClock
from thriftune.engines.protocol import WorkerStatus
from thriftune.engines.ray.engine import RayEngine
from thriftune.launch.runtime import wanted
from thriftune.loop.conductor import Conductor
from thriftune.loop.driver import Driver
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.results.loading import load_history
from thriftune.search.random import Random
from thriftune.show.progress import Silent
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state.events import Decision, Ended, Event, Place, Reported
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS
from thriftune.store.opening import open_store
from thriftune.training.run import Run

NODES, SLOTS = 100, 10
STEPS = 4  # of a trial
TRIALS, ROUNDS = 4000, 3
DECISIONS_BAR = 1000
TOGETHER = 100  # events in a turn, where it is not one
WORKER = {"CPU": 1.0}
RULES: dict[str, dict[str, Any]] = {"none": {}, "asha": {"min_steps": 1}}


class Nodes:
    """What the cloud asks of a cluster, and nothing behind it."""

    def __init__(self, count: int, slots: int) -> None:
        resources = {"CPU": float(slots), "memory": 1e9}
        numbers = range(1, count + 1)  # nobody else uses any of it, so all that is not ours is available
        self._nodes = [
            ClusterNode(f"{each:056x}", "127.0.0.1", resources, {}, available=resources) for each in numbers
        ]
        self._notes: dict[str, bytes] = {}

    def nodes(self) -> list[ClusterNode]:
        return self._nodes

    def note(self, key: str, value: bytes) -> None:
        self._notes[key] = value

    def noted(self, prefix: str) -> dict[str, bytes]:
        return {key: value for key, value in self._notes.items() if key.startswith(prefix)}

    def erase(self, key: str) -> None:
        self._notes.pop(key, None)

    def end_actors(self, prefix: str) -> None:
        pass

    def gang(
        self,
        kind: type,  # noqa: ARG002
        arguments: Sequence[Sequence[Any]],
        nodes: Sequence[str],  # noqa: ARG002
        each: Mapping[str, float],  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> Crew:
        return Crew(len(arguments))


@dataclass(slots=True)
class Attempt:
    """A trial that is asked what it has to say, and says it at once."""

    run: Run
    step: int = 0
    told: bool = False  # to end

    def says(self, now: float) -> Reported | Ended:
        trial, attempt = self.run.trial, self.run.attempt
        if self.told or self.step == STEPS:
            return Ended(now, trial, attempt, 0.0, cut=self.told)
        self.step += 1
        loss = self.run.config["x"] + 1.0 / self.step
        return Reported(now, trial, attempt, self.step, self.step, {"loss": loss})


class AtOnce:
    """An engine whose trials take turns; each answers as soon as it is its turn."""

    def __init__(self, clock: WallClock, together: int, slots: int) -> None:
        self._clock = clock
        self._slots = slots
        self.full_at = 0.0  # seconds of CPU of this process when all slots were taken
        self._together = together
        self._turns: deque[Attempt] = deque()
        self._running: dict[tuple[int, int], Attempt] = {}

    def recover(self) -> list[Event]:
        return []

    def open(self) -> None:
        pass

    def start(self, run: Run, workers: Mapping[str, int]) -> None:  # noqa: ARG002
        attempt = self._running[run.trial, run.attempt] = Attempt(run)
        self._turns.append(attempt)
        if len(self._running) == self._slots and not self.full_at:
            self.full_at = time.process_time()

    def request_end(self, trial: int, attempt: int) -> None:
        if (found := self._running.get((trial, attempt))) is not None:
            found.told = True

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None:
        pass

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None:
        pass

    def kill(self, trial: int, attempt: int) -> None:
        self.request_end(trial, attempt)

    def wait(self, timeout: float | None) -> list[Event]:  # noqa: ARG002
        now = self._clock.now()
        events: list[Event] = []
        for _ in range(min(self._together, len(self._turns))):
            attempt = self._turns.popleft()
            said = attempt.says(now)
            if isinstance(said, Reported):
                self._turns.append(attempt)
            else:
                del self._running[said.trial, said.attempt]
            events.append(said)
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
class Driven:
    seconds: float
    cpu_seconds: float  # on a busy machine, less
    decisions: int
    events: int


def driven(rule: str, trials: int, nodes: int, together: int) -> Driven:
    """From the moment that all slots are taken."""
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
        engine = AtOnce(clock, together, nodes * SLOTS)
        with store.drive(spec.name):
            Driver(store, conductor, engine, cloud, clock, Silent()).run()
        cpu_seconds = time.process_time() - engine.full_at
        log = store.read(spec.name)
        assert load_history(store, spec).finish_reason
    placed = [number for number, entry in enumerate(log) if isinstance(entry, Place)]
    since = placed[nodes * SLOTS - 1]  # by then all slots are taken, for the first time
    counted = log[since:]
    decisions = sum(isinstance(entry, Decision) for entry in counted)
    return Driven(counted[-1].at - counted[0].at, cpu_seconds, decisions, len(counted))


# --- the engine for Ray -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Crew:
    """Actors that are not there: a thread answers for all of them."""

    size: int
    attempts: list[Attempt | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.attempts = [None] * self.size

    def call(self, rank: int, method: str, *arguments: Any, group: str, then: Told | None = None) -> None:  # noqa: ARG002
        _ASKED.put((self, rank, method, arguments, then))

    def end(self) -> None:
        pass

    def answer(self, rank: int, method: str, arguments: Sequence[Any]) -> Any:
        if method != "hear":
            return 1
        for _, order, given in arguments[1]:
            if order == "start":
                self.attempts[rank] = Attempt(given[0])
        attempt = self.attempts[rank]
        if attempt is None:
            return None  # it has nothing to say, until it is asked again
        said = attempt.says(time.time())
        if isinstance(said, Ended):
            self.attempts[rank] = None
        return [said]


_ASKED: queue.SimpleQueue[tuple[Crew, int, str, Sequence[Any], Told | None] | None] = queue.SimpleQueue()


@contextmanager
def answered() -> Iterator[None]:
    """Somebody answers for all actors."""

    def go() -> None:
        silent: dict[tuple[int, int], Told] = {}  # who would say something if there were anything to say
        while (asked := _ASKED.get()) is not None:
            crew, rank, method, arguments, then = asked
            if method == "say":  # an order, while it is asked
                _, order, given = arguments[0]
                told = silent.pop((id(crew), rank), None)
                if order == "start":
                    crew.attempts[rank] = Attempt(given[0])
                if told is not None:
                    told(crew.answer(rank, "hear", (0, ())), None)
            found = crew.answer(rank, method, arguments)
            if found is None and then is not None:
                silent[id(crew), rank] = then
            elif then is not None:
                then(found, None)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        _ASKED.put(None)
        thread.join()


def through_wait(folder: Path, nodes: int, trials: int) -> float:
    """Events a second, from the moment that all crews were started."""
    machines = {
        f"node-{number}": ClusterNode(f"{number:056x}", "127.0.0.1", WORKER, {}) for number in range(nodes)
    }
    engine = RayEngine(
        cast(Cluster, Nodes(nodes, SLOTS)), machines.__getitem__, WORKER, folder, "busy", {"kind": "none"}
    )
    places = [{machine: 1} for machine in machines for _ in range(SLOTS)]
    free, taken = deque(places), dict[int, dict[str, int]]()
    done = events = number = 0
    with answered(), closing(engine):
        engine.recover()
        engine.open()
        started = 0.0
        while done < trials:
            while free and number < trials:
                taken[number] = free.popleft()
                engine.start(Run(number, 1, {"x": 0.5}, 0, ("loss",), STEPS, 0, "", 2, False), taken[number])
                number += 1
            started = started or time.perf_counter()
            for event in engine.wait(1.0):
                events += 1
                if isinstance(event, Ended):
                    done += 1
                    free.append(taken.pop(event.trial))
        return events / (time.perf_counter() - started)


def measure(options: argparse.Namespace) -> list[Row]:
    nodes, trials, rounds = (2, 60, 1) if options.quick else (NODES, TRIALS, ROUNDS)
    rows = []
    for rule in RULES:
        for together in (TOGETHER, 1):
            runs = [driven(rule, trials, nodes, together) for _ in range(rounds)]
            decisions = [run.decisions / run.seconds for run in runs]
            events = [run.events / run.seconds for run in runs]
            cpu = [run.decisions / run.cpu_seconds for run in runs]
            how = "one event a turn" if together == 1 else f"{together} events a turn"
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
    rows.append(Row(f"the engine for Ray, {nodes * SLOTS:,} crews", figure, data={"events_per_second": rates}))
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
