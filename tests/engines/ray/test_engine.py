"""Tests the Ray engine on a real cluster with one node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conformance import TARGET, EngineConformance
from thriftune.clouds.ray.cluster import Cluster
from thriftune.engines.ray.engine import RayEngine

pytestmark = pytest.mark.cluster

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.attach()
    yield cluster
    cluster.detach()


@pytest.fixture(autouse=True)
def address(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    request.instance.cluster = cluster


class TestRayEngine(EngineConformance):
    cluster: Cluster

    def make(self, folder: Path, slots: int) -> RayEngine:
        return make(Cluster.attach(), folder, slots)

    def make_code(self, folder: Path, slots: int) -> str:
        return (
            f"__import__('tests.engines.ray.test_engine').engines.ray.test_engine.make("
            "__import__('thriftune.clouds.ray.cluster').clouds.ray.cluster.Cluster.attach("
            f"{self.cluster.address!r}), "
            f"__import__('pathlib').Path({str(folder)!r}), {slots})"
        )


def make(cluster: Cluster, folder: Path, slots: int) -> RayEngine:
    (node,) = cluster.nodes()
    variables = {"TEST_MARK": os.environ.get("TEST_MARK", "")}
    worker = {"CPU": 2.0 / max(2, slots)}
    return RayEngine(cluster, lambda _: node, worker, folder / "run", "test", TARGET, variables)
