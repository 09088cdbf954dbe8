"""RubberBand's four simulated studies (6.1.1 to 6.1.4): what do stragglers, data, trials and waits cost?

Scaling is that of ResNet-50 on ImageNet, as recorded on machines of 8 accelerators (throughputs_scalability,
cluster dgx-ext: 1, 2, 4, 8 on one machine, 16 on two), at a fixed batch: the step time at batch / workers images a
worker, with gradient accumulation where these do not fit. The paper's own was not published; only its means, 4 and
12 s a step with one worker, are taken over. Machines are p3.8xlarge: 4 accelerators, $12.24 an hour. Deadlines are
made on average, as in the paper. Where it does not give one, that is said in the row. Plots go to out/planning.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import OUT, Row, main, say
from benchmarks.search.tables import data
from thriftune.errors import SettingError
from thriftune.pictures import INK, SERIES, dollar_axis, legend, picture
from thriftune.planning import CloudProfile, JobSpec, Profile, frontier, successive_halving
from thriftune.planning.choosing import Planner, plan

PLANNERS: tuple[Planner, ...] = ("static", "naive_elastic", "greedy", "exact")
CLOUD = CloudProfile(slots=4, price_per_hour=12.24, max_machines=256)
WORKERS = (1, 2, 4, 8, 16)
IMAGENET_GB, CIFAR_GB = 150.0, 0.15

Costs = dict[str, float]  # by planner; NaN where it cannot make the deadline


def measure(options: argparse.Namespace) -> list[Row]:
    studies = (_stragglers, _data, _trials, _waits)
    rows = []
    for study in studies:
        rows += study(options.quick)
        say(f"{study.__name__.strip('_')}: done")
    if not options.quick:
        return rows
    return [replace(row, met=None) for row in rows]


# --- 6.1.1


def _stragglers(quick: bool) -> list[Row]:
    job = successive_halving(16, 4, 60) if quick else successive_halving(64, 4, 508)
    stds = (1.0, 10.0) if quick else (0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    worst = _profile(512, 4.0, quick, stds[-1])
    deadline = 1.5 * frontier(job, worst, CLOUD, points=2)[0].duration
    found: dict[str, list[Costs]] = {}
    for billing in ("per_instance", "per_function"):
        cloud = replace(CLOUD, billing=billing)
        found[billing] = [_costs(job, _profile(512, 4.0, quick, std), cloud, deadline) for std in stds]
    rows = [
        _row(f"stragglers, {billing}, std {std:g} s", costs)
        for billing, each in found.items()
        for std, costs in zip(stds, each, strict=True)
    ]
    _plot("stragglers", quick, "std of a trial's seconds a step", stds, found)
    ratios = [a["exact"] / b["exact"] for a, b in zip(found["per_instance"], found["per_function"], strict=True)]
    figure = f"{ratios[0]:.2f} times as dear at std {stds[0]:g} s, {ratios[-1]:.2f} at {stds[-1]:g}; "
    figure += f"deadline {deadline / 60:.0f} min, 1.5 times the quickest at the largest"
    about = "stragglers: per instance against per function, exact"
    return [*rows, Row(about, figure, "dearer, the more so the larger std is", ratios[-1] > 1.2 * ratios[0])]


# --- 6.1.2


def _data(quick: bool) -> list[Row]:
    job = successive_halving(16, 4, 60) if quick else successive_halving(64, 4, 508)
    prices = (0.0, 0.16) if quick else (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)
    profile = _profile(512, 4.0, quick)
    deadline = 1.1 * frontier(job, profile, CLOUD, points=2)[0].duration
    found: dict[str, list[Costs]] = {}
    for name, size in (("ImageNet, 150 GB", IMAGENET_GB), ("CIFAR-10, 150 MB", CIFAR_GB)):
        clouds = [replace(CLOUD, data_gb=size, data_price=price) for price in prices]
        found[name] = [_costs(job, profile, cloud, deadline) for cloud in clouds]
    rows = [
        _row(f"data price, {name}, ${price:g} a GB", costs)
        for name, each in found.items()
        for price, costs in zip(prices, each, strict=True)
    ]
    _plot("data price", quick, "dollars a gigabyte", prices, found)
    gains = {name: [_gain(costs) for costs in each] for name, each in found.items()}
    shown = "; ".join(f"{name} {each[0]:.2f} to {each[-1]:.2f}" for name, each in gains.items())
    large, small = gains.values()
    met = large[-1] < large[0] and abs(small[-1] / small[0] - 1.0) < 0.1 and min(large) >= 1.0
    about = "data price: how many times as dear static is, from the lowest to the highest price"
    bar = "falls for the large dataset, stays for the small one, never below 1"
    return [*rows, Row(about, f"{shown}; deadline {deadline / 60:.0f} min", bar, met)]


# --- 6.1.3


def _trials(quick: bool) -> list[Row]:
    counts = (16, 32) if quick else (16, 32, 64, 128, 256, 512)
    jobs = [successive_halving(n, 4, 60 if quick else 508) for n in counts]
    profile, deadline = _profile(512, 4.0, quick), 1200.0
    found: dict[str, list[Costs]] = {}
    for billing in ("per_instance", "per_function"):
        cloud = replace(CLOUD, billing=billing)
        found[billing] = [_costs(job, profile, cloud, deadline) for job in jobs]
    rows = [
        _row(f"trials, {billing}, {n}", costs)
        for billing, each in found.items()
        for n, costs in zip(counts, each, strict=True)
    ]
    _plot("trials", quick, "trials", counts, found)
    saved = [costs["static"] - costs["exact"] for costs in found["per_instance"]]
    figure = f"saved against static, per instance: {', '.join(f'${each:.2f}' for each in saved)}; 20 min"
    met = saved[-1] > saved[0] and min(saved) >= -1e-9
    return [*rows, Row("trials: what elasticity saves", figure, "grows with the number of trials", met)]


# --- 6.1.4


def _waits(quick: bool) -> list[Row]:
    job = successive_halving(16, 4, 60) if quick else successive_halving(512, 4, 4096)
    profile = _profile(2048, 12.0, quick)
    inits = (1.0, 100.0) if quick else (1.0, 10.0, 100.0)
    # The tightest that all make: so that of every wait the same deadlines can be compared.
    quickest = max(frontier(job, profile, replace(CLOUD, init=each), points=2)[0].duration for each in inits)
    times = (1.005, 1.78) if quick else (1.005, 1.02, 1.05, 1.11, 1.22, 1.33, 1.44, 1.56, 1.67, 1.78)
    deadlines = [each * quickest for each in times]
    found = {
        f"{init:g} s to initialise": [
            _costs(job, profile, replace(CLOUD, init=init), deadline) for deadline in deadlines
        ]
        for init in inits
    }
    rows = [
        _row(f"waits, {name}, {deadline / 60:.0f} min", costs)
        for name, each in found.items()
        for deadline, costs in zip(deadlines, each, strict=True)
    ]
    _plot("waits", quick, "deadline, minutes", [each / 60.0 for each in deadlines], found)
    gains = {name: [_gain(costs) for costs in each] for name, each in found.items()}
    tightest = ", ".join(f"{name} {each[0]:.2f}" for name, each in gains.items())
    about = "waits: how many times as dear static is at the tightest deadline"
    figure = f"{tightest}; tightest {deadlines[0] / 60:.0f} min, the paper has 90 to 160 min on its scaling"
    least = min(each[0] for each in gains.values())
    first, last = (next(iter(gains.values())), list(gains.values())[-1])
    middle = len(deadlines) // 2
    fall = f"static over exact at {deadlines[middle] / 60:.0f} min: {first[middle]:.2f} to {last[middle]:.2f}"
    return [
        *rows,
        Row(about, figure, "at least 2", least >= 2.0),
        Row(
            "waits: the advantage, from the shortest to the longest wait",
            fall,
            "falls",
            last[middle] < first[middle],
        ),
        Row(
            "waits: the advantage, by the deadline, from the tightest to the slackest",
            f"{first[0]:.2f} to {first[-1]:.2f}",
            "falls",
            first[-1] < first[0],
        ),
    ]


# --- what they share


def _costs(job: JobSpec, profile: Profile, cloud: CloudProfile, deadline: float) -> Costs:
    found: Costs = {}
    for planner in PLANNERS:
        try:
            found[planner] = plan(job, profile, cloud, deadline=deadline, planner=planner, probability=0.0).cost
        except SettingError:
            found[planner] = math.nan
    return found


def _gain(costs: Costs) -> float:
    return costs["static"] / costs["exact"]


def _row(what: str, costs: Costs) -> Row:
    figure = ", ".join(f"{name} {'-' if math.isnan(each) else f'${each:.2f}'}" for name, each in costs.items())
    best = min(each for each in costs.values() if not math.isnan(each))
    return Row(what, figure, "exact never dearer", costs["exact"] <= best * (1.0 + 1e-9), dict(costs))


def _plot(name: str, quick: bool, label: str, values: Sequence[float], found: dict[str, list[Costs]]) -> None:
    path = OUT / "planning" / ("quick" if quick else "") / f"{name.replace(' ', '_')}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(Path(path), f"RubberBand's study of {name}", len(found)) as panels:
        for axes, (title, each) in zip(panels, found.items(), strict=True):
            for i, planner in enumerate(PLANNERS):
                style: Any = {"color": INK, "linewidth": 2.4} if planner == "exact" else {"color": SERIES[i]}
                costs = [costs[planner] for costs in each]
                axes.plot(values, costs, "o-", markersize=4, label=planner.replace("_", " "), **style)
            axes.set(xlabel=label, ylabel="expected cost", title=title)
            dollar_axis(axes, log=True)
            legend(axes, columns=2)


def _profile(batch: int, seconds: float, quick: bool, std: float = 0.0) -> Profile:
    """As recorded; where it is only to be seen that all of this runs, made up."""
    recorded = {workers: workers**-0.8 if quick else _step_seconds(batch, workers) for workers in WORKERS}
    return Profile({workers: seconds * each / recorded[1] for workers, each in recorded.items()}, std=std)


def _step_seconds(batch: int, workers: int) -> float:
    """At so many images over all workers; in several parts, of which only the last is synchronised, if need be."""
    sizes, steps, syncs = _recorded()[workers]
    local = batch / workers
    parts = math.ceil(local / sizes[-1])
    step, sync = (float(np.interp(local / parts, sizes, each)) for each in (steps, syncs))
    return step + (parts - 1) * (step - sync)


@cache
def _recorded() -> dict[int, tuple[list[float], list[float], list[float]]]:
    """By workers: images of a worker, seconds of a step, and of it those that workers wait for each other."""
    found: dict[int, list[tuple[float, float, float]]] = {}
    with gzip.open(data() / "throughputs_scalability.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            workers, nodes = int(row["num_replicas"]), int(row["num_nodes"])
            if (row["app"], row["cluster"]) == ("imagenet", "dgx-ext") and nodes == max(1, workers // 8):
                told = tuple(float(row[name]) for name in ("local_bsz", "step_time", "sync_time"))
                found.setdefault(workers, []).append(told)  # type: ignore[arg-type]
    return {w: tuple(map(list, zip(*sorted(each), strict=True))) for w, each in found.items()}  # type: ignore[misc]


if __name__ == "__main__":
    raise SystemExit(main(measure))
