"""Tests gangs on the nodes of a real cluster: they start together, stay warm, and end together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import needs_torch
from tests.engines.conformance import TARGET, ends, events_of, no_more_events, wait_for_end, wait_until
from tests.engines.processes import PATIENCE_SECONDS, eventually, wait_for_no_process
from tests.support.ray_clusters import Nodes, nodes
from thriftune.clouds.ray.cluster import NODE, Cluster, ClusterNode
from thriftune.engines.ray import remote_workers
from thriftune.engines.ray.engine import End, RayEngine, end_of_gang
from thriftune.errors import ThriftuneError
from thriftune.object_store.urls import parse_object_url
from thriftune.state.events import CheckpointSaved, Ended, Failed, Killed, Lost, Reported
from thriftune.training.run import Run

pytestmark = pytest.mark.cluster

pytest.importorskip("ray")

BOTH = {"a": 1, "b": 1}


class Machines:
    """Two nodes, a and b, with two CPUs each, and the nodes that a test adds.

    `hidden`: a folder that the nodes do not see; None if they see all folders.
    """

    def __init__(self, nodes: Nodes, cluster: Cluster, hidden: Path | None) -> None:
        self.nodes, self.cluster, self.hidden = nodes, cluster, hidden
        self.ids = {name: self.add() for name in ("a", "b")}

    def add(self) -> str:
        return self.nodes.add(2) if self.hidden is None else self.nodes.add_apart(2, self.hidden)

    def node_of(self, machine: str) -> ClusterNode:
        return next(node for node in self.cluster.nodes() if node.id == self.ids[machine])

    def kill(self, machine: str) -> None:
        """Kill a node, and wait until the cluster has noticed."""
        killed = self.ids.pop(machine)
        self.nodes.kill(killed)
        eventually(lambda: all(node.id != killed for node in self.cluster.nodes()), "the cluster has noticed")


@pytest.fixture(scope="module", params=["shared", "apart"])
def machines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    hidden = tmp_path_factory.getbasetemp() if request.param == "apart" else None
    with nodes() as ray_nodes:
        cluster = Cluster.attach(ray_nodes.address)
        yield Machines(ray_nodes, cluster, hidden)
        cluster.detach()


class Engines:
    """Opens engines, and makes runs for them."""

    def __init__(self, machines: Machines, folder: Path, stack: ExitStack) -> None:
        self.machines, self.folder, self._stack = machines, folder, stack
        self.mark = os.urandom(8).hex()
        self._witnesses = machines.nodes.folder / self.mark  # all nodes see it
        self._witnesses.mkdir()

    def open(self, where: str = "tests.engines.training_functions:act", **options: Any) -> RayEngine:
        variables, target = {"TEST_MARK": self.mark}, {**TARGET, "where": where}
        if self.machines.hidden is not None:
            variables["TEST_WITNESS"] = str(self._witnesses)
            variables |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
            options["trials"] = self.folder / "trials"
        arguments = {"CPU": 1.0}, self.folder / "run", f"test-{self.mark}", target, variables
        engine = RayEngine(self.machines.cluster, self.machines.node_of, *arguments, **options)
        self._stack.callback(wait_for_no_process, f"TEST_MARK={self.mark}")
        self._stack.callback(engine.close)
        assert engine.recover() == []
        engine.open()
        return engine

    def steps_done(self, trial: int) -> Path:
        """Return the file to which the function train() appends the steps of a trial."""
        if self.machines.hidden is not None:
            return self._witnesses / f"{trial}-steps_done"
        return self.folder / "trials" / str(trial) / "steps_done"

    def run(self, trial: int, do: str, attempt: int = 1, max_steps: int = 3, **config: Any) -> Run:
        home = str(self.folder / "trials" / str(trial))
        return Run(trial, attempt, {"do": do, **config}, 0, ("loss",), max_steps, 7, home, 2)


@pytest.fixture
def engines(machines: Machines, tmp_path: Path) -> Iterator[Engines]:
    with ExitStack() as stack:
        yield Engines(machines, tmp_path, stack)


@pytest.fixture
def engine(engines: Engines) -> RayEngine:
    return engines.open()


# --- all or none ------------------------------------------------------------------------------------------------


def test_no_worker_starts_before_there_is_room_for_all(
    machines: Machines, engines: Engines, engine: RayEngine
) -> None:
    claim = machines.cluster.claim({"CPU": 2.0}, {NODE: machines.ids["b"]})
    eventually(lambda: claim.node() is not None, "b is taken")
    engine.start(engines.run(0, "count"), BOTH)
    for _ in range(3):
        assert engine.wait(0.5) == []
    (status,) = engine.status()
    assert (status.worker, status.pid, status.trial) == ("a, b", None, 0)
    assert status.waits_for == "1 CPU each: a, b"
    claim.end()
    events = wait_for_end(engine, 0)
    assert [type(event) for event in events] == [Reported] * 3 + [Ended]
    assert engine.status()[0].waits_for == ""


def test_an_attempt_that_waits_for_room_can_be_cancelled(
    machines: Machines, engines: Engines, engine: RayEngine
) -> None:
    claim = machines.cluster.claim({"CPU": 2.0}, {NODE: machines.ids["b"]})
    eventually(lambda: claim.node() is not None, "b is taken")
    engine.start(engines.run(0, "count"), BOTH)
    engine.start(engines.run(1, "count"), {"b": 1})
    assert [status.waits_for for status in engine.status()] == ["1 CPU each: a, b", "1 CPU on b"]
    engine.request_end(0, 1)
    engine.kill(1, 1)
    first, second = wait_for_end(engine, 0, 1)
    assert (type(first), first.cut, type(second)) == (Ended, True, Killed)  # type: ignore[attr-defined]
    assert engine.status() == []
    claim.end()
    no_more_events(engine)


# --- ends -------------------------------------------------------------------------------------------------------


def test_the_attempt_fails_if_one_worker_raises(engines: Engines, engine: RayEngine) -> None:
    engine.start(engines.run(0, "second_raises", max_steps=10**6), BOTH)
    (failed,) = ends(wait_for_end(engine, 0))
    assert isinstance(failed, Failed)
    assert failed.kind == "raised"
    assert "ValueError: deliberate" in failed.error


def test_the_attempt_is_lost_if_one_worker_is_killed(engines: Engines, engine: RayEngine) -> None:
    engine.start(engines.run(0, "second_is_killed", max_steps=10**6), BOTH)
    (lost,) = ends(wait_for_end(engine, 0))
    assert isinstance(lost, Lost)
    engine.start(engines.run(1, "count"), BOTH)  # there is room again
    assert isinstance(wait_for_end(engine, 1)[-1], Ended)


def test_all_workers_end_together_when_requested_or_killed(engines: Engines, engine: RayEngine) -> None:
    engine.start(engines.run(0, "count", max_steps=10**6, pause=0.01), BOTH)
    engine.start(engines.run(1, "sleep"), BOTH)
    wait_until(engine, lambda events: events_of(events, 0))
    eventually(
        lambda: all(not status.waits_for for status in engine.status()) or engine.wait(0.1), "both have started"
    )
    engine.request_end(0, 1)
    ended = ends(wait_for_end(engine, 0))[-1]
    assert isinstance(ended, Ended)
    assert ended.cut
    engine.kill(1, 1)
    assert isinstance(ends(wait_for_end(engine, 1))[-1], Killed)


def test_an_attempt_is_lost_with_its_actor(engines: Engines, engine: RayEngine) -> None:
    """All reports of the trial are delivered before."""
    engine.start(engines.run(0, "train", max_steps=10**6), {"a": 1})
    done = engines.steps_done(0)
    events = wait_until(engine, lambda events: len(events) >= 5)
    pid = engine.status()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(engine, ends, events)
    *reports, lost = events
    assert isinstance(lost, Lost)
    steps = sorted({event.step for event in reports})  # type: ignore[attr-defined]
    assert steps == list(range(1, len(steps) + 1))
    assert len(done.read_text().splitlines()) - len(steps) in (0, 1)
    assert engine.status() == []


def test_the_loss_of_a_node_is_reported_by_the_cloud(
    machines: Machines, engines: Engines, engine: RayEngine
) -> None:
    """The engine does not report the loss of the worker before, so the trial is not placed there again."""
    machines.ids["c"] = machines.add()
    engine.start(engines.run(0, "count", max_steps=10**6, pause=0.05), {"a": 1, "c": 1})
    engine.start(engines.run(1, "count", max_steps=10**6, pause=0.05), {"a": 1})
    wait_until(engine, lambda events: events_of(events, 0) and events_of(events, 1))
    machines.kill("c")
    *before, lost = engine.machine_lost("c")
    assert all(isinstance(event, Reported) and event.trial == 0 for event in before)
    assert isinstance(lost, Lost)
    assert lost.why == "its machine, c, is no longer available"
    assert engine.machine_lost("c") == []
    events = wait_until(engine, lambda events: len(events_of(events, 1)) > 3)
    assert not ends(events)
    assert [status.trial for status in engine.status()] == [1]


def test_an_actor_that_does_not_see_the_folder_ends_the_study(engines: Engines, engine: RayEngine) -> None:
    """Its node does not share the file system, so every trial would fail there."""
    if engines.machines.hidden is not None:
        pytest.skip("the nodes need not see the folder")
    engine.start(engines.run(0, "count"), {"a": 1})
    (engines.folder / "run" / "seats" / "1-0").rmdir()
    with pytest.raises(ThriftuneError, match=r"no worker can be started on a .*: all nodes must see the study's"):
        wait_for_end(engine, 0)


# --- warm workers -----------------------------------------------------------------------------------------------


def test_remote_workers_are_reused_whatever_the_number_of_workers(engines: Engines, engine: RayEngine) -> None:
    """A trial gets more or fewer workers without starting processes again."""

    def pids() -> set[int | None]:
        return {worker.pid for worker in engine._pool}

    engine.start(engines.run(0, "count"), BOTH)
    wait_for_end(engine, 0)
    first = pids()
    assert len(first) == 2
    assert None not in first
    for trial, workers in enumerate(({"a": 1}, {"b": 1}, BOTH, {"a": 1}), 1):
        engine.start(engines.run(trial, "count"), workers)
        wait_for_end(engine, trial)
        assert pids() == first
    engine.start(engines.run(5, "count"), {"a": 2})  # one of them has to be started
    wait_for_end(engine, 5)
    assert len(pids() - first) == 1
    assert first <= pids()


def test_nothing_keeps_running_on_a_released_machine(
    machines: Machines, engines: Engines, engine: RayEngine
) -> None:
    """Not even workers that share a reservation with workers on another machine."""
    engine.start(engines.run(0, "count"), BOTH)
    wait_for_end(engine, 0)
    assert engine.machine_lost("b") == []
    assert engine.status() == []
    claim = machines.cluster.claim({"CPU": 2.0}, {NODE: machines.ids["b"]})
    eventually(lambda: claim.node() is not None, "all of b is free")
    claim.end()
    engine.start(engines.run(1, "count"), {"a": 2})
    wait_for_end(engine, 1)


def test_a_released_rented_machine_is_not_held_by_a_trial_elsewhere(machines: Machines, engines: Engines) -> None:
    """The worker of that trial was started together with one on the released machine."""
    engine = engines.open(is_own=lambda _: True)
    engine.start(engines.run(0, "count"), BOTH)
    wait_for_end(engine, 0)
    engine.start(engines.run(1, "count", max_steps=100_000, pause=0.1), {"b": 1})
    wait_until(engine, lambda events: events)
    assert engine.machine_lost("a") == []
    claim = machines.cluster.claim({"CPU": 2.0}, {NODE: machines.ids["a"]})
    eventually(lambda: claim.node() is not None, "all of a is free")
    claim.end()
    engine.kill(1, 1)
    wait_for_end(engine, 1)


def test_idle_workers_are_ended_after_some_time(
    engines: Engines, engine: RayEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_workers, "_IDLE_SECONDS", 0.3)
    engine.start(engines.run(0, "count"), {"a": 1})
    wait_for_end(engine, 0)
    assert [status.trial for status in engine.status()] == [None]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while engine.status():
        assert engine.wait(0.1) == []
        assert time.monotonic() < deadline
    wait_for_no_process(f"TEST_MARK={engines.mark}")


def test_idle_workers_end_with_their_machine(engines: Engines, engine: RayEngine) -> None:
    engine.start(engines.run(0, "count"), BOTH)
    engine.start(engines.run(1, "count"), {"a": 1})
    wait_for_end(engine, 0, 1)
    assert engine.machine_lost("b") == []
    assert [status.worker for status in engine.status()] == ["a"]


def test_an_idle_worker_whose_actor_is_killed_is_not_reused(engines: Engines, engine: RayEngine) -> None:
    engine.start(engines.run(0, "count"), {"a": 1})
    wait_for_end(engine, 0)
    pid = engine.status()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while engine.status():
        assert engine.wait(0.1) == []
        assert time.monotonic() < deadline
    engine.start(engines.run(1, "count"), {"a": 1})
    assert isinstance(wait_for_end(engine, 1)[-1], Ended)


# --- changing numbers of workers --------------------------------------------------------------------------------


@needs_torch
def test_the_number_of_workers_does_not_change_the_curve(engines: Engines, request: pytest.FixtureRequest) -> None:
    """The trial has one worker, then two on two nodes, then one. Its batches stay the same."""
    url = ""
    if engines.machines.hidden is not None:
        url = str(parse_object_url(request.getfixturevalue("s3_url")).child("studies").child("1"))
    engine = engines.open("tests.training.gang_acts:learning")
    steps, shapes = 6, [{"a": 1}, BOTH, {"b": 1}]

    def losses(trial: int, workers: list[dict[str, int]]) -> list[float]:
        each, values = steps // len(workers), []
        saved: list[tuple[str, int]] = []  # checkpoints in the object store, the newest first
        for number, shape in enumerate(workers):
            run = replace(
                engines.run(trial, "", number + 1, max_steps=(number + 1) * each, most=4),
                resume_step=number * each,
                objects=url,
                drive="0123abcd",
                checkpoints=saved,
            )
            engine.start(run, shape)
            events = wait_for_end(engine, trial, attempt=number + 1)
            assert isinstance(events[-1], Ended), events[-1]
            new = [(event.name, event.step) for event in events if isinstance(event, CheckpointSaved)]
            saved = [*reversed(new), *saved]
            values += [event.metrics["loss"] for event in events if isinstance(event, Reported)]
        return values

    alone, changing = losses(0, [{"a": 1}]), losses(1, shapes)
    assert len(alone) == steps
    assert alone[-1] < 0.8 * alone[0]  # the trial does learn
    assert changing == pytest.approx(alone, rel=1e-4)


# --- the end of a gang ------------------------------------------------------------------------------------------

ENDED, CUT = Ended(1.0, 0, 1, 1.0), Ended(1.0, 0, 1, 1.0, cut=True)
RAISED = Failed(2.0, 0, 1, "raised", "ValueError")
LATER = Failed(3.0, 0, 1, "raised", "connection closed by peer")
MEMORY = Failed(3.0, 0, 1, "memory", "out of memory")
LOST = Lost(2.0, 0, 1, "its machine is lost")
KILLED = Killed(2.0, 0, 1)


@pytest.mark.parametrize(
    ("ends_of", "cleared", "lost", "killed", "expected"),
    [
        pytest.param([ENDED, ENDED], (), (), False, ENDED, id="both end well"),
        pytest.param([CUT, ENDED], (), (), False, CUT, id="rank 0 counts"),
        pytest.param([ENDED, RAISED], (), (), False, RAISED, id="one raises"),
        pytest.param([LATER, RAISED], (), (), False, LATER, id="rank 0 knows the errors of the others"),
        pytest.param([CUT, LATER, RAISED], (), (), False, RAISED, id="the earlier of two failures"),
        pytest.param([RAISED, LOST], (), (1,), False, LOST, id="a lost machine is not a failure"),
        pytest.param([RAISED, MEMORY], (), (), False, MEMORY, id="out of memory counts before raised"),
        pytest.param([RAISED, KILLED], (1,), (), False, RAISED, id="a cleared worker does not count"),
        pytest.param([LOST, RAISED], (0,), (0,), False, RAISED, id="a cleared actor does not count"),
        pytest.param([ENDED, LOST], (1,), (1,), False, ENDED, id="all that counts has ended well"),
        pytest.param([LOST, ENDED], (), (), False, LOST, id="the process of rank 0 was killed"),
        pytest.param([ENDED, LOST], (), (), False, LOST, id="the process of rank 1 was killed"),
        pytest.param([ENDED, KILLED], (), (), True, KILLED, id="by decision"),
        pytest.param([ENDED, ENDED], (), (), True, ENDED, id="too late to be killed"),
        pytest.param([LOST, LOST], (0, 1), (0, 1), False, LOST, id="no worker counts"),
    ],
)
def test_end_of_gang(
    ends_of: list[End], cleared: tuple[int, ...], lost: tuple[int, ...], killed: bool, expected: End
) -> None:
    assert end_of_gang(dict(enumerate(ends_of)), cleared, lost, killed=killed) == expected
