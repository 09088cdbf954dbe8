"""RubberBand's end-to-end experiment in the small: does an elastic plan cost as much less as was predicted?

Successive halving of a real network, on real Ray nodes that the real autoscaler starts and ends; the best elastic
plan against the best fixed number of machines, by the same deadline. A step is measured on the cluster with 1, 2,
4, ... workers, both plans are made from that, and both are carried out once a seed, in turn, each beginning with
no node. Cost: what the nodes' lives come to, by the second, until the autoscaler has ended them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.common import ROOT, Row, main, say

PRICE = 0.192  # of an m5.xlarge on demand; each node of the experiment says that it is one
KIND = "m5.xlarge_on-demand"
IDLE_SECONDS = 2.0
BAR_POINTS, BAR_OFF = 0.05, 0.10


@dataclass(frozen=True)
class Settings:
    trials: int = 8
    first: int = 4
    last: int = 64
    eta: int = 4
    slots: int = 1  # of a node, each with a core
    most: int = 2  # nodes at a time
    seeds: int = 3
    slack: float = 1.15  # the deadline, over the duration of the quickest plan
    seconds: float = 10.0  # of measuring, for each number of workers
    width: int = 1024
    batches: int = 16


def measure(options: argparse.Namespace) -> list[Row]:
    from tests.ray_clusters import autoscaled, node_type
    from thriftune.cluster import INSTANCE_TYPE, MARKET

    cores = len(os.sched_getaffinity(0))
    # Each worker has a core to itself, or two of them would be measured as one is not.
    settings = Settings() if cores < 8 else Settings(trials=16, slots=2, most=cores // 4)
    if options.quick:
        settings = replace(settings, trials=4, first=1, last=4, eta=2, seeds=1, seconds=3.0, width=256, batches=2)
    labels = {INSTANCE_TYPE: "m5.xlarge", MARKET: "on-demand"}
    types = {KIND: node_type(settings.slots, labels=labels, most=settings.most)}
    apart = os.environ.get("BENCHMARK_ALONE") is None
    with autoscaled(types, idle_seconds=IDLE_SECONDS, most=settings.most, apart=apart) as cluster:
        say(f"a cluster of up to {settings.most} nodes with {settings.slots} CPUs each")
        output = cluster.run(Path(__file__), "inside", json.dumps(asdict(settings)), seconds=3000.0, echo=True)
    found = rows(json.loads(output.splitlines()[-1]))
    return [replace(row, met=None) for row in found] if options.quick else found


def rows(found: dict[str, Any]) -> list[Row]:
    made = []
    for name in ("elastic", "static"):
        each = found[name]
        seconds, dollars = mean(each["seconds"]), mean(each["dollars"])
        off = seconds / each["predicted_seconds"] - 1.0, dollars / each["predicted_dollars"] - 1.0
        figure = (
            f"{each['predicted_seconds']:.0f} s and ${each['predicted_dollars']:.4f} predicted; measured "
            f"{seconds:.0f} s ({off[0]:+.1%}) and ${dollars:.4f} ({off[1]:+.1%}); machines {each['machines']}"
        )
        made.append(Row(f"{name}", figure, "within 10 %", max(map(abs, off)) <= BAR_OFF, each))
    predicted = 1.0 - found["elastic"]["predicted_dollars"] / found["static"]["predicted_dollars"]
    saved = [
        1.0 - ours / theirs
        for ours, theirs in zip(found["elastic"]["dollars"], found["static"]["dollars"], strict=True)
    ]
    figure = f"{mean(saved):.1%} cheaper ({', '.join(f'{each:.1%}' for each in saved)}); {predicted:.1%} predicted"
    met = mean(saved) >= predicted - BAR_POINTS
    made.append(Row("elastic against static, same deadline", figure, "predicted less 5 points", met, found))
    late = [each for name in ("elastic", "static") for each in found[name]["seconds"] if each > found["deadline"]]
    made.append(Row(f"deadline of {found['deadline']:.0f} s", f"missed in {len(late)} of {2 * len(saved)} runs"))
    return made


# --- inside of the cluster ----------------------------------------------------------------------------------


def inside(settings: Settings) -> dict[str, Any]:
    from thriftune.cluster import Cluster
    from thriftune.cluster_kinds import kinds_of
    from thriftune.cluster_profile import OnCluster
    from thriftune.engines.choice import Ray
    from thriftune.launch import make_spec
    from thriftune.parameters import Float
    from thriftune.plan_file import job_of
    from thriftune.planning.choosing import frontier, plan
    from thriftune.planning.cloud import awaited
    from thriftune.planning.profile import Profile
    from thriftune.profiling import measure as profiled
    from thriftune.profiling import powers_of_two
    from thriftune.spec import Target
    from thriftune.stopping.halving import SuccessiveHalving

    table = {"name": KIND, "slots": settings.slots, "price_per_hour": PRICE, "max_machines": settings.most}
    variables = {"BENCHMARK_WIDTH": str(settings.width), "BENCHMARK_BATCHES": str(settings.batches)}
    where = Ray(address=os.environ["RAY_ADDRESS"], machines=[table], variables=variables)
    cluster = Cluster.attach(where.address)
    kinds = kinds_of(where.machines, where.worker, ROOT)
    rule = SuccessiveHalving(eta=settings.eta, min_steps=settings.first)
    target = Target("function", where="benchmarks.cluster.network:train", folder=str(ROOT))
    space = {"lr": Float(1e-3, 0.3, log=True), "momentum": Float(0.0, 0.95)}
    spec = make_spec(
        space, name="rubberband", minimize="loss", maximize=None, searcher="random", stopping=rule, seed=0,
        target=target, trials=settings.trials, max_steps=settings.last, engine=where,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="rubberband-") as scratch:
        bench = OnCluster(cluster, where, "rubberband", asdict(target), Path(scratch), say)
        most = settings.slots * settings.most  # so that it is known how long it takes for all nodes to come
        with bench.opened(kinds, most):
            measured = profiled(spec, powers_of_two(most), settings.seconds, 2, say, bench)
        profile: Profile = bench.with_waits(measured.profile)
        say(f"profile: {profile.to_json()}")
        # A node that was let go is billed until the autoscaler has found it idle and ended it: each once, so that
        # it is planned as the price of data is.
        lingers = IDLE_SECONDS + 1.0
        kinds = [
            replace(kind, data_gb=1.0, data_price=lingers * PRICE / 3600.0)
            for kind in awaited(kinds, profile.queue, profile.init)
        ]
        job, _ = job_of(spec)
        quickest = min(each.duration for each in frontier(job, profile, kinds))
        deadline = settings.slack * quickest
        plans = {
            "elastic": plan(job, profile, kinds, deadline=deadline, probability=0.0),
            "static": plan(job, profile, kinds, deadline=deadline, planner="static", probability=0.0),
        }
        found: dict[str, Any] = {"deadline": deadline, "profile": profile.to_json()}
        for name, each in plans.items():
            machines = [stage.machines for stage in each.stages]
            stages = [asdict(stage) for stage in each.stages]
            found[name] = {
                "predicted_seconds": each.duration, "predicted_dollars": each.cost, "machines": machines,
                "stages": stages, "seconds": [], "dollars": [], "best": [],
            }  # fmt: skip
            say(f"{name}: {each.duration:.0f} s, ${each.cost:.4f}, machines {machines}")
        for seed in range(settings.seeds):
            for name in plans:
                _wait_until_empty(cluster)
                folder = Path(scratch) / f"{name}-{seed}"
                seconds, dollars, best = carried_out(plans[name], replace(spec, seed=seed), where, cluster, folder)
                say(f"seed {seed}, {name}: {seconds:.1f} s, ${dollars:.4f}, best loss {best:.4f}")
                found[name]["seconds"].append(seconds)
                found[name]["dollars"].append(dollars)
                found[name]["best"].append(best)
        return found


def carried_out(plan: Any, spec: Any, where: Any, cluster: Any, folder: Path) -> tuple[float, float, float]:
    """Seconds, dollars and the best loss of a study that follows the plan."""
    from thriftune.clock import WallClock
    from thriftune.clouds.ray import RayCloud
    from thriftune.cluster_kinds import node_types
    from thriftune.conductor import Conductor
    from thriftune.driver import Driver
    from thriftune.engines.ray import RayEngine
    from thriftune.planning.elastic import PlanFollower
    from thriftune.progress import make_view
    from thriftune.search import SEARCHERS
    from thriftune.stopping import STOPPERS
    from thriftune.store import open_store

    kinds = [choice.cloud for choice in plan.choices]
    folder.mkdir()
    with open_store(folder / "study.db", create=True) as store:
        store.create(spec.name, spec.to_json(), time.time(), [])
        spec = replace(spec, storage=str(folder), id=f"{folder.name}")
        history = spec.new_history()
        stopper = STOPPERS.make(spec.stopping, spec.stopping_options)
        conductor = Conductor(
            spec, history, SEARCHERS.make("random", {}), PlanFollower(plan, machines_fail=True), stopper
        )
        types = node_types(kinds[:1], where.worker)
        cloud = RayCloud(cluster, spec.id, where.worker, types=types)
        engine = RayEngine(
            cluster, cloud.node_of, where.worker, folder / "run", spec.id, asdict(spec.target), where.variables
        )
        began = time.time()
        with store.drive(spec.name), make_view(spec, False) as view:
            Driver(store, conductor, engine, cloud, WallClock(), view).run()
        seconds = time.time() - began
    assert history.finished is not None
    failed = [trial.error for trial in history.trials if trial.failures or trial.losses]
    assert not failed, failed
    best = history.best.value
    assert best is not None
    return seconds, history.dollars(time.time()), best


def _wait_until_empty(cluster: Any) -> None:
    while any(node.resources.get("CPU") for node in cluster.nodes()):
        time.sleep(0.2)


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        print(json.dumps(inside(Settings(**json.loads(sys.argv[2])))))
    else:
        raise SystemExit(main(measure))
