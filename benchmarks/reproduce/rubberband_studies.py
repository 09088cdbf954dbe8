"""What do stragglers, data, trials and waits cost? RubberBand's simulated studies, 6.1.1 to 6.1.4, and Table 2.

Each study varies one thing in a few settings, and asks what the plan of every planner costs. Machines are
p3.8xlarge: 4 accelerators, $12.24 an hour. Deadlines are made on average, as in the paper. How training scales was
not published: it is recorded elsewhere, or made up. Only the paper's means, 4 and 12 s a step with one worker, are
taken over.
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
from thriftune.planning.choosing import Planner, plan

PLANNERS: tuple[Planner, ...] = ("static", "naive_elastic", "greedy", "exact")
CLOUD = CloudProfile(slots=4, price_per_hour=12.24, max_machines=256)
WORKERS = (1, 2, 4, 8, 16)
IMAGENET_GB, CIFAR_GB = 150.0, 0.15
SCALING_FILE = "throughputs_scalability.csv.gz"

Costs = Mapping[str, float]
"""Dollars by planner; NaN where it cannot make the deadline."""
Scaling = Callable[[int, int], float]
"""How long a step of so many images takes with so many workers; the unit makes no difference."""


@dataclass(frozen=True)
class Study:
    """What was varied, over which values, and by setting what each planner's plan costs at each of them.

    `label`: what a value is. `each`: how one is written. `deadline_seconds`: None where this is what was varied.
    """

    name: str
    title: str
    label: str
    each: str
    values: Sequence[float]
    costs: Mapping[str, Sequence[Costs]]
    deadline_seconds: float | None = None

    def ratios(self, setting: str, one: str, other: str) -> list[float]:
        """How many times as dear the one planner's plan is as the other's, at each value."""
        return [costs[one] / costs[other] for costs in self.costs[setting]]


# --- the studies


def stragglers(scaling: Scaling, quick: bool) -> Study:
    """6.1.1, Figure 9. The paper gives no deadline: 1.5 times the quickest plan at the largest variation."""
    job, stds = successive_halving(64, 4, 508), _some((0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0), quick)
    profiles = [_profile(scaling, 512, 4.0, std) for std in stds]
    deadline = 1.5 * frontier(job, profiles[-1], CLOUD, points=2)[0].duration
    found = {}
    for billing in ("per_instance", "per_function"):
        cloud = replace(CLOUD, billing=billing)
        found[billing] = [_costs(job, profile, cloud, deadline) for profile in profiles]
    title = "Figure 9: stragglers, SHA(64, 4, 508)"
    return Study("stragglers", title, "std of a trial's seconds a step", "std {:g} s", stds, found, deadline)


def data_price(scaling: Scaling, quick: bool) -> Study:
    """6.1.2, Figure 10. The paper gives no deadline: 1.1 times the quickest plan."""
    job, prices = successive_halving(64, 4, 508), _some((0.0, 0.01, 0.02, 0.04, 0.08, 0.16), quick)
    profile = _profile(scaling, 512, 4.0)
    deadline = 1.1 * frontier(job, profile, CLOUD, points=2)[0].duration
    found = {}
    for name, size in (("ImageNet, 150 GB", IMAGENET_GB), ("CIFAR-10, 150 MB", CIFAR_GB)):
        clouds = [replace(CLOUD, data_gb=size, data_price=price) for price in prices]
        found[name] = [_costs(job, profile, cloud, deadline) for cloud in clouds]
    title = "Figure 10: the price of data, SHA(64, 4, 508)"
    return Study("data price", title, "dollars a gigabyte", "${:g} a GB", prices, found, deadline)


def trials(scaling: Scaling, quick: bool) -> Study:
    """6.1.3, Figure 11."""
    counts = _some((16.0, 32.0, 64.0, 128.0, 256.0, 512.0), quick)
    jobs = [successive_halving(int(n), 4, 508) for n in counts]
    profile, deadline = _profile(scaling, 512, 4.0), 1200.0
    found = {}
    for billing in ("per_instance", "per_function"):
        cloud = replace(CLOUD, billing=billing)
        found[billing] = [_costs(job, profile, cloud, deadline) for job in jobs]
    title = "Figure 11: the number of trials, SHA(n, 4, 508), 20 minutes"
    return Study("trials", title, "trials", "{:g}", counts, found, deadline)


def waits(scaling: Scaling, quick: bool) -> Study:
    """6.1.4, Figure 12. Deadlines from the tightest that can be made with every wait: the paper's, 90 to 160
    minutes, are of its own scaling."""
    job, profile = successive_halving(512, 4, 4096), _profile(scaling, 2048, 12.0)
    inits = (1.0, 10.0, 100.0)
    quickest = max(frontier(job, profile, replace(CLOUD, init=each), points=2)[0].duration for each in inits)
    times = _some((1.005, 1.02, 1.05, 1.11, 1.22, 1.33, 1.44, 1.56, 1.67, 1.78), quick)
    deadlines = [each * quickest for each in times]
    found = {
        f"{init:g} s to initialise": [
            _costs(job, profile, replace(CLOUD, init=init), deadline) for deadline in deadlines
        ]
        for init in inits
    }
    title, minutes = "Figure 12: waits for machines, SHA(512, 4, 4096)", [each / 60.0 for each in deadlines]
    return Study("waits", title, "deadline, minutes", "{:.0f} min", minutes, found)


STUDIES: tuple[Callable[[Scaling, bool], Study], ...] = (stragglers, data_price, trials, waits)


# --- Table 2


@dataclass(frozen=True)
class Deadlines:
    """Table 2: plans by deadline in minutes and planner. `epoch_seconds`: with one worker, as was found."""

    epoch_seconds: float
    plans: Mapping[int, Mapping[str, Plan]]


def deadlines(scaling: Scaling, anchor: float) -> Deadlines:
    """ResNet-101, SHA(32, 1, 50, eta 3), 15 s to initialise, for 20, 30 and 40 minutes.

    How long an epoch takes is not in the paper: as long as makes the fixed cluster for 40 minutes cost `anchor`
    dollars.
    """
    job, cloud = successive_halving(32, 1, 50, 3), replace(CLOUD, init=15.0, minimum=60.0)

    def planned(seconds: float, minutes: int, planner: Planner) -> Plan:
        profile = _profile(scaling, 1024, seconds)
        return plan(job, profile, cloud, deadline=60.0 * minutes, planner=planner, probability=0.0)

    def too_dear(seconds: float) -> float:
        return planned(seconds, 40, "static").cost - anchor

    seconds = float(brentq(too_dear, 30.0, 130.0, xtol=0.01))
    plans = {
        minutes: {str(planner): planned(seconds, minutes, planner) for planner in PLANNERS}
        for minutes in (20, 30, 40)
    }
    return Deadlines(seconds, plans)


# --- how training scales


def made_up(batch: int, workers: int) -> float:
    """By Amdahl, with a part of each step that takes as long as 100 images on one worker, however many there are:
    about what was recorded of ResNet-50, from 512 to 2048 images."""
    return 100.0 + (batch - 100.0) / workers


def recorded(file: Path) -> Scaling:
    """ResNet-50 on ImageNet, on machines of 8 accelerators: 1, 2, 4, 8 on one machine, 16 on two.

    A step at batch / workers images a worker, with gradient accumulation where these do not fit.
    """
    known = _read(file)

    def seconds(batch: int, workers: int) -> float:
        sizes, steps, syncs = known[workers]
        local = batch / workers
        parts = math.ceil(local / sizes[-1])  # of which only the last is synchronised
        step, sync = (float(np.interp(local / parts, sizes, each)) for each in (steps, syncs))
        return step + (parts - 1) * (step - sync)

    return seconds


def _read(file: Path) -> dict[int, tuple[list[float], list[float], list[float]]]:
    """By workers: images of a worker, seconds of a step, and of it those that workers wait for each other."""
    found: dict[int, list[tuple[float, float, float]]] = {}
    try:
        with gzip.open(file, "rt") as lines:
            for row in csv.DictReader(lines):
                workers, nodes = int(row["num_replicas"]), int(row["num_nodes"])
                if (row["app"], row["cluster"]) == ("imagenet", "dgx-ext") and nodes == max(1, workers // 8):
                    told = float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])
                    found.setdefault(workers, []).append(told)
    except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise SettingError(
            f"{file}: is no record of step times ({error!r}); get it again, or take it away"
        ) from None
    if missing := sorted(set(WORKERS) - set(found)):
        raise SettingError(f"{file}: has no step times of {missing} workers; get it again, or take it away")
    return {
        workers: ([each[0] for each in rows], [each[1] for each in rows], [each[2] for each in rows])
        for workers, rows in ((workers, sorted(each)) for workers, each in found.items())
    }


# --- what they share


def _some(values: tuple[float, ...], quick: bool) -> tuple[float, ...]:
    return (values[0], values[-1]) if quick else values


def _profile(scaling: Scaling, batch: int, seconds: float, std: float = 0.0) -> Profile:
    """`seconds` with one worker."""
    alone = scaling(batch, 1)
    return Profile({workers: seconds * scaling(batch, workers) / alone for workers in WORKERS}, std=std)


def _costs(job: JobSpec, profile: Profile, cloud: CloudProfile, deadline: float) -> Costs:
    found = {}
    for planner in PLANNERS:
        try:
            found[str(planner)] = plan(
                job, profile, cloud, deadline=deadline, planner=planner, probability=0.0
            ).cost
        except SettingError:
            found[str(planner)] = math.nan
    return found
