"""Tests the Ray engine on a real cluster with one node, which shares the driver's folder or sees nothing of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engines.conformance import ON_THIS_MACHINE, TARGET, EngineConformance, wait_for_end
from tests.support.ray_clusters import Nodes, nodes
from thriftune.clouds.ray.cluster import Cluster
from thriftune.engines.protocol import Engine
from thriftune.engines.ray.engine import RayEngine
from thriftune.object_store.urls import parse_object_url
from thriftune.state.events import CheckpointSaved, Ended, Reported
from thriftune.training.run import Run

pytestmark = pytest.mark.cluster

pytest.importorskip("ray")


@pytest.fixture(scope="class")
def this_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start a cluster on this machine for a class of tests."""
    request.cls.cluster = Cluster.attach()
    yield
    request.cls.cluster.detach()


@pytest.fixture(scope="class")
def node_apart(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start a cluster with a node for which the folders of tests are empty."""
    with nodes() as started:
        started.add_apart(2, tmp_path_factory.getbasetemp())
        request.cls.nodes, request.cls.cluster = started, Cluster.attach(started.address)
        yield
        request.cls.cluster.detach()


@pytest.mark.usefixtures("this_machine")
class TestRayEngine(EngineConformance):
    cluster: Cluster

    def make(self, folder: Path, slots: int) -> RayEngine:
        return make(self.cluster, folder, slots)

    def make_code(self, folder: Path, slots: int) -> str:
        return make_code("make", self.cluster, folder, slots)


@pytest.mark.usefixtures("node_apart")
class TestWithoutSharedFolder(EngineConformance):
    """Only the steps that trials have done are written to a folder that node and driver see."""

    cluster: Cluster
    nodes: Nodes

    def make(self, folder: Path, slots: int) -> RayEngine:
        return make_apart(self.cluster, folder, slots, self.steps_done(folder, 0).parent)

    def make_code(self, folder: Path, slots: int) -> str:
        witnesses = self.steps_done(folder, 0).parent
        return make_code("make_apart", self.cluster, folder, slots, witnesses)

    def steps_done(self, folder: Path, trial: int) -> Path:
        witnesses = self.nodes.folder / folder.parent.name
        witnesses.mkdir(exist_ok=True)
        return witnesses / f"{trial}-steps_done"

    def test_an_attempt_resumes_from_its_checkpoint(  # type: ignore[override]
        self, s3_url: str, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        """The checkpoint is in an object store."""
        engine, url = opened(1), str(parse_object_url(s3_url).child("studies").child("1"))
        first = replace(run(0, "train", max_steps=2), objects=url, drive="0123abcd")
        engine.start(first, ON_THIS_MACHINE)
        events = wait_for_end(engine, 0)
        saved = [(event.name, event.step) for event in reversed(events) if isinstance(event, CheckpointSaved)]
        assert saved[0][1] == 2
        second = replace(first, attempt=2, resume_step=2, max_steps=4, checkpoints=saved)
        engine.start(second, ON_THIS_MACHINE)
        *_, end = events = wait_for_end(engine, 0, attempt=2)
        assert isinstance(end, Ended)
        assert [event.step for event in events if isinstance(event, Reported)] == [3, 4]


def make(cluster: Cluster, folder: Path, slots: int) -> RayEngine:
    (node,) = cluster.nodes()
    variables = {"TEST_MARK": os.environ.get("TEST_MARK", "")}
    worker = {"CPU": 2.0 / max(2, slots)}
    return RayEngine(cluster, lambda _: node, worker, folder / "run", "test", TARGET, variables)


def make_apart(cluster: Cluster, folder: Path, slots: int, witnesses: Path) -> RayEngine:
    node = next(node for node in cluster.nodes() if node.resources.get("CPU"))
    variables = {"TEST_MARK": os.environ.get("TEST_MARK", ""), "TEST_WITNESS": str(witnesses)}
    variables |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    worker = {"CPU": 2.0 / max(2, slots)}
    study, trials = f"study-{folder.parent.name}", folder / "trials"
    return RayEngine(cluster, lambda _: node, worker, folder / "run", study, TARGET, variables, trials=trials)


def make_code(function: str, cluster: Cluster, folder: Path, slots: int, *more: Path) -> str:
    """Return an expression that calls one of the functions above in another process."""
    paths = "".join(f", __import__('pathlib').Path({str(each)!r})" for each in more)
    return (
        f"__import__('tests.engines.ray.test_engine').engines.ray.test_engine.{function}("
        "__import__('thriftune.clouds.ray.cluster').clouds.ray.cluster.Cluster.attach("
        f"{cluster.address!r}), "
        f"__import__('pathlib').Path({str(folder)!r}), {slots}{paths})"
    )
