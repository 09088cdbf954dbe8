"""Repeats RubberBand's end-to-end experiment on a small scale: does an elastic plan save as much as predicted?

The job is successive halving of a real network, on real Ray nodes that the real autoscaler starts and ends. The
best elastic plan is compared with the best fixed number of machines, for the same deadline. For each seed, a step
is measured on the cluster with 1, 2, 4, ... workers. Both plans are made from that and carried out, each from a
cluster without nodes. The cost of a node is its price by the second, until the autoscaler has ended it. Nodes that
are released with the last trial count until the study ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.common import ROOT, Row, main, say
from thriftune.planning.plan_finder import Planner

PRICE = 0.192  # dollars per hour of an m5.xlarge on demand, which each node claims to be
KIND = "m5.xlarge_on-demand"
IDLE_SECONDS = 2.0
BAR_POINTS, BAR_OFF = 0.05, 0.10
NAMES: dict[str, Planner] = {"elastic": "exact", "static": "static"}
UNITS = ("seconds", "dollars")


@dataclass(frozen=True)
class Settings:
    trials: int = 8
    first: int = 4
    last: int = 64
    eta: int = 4
    slots: int = 1  # of each node, with a core each
    most: int = 2  # nodes at a time
    seeds: int = 3
    slack: float = 1.25  # the deadline, as a multiple of the duration of the quickest plan
    seconds: float = 15.0  # how long to measure each number of workers
    repeats: int = 3  # the number of trials in that time
    width: int = 1024
    batches: int = 16


def measure(options: argparse.Namespace) -> list[Row]:
    from tests.support.ray_clusters import autoscaled, node_type
    from thriftune.clouds.ray.cluster import INSTANCE_TYPE, MARKET

    cores = len(os.sched_getaffinity(0))
    # Each worker needs a core of its own. Otherwise several workers would be slower than one.
    settings = (
        Settings()
        if cores < 8
        else Settings(trials=16, slots=2, most=cores // 4, slack=1.1, batches=24, seconds=8.0)
    )
    if options.quick:
        settings = replace(settings, trials=4, first=1, last=4, eta=2, seeds=1, seconds=3.0, width=256, batches=2)
    labels = {INSTANCE_TYPE: "m5.xlarge", MARKET: "on-demand"}
    types = {KIND: node_type(settings.slots, labels=labels, most=settings.most)}
    apart = os.environ.get("BENCHMARK_ALONE") is None
    with autoscaled(types, idle_seconds=IDLE_SECONDS, most=settings.most, apart=apart) as cluster:
        say(f"a cluster of up to {settings.most} nodes with {settings.slots} CPUs each")
        output = cluster.run(Path(__file__), "inside", json.dumps(asdict(settings)), seconds=3000.0, echo=True)
    report = rows(json.loads(output.splitlines()[-1]))
    return [replace(row, met=None) for row in report] if options.quick else report


def rows(results: Sequence[dict[str, Any]]) -> list[Row]:
    """Return the rows of the report. `results`: the predictions and the measurements of each seed."""
    report = []
    for name in NAMES:
        runs = [each[name] for each in results]
        runs_text = "; ".join(
            f"{run['predicted']['seconds']:.0f} s and ${run['predicted']['dollars']:.4f} predicted, "
            f"{run['seen']['seconds']:.0f} s and ${run['seen']['dollars']:.4f} seen, machines {run['machines']}"
            for run in runs
        )
        off = _off(runs, "predicted")
        met = max(map(abs, off)) <= BAR_OFF
        figure = f"time {off[0]:+.1%}, cost {off[1]:+.1%} ({runs_text})"
        report.append(Row(f"{name}, seen against predicted", figure, "within 10 %", met, {"runs": runs}))
        # The speed of the machine may change after the profile was measured, which the model cannot know.
        off = _off(runs, "at the pace seen")
        figure = f"time {off[0]:+.1%}, cost {off[1]:+.1%}"
        report.append(Row(f"{name}, had steps been measured as they took", figure))
    predicted, saved = ([_saved(each, what) for each in results] for what in ("predicted", "seen"))
    figure = f"{mean(saved):.1%} cheaper ({_each(saved)}); predicted {mean(predicted):.1%} ({_each(predicted)})"
    met = mean(saved) >= mean(predicted) - BAR_POINTS
    report.append(Row("elastic against static, same deadline", figure, "predicted less 5 points", met))
    late = sum(each[name]["seen"]["seconds"] > each["deadline"] for each in results for name in NAMES)
    report.append(Row("deadline", f"missed in {late} of {len(NAMES) * len(results)} runs"))
    return report


def _off(runs: Sequence[dict[str, Any]], model: str) -> list[float]:
    return [mean(run["seen"][unit] / run[model][unit] - 1.0 for run in runs) for unit in UNITS]


def _saved(result: dict[str, Any], what: str) -> float:
    return float(1.0 - result["elastic"][what]["dollars"] / result["static"][what]["dollars"])


def _each(parts: Sequence[float]) -> str:
    return ", ".join(f"{each:.1%}" for each in parts)


# --- in the cluster -----------------------------------------------------------------------------------------


def run_plans(settings: Settings) -> list[dict[str, Any]]:
    """Run both plans for each seed; return the predictions and measurements. Called in the cluster."""
    from thriftune.clouds.ray.cluster import Cluster
    from thriftune.launch.profiling import measure as profiled
    from thriftune.launch.profiling import powers_of_two
    from thriftune.launch.ray_profiling import OnCluster
    from thriftune.planning.cloud_profile import with_default_waits
    from thriftune.planning.cost_model import CostModel
    from thriftune.planning.plan import make_plan
    from thriftune.planning.plan_finder import frontier, plan
    from thriftune.planning.profile import Profile
    from thriftune.planning.study_job import job_of_study
    from thriftune.settings.engine_options import Ray
    from thriftune.settings.make_spec import make_spec
    from thriftune.settings.ray_node_types import read_node_types
    from thriftune.settings.table import Settings
    from thriftune.space.parameters import Float
    from thriftune.state.spec import Target
    from thriftune.stopping.successive_halving import SuccessiveHalving

    table = {"name": KIND, "slots": settings.slots, "price_per_hour": PRICE, "max_machines": settings.most}
    variables = {"BENCHMARK_WIDTH": str(settings.width), "BENCHMARK_BATCHES": str(settings.batches)}
    where = Ray(address=os.environ["RAY_ADDRESS"], machines=[table], variables=variables)
    cluster = Cluster.attach(where.address)
    kinds = read_node_types(where.machines, where.worker, ROOT)
    rule = SuccessiveHalving(eta=settings.eta, min_steps=settings.first)
    target = Target("function", where="benchmarks.cluster.network:train", folder=str(ROOT))
    space = {"lr": Float(1e-3, 0.3, log=True), "momentum": Float(0.0, 0.95)}
    chosen = Settings(
        minimize="loss", searcher="random", stopping=rule, seed=0, trials=settings.trials,
        max_steps=settings.last, engine=where,
    )  # fmt: skip
    spec = make_spec(space, chosen, target=target, name="rubberband")
    job, _ = job_of_study(spec)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rubberband-") as scratch:
        for seed in range(settings.seeds):
            _wait_until_empty(cluster)
            # Measured for each seed: the speed of a shared machine varies over time.
            bench = OnCluster(cluster, where, "rubberband", asdict(target), Path(scratch), say)
            most = settings.slots * settings.most  # so that the start of all nodes is measured
            with bench.opened(kinds, most):
                measured = profiled(spec, powers_of_two(most), settings.seconds, settings.repeats, say, bench)
            profile: Profile = bench.with_waits(measured.profile)
            starts = {row.workers: [trial.startup for trial in row.trials] for row in measured.rows}
            say(f"profile: {profile.to_json()}; a trial starts in, by workers: {starts}")
            # A released node is billed until the autoscaler has found it idle and ended it. That happens once for
            # each node, so it is planned like the price of data.
            lingers = IDLE_SECONDS + 1.0
            planned_kinds = [
                replace(kind, data_gb=1.0, data_price=lingers * PRICE / 3600.0)
                for kind in with_default_waits(kinds, profile.queue, profile.init)
            ]
            quickest = min(each.duration for each in frontier(job, profile, planned_kinds))
            deadline = settings.slack * quickest
            result: dict[str, Any] = {"deadline": deadline, "profile": profile.to_json()}
            for name in list(NAMES)[:: 1 if seed % 2 == 0 else -1]:
                made = plan(job, profile, planned_kinds, deadline=deadline, planner=NAMES[name], probability=0.0)
                machines = [stage.machines for stage in made.stages]
                say(f"seed {seed}, {name}: {made.duration:.1f} s, ${made.cost:.4f} predicted, machines {machines}")
                _wait_until_empty(cluster)
                seen = carry_out(made, replace(spec, seed=seed), where, cluster, Path(scratch) / f"{name}-{seed}")
                say(f"seed {seed}, {name}: {seen['seconds']:.1f} s, ${seen['dollars']:.4f}; {seen['parts']}")
                paces = {**profile.seconds_per_step, **seen["parts"]["seconds a step by workers"]}
                as_seen = CostModel(job, replace(profile, seconds_per_step=paces), made.model.at_a_time)
                again = make_plan(as_seen, made.choices, made.planner)
                result[name] = {
                    "predicted": {"seconds": made.duration, "dollars": made.cost},
                    "at the pace seen": {"seconds": again.duration, "dollars": again.cost},
                    "seen": seen,
                    "machines": machines,
                    "stages": [asdict(stage) for stage in made.stages],
                }
            results.append(result)
    return results


def carry_out(plan: Any, spec: Any, where: Any, cluster: Any, folder: Path) -> dict[str, Any]:
    """Run a study that follows the plan; return its seconds, dollars, best loss and the parts of its time."""
    from thriftune.clouds.ray.cloud import RayCloud
    from thriftune.common.clock import WallClock
    from thriftune.engines.ray.engine import RayEngine
    from thriftune.loop.conductor import Conductor
    from thriftune.loop.driver import Driver
    from thriftune.provisioning.plan_follower import PlanFollower
    from thriftune.search import SEARCHERS
    from thriftune.settings.ray_node_types import node_types
    from thriftune.show.progress import make_view
    from thriftune.stopping import STOPPERS
    from thriftune.store.opening import open_store

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
        parts = parts_of(store.read(spec.name))
    assert history.finish_reason is not None
    failed = [trial.error for trial in history.trials if trial.failures or trial.losses]
    assert not failed, failed
    best = history.best.value
    assert best is not None
    return {"seconds": seconds, "dollars": history.dollars(time.time()), "best": best, "parts": parts}


def parts_of(log: Sequence[Any]) -> dict[str, Any]:
    """Return the seconds of each part of the time, as a profile predicts them."""
    from thriftune.state.events import MachineReady, Place, Rent, Reported

    rented_at: dict[str, float] = {}
    placed: dict[tuple[int, int], Place] = {}
    last: dict[tuple[int, int], Reported] = {}
    comes: list[float] = []
    cold: list[float] = []
    starts: list[float] = []
    steps: dict[int, list[float]] = {}
    warm: set[str] = set()
    for event in log:
        match event:
            case Rent():
                rented_at[event.machine] = event.at
            case MachineReady(machine=machine) if machine in rented_at:
                comes.append(event.at - rented_at[machine])
            case Place():
                placed[event.trial, event.attempt] = event
            case Reported(trial=trial, attempt=attempt):
                place = placed[trial, attempt]
                workers = place.workers or {place.machine: 1}
                before = last.get((trial, attempt))
                if before is None:
                    (starts if warm >= workers.keys() else cold).append(event.at - place.at)
                    warm |= workers.keys()
                elif event.step > before.step:  # the same step is reported again when it is saved later
                    steps.setdefault(sum(workers.values()), []).append(event.at - before.at)
                last[trial, attempt] = event
    return {
        "a node comes after": mean(comes),
        "first report of a cold worker after": mean(cold),
        "and of a warm one": mean(starts) if starts else None,
        "seconds a step by workers": {number: mean(each) for number, each in sorted(steps.items())},
    }


def _wait_until_empty(cluster: Any) -> None:
    while any(node.resources.get("CPU") for node in cluster.nodes()):
        time.sleep(0.2)


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        print(json.dumps(run_plans(Settings(**json.loads(sys.argv[2])))))
    else:
        raise SystemExit(main(measure))
