"""Tests of profiling on the nodes of a real cluster."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engines.conformance import TARGET
from tests.support.ray_clusters import nodes
from thriftune.clouds.ray.cluster import Cluster
from thriftune.launch.profiling import _Watch, measure
from thriftune.launch.ray_profiling import OnCluster
from thriftune.settings.engine_options import Ray
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Choice
from thriftune.space.space import Space
from thriftune.state.events import Event, Failed, Lost, Reported
from thriftune.state.spec import Spec, Target
from thriftune.training.run import Run

pytestmark = pytest.mark.cluster


def test_two_profiles_of_one_name_measured_at_the_same_time_do_not_interfere(tmp_path: Path) -> None:
    events: list[Event] = []
    with nodes(2) as ray_nodes:
        cluster = Cluster.attach(ray_nodes.address)
        first, second = (OnCluster(cluster, Ray(), "a", TARGET, tmp_path / n, print) for n in "xy")
        with first.opened([], 1), first.engine(tmp_path, 1) as (engine, workers):
            engine.start(_run(tmp_path / "x"), workers)
            while not events:
                events += engine.wait(1.0)
            with second.opened([], 1), second.engine(tmp_path, 1) as (other, other_workers):
                other.start(_run(tmp_path / "y"), other_workers)
                other_events: list[Event] = []
                while not other_events:
                    other_events += other.wait(1.0)
                assert isinstance(other_events[0], Reported)
            deadline = time.monotonic() + 2.0
            while time.monotonic() < deadline:
                events += engine.wait(0.2)
        cluster.detach()
    assert not [event for event in events if isinstance(event, (Lost, Failed))]
    assert all(not list(folder.glob(".profile*")) for folder in (tmp_path / "x", tmp_path / "y"))


def test_the_worker_of_a_trial_that_did_not_end_is_free_for_the_next_trial(tmp_path: Path) -> None:
    """All measured trials on a cluster share an engine."""
    config = {"do": "count", "pause": 3600.0}
    with nodes(1) as ray_nodes:
        cluster = Cluster.attach(ray_nodes.address)
        bench = OnCluster(cluster, Ray(), "a", TARGET, tmp_path, print)
        bench.starts_within = 0.0
        with bench.opened([], 1):
            watch = _Watch(bench, 1, 5.0, print)
            for attempt in (1, 2):
                run = replace(_run(tmp_path / "x"), config=config, attempt=attempt)
                assert watch.attempt(run, least_seconds=1.0, least_steps=1).ended is None
            next_run = replace(_run(tmp_path / "x"), attempt=3)
            assert watch.attempt(next_run, least_seconds=0.0, least_steps=1).ended is not None
        cluster.detach()


def _run(folder: Path) -> Run:
    return Run(0, 1, {"do": "count", "pause": 0.1}, 0, ("loss",), 100_000, 7, str(folder / "trial"), 2)


def test_nodes_that_share_no_folder_are_measured(tmp_path: Path) -> None:
    """A trial's second attempt may run elsewhere, so its start from a checkpoint is not measured."""
    with nodes() as ray_nodes:
        ray_nodes.add_apart(1, tmp_path)
        cluster = Cluster.attach(ray_nodes.address)
        target = Target("function", where=str(TARGET["where"]), folder=str(TARGET["folder"]))
        space, loss = Space({"do": Choice(["train"])}), Objective("loss", maximize=False)
        spec = Spec("a", space, (loss,), 7, max_steps=100, target=target)
        bench = OnCluster(cluster, Ray(), "a", TARGET, tmp_path, print, on_nodes=True)
        with bench.opened([], 1):
            times = measure(spec, [1], 1.0, 1, print, bench)
        cluster.detach()
    assert times.profile.seconds_per_step[1] > 0.0
    assert not list(tmp_path.glob(".profile*"))
