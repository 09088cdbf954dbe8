"""Measures the effect of each part of the Bayesian search by switching it, one part at a time.

On the `dev` problems, it compares regret after 25 and 50 evaluations with that of the default, paired by problem
and seed. The default's advantage has a 95 % interval by bootstrap over the seeds of each problem. A part "helps"
if the interval is above 0, and "hurts" if it is below. Fantasies are judged with 4 trials at a time, the output
transform also where bad values explode. Cost-awareness is judged on problems where a parameter changes the
duration of a trial, after the mean duration of 25 and 50 random trials.

It does the runs that are not in out/search/ablation.jsonl yet for this state of the searcher's code, which takes
about an hour of one core, and reports all runs. It can be interrupted and started again at any time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import thriftune as tt
from benchmarks.common import Row, main, say
from benchmarks.run_files import Entry, append
from benchmarks.search import make_tables, methods, problems, worker
from benchmarks.search.peer_thriftune import Method
from benchmarks.search.report import best_so_far
from thriftune.search.protocol import Past, Searcher

Array = npt.NDArray[np.float64]
Run = dict[str, Any]
Case = tuple[str, int]
"""A problem and a seed."""

BUDGETS = (25, 50)
DRAWS = 2000
MAX_TRIALS_FACTOR = 4
"""If seconds count, a run has at most this many times the random trials that fit into its time."""

ONE, FOUR, SECONDS, TAILS = "1 at a time", "4 at a time", "by seconds", "where training diverges"


@dataclass(frozen=True)
class Variant:
    """A part of the search that the default has and Bayes(**options) lacks."""

    part: str
    options: Mapping[str, Any]
    setting: str = ONE
    costs: bool = True
    """True if the default is slower or less simple than the variant, so that it has to help."""

    @property
    def name(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.options.items()) or "default"


VARIANTS = (
    Variant("warping", {"warp": False}),
    Variant("slice sampling, not the most likely theta", {"hyperparameters": "map"}),
    Variant("a short chain, not AMT's own", {"draws": 10, "burn_in": 250, "thin": 5}, costs=False),
    Variant("the output transform", {"robust": False}, costs=False),
    Variant("the output transform", {"robust": False}, TAILS),
    Variant("4 first points, not 8", {"initial": 8}, costs=False),
    Variant("fantasies", {"fantasies": False}, FOUR),
    Variant("no cost-awareness", {"cost_aware": True}, SECONDS, costs=False),
)


# --- the duration of a trial


def _trees_seconds(config: Mapping[str, Any]) -> float:
    return 2.0 + 0.05 * float(config["trees"]) * float(config["depth"])


def _mlp_seconds(config: Mapping[str, Any]) -> float:
    """Return the seconds of a network; the levels of its width go from 16 to 1024 by equal factors."""
    width = 16.0 * math.pow(64.0, config["width"] / 9)
    return 2.0 + 1e-4 * float(config["depth"] + 1) * width * math.sqrt(width)


def _kiln_seconds(config: Mapping[str, Any]) -> float:
    return 1.0 + float(config["hours"])


SECONDS_OF: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "trees-diabetes": _trees_seconds,
    "mlp-segment": _mlp_seconds,
    "kiln": _kiln_seconds,
}


@cache
def typical_seconds(name: str) -> float:
    """Return the mean seconds of a random trial of the problem."""
    rng = np.random.default_rng(20260801)
    draws = [problems.draw(problems.get(name).parameters, rng) for _ in range(2000)]
    return float(np.mean([SECONDS_OF[name](config) for config in draws]))


class Timed:
    """A searcher whose trials get the seconds that they would have taken, because no time passes here."""

    def __init__(self, searcher: Searcher, seconds_of: Callable[[Mapping[str, Any]], float]) -> None:
        self._searcher = searcher
        self._seconds_of = seconds_of

    def suggest(self, past: Past, rng: np.random.Generator) -> Mapping[str, Any] | None:
        for trial in past.trials:
            trial.seconds = self._seconds_of(trial.config)
        return self._searcher.suggest(past, rng)


# --- diverging values


def diverging(problem: problems.Problem) -> problems.Problem:
    """Return the problem with values above the median that explode, as a loss does when training diverges."""
    spread = problem.median - problem.optimum

    def function(config: Mapping[str, Any]) -> float:
        value = problem.function(config)
        excess = (value - problem.median) / spread
        return value if excess <= 0.0 else problem.median + spread * math.expm1(min(6.0 * excess, 50.0))

    return replace(problem, function=function)


# --- running


@dataclass(frozen=True)
class Job:
    """One run of a variant, or of the default, which has no options."""

    options: Mapping[str, Any]
    setting: str
    problem: str
    seed: int
    evaluations: int

    @property
    def key(self) -> tuple[str, ...]:
        options = json.dumps(self.options, sort_keys=True)
        return (options, self.setting, self.problem, str(self.seed), str(self.evaluations))


def run(job: Job) -> Run:
    problem = problems.get(job.problem)
    if job.setting == SECONDS:
        done = _run_by_seconds(job, problem)
    else:
        entry = Entry("ablation", methods.OURS, options={"bayes": dict(job.options)})
        posed = diverging(problem) if job.setting == TAILS else problem
        done = worker.run(entry, posed, job.seed, 4 if job.setting == FOUR else 1, job.evaluations)
    return done | {"key": job.key, "version": version()}


def _run_by_seconds(job: Job, problem: problems.Problem) -> Run:
    seconds_of = SECONDS_OF[problem.name]
    searcher = Timed(tt.search.Bayes(**job.options), seconds_of)
    space = tt.Space.from_json(problem.parameters)
    study = tt.Study(space, minimize="value", seed=job.seed, searcher=searcher)
    limit = job.evaluations * typical_seconds(problem.name)
    values: list[float] = []
    seconds: list[float] = []
    asking: list[float] = []
    while sum(seconds) < limit and len(values) < MAX_TRIALS_FACTOR * job.evaluations:
        started = time.process_time()
        trial = study.ask()
        asking.append(round(time.process_time() - started, 5))
        values.append(problem.function(trial.config))
        seconds.append(seconds_of(trial.config))
        study.tell(trial, values[-1])
    return {"problem": problem.name, "values": values, "seconds": seconds, "ask_seconds": asking}


@cache
def version() -> str:
    """Return the version of the searcher's code that this process has imported."""
    return Method({"x": {"type": "float", "low": 0.0, "high": 1.0}}, 0, 1, 1, {}).version


def complete(wanted: Sequence[Job], file: Path, processes: int) -> dict[tuple[str, ...], Run]:
    """Return the runs of these jobs; do the runs that are not in the file, and append each of them to it."""
    found = _read(file)
    missing = [job for job in wanted if job.key not in found]
    say(f"{len(missing)} of {len(wanted)} runs to do")
    # Spawned processes, so that they start with the single thread that worker.py sets.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(run, job) for job in missing]
        try:
            for number, done in enumerate(as_completed(running), 1):
                append(file, done.result())
                if number % 50 == 0:
                    say(f"{number} of {len(missing)} done")
        finally:
            pool.shutdown(cancel_futures=True)
    found = _read(file)
    if not all(job.key in found for job in wanted):
        raise SystemExit("the searcher's code changed during the runs; start again")
    return found


def _read(file: Path) -> dict[tuple[str, ...], Run]:
    now, found = version(), {}
    with contextlib.suppress(FileNotFoundError):
        for line in file.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # one that was being written when it was killed
                done = json.loads(line)
                if done["version"] == now:
                    found[tuple(done["key"])] = done
    return found


# --- judging


def regret(done: Run, budget: int) -> float:
    """Normalised, after so many evaluations, or after as many seconds as so many random ones take."""
    problem = problems.get(done["problem"])
    best = best_so_far(done["values"], done.get("observed"))
    if "seconds" not in done:
        return problem.regret(float(best[budget - 1]))
    ended = int(np.sum(np.cumsum(done["seconds"]) <= budget * typical_seconds(problem.name)))
    return problem.regret(float(best[ended - 1])) if ended else 1.0


def advantage(default: Mapping[Case, float], variant: Mapping[Case, float]) -> tuple[float, float, float, float]:
    """Return the reduction of regret by the default: mean, standard error, and the ends of its 95 % interval.

    Only cases that both have finished count. The bootstrap draws seeds within each problem, so that each problem
    counts the same.
    """
    both: dict[str, list[float]] = {}
    for case in default.keys() & variant.keys():
        both.setdefault(case[0], []).append(variant[case] - default[case])
    rng = np.random.default_rng(0)
    each = [np.sort(differences) for _, differences in sorted(both.items())]
    drawn: Array = np.mean([x[rng.integers(len(x), size=(DRAWS, len(x)))].mean(axis=1) for x in each], axis=0)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(np.mean([x.mean() for x in each])), float(drawn.std()), float(low), float(high)


def verdict(low: float, high: float) -> str:
    """Return what the 95 % interval of the default's advantage says about it."""
    return "helps" if low > 0 else "hurts" if high < 0 else "no difference"


def met(verdicts: Sequence[str], costs: bool) -> bool | None:
    """Return whether the default is right; None if it has to help and the runs do not show that it does."""
    if "hurts" in verdicts:
        return False
    return True if "helps" in verdicts or not costs else None


# --- the benchmark


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=10, help="the number of seeds; 10 by default")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; each has one thread")
    parser.add_argument("--only", default="", help="a part of a variant's name, such as warp")


def measure(options: argparse.Namespace) -> list[Row]:
    if options.quick:
        with tempfile.TemporaryDirectory() as folder:
            return _measure(options, Path(folder) / "ablation.jsonl", ["hartmann3", "kiln"], 1, (5, 6))
    make_tables.make()
    return _measure(options, problems.OUT / "ablation.jsonl", problems.names("dev"), options.seeds, BUDGETS)


def _measure(
    options: argparse.Namespace, file: Path, names: Sequence[str], seeds: int, budgets: tuple[int, int]
) -> list[Row]:
    chosen = [variant for variant in VARIANTS if options.only in variant.name]
    if not chosen:
        raise SystemExit(
            f"--only {options.only}: no such variant; use one of {', '.join(v.name for v in VARIANTS)}"
        )

    def jobs(settings: Mapping[str, Any], setting: str) -> list[Job]:
        there = [name for name in names if setting != SECONDS or name in SECONDS_OF]
        return [Job(settings, setting, name, seed, budgets[-1]) for seed in range(seeds) for name in there]

    settings = dict.fromkeys(variant.setting for variant in chosen)
    wanted = [job for setting in settings for job in jobs({}, setting)]
    wanted += [job for variant in chosen for job in jobs(variant.options, variant.setting)]
    # Sorted by seed, so that a partial result is balanced over the variants.
    done = complete(sorted(wanted, key=lambda job: job.seed), file, options.jobs)
    rows = []
    for setting in settings:
        default = {(job.problem, job.seed): done[job.key] for job in jobs({}, setting)}
        rows.append(Row(f"{setting}: default", _figure(default, budgets), data=_data(default, budgets)))
        for variant in (each for each in chosen if each.setting == setting):
            runs = {(job.problem, job.seed): done[job.key] for job in jobs(variant.options, setting)}
            rows.append(_row(variant, default, runs, budgets, judge=not options.quick and seeds >= 10))
    return rows


def _row(
    variant: Variant, default: Mapping[Case, Run], runs: Mapping[Case, Run], budgets: tuple[int, int], judge: bool
) -> Row:
    parts, verdicts, found = [], [], {}
    for n in budgets:
        mean, error, low, high = advantage(
            {case: regret(done, n) for case, done in default.items()},
            {case: regret(done, n) for case, done in runs.items()},
        )
        verdicts.append(verdict(low, high))
        found[n] = {"mean": mean, "standard_error": error, "low": low, "high": high}
        # With few seeds, an interval is too narrow for a verdict.
        told = f"{verdicts[-1]}, " if judge else ""
        parts.append(f"at {n}: {told}{mean:+.4f} ± {error:.4f} ({low:+.4f} to {high:+.4f})")
    return Row(
        f"{variant.setting}: {variant.part} ({variant.name})",
        f"{'; '.join(parts)}; otherwise {_figure(runs, budgets)}",
        bar="the default helps" if variant.costs else "the default does not hurt",
        met=met(verdicts, variant.costs) if judge else None,
        data={"advantage": found} | _data(runs, budgets),
    )


def _figure(runs: Mapping[Case, Run], budgets: Sequence[int]) -> str:
    means = [np.mean([regret(done, n) for done in runs.values()]) for n in budgets]
    milliseconds = 1000 * np.mean([np.mean(done["ask_seconds"]) for done in runs.values()])
    return f"regret {' / '.join(f'{mean:.4f}' for mean in means)}, {milliseconds:.0f} ms for a suggestion"


def _data(runs: Mapping[Case, Run], budgets: Sequence[int]) -> dict[str, Any]:
    each = {
        f"{name}, seed {seed}": [regret(done, n) for n in budgets] for (name, seed), done in sorted(runs.items())
    }
    return {"regret": each}


if __name__ == "__main__":
    raise SystemExit(main(measure, further=add_options))
