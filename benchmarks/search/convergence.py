"""Measures how many trials `stop_when_converged` saves, and how much regret it costs.

Each run has a fixed number of trials, one at a time. Where the study would have stopped is noted on the way, by
the rule that studies use. Regret is normalised: 0 is the optimum, 1 the median random configuration. Runs on test
functions, not on the development ones by which the rule's constants were chosen.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

import thriftune as tt
from benchmarks.common import Row, main, say
from benchmarks.run_files import parse_numbers
from benchmarks.search import problems
from thriftune.loop.completion import converged

NAMES = ("branin", "hartmann6", "ackley5", "rosenbrock4", "levy8", "network", "optimizer")
SEEDS = parse_numbers("0-4")
TRIALS = 80
REGRET_LOST_BAR = 0.01
"""The bar for the mean loss of a function's runs: 1 % of the gain over a random configuration."""


class Run(NamedTuple):
    """The trial at which a study converged, and the regret of its best trial there and at the last trial."""

    stopped_at: int  # the number of trials
    regret_there: float
    regret_at_last: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=parse_numbers, default=SEEDS, help="such as 0-4 (the default) or 0,3")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; each has one thread")


def run_one(job: tuple[str, int, int]) -> Run:
    name, seed, trials = job
    problem = problems.get(name)
    searcher = tt.search.Bayes()
    study = tt.Study(tt.Space.from_json(problem.parameters), minimize="loss", seed=seed, searcher=searcher)
    rng = np.random.default_rng(seed)
    stopped_at, there, regret = 0, 0.0, 0.0
    for number in range(1, trials + 1):
        trial = study.ask()
        trial.expected_gain = searcher.expected_gain(study.history)
        study.tell(trial, problem.function(trial.config) + problem.noise * rng.standard_normal())
        regret = problem.regret(problem.function(study.best.config))
        if not stopped_at and converged(study.history):
            stopped_at, there = number, regret
    return Run(stopped_at or trials, there if stopped_at else regret, regret)


def measure(options: argparse.Namespace) -> list[Row]:
    names, seeds, trials = (NAMES[:1], [0], 12) if options.quick else (NAMES, options.seeds, TRIALS)
    jobs = [(name, seed, trials) for name in names for seed in seeds]
    for name in names:
        say(
            f"{name}: the median of its values is {problems.get(name).median:.4g}"
        )  # computed once here, not in each process
    with ProcessPoolExecutor(max_workers=options.jobs) as pool:
        found = list(pool.map(run_one, jobs))
    rows = []
    for name in names:
        runs = [run for job, run in zip(jobs, found, strict=True) if job[0] == name]
        ends = ", ".join(str(run.stopped_at) for run in runs)
        there, last = (float(np.mean(values)) for values in list(zip(*runs, strict=True))[1:])
        rows.append(
            Row(
                f"{name}: trials of {trials} until the search has converged",
                f"{ends}; regret {there:.4f}, at {trials} {last:.4f}",
                f"<= {REGRET_LOST_BAR} lost",
                None if options.quick else there - last <= REGRET_LOST_BAR,
                {"runs": runs},
            )
        )
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure, further=add_options))
