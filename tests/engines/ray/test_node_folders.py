"""Tests what travels between the driver and nodes that share no folder with it, and what is left on the nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.engines.conformance import END, TARGET, ends, events_of, wait_for_end, wait_until
from tests.engines.processes import eventually, wait_for_no_process
from tests.support.ray_clusters import Nodes, nodes
from thriftune.clouds.ray.cluster import NODE, Cluster
from thriftune.engines.ray.engine import RayEngine
from thriftune.state.events import Ended, Lost, Reported
from thriftune.store.output_files import attempts_with_output, read_output
from thriftune.training.run import Run

pytestmark = pytest.mark.cluster

pytest.importorskip("ray")

Open = Callable[[], RayEngine]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with nodes() as started:
        for _ in range(2):
            started.add_apart(2, tmp_path_factory.getbasetemp())
        cluster = Cluster.attach(started.address)
        yield started
        cluster.detach()


@pytest.fixture
def open_engine(two: Nodes, tmp_path: Path) -> Iterator[Open]:
    opened: list[RayEngine] = []

    def open_one() -> RayEngine:
        engine = make(two.address, tmp_path, *two.running)
        opened.append(engine)
        assert engine.recover() == []
        engine.open()
        return engine

    yield open_one
    for engine in opened:
        engine.close()


def make(address: str, folder: Path, *node_ids: str) -> RayEngine:
    """Return an engine whose machines are the nodes a and b."""
    cluster = Cluster.attach(address)
    machines = dict(zip(("a", "b"), node_ids, strict=True))
    variables = {"TEST_MARK": os.environ.get("TEST_MARK", ""), "TEST_WITNESS": os.environ.get("TEST_WITNESS", "")}

    return RayEngine(
        cluster,
        lambda machine: next(node for node in cluster.nodes() if node.id == machines[machine]),
        {"CPU": 1.0},
        folder / "run",
        f"study-{folder.name}",
        TARGET,
        variables,
        trials=folder / "trials",
    )


def run(trial: int, do: str, max_steps: int = 3) -> Run:
    return Run(trial, 1, {"do": do}, 0, ("loss",), max_steps, 7, f"/on the driver/trials/{trial}", 2)


def left_on(two: Nodes, folder: Path, inside: str = "") -> list[Path]:
    """Return the folders of actors on all nodes, or files in them. `folder`: that of make()."""
    return list(two.folder.glob(f"apart-*/thriftune-*/study-{folder.name}/*/{inside}"))


def printed(two: Nodes, folder: Path) -> list[str]:
    """Return the output of all attempts in the files on the nodes."""
    return sorted(path.read_text() for path in left_on(two, folder, "trials/*/output/*"))


def spooled(two: Nodes, folder: Path) -> bytes:
    """Return the events in all spool files on the nodes."""
    return b"".join(path.read_bytes() for path in left_on(two, folder, "spools/*"))


def test_output_arrives_while_a_trial_runs(open_engine: Open, tmp_path: Path) -> None:
    """Also that of the second worker."""
    engine = open_engine()
    engine.start(run(0, "wait_for_notice"), {"a": 1, "b": 1})
    trial = tmp_path / "trials" / "0"
    wait_until(
        engine, lambda _: [read_output(trial, 1, rank) for rank in (0, 1)] == ["waiting 0\n", "waiting 1\n"]
    )
    engine.give_notice(0, 1, 30.0)
    assert isinstance(wait_for_end(engine, 0)[-1], Ended)
    assert attempts_with_output(trial, 1) == [1]


def test_a_notice_waits_for_the_start_of_the_workers(two: Nodes, open_engine: Open) -> None:
    engine = open_engine()
    cluster = Cluster.attach(two.address)
    claim = cluster.claim({"CPU": 2.0}, {NODE: two.running[1]})
    eventually(lambda: claim.node() is not None, "b is taken")
    engine.start(run(0, "wait_for_notice", max_steps=1), {"a": 1, "b": 1})
    engine.start(run(1, "wait_for_notice", max_steps=1), {"b": 1})
    for trial in range(2):
        engine.give_notice(trial, 1, 300.0)
        engine.give_notice(trial, 1, 200.0)  # the deadline has changed
    assert engine.wait(0.5) == []
    claim.end()
    events = wait_for_end(engine, 0, 1)
    for trial in range(2):
        report, end = events_of(events, trial)
        assert isinstance(end, Ended)
        assert 100.0 < report.metrics["left"] < 199.5


def test_the_output_of_a_lost_worker_is_read_from_its_node(two: Nodes, open_engine: Open, tmp_path: Path) -> None:
    engine = open_engine()
    engine.start(run(0, "sleep"), {"b": 1})
    wait_until(engine, lambda _: engine.status()[0].pid is not None)
    (pid,) = [status.pid for status in engine.status()]
    assert pid is not None
    eventually(lambda: printed(two, tmp_path) == ["asleep\n"], "the trial has begun")
    os.kill(pid, signal.SIGKILL)
    (lost,) = wait_for_end(engine, 0)
    assert isinstance(lost, Lost)
    assert read_output(tmp_path / "trials" / "0", 1) == "asleep\n"


def test_nothing_is_left_on_the_nodes_after_close(two: Nodes, open_engine: Open, tmp_path: Path) -> None:
    engine = open_engine()
    engine.start(run(0, "train"), {"a": 1})
    engine.start(run(1, "raise_error"), {"b": 1})
    wait_for_end(engine, 0, 1)
    assert len(left_on(two, tmp_path)) == 2
    engine.wait(0.0)  # all events are recorded
    engine.close()
    eventually(lambda: left_on(two, tmp_path) == [], "the folders are removed")


def test_the_next_driver_gets_what_a_killed_one_has_left_on_the_nodes(
    two: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = os.urandom(8).hex()
    witnesses = two.folder / mark
    witnesses.mkdir()
    monkeypatch.setenv("TEST_MARK", mark)
    monkeypatch.setenv("TEST_WITNESS", str(witnesses))
    code = f"""
import time
from pathlib import Path
from tests.engines.ray.test_node_folders import make, run
engine = make({two.address!r}, Path({str(tmp_path)!r}), *{two.running!r})
engine.recover()
engine.open()
engine.start(run(0, "train", max_steps=10**6), {{"a": 1}})
engine.start(run(1, "raise_error"), {{"b": 1}})
engine.start(run(2, "wait_for_notice"), {{"b": 1}})
time.sleep(600)
"""
    driver = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    done = witnesses / "0-steps_done"
    try:
        eventually(lambda: done.exists() and done.stat().st_size > 200, "steps are done")
        eventually(lambda: printed(two, tmp_path) == ["about to raise\n", "waiting 0\n"], "all have begun")
        eventually(lambda: b"deliberate" in spooled(two, tmp_path), "trial 1 has failed")
    finally:
        driver.kill()
        driver.wait()
    engine = make(two.address, tmp_path, *two.running)
    events = engine.recover()
    wait_for_no_process(f"TEST_MARK={mark}")
    steps = [event.step for event in events_of(events, 0) if isinstance(event, Reported)]
    assert steps == list(range(1, len(steps) + 1))
    assert len(done.read_text().splitlines()) - len(steps) in (0, 1)
    assert [type(event).__name__ for event in ends(events)] == ["Failed"]
    assert read_output(tmp_path / "trials" / "1", 1) == "about to raise\n"
    assert read_output(tmp_path / "trials" / "2", 1) == "waiting 0\n"
    assert engine.recover() == events  # nothing is removed before the events are recorded
    assert read_output(tmp_path / "trials" / "1", 1) == "about to raise\n"
    engine.open()
    assert left_on(two, tmp_path) == []
    engine.close()
    assert isinstance(events_of(events, 1)[-1], END)
