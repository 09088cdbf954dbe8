"""Runs thriftune's own methods in its simulation: the conductor of real trials, on a virtual clock."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np

import thriftune as tt
from benchmarks.stopping.replay import Nearest, Trace, seconds_limit
from benchmarks.stopping.tables import CurveTable
from thriftune.replay import simulated_engine as simulated
from thriftune.replay import simulation_loop
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.simulation_loop import Curves
from thriftune.search import SEARCHERS
from thriftune.search.protocol import Past, Searcher
from thriftune.space.objectives import Objective
from thriftune.state.events import Config
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS
from thriftune.stopping.protocol import Stopper

_LOSS = "loss"


def study(
    table: CurveTable, seed: int, workers: int, options: dict[str, Any]
) -> tuple[Spec, Curves, Searcher, Stopper]:
    """Return the arguments of simulation_loop.run(); `options` has (name, options) of searcher and rule."""
    (searcher, searcher_options), (rule, rule_options) = options["searcher"], options["rule"]
    spec = Spec(
        table.name,
        tt.Space.from_json(table.parameters),
        (Objective(_LOSS, False),),
        seed,
        searcher=searcher,
        searcher_options=searcher_options,
        stopping=rule,
        stopping_options=rule_options,
        max_steps=table.steps,
        deadline_seconds=seconds_limit(table, workers),
        retries=0,
        workers=workers,
    )
    searcher_on_table = _TableSearcher(SEARCHERS.make(searcher, searcher_options), table)

    def curve(config: Config) -> Curve:
        return _curve(table, searcher_on_table.rows[spec.space.key(config)])

    return spec, curve, searcher_on_table, STOPPERS.make(rule, rule_options)


class _TableSearcher:
    """Replaces the suggestions of a searcher by the nearest configurations of a table; `rows` has their rows."""

    def __init__(self, searcher: Searcher, table: CurveTable) -> None:
        self._searcher, self._nearest = searcher, Nearest(table)
        self.rows: dict[tuple[Any, ...], int] = {}

    def suggest(self, past: Past, rng: np.random.Generator) -> Config | None:
        suggested = self._searcher.suggest(past, rng)
        if suggested is None:
            return None
        config = self._nearest(suggested)
        self.rows[past.space.key(config)] = self._nearest.row
        return config


def _curve(table: CurveTable, row: int) -> Curve:
    """Return the curve of a row; a diverging one reports NaN and fails, as a real trial does."""
    values: list[float] = table.values[row].tolist()
    ends = next((i + 1 for i, value in enumerate(values) if math.isnan(value)), None)
    error = None if ends is None else f"{_LOSS} is nan at step {ends}"
    reported = [{_LOSS: value} for value in values[:ends]]
    return Curve(range(1, len(reported) + 1), reported, table.seconds[row, :ends].tolist(), error)


def simulate(table: CurveTable, seed: int, workers: int, options: dict[str, Any]) -> Trace:
    limit = seconds_limit(table, workers)
    result = simulation_loop.run(*study(table, seed, workers, options))
    reports = [
        (report.at, report.metrics[_LOSS])
        for trial in result.trials
        for report in trial.reports
        if report.at < limit
    ]
    finished = result.finished is not None and not result.finished.startswith("deadline")
    trace = Trace(steps=len(reports), trials=len(result.trials), finished=finished)
    for at, value in sorted(reports):
        trace.see(at / limit, table.regret(value))
    return trace


def version() -> str:
    """Return a version with a digest of the searchers, rules and simulation, which tells their states apart."""
    home = Path(tt.__file__).parent
    files = [*(home / "search").rglob("*.py"), *(home / "stopping").rglob("*.py")]
    files += [Path(simulation_loop.__file__), Path(simulated.__file__)]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files)))
    return f"{tt.__version__}+{digest.hexdigest()[:10]}"
