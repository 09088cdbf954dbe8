"""Simulation of a method whose trials replay the curves of a table, on a virtual clock with an event heap.

What a method suggests is replaced by the configuration of the nearest row, in the unit cube of the searched
parameters, of those that no trial of the run has replayed yet; the method is told so, and learns from what was
done. What counts is the best value that any trial has reported at any step: a checkpoint that could be deployed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.stopping.methods import Method
from benchmarks.stopping.tables import CROSSING, CurveTable, Parameters

Array = npt.NDArray[np.float64]

FULL_TRAININGS, FULL_TRAININGS_EACH, FULL_TRAININGS_CROSSING = 32, 4, 64
"""The time limit in whole trainings of mean duration: for all workers together, at least for each worker, and for
tables whose curves cross. The cost of stopping wrong trials appears late there."""


def seconds_limit(table: CurveTable, workers: int) -> float:
    least = FULL_TRAININGS_CROSSING if table.kind == CROSSING else FULL_TRAININGS
    return max(least / workers, FULL_TRAININGS_EACH) * float(table.seconds.sum(axis=1).mean())


class Nearest:
    """Maps a suggestion to the configuration of the row that its trial replays; `row` is the last such row."""

    def __init__(self, table: CurveTable) -> None:
        self._parameters = table.parameters
        self._configs = table.configs
        self._points = np.array([_unit(table.parameters, config) for config in table.configs])
        self._taken = np.zeros(len(self._points), dtype=bool)
        self.row = -1

    def __call__(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration of the nearest row that was not replayed; of any row once all were."""
        apart = self._points - _unit(self._parameters, config)
        if self._taken.all():
            self._taken[:] = False
        self.row = int(np.argmin(np.where(self._taken, np.inf, np.einsum("ij,ij->i", apart, apart))))
        self._taken[self.row] = True
        return self._configs[self.row]


def _unit(parameters: Parameters, config: Mapping[str, Any]) -> Array:
    """Return a point of the unit cube, on each parameter's own scale; two different choices are 1 apart."""
    point: list[float] = []
    for name, parameter in parameters.items():
        value = config[name]
        if parameter["type"] == "choice":
            point += [math.sqrt(0.5) * (choice == value) for choice in parameter["choices"]]
        elif parameter.get("log"):
            point.append(math.log(value / parameter["low"]) / math.log(parameter["high"] / parameter["low"]))
        else:
            point.append((value - parameter["low"]) / (parameter["high"] - parameter["low"]))
    return np.array(point)


@dataclass
class Trace:
    """The best regret over time: `regret[i]` from `at[i]` on, a share of the time limit; 1 before the first."""

    at: list[float] = field(default_factory=list)
    regret: list[float] = field(default_factory=list)
    steps: int = 0
    trials: int = 0
    finished: bool = False
    """True if the method ended by itself before the time limit."""

    def see(self, at: float, regret: float) -> None:
        if regret < (self.regret[-1] if self.regret else 1.0):
            self.at.append(at)
            self.regret.append(regret)


def replay(method: Method, table: CurveTable, nearest: Nearest, workers: int) -> Trace:
    """Run a method, made with `nearest`, until the time limit or until it has nothing more to do."""
    limit = seconds_limit(table, workers)
    trace = Trace()
    rows: dict[int, int] = {}
    done: dict[int, int] = {}  # steps of each trial
    due: list[tuple[float, int, int]] = []  # a heap of (time, serial number, trial that ends a step)
    now, free, count = 0.0, workers, 0

    def begin_step(trial: int) -> None:
        nonlocal count
        count += 1
        heappush(due, (now + float(table.seconds[rows[trial], done[trial]]), count, trial))

    while True:
        while free and (trial := method.suggest()) is not None:
            if trial not in rows:
                rows[trial], done[trial] = nearest.row, 0
            if done[trial] == table.steps:
                raise RuntimeError(f"trial {trial} is to go on, but has done all of its {table.steps} steps")
            free -= 1
            begin_step(trial)
        if not due or due[0][0] >= limit:  # an event at the limit is too late
            trace.trials, trace.finished = len(rows), not due
            return trace
        now, _, trial = heappop(due)
        value, step = float(table.values[rows[trial], done[trial]]), done[trial] + 1
        trace.steps += 1
        if math.isnan(value):
            method.failed(trial, step)  # the step took its time, but the trial cannot go on
            goes_on = False
        else:
            done[trial] = step
            trace.see(now / limit, table.regret(value))
            goes_on = method.report(trial, step, value)
            if goes_on and step == table.steps:
                method.completed(trial, value)
                goes_on = False
        if goes_on:
            begin_step(trial)
        else:
            free += 1
