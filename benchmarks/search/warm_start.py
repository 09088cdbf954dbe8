"""Measures the effect of a warm start from a related and from an unrelated study.

Related: the same table of another dataset; or of the same dataset, trained with one seed, where the target is the
mean over seeds. Unrelated: the same space, but the source's values stand elsewhere: dealt out anew (no structure
is left), or mirrored along every axis (as smooth as before, and misleading). The source is a study of 50 trials,
as a user would have it; the target has 25, warm and cold, with the same seed.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np

import thriftune as tt
from benchmarks.common import Row, main, say
from benchmarks.search import make_tables, tables
from benchmarks.search.tables import Grid
from thriftune.space.space import Space

DATASETS = {
    "mlp": ("australian", "car", "kc1", "phoneme", "segment", "vehicle"),
    "fcnet": ("naval_propulsion", "parkinsons_telemonitoring", "protein_structure", "slice_localization"),
    "nas": ("cifar10", "cifar100", "imagenet"),
}
SOURCE_TRIALS, TRIALS = 50, 25
BARS = {"another dataset": 0.5, "another seed": 0.5, "dealt anew": 1.05, "mirrored": 1.05}


@cache
def table(kind: str, dataset: str, repetition: int | None = None) -> Grid:
    load: Callable[[str], Grid] = getattr(tables, kind)
    name = dataset if repetition is None else f"{dataset}-{repetition}"
    try:
        return load(name)
    except SystemExit:
        values = make_tables.from_package(kind, dataset, repetition)
        tables.FOLDER.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(tables.FOLDER / f"{kind}-{name}.npz", values=values)
        return load(name)


def source_of(kind: str, source: str, target: str, relation: str) -> Grid:
    if relation == "another seed":
        return table(kind, target, 0)
    found = table(kind, source)
    if relation == "dealt anew":
        shuffled = np.random.default_rng(0).permutation(found.values.ravel()).reshape(found.values.shape)
        return replace(found, values=shuffled)
    return replace(found, values=np.flip(found.values)) if relation == "mirrored" else found


def searched(problem: Grid, trials: int, seed: int, warm_start: list[tt.Study]) -> tuple[tt.Study, float]:
    """Return a finished study and the normalised regret of its best value."""
    space = Space.from_json(problem.parameters)
    study = tt.Study(space, minimize="loss", seed=seed, warm_start=warm_start)
    for _ in range(trials):
        trial = study.ask()
        study.tell(trial, problem(trial.config))
    median = float(np.median(problem.values))
    return study, (float(study.best.value or 0.0) - problem.optimum) / (median - problem.optimum)


def run(job: tuple[str, str, str, int]) -> dict[str, float]:
    """Return the final regrets of a cold and of a warm start."""
    kind, source, target, seed = job
    problem = table(kind, target)
    found = {"cold": searched(problem, TRIALS, seed, [])[1]}
    for relation in BARS:
        past, _ = searched(source_of(kind, source, target, relation), SOURCE_TRIALS, 1000 + seed, [])
        found[relation] = searched(problem, TRIALS, seed, [past])[1]
    return found


def measure(options: argparse.Namespace) -> list[Row]:
    pairs = [(kind, *pair) for kind, names in DATASETS.items() for pair in itertools.permutations(names, 2)]
    pairs = pairs[:: 23 if options.quick else 2]
    seeds = range(1 if options.quick else 5)
    jobs = [(*pair, seed) for seed in seeds for pair in pairs]
    for kind, dataset in {(kind, name) for kind, *names, _ in jobs for name in names}:
        table(kind, dataset, 0), table(kind, dataset)  # made once here, not in each process
    say(f"{len(jobs)} runs of a cold start and {len(BARS)} warm ones")
    with ProcessPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(run, jobs))
    cold = np.array([each["cold"] for each in found])
    rows = []
    for relation, most in BARS.items():
        warm = np.array([each[relation] for each in found])
        ratio = warm.mean() / cold.mean()
        low, high = interval(warm, cold)
        what = f"regret at {TRIALS}, warm start over cold: {relation}"
        bar = f"<= {most}"
        figure = f"{ratio:.2f} ({low:.2f} to {high:.2f}): {warm.mean():.4f} over {cold.mean():.4f}"
        data = {"warm": warm.tolist(), "cold": cold.tolist()}
        rows.append(Row(what, figure, bar, None if options.quick else bool(ratio <= most), data))
    return rows


def interval(warm: np.ndarray, cold: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of means, by bootstrap over runs."""
    draws = np.random.default_rng(0).integers(len(warm), size=(2000, len(warm)))
    ratios = warm[draws].mean(axis=1) / cold[draws].mean(axis=1)
    return float(np.quantile(ratios, 0.025)), float(np.quantile(ratios, 0.975))


if __name__ == "__main__":
    raise SystemExit(main(measure))
