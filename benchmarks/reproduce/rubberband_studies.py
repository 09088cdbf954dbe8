"""RubberBand's simulated studies, sections 6.1.1 to 6.1.4, and Table 2.

Each study varies one value in a few settings and computes the cost of every planner's plan. Machines are
p3.8xlarge with 4 accelerators, at $12.24 per hour. Deadlines are met on average, as in the paper. The paper's
scaling of training was not published, so a recorded or a synthetic one is used. Only the paper's mean times of 4
and 12 s per step with one worker are used.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from thriftune.errors import SettingError
from thriftune.planning import CloudProfile, JobSpec, Plan, Profile, frontier, successive_halving
from thriftune.planning.plan_finder import Planner, plan

PLANNERS: tuple[Planner, ...] = ("static", "naive_elastic", "greedy", "exact")
CLOUD = CloudProfile(slots=4, price_per_hour=12.24, max_machines=256)
WORKERS = (1, 2, 4, 8, 16)
IMAGENET_GB, CIFAR_GB = 150.0, 0.15
SCALING_FILE = "throughputs_scalability.csv.gz"

Costs = Mapping[str, float]
"""Dollars by planner; NaN if the planner cannot meet the deadline."""
Scaling = Callable[[int, int], float]
"""A function of the images per step and the number of workers; it returns the time of a step in any unit."""


@dataclass(frozen=True)
class Study:
    """The costs of plans over several values of one variable."""

    name: str
    title: str
    label: str  # the name of the variable
    each: str  # the format of one value
    values: Sequence[float]
    costs: Mapping[str, Sequence[Costs]]  # by setting, one element per value
    deadline_seconds: float | None = None  # None if the study varies the deadline

    def ratios(self, setting: str, one: str, other: str) -> list[float]:
        """Return the cost of planner `one` divided by that of `other`, at each value."""
        return [costs[one] / costs[other] for costs in self.costs[setting]]


# --- the studies


def stragglers(scaling: Scaling, quick: bool) -> Study:
    """Vary the differences between trials (6.1.1, Figure 9).

    The paper gives no deadline. Ours is 1.5 times the quickest plan at the largest variation.
    """
    job, stds = successive_halving(64, 4, 508), _some((0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0), quick)
    profiles = [_profile(scaling, 512, 4.0, std) for std in stds]
    deadline = 1.5 * frontier(job, profiles[-1], CLOUD, points=2)[0].duration
    costs = {}
    for billing in ("per_instance", "per_function"):
        cloud = replace(CLOUD, billing=billing)
        costs[billing] = [_costs(job, profile, cloud, deadline) for profile in profiles]
    title = "Figure 9: stragglers, SHA(64, 4, 508)"
    return Study("stragglers", title, "std of a trial's seconds a step", "std {:g} s", stds, costs, deadline)


def data_price(scaling: Scaling, quick: bool) -> Study:
    """Vary the price of data (6.1.2, Figure 10).

    The paper gives no deadline. Ours is 1.1 times the quickest plan.
    """
    job, prices = successive_halving(64, 4, 508), _some((0.0, 0.01, 0.02, 0.04, 0.08, 0.16), quick)
    profile = _profile(scaling, 512, 4.0)
    deadline = 1.1 * frontier(job, profile, CLOUD, points=2)[0].duration
    costs = {}
    for name, size in (("ImageNet, 150 GB", IMAGENET_GB), ("CIFAR-10, 150 MB", CIFAR_GB)):
        clouds = [replace(CLOUD, data_gb=size, data_price=price) for price in prices]
        costs[name] = [_costs(job, profile, cloud, deadline) for cloud in clouds]
    title = "Figure 10: the price of data, SHA(64, 4, 508)"
    return Study("data price", title, "dollars a gigabyte", "${:g} a GB", prices, costs, deadline)


def trials(scaling: Scaling, quick: bool) -> Study:
    """Vary the number of trials (6.1.3, Figure 11)."""
    counts = _some((16.0, 32.0, 64.0, 128.0, 256.0, 512.0), quick)
    jobs = [successive_halving(int(n), 4, 508) for n in counts]
    profile, deadline = _profile(scaling, 512, 4.0), 1200.0
    costs = {}
    for billing in ("per_instance", "per_function"):
        cloud = replace(CLOUD, billing=billing)
        costs[billing] = [_costs(job, profile, cloud, deadline) for job in jobs]
    title = "Figure 11: the number of trials, SHA(n, 4, 508), 20 minutes"
    return Study("trials", title, "trials", "{:g}", counts, costs, deadline)


def waits(scaling: Scaling, quick: bool) -> Study:
    """Vary the deadline and the wait for machines (6.1.4, Figure 12).

    The first deadline is the tightest that can be met with every wait. The paper's 90 to 160 minutes fit its own
    scaling.
    """
    job, profile = successive_halving(512, 4, 4096), _profile(scaling, 2048, 12.0)
    inits = (1.0, 10.0, 100.0)
    quickest = max(frontier(job, profile, replace(CLOUD, init=each), points=2)[0].duration for each in inits)
    times = _some((1.005, 1.02, 1.05, 1.11, 1.22, 1.33, 1.44, 1.56, 1.67, 1.78), quick)
    deadlines = [each * quickest for each in times]
    costs = {
        f"{init:g} s to initialise": [
            _costs(job, profile, replace(CLOUD, init=init), deadline) for deadline in deadlines
        ]
        for init in inits
    }
    title, minutes = "Figure 12: waits for machines, SHA(512, 4, 4096)", [each / 60.0 for each in deadlines]
    return Study("waits", title, "deadline, minutes", "{:.0f} min", minutes, costs)


STUDIES: tuple[Callable[[Scaling, bool], Study], ...] = (stragglers, data_price, trials, waits)


# --- Table 2


@dataclass(frozen=True)
class Deadlines:
    """The plans of Table 2."""

    epoch_seconds: float  # with one worker
    plans: Mapping[int, Mapping[str, Plan]]  # by deadline in minutes, and by planner


def deadlines(scaling: Scaling, static_dollars: float) -> Deadlines:
    """Plan ResNet-101 for 20, 30 and 40 minutes (Table 2).

    The job is SHA(32, 1, 50, eta 3), with 15 s to initialise. The paper does not give the time of an epoch. It is
    chosen such that the fixed cluster for 40 minutes costs `static_dollars`.
    """
    job, cloud = successive_halving(32, 1, 50, 3), replace(CLOUD, init=15.0, minimum=60.0)

    def planned(seconds: float, minutes: int, planner: Planner) -> Plan:
        profile = _profile(scaling, 1024, seconds)
        return plan(job, profile, cloud, deadline=60.0 * minutes, planner=planner, probability=0.0)

    def excess_dollars(seconds: float) -> float:
        return planned(seconds, 40, "static").cost - static_dollars

    seconds = float(brentq(excess_dollars, 30.0, 130.0, xtol=0.01))
    plans = {
        minutes: {str(planner): planned(seconds, minutes, planner) for planner in PLANNERS}
        for minutes in (20, 30, 40)
    }
    return Deadlines(seconds, plans)


# --- the scaling of training


def amdahl_scaling(batch: int, workers: int) -> float:
    """Return the time of a step by Amdahl's law.

    The serial part takes as long as 100 images on one worker. This is about the recorded scaling of ResNet-50 from
    512 to 2048 images.
    """
    return 100.0 + (batch - 100.0) / workers


def recorded(file: Path) -> Scaling:
    """Return the recorded scaling of ResNet-50 on ImageNet.

    Machines have 8 accelerators. Up to 8 workers are on one machine, and 16 on two. A worker has batch / workers
    images per step. If these do not fit into its memory, it accumulates gradients.
    """
    records = _read(file)

    def seconds(batch: int, workers: int) -> float:
        sizes, steps, syncs = records[workers]
        local = batch / workers
        passes = math.ceil(local / sizes[-1])  # only the last pass is synchronised
        step, sync = (float(np.interp(local / passes, sizes, times)) for times in (steps, syncs))
        return step + (passes - 1) * (step - sync)

    return seconds


def _read(file: Path) -> dict[int, tuple[list[float], list[float], list[float]]]:
    """Return three lists by number of workers.

    They are images per worker, seconds per step, and synchronisation seconds.
    """
    records: dict[int, list[tuple[float, float, float]]] = {}
    try:
        with gzip.open(file, "rt") as lines:
            for row in csv.DictReader(lines):
                workers, nodes = int(row["num_replicas"]), int(row["num_nodes"])
                if (row["app"], row["cluster"]) == ("imagenet", "dgx-ext") and nodes == max(1, workers // 8):
                    record = float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])
                    records.setdefault(workers, []).append(record)
    except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise SettingError(
            f"{file}: is not a record of step times ({error!r}); get the file again, or remove it"
        ) from None
    if missing := sorted(set(WORKERS) - set(records)):
        raise SettingError(f"{file}: has no step times for {missing} workers; get the file again, or remove it")
    return {
        workers: ([each[0] for each in rows], [each[1] for each in rows], [each[2] for each in rows])
        for workers, rows in ((workers, sorted(each)) for workers, each in records.items())
    }


# --- helpers


def _some(values: tuple[float, ...], quick: bool) -> tuple[float, ...]:
    return (values[0], values[-1]) if quick else values


def _profile(scaling: Scaling, batch: int, seconds: float, std: float = 0.0) -> Profile:
    """Return the profile of trials whose steps take `seconds` with one worker."""
    alone = scaling(batch, 1)
    return Profile({workers: seconds * scaling(batch, workers) / alone for workers in WORKERS}, std=std)


def _costs(job: JobSpec, profile: Profile, cloud: CloudProfile, deadline: float) -> Costs:
    costs = {}
    for planner in PLANNERS:
        try:
            costs[str(planner)] = plan(
                job, profile, cloud, deadline=deadline, planner=planner, probability=0.0
            ).cost
        except SettingError:
            costs[str(planner)] = math.nan
    return costs
