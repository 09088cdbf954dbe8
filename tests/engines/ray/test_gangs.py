"""Crews on the nodes of a real cluster: they start together, are kept, and end as what happened to one of them."""

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
from tests.engines.conformance import TARGET, ends, nothing_more, told, until, until_ended
from tests.engines.processes import PATIENCE_SECONDS, all_gone, eventually
from tests.support.ray_clusters import Nodes, nodes
from thriftune.clouds.ray.cluster import NODE, Cluster, ClusterNode
from thriftune.engines.ray import remote_workers as seats
from thriftune.engines.ray.engine import End, RayEngine, verdict
from thriftune.errors import ThriftuneError
from thriftune.state.events import Ended, Failed, Killed, Lost, Reported
from thriftune.training.run import Run

pytestmark = pytest.mark.cluster

pytest.importorskip("ray")

BOTH = {"a": 1, "b": 1}


class Stage:
    """Two nodes, a and b, with two CPUs each, and whatever a test adds."""

    def __init__(self, there: Nodes, cluster: Cluster) -> None:
        self.there, self.cluster = there, cluster
        self.ids = {name: there.add(2) for name in ("a", "b")}

    def node_of(self, machine: str) -> ClusterNode:
        return next(node for node in self.cluster.nodes() if node.id == self.ids[machine])

    def kill(self, machine: str) -> None:
        """Returns when the cluster knows."""
        gone = self.ids.pop(machine)
        self.there.kill(gone)
        eventually(lambda: all(node.id != gone for node in self.cluster.nodes()), "the node is known to be gone")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with nodes() as there:
        cluster = Cluster.attach(there.address)
        yield Stage(there, cluster)
        cluster.detach()


class Crews:
    def __init__(self, stage: Stage, folder: Path, stack: ExitStack) -> None:
        self.stage, self.folder, self._stack = stage, folder, stack
        self.mark = os.urandom(8).hex()

    def open(self, where: str = "tests.engines.training_functions:act", **more: Any) -> RayEngine:
        variables, target = {"TEST_MARK": self.mark}, {**TARGET, "where": where}
        given = {"CPU": 1.0}, self.folder / "run", "test", target, variables
        engine = RayEngine(self.stage.cluster, self.stage.node_of, *given, **more)
        self._stack.callback(all_gone, f"TEST_MARK={self.mark}")
        self._stack.callback(engine.close)
        assert engine.recover() == []
        engine.open()
        return engine

    def run(self, trial: int, do: str, attempt: int = 1, max_steps: int = 3, **config: Any) -> Run:
        home = str(self.folder / "trials" / str(trial))
        return Run(trial, attempt, {"do": do, **config}, 0, ("loss",), max_steps, 7, home, 2)


@pytest.fixture
def crews(stage: Stage, tmp_path: Path) -> Iterator[Crews]:
    with ExitStack() as stack:
        yield Crews(stage, tmp_path, stack)


@pytest.fixture
def engine(crews: Crews) -> RayEngine:
    return crews.open()


# --- all or none ------------------------------------------------------------------------------------------------


def test_no_worker_starts_before_there_is_room_for_all(stage: Stage, crews: Crews, engine: RayEngine) -> None:
    claim = stage.cluster.claim({"CPU": 2.0}, {NODE: stage.ids["b"]})
    eventually(lambda: claim.node() is not None, "b is taken")
    engine.start(crews.run(0, "count"), BOTH)
    for _ in range(3):
        assert engine.wait(0.5) == []
    (doing,) = engine.status()
    assert (doing.worker, doing.pid, doing.trial) == ("a, b", None, 0)
    assert doing.waits_for == "1 CPU each: a, b"
    claim.end()
    events = until_ended(engine, 0)
    assert [type(event) for event in events] == [Reported] * 3 + [Ended]
    assert engine.status()[0].waits_for == ""


def test_what_waits_for_room_can_be_called_off(stage: Stage, crews: Crews, engine: RayEngine) -> None:
    claim = stage.cluster.claim({"CPU": 2.0}, {NODE: stage.ids["b"]})
    eventually(lambda: claim.node() is not None, "b is taken")
    engine.start(crews.run(0, "count"), BOTH)
    engine.start(crews.run(1, "count"), {"b": 1})
    assert [doing.waits_for for doing in engine.status()] == ["1 CPU each: a, b", "1 CPU on b"]
    engine.request_end(0, 1)
    engine.kill(1, 1)
    first, second = until_ended(engine, 0, 1)
    assert (type(first), first.cut, type(second)) == (Ended, True, Killed)  # type: ignore[attr-defined]
    assert engine.status() == []
    claim.end()
    nothing_more(engine)


# --- how they end -----------------------------------------------------------------------------------------------


def test_one_raises_and_the_trial_has_failed(crews: Crews, engine: RayEngine) -> None:
    engine.start(crews.run(0, "second_raises", max_steps=10**6), BOTH)
    (failed,) = ends(until_ended(engine, 0))
    assert isinstance(failed, Failed)
    assert failed.kind == "raised"
    assert "ValueError: deliberate" in failed.error


def test_one_is_killed_and_the_trial_is_lost(crews: Crews, engine: RayEngine) -> None:
    engine.start(crews.run(0, "second_is_killed", max_steps=10**6), BOTH)
    (lost,) = ends(until_ended(engine, 0))
    assert isinstance(lost, Lost)
    engine.start(crews.run(1, "count"), BOTH)  # there is room again
    assert isinstance(until_ended(engine, 1)[-1], Ended)


def test_all_end_together_when_told_to_or_killed(crews: Crews, engine: RayEngine) -> None:
    engine.start(crews.run(0, "count", max_steps=10**6, pause=0.01), BOTH)
    engine.start(crews.run(1, "sleep"), BOTH)
    until(engine, lambda events: told(events, 0))
    eventually(lambda: all(not doing.waits_for for doing in engine.status()) or engine.wait(0.1), "both are there")
    engine.request_end(0, 1)
    ended = ends(until_ended(engine, 0))[-1]
    assert isinstance(ended, Ended)
    assert ended.cut
    engine.kill(1, 1)
    assert isinstance(ends(until_ended(engine, 1))[-1], Killed)


def test_a_seat_that_is_killed_is_a_loss(crews: Crews, engine: RayEngine) -> None:
    """All that the trial had said is told before."""
    engine.start(crews.run(0, "train", max_steps=10**6), {"a": 1})
    done = crews.folder / "trials" / "0" / "steps_done"
    events = until(engine, lambda events: len(events) >= 5)
    pid = engine.status()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(engine, ends, events)
    *reports, lost = events
    assert isinstance(lost, Lost)
    steps = sorted({event.step for event in reports})  # type: ignore[attr-defined]
    assert steps == list(range(1, len(steps) + 1))
    assert len(done.read_text().splitlines()) - len(steps) in (0, 1)
    assert engine.status() == []


def test_a_node_that_is_killed_is_told_of_by_who_knows_machines(
    stage: Stage, crews: Crews, engine: RayEngine
) -> None:
    """The trial is not placed there again for what its own seat has noticed."""
    stage.ids["c"] = stage.there.add(2)
    engine.start(crews.run(0, "count", max_steps=10**6, pause=0.05), {"a": 1, "c": 1})
    engine.start(crews.run(1, "count", max_steps=10**6, pause=0.05), {"a": 1})
    until(engine, lambda events: told(events, 0) and told(events, 1))
    stage.kill("c")
    *before, lost = engine.machine_lost("c")
    assert all(isinstance(event, Reported) and event.trial == 0 for event in before)
    assert isinstance(lost, Lost)
    assert lost.why == "its machine, c, is gone"
    assert engine.machine_lost("c") == []
    events = until(engine, lambda events: len(told(events, 1)) > 3)
    assert not ends(events)
    assert [doing.trial for doing in engine.status()] == [1]


def test_a_seat_that_does_not_see_the_folder_ends_the_study_with_a_sentence(
    crews: Crews, engine: RayEngine
) -> None:
    """As on a node that does not share the file system; the node would ruin one trial after the other."""
    engine.start(crews.run(0, "count"), {"a": 1})
    (crews.folder / "run" / "seats" / "1-0").rmdir()
    with pytest.raises(ThriftuneError, match=r"no worker can be started on a .*: all nodes must see the study's"):
        until_ended(engine, 0)


# --- kept warm --------------------------------------------------------------------------------------------------


def test_seats_are_kept_for_the_next_trial_whatever_its_workers(crews: Crews, engine: RayEngine) -> None:
    """So that a trial grows and shrinks without starting anything anew."""

    def pids() -> set[int | None]:
        return {seat.pid for seat in engine._seats}

    engine.start(crews.run(0, "count"), BOTH)
    until_ended(engine, 0)
    first = pids()
    assert len(first) == 2
    assert None not in first
    for trial, workers in enumerate(({"a": 1}, {"b": 1}, BOTH, {"a": 1}), 1):
        engine.start(crews.run(trial, "count"), workers)
        until_ended(engine, trial)
        assert pids() == first
    engine.start(crews.run(5, "count"), {"a": 2})  # of which one is missing
    until_ended(engine, 5)
    assert len(pids() - first) == 1
    assert first <= pids()


def test_a_machine_that_is_given_back_is_left_with_nothing_on_it(
    stage: Stage, crews: Crews, engine: RayEngine
) -> None:
    """Also by seats that were asked for together with those of another machine: their room is one."""
    engine.start(crews.run(0, "count"), BOTH)
    until_ended(engine, 0)
    assert engine.machine_lost("b") == []
    assert engine.status() == []
    claim = stage.cluster.claim({"CPU": 2.0}, {NODE: stage.ids["b"]})
    eventually(lambda: claim.node() is not None, "all of b can be had")
    claim.end()
    engine.start(crews.run(1, "count"), {"a": 2})
    until_ended(engine, 1)


def test_a_machine_of_its_own_that_is_given_back_is_not_held_by_a_trial_elsewhere(
    stage: Stage, crews: Crews
) -> None:
    """One that has a seat which was asked for together with some of that machine."""
    engine = crews.open(is_own=lambda _: True)
    engine.start(crews.run(0, "count"), BOTH)
    until_ended(engine, 0)
    engine.start(crews.run(1, "count", max_steps=100_000, pause=0.1), {"b": 1})
    until(engine, lambda events: events)
    assert engine.machine_lost("a") == []
    claim = stage.cluster.claim({"CPU": 2.0}, {NODE: stage.ids["a"]})
    eventually(lambda: claim.node() is not None, "all of a can be had")
    claim.end()
    engine.kill(1, 1)
    until_ended(engine, 1)


def test_a_crew_that_nobody_needs_is_dismissed(
    crews: Crews, engine: RayEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seats, "_IDLE_SECONDS", 0.3)
    engine.start(crews.run(0, "count"), {"a": 1})
    until_ended(engine, 0)
    assert [doing.trial for doing in engine.status()] == [None]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while engine.status():
        assert engine.wait(0.1) == []
        assert time.monotonic() < deadline
    all_gone(f"TEST_MARK={crews.mark}")


def test_an_idle_crew_goes_with_its_machine(crews: Crews, engine: RayEngine) -> None:
    engine.start(crews.run(0, "count"), BOTH)
    engine.start(crews.run(1, "count"), {"a": 1})
    until_ended(engine, 0, 1)
    assert engine.machine_lost("b") == []
    assert [doing.worker for doing in engine.status()] == ["a"]


def test_an_idle_crew_whose_seat_is_killed_is_given_nothing(crews: Crews, engine: RayEngine) -> None:
    engine.start(crews.run(0, "count"), {"a": 1})
    until_ended(engine, 0)
    pid = engine.status()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while engine.status():
        assert engine.wait(0.1) == []
        assert time.monotonic() < deadline
    engine.start(crews.run(1, "count"), {"a": 1})
    assert isinstance(until_ended(engine, 1)[-1], Ended)


# --- between steps ----------------------------------------------------------------------------------------------


@needs_torch
def test_a_trial_that_grows_and_shrinks_learns_the_same(crews: Crews) -> None:
    """With one worker, then two on two nodes, then one: the batches are the same, and so is the curve."""
    engine = crews.open("tests.training.gang_acts:learning")
    steps, shapes = 6, [{"a": 1}, BOTH, {"b": 1}]

    def losses(trial: int, workers: list[dict[str, int]]) -> list[float]:
        each, found = steps // len(workers), []
        for number, shape in enumerate(workers):
            run = replace(
                crews.run(trial, "", number + 1, max_steps=(number + 1) * each, most=4), resume_step=number * each
            )
            engine.start(run, shape)
            events = until_ended(engine, trial, attempt=number + 1)
            assert isinstance(events[-1], Ended), events[-1]
            found += [event.metrics["loss"] for event in events if isinstance(event, Reported)]
        return found

    alone, changing = losses(0, [{"a": 1}]), losses(1, shapes)
    assert len(alone) == steps
    assert alone[-1] < 0.8 * alone[0]  # it does learn
    assert changing == pytest.approx(alone, rel=1e-4)


# --- verdicts ---------------------------------------------------------------------------------------------------

ENDED, CUT = Ended(1.0, 0, 1, 1.0), Ended(1.0, 0, 1, 1.0, cut=True)
RAISED = Failed(2.0, 0, 1, "raised", "ValueError")
LATER = Failed(3.0, 0, 1, "raised", "connection closed by peer")
MEMORY = Failed(3.0, 0, 1, "memory", "out of memory")
LOST = Lost(2.0, 0, 1, "its machine is gone")
KILLED = Killed(2.0, 0, 1)


@pytest.mark.parametrize(
    ("ends_of", "cleared", "gone", "killed", "expected"),
    [
        pytest.param([ENDED, ENDED], (), (), False, ENDED, id="both end"),
        pytest.param([CUT, ENDED], (), (), False, CUT, id="the first one's word counts"),
        pytest.param([ENDED, RAISED], (), (), False, RAISED, id="one raises"),
        pytest.param([LATER, RAISED], (), (), False, LATER, id="the first knows what the others say"),
        pytest.param([CUT, LATER, RAISED], (), (), False, RAISED, id="of two others, the earlier"),
        pytest.param([RAISED, LOST], (), (1,), False, LOST, id="a machine that is gone is no fault"),
        pytest.param([RAISED, MEMORY], (), (), False, MEMORY, id="who was ended did not raise for it"),
        pytest.param([RAISED, KILLED], (1,), (), False, RAISED, id="who was cleared away does not count"),
        pytest.param([LOST, RAISED], (0,), (0,), False, RAISED, id="nor does one whose seat was"),
        pytest.param([ENDED, LOST], (1,), (1,), False, ENDED, id="all that counts is well"),
        pytest.param([LOST, ENDED], (), (), False, LOST, id="its process was ended from outside"),
        pytest.param([ENDED, LOST], (), (), False, LOST, id="another's was"),
        pytest.param([ENDED, KILLED], (), (), True, KILLED, id="by decision"),
        pytest.param([ENDED, ENDED], (), (), True, ENDED, id="too late to be killed"),
        pytest.param([LOST, LOST], (0, 1), (0, 1), False, LOST, id="nobody counts"),
    ],
)
def test_verdicts(
    ends_of: list[End], cleared: tuple[int, ...], gone: tuple[int, ...], killed: bool, expected: End
) -> None:
    assert verdict(dict(enumerate(ends_of)), cleared, gone, killed=killed) == expected
