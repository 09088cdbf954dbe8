"""What do lifetimes mean for jobs? SciSpot's policies of reuse, judged by machines they do not know, and its bag.

Ages and lengths of jobs are hours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thriftune.market.billing import GCP_PREEMPTIBLE
from thriftune.market.lifetime import Bathtub, KaplanMeier, Lifetime, Lifetimes, fit_lifetime
from thriftune.market.reuse import reuse
from thriftune.market.running_time import expected_hours, failure_probability, scispot_eq10
from thriftune.market.synthetic import synthetic_lifetimes
from thriftune.provisioning.workload import Workload
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.traces import RentalConditions, Trace, TypeData, speed_with_cores, trace_from_lifetimes
from thriftune.replay.what_if import PolicySummary, ReplayedStudy, compare_policies
from thriftune.search.random import Random
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state.spec import Spec

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LIFETIMES_FILE = "gcp_preemptions_2019_us-central1-c.csv.gz"
SIZES = (2, 4, 8, 16, 32)
"""Cores of the machines of Figure 2a."""
FEWEST = 30  # revocations, for a type to be judged
ON_DEMAND_A_CORE, PREEMPTIBLE_A_CORE = 0.03545, 0.0075
"""Dollars an hour, of n1-highcpu machines in 2019."""
JOBS = np.arange(0.5, 12.01, 0.5)
AGES = np.arange(0.0, 24.0, 0.25)
FITS = tuple(Bathtub(part, early, 0.8, 24.0, 24.0) for part, early in ((0.4, 0.5), (0.45, 1.0), (0.5, 1.5)))
"""The range of the paper's fits, section 3.2.1: the smallest A and tau1, some between, and the largest."""
RESTART_HOURS = 0.1  # of jobs that save checkpoints
BAG_JOBS, BAG_AT_A_TIME, BAG_MINUTES = 1000, 64, 14.0


# --- lifetimes


def made_up_lifetimes(sizes: Sequence[int], machines: int, rng: np.random.Generator) -> Lifetimes:
    """So many machines of each size, called synthetic-2 and so on."""
    told = [synthetic_lifetimes(machines, rng, cores=cores) for cores in sizes]
    types = np.repeat([f"synthetic-{cores}" for cores in sizes], machines)
    hours, ended = (np.concatenate(part) for part in zip(*told, strict=True))
    return Lifetimes(types, np.full(len(types), "zone"), np.zeros(len(types), dtype=bool), hours, ended)


def judged_types(lives: Lifetimes) -> dict[int, str]:
    """By cores: those of the paper's sizes of which enough was seen."""
    found = {int(type.rpartition("-")[2]): type for type in lives.types if type.rpartition("-")[2].isdigit()}
    return {
        cores: type
        for cores, type in sorted(found.items())
        if cores in SIZES and lives.ended[lives.type == type].sum() >= FEWEST
    }


# --- reuse


@dataclass(frozen=True)
class Judged:
    """What comes of a policy: by age and length of the job, the probability that a job fails, and the expected
    hours over its length. NaN at ages that no machine was seen to reach."""

    failure: Floats
    hours: Floats


def judged(model: Lifetime, bathtub: Bathtub, truth: KaplanMeier) -> dict[str, Judged]:
    """For JOBS on machines of AGES, if these live as `truth` says.

    - memoryless: keeps the machine whatever its age.
    - ours: keeps it where the job is done sooner there, by `model`.
    - knowing: the same by the truth itself.
    - least: has the fewest failures there can be, whatever time it takes.
    - printed: the paper's rule, Eq. 10, by its bathtub.
    """
    reached = np.asarray(truth.survival(AGES)) > 0.0
    ages = AGES[reached][:, None]
    fails, fresh_fails = (np.asarray(failure_probability(truth, JOBS, age)) for age in (ages, 0.0))
    takes, fresh_takes = (np.asarray(expected_hours(truth, JOBS, age)) for age in (ages, 0.0))
    kept = {
        "memoryless": np.ones_like(fails, dtype=bool),
        "ours": np.asarray(reuse(model, JOBS, ages)),
        "knowing": np.asarray(reuse(truth, JOBS, ages)),
        "least": fails <= fresh_fails,
        "printed": np.asarray(scispot_eq10(bathtub, JOBS, ages)) <= np.asarray(scispot_eq10(bathtub, JOBS, 0.0)),
    }

    def filled(values: Floats) -> Floats:
        every = np.full((len(AGES), len(JOBS)), np.nan)
        every[reached] = values
        return every

    return {
        name: Judged(filled(np.where(keep, fails, fresh_fails)), filled(np.where(keep, takes, fresh_takes) / JOBS))
        for name, keep in kept.items()
    }


def by_halves(lives: Lifetimes, type: str, known: Lifetime | None = None) -> list[dict[str, Judged]]:
    """Decided by one half of a type's machines, with the other types as relatives, and judged by the other half;
    and the other way round. `known`: decides in place of what would be fitted."""
    own = lives.type == type
    order = np.random.default_rng(0).permutation(np.flatnonzero(own))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    told = []
    for fitted, seen in (halves, halves[::-1]):
        hours, ended = lives.hours[fitted], lives.ended[fitted]
        model = known or fit_lifetime(hours, ended, relatives=[(lives.hours[~own], lives.ended[~own])])
        bathtub = Bathtub.fit(hours, ended, by="least_squares")
        told.append(judged(model, bathtub, KaplanMeier.fit(lives.hours[seen], lives.ended[seen])))
    return told


def mean_of(halves: Sequence[Mapping[str, Judged]], policy: str, part: str = "failure") -> float:
    """Over all jobs, and all ages that machines reach; each half counts as much."""
    return float(np.mean([np.nanmean(getattr(each[policy], part)) for each in halves]))


# --- a bag of jobs


@dataclass(frozen=True)
class Bag:
    """What a bag of jobs comes to under one policy. `overhead`: the time that lost machines took, over the time of
    the jobs. `lost`: how often a job lost its machine."""

    policy: str
    dollars: float
    spread: float
    seconds: float
    overhead: float
    lost: float


def preemptible(lives: Lifetimes) -> Trace:
    """Machines at the list's prices, which are taken away as these were."""
    cores = {type: int(type.rpartition("-")[2]) for type in lives.types}
    cores = {type: each for type, each in cores.items() if each in SIZES}
    types = {type: TypeData(speed_with_cores(each), ON_DEMAND_A_CORE * each) for type, each in cores.items()}
    spot = {type: PREEMPTIBLE_A_CORE * each for type, each in cores.items()}
    return trace_from_lifetimes(lives, types, spot, RentalConditions(notice_seconds=30.0))


def bag(trace: Trace, jobs: int, seeds: int, told: Callable[[str], object] = lambda _: None) -> list[Bag]:
    """Jobs as the paper's Nanoconfinement, on one machine each: 14 minutes on 16 cores. Each is one step, so that
    a job whose machine is lost is done again from its beginning. On demand first."""
    trace = trace.billed(GCP_PREEMPTIBLE)
    speed = next(kind.speed for kind in trace.kinds if kind.name.endswith("-16"))
    seconds = 60.0 * BAG_MINUTES * speed
    curve = Curve([1], [{"loss": 1.0}], [seconds])
    spec = Spec("bag", Space({"x": Float(0.0, 1.0)}), (Objective("loss", False),), 0, trials=jobs, max_steps=1)
    asked = ReplayedStudy(spec, lambda: lambda _: curve, Random, lambda: None)
    terms = Workload(BAG_AT_A_TIME, jobs, seconds_per_step=seconds, restart_seconds=10.0)
    found = compare_policies(asked, trace, ["on_demand", "reuse", "thrifty"], terms, seeds=seeds, on_progress=told)
    return [_bag(each) for each in found]


def _bag(found: PolicySummary) -> Bag:
    stays = [trial.past_attempts for outcome in found.outcomes for trial in outcome.replayed.result.trials]
    spent = sum(stay.ended_at - stay.started_at for own in stays for stay in own)
    useful = sum(own[-1].ended_at - own[-1].started_at for own in stays)
    lost = sum(len(own) - 1 for own in stays) / len(stays)
    return Bag(found.policy, found.cost, found.cost_spread, found.duration, spent / useful - 1.0, lost)
