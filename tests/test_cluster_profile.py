"""A bench on the nodes of a real cluster, where others may measure at the same time."""

from __future__ import annotations

import time
from pathlib import Path

from tests.engines.conformance import TARGET
from tests.ray_clusters import nodes
from thriftune.cluster import Cluster
from thriftune.cluster_profile import OnCluster
from thriftune.engines.choice import Ray
from thriftune.events import Event, Failed, Lost, Reported
from thriftune.trial import Run


def test_two_who_measure_at_the_same_time_leave_each_other_alone(tmp_path: Path) -> None:
    """Also where both studies have the same name."""
    told: list[Event] = []
    with nodes(2) as there:
        cluster = Cluster.attach(there.address)
        first, second = (OnCluster(cluster, Ray(), "a", TARGET, tmp_path / n, print) for n in "xy")
        with first.opened([], 1), first.engine(tmp_path, 1) as (engine, where):
            engine.start(_run(tmp_path / "x"), where)
            while not told:
                told += engine.wait(1.0)
            with second.opened([], 1), second.engine(tmp_path, 1) as (other, there_too):
                other.start(_run(tmp_path / "y"), there_too)
                found: list[Event] = []
                while not found:
                    found += other.wait(1.0)
                assert isinstance(found[0], Reported)
            deadline = time.monotonic() + 2.0
            while time.monotonic() < deadline:
                told += engine.wait(0.2)
        cluster.detach()
    assert not [event for event in told if isinstance(event, (Lost, Failed))]
    assert all(not list(folder.glob(".profile*")) for folder in (tmp_path / "x", tmp_path / "y"))


def _run(folder: Path) -> Run:
    return Run(0, 1, {"do": "count", "pause": 0.1}, 0, ("loss",), 100_000, 7, str(folder / "trial"), 2)
