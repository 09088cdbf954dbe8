"""SciSpot's studies: its reuse policies and its bag of jobs.

Policies are evaluated on held-out machines. Ages and job lengths are hours.
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
from thriftune.provisioning.workload import StudyWorkload
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
MIN_PREEMPTIONS = 30  # of a machine type that is evaluated
ON_DEMAND_PER_CORE, PREEMPTIBLE_PER_CORE = 0.03545, 0.0075
"""Dollars per hour for n1-highcpu machines in 2019."""
JOBS = np.arange(0.5, 12.01, 0.5)
AGES = np.arange(0.0, 24.0, 0.25)
FITS = tuple(Bathtub(part, early, 0.8, 24.0, 24.0) for part, early in ((0.4, 0.5), (0.45, 1.0), (0.5, 1.5)))
"""The range of the paper's fits, section 3.2.1: the smallest A and tau1, medium ones, and the largest."""
RESTART_HOURS = 0.1  # of jobs with checkpoints
BAG_JOBS, BAG_PARALLEL_JOBS, BAG_MINUTES = 1000, 64, 14.0


# --- lifetimes


def synthetic_record(sizes: Sequence[int], machines: int, rng: np.random.Generator) -> Lifetimes:
    """Return a synthetic record with `machines` machines of each size.

    Their types are named synthetic-2 and so on.
    """
    samples = [synthetic_lifetimes(machines, rng, cores=cores) for cores in sizes]
    types = np.repeat([f"synthetic-{cores}" for cores in sizes], machines)
    hours, ended = (np.concatenate(arrays) for arrays in zip(*samples, strict=True))
    return Lifetimes(types, np.full(len(types), "zone"), np.zeros(len(types), dtype=bool), hours, ended)


def judged_types(lives: Lifetimes) -> dict[int, str]:
    """Return the paper's machine types with enough preemptions, by cores."""
    type_of_cores = {
        int(type.rpartition("-")[2]): type for type in lives.types if type.rpartition("-")[2].isdigit()
    }
    return {
        cores: type
        for cores, type in sorted(type_of_cores.items())
        if cores in SIZES and lives.ended[lives.type == type].sum() >= MIN_PREEMPTIONS
    }


# --- reuse


@dataclass(frozen=True)
class Judged:
    """The results of a policy, by machine age and job length.

    They are NaN at ages that no observed machine reached.
    """

    failure: Floats  # the probability that the job fails
    hours: Floats  # the expected hours, divided by the job length


def judged(model: Lifetime, bathtub: Bathtub, truth: KaplanMeier) -> dict[str, Judged]:
    """Evaluate the policies for JOBS on machines of AGES.

    `truth` is the true survival of the machines.

    - memoryless: always reuses the machine.
    - ours: reuses it if the job is expected to end no later there, by `model`.
    - knowing: the same with `truth` as the model.
    - least: has the fewest possible failures, whatever the time.
    - printed: the paper's rule, Eq. 10, with its bathtub.
    """
    reached = np.asarray(truth.survival(AGES)) > 0.0
    ages = AGES[reached][:, None]
    fails, fresh_fails = (np.asarray(failure_probability(truth, JOBS, age)) for age in (ages, 0.0))
    takes, fresh_takes = (np.asarray(expected_hours(truth, JOBS, age)) for age in (ages, 0.0))
    reused = {
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
        name: Judged(
            filled(np.where(reuses, fails, fresh_fails)), filled(np.where(reuses, takes, fresh_takes) / JOBS)
        )
        for name, reuses in reused.items()
    }


def by_halves(lives: Lifetimes, type: str, known: Lifetime | None = None) -> list[dict[str, Judged]]:
    """Evaluate the policies by cross-validation on halves of a type's machines.

    The model is fitted to one half, with the other types as relatives, and evaluated on the other half. `known` is
    a model to use instead of the fitted one.
    """
    own = lives.type == type
    order = np.random.default_rng(0).permutation(np.flatnonzero(own))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    results = []
    for fitted, evaluated in (halves, halves[::-1]):
        hours, ended = lives.hours[fitted], lives.ended[fitted]
        model = known or fit_lifetime(hours, ended, relatives=[(lives.hours[~own], lives.ended[~own])])
        bathtub = Bathtub.fit(hours, ended, by="least_squares")
        truth = KaplanMeier.fit(lives.hours[evaluated], lives.ended[evaluated])
        results.append(judged(model, bathtub, truth))
    return results


def mean_of(halves: Sequence[Mapping[str, Judged]], policy: str, part: str = "failure") -> float:
    """Return the mean over all jobs and all reached ages.

    Both halves have the same weight.
    """
    return float(np.mean([np.nanmean(getattr(each[policy], part)) for each in halves]))


# --- a bag of jobs


@dataclass(frozen=True)
class Bag:
    """The results of a bag of jobs under one policy."""

    policy: str
    dollars: float
    spread: float  # standard deviation of the dollars over seeds
    seconds: float
    overhead: float  # time spent on lost machines, divided by the time of the jobs
    lost: float  # mean number of times that a job lost its machine


def preemptible(lives: Lifetimes) -> Trace:
    """Return a trace of preemptible machines at list prices.

    They are preempted as the recorded machines were.
    """
    cores = {type: int(type.rpartition("-")[2]) for type in lives.types}
    cores = {type: each for type, each in cores.items() if each in SIZES}
    types = {type: TypeData(speed_with_cores(each), ON_DEMAND_PER_CORE * each) for type, each in cores.items()}
    spot = {type: PREEMPTIBLE_PER_CORE * each for type, each in cores.items()}
    return trace_from_lifetimes(lives, types, spot, RentalConditions(notice_seconds=30.0))


def bag(trace: Trace, jobs: int, seeds: int, progress: Callable[[str], object] = lambda _: None) -> list[Bag]:
    """Simulate a bag of jobs under three policies, on-demand first.

    The jobs are like the paper's Nanoconfinement, but on one machine each: 14 minutes on 16 cores. Each job is one
    step, so a job that loses its machine starts again.
    """
    trace = trace.billed(GCP_PREEMPTIBLE)
    speed = next(kind.speed for kind in trace.kinds if kind.name.endswith("-16"))
    seconds = 60.0 * BAG_MINUTES * speed
    curve = Curve([1], [{"loss": 1.0}], [seconds])
    spec = Spec("bag", Space({"x": Float(0.0, 1.0)}), (Objective("loss", False),), 0, trials=jobs, max_steps=1)
    replayed_study = ReplayedStudy(spec, lambda: lambda _: curve, Random, lambda: None)
    terms = StudyWorkload(BAG_PARALLEL_JOBS, jobs, seconds_per_step=seconds, restart_seconds=10.0)
    comparisons = compare_policies(
        replayed_study, trace, ["on_demand", "reuse", "thrifty"], terms, seeds=seeds, on_progress=progress
    )
    return [_bag(each) for each in comparisons]


def _bag(comparison: PolicySummary) -> Bag:
    attempts = [trial.past_attempts for outcome in comparison.outcomes for trial in outcome.replayed.result.trials]
    spent = sum(attempt.ended_at - attempt.started_at for job in attempts for attempt in job)
    useful = sum(job[-1].ended_at - job[-1].started_at for job in attempts)
    lost = sum(len(job) - 1 for job in attempts) / len(attempts)
    return Bag(
        comparison.policy,
        comparison.cost,
        comparison.cost_spread,
        comparison.duration,
        spent / useful - 1.0,
        lost,
    )
