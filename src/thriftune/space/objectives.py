"""What is wanted? Objectives and constraints: how they are written, what meets them, and what nobody beats."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thriftune.errors import SettingError

Names = str | Sequence[str]
"""One name, or a list of them."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric, and which way is better."""

    metric: str
    maximize: bool

    def __str__(self) -> str:
        return f"{'maximize' if self.maximize else 'minimize'} {self.metric}"


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a metric must end as: at most `limit` if `upper`, else at least."""

    metric: str
    limit: float
    upper: bool

    def __str__(self) -> str:
        limit = int(self.limit) if self.limit.is_integer() and abs(self.limit) < 1e15 else self.limit
        return f"{self.metric} {'<=' if self.upper else '>='} {limit!r}"

    def met_by(self, value: float) -> bool:
        """NaN meets nothing."""
        return value <= self.limit if self.upper else value >= self.limit

    def miss(self, value: float) -> float:
        """How far beyond the limit a value is; zero if it meets it."""
        return 0.0 if self.met_by(value) else min(abs(value - self.limit), sys.float_info.max)


# --- as users write them ----------------------------------------------------------------------------------

_CONSTRAINT = re.compile(r"\s*([^<>=]*[^<>=\s])\s*([<>]=)\s*([^<>=\s]+)\s*")


def parse_objectives(minimize: Names | None, maximize: Names | None) -> tuple[Objective, ...]:
    """In order: minimize's, then maximize's."""
    found = [Objective(name, False) for name in _listed("minimize", minimize, "the name of a metric")]
    found += [Objective(name, True) for name in _listed("maximize", maximize, "the name of a metric")]
    if not found:
        raise SettingError("give minimize= or maximize= or both: the metric that decides, or a list of several")
    check_objectives(found)
    return tuple(found)


def check_objectives(objectives: Sequence[Objective]) -> None:
    for number, objective in enumerate(objectives):
        name = objective.metric
        if not isinstance(name, str) or not name:
            raise SettingError(f"the metric to optimise must be a name, not {name!r}")
        _check_name(name)
        if not isinstance(objective.maximize, bool):
            raise SettingError(f"{name}: maximize must be true or false, not {objective.maximize!r}")
        if any(name == other.metric for other in objectives[:number]):
            raise SettingError(f"{name}: is named twice; name each metric once, in minimize or in maximize")
    if not objectives:
        raise SettingError("there is no metric to optimise; name at least one")


def parse_constraints(given: Names | None) -> tuple[Constraint, ...]:
    found = tuple(dict.fromkeys(map(_constraint, _listed("constraints", given, "such as 'latency_ms <= 10'"))))
    for lower in (each for each in found if not each.upper):
        for upper in (each for each in found if each.upper and each.metric == lower.metric):
            if lower.limit > upper.limit:
                raise SettingError(f"constraints: nothing can meet both {lower} and {upper}")
    return found


def _constraint(text: object) -> Constraint:
    match = _CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
    try:
        limit = float(match[3]) if match else math.nan
    except ValueError:
        limit = math.nan
    if match is None or not math.isfinite(limit):
        raise SettingError(
            f"constraints: {text!r} is none; write NAME <= NUMBER or NAME >= NUMBER, such as 'latency_ms <= 10'"
        )
    _check_name(match[1])
    return Constraint(match[1], limit + 0.0, match[2] == "<=")


def _check_name(metric: str) -> None:
    """Raise SettingError for a name that would control a terminal instead of being shown."""
    if not metric.isprintable():
        raise SettingError(f"the metric {metric!r} has characters that cannot be shown; give it another name")


def _listed(setting: str, given: Names | None, what: str) -> Sequence[str]:
    if given is None:
        return ()
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Sequence):
        raise SettingError(f"{setting}: {given!r} must be {what}, or a list of such")
    return given


def objectives_to_json(objectives: Iterable[Objective]) -> list[list[Any]]:
    return [[objective.metric, objective.maximize] for objective in objectives]


def objectives_from_json(data: Mapping[str, Any]) -> tuple[Objective, ...]:
    """Return those of a stored spec, or raise SettingError; old specs have one metric instead of a list."""
    pairs = data["objectives"] if "objectives" in data else [(data["metric"], data["maximize"])]
    objectives = tuple(Objective(metric, maximize) for metric, maximize in pairs)
    check_objectives(objectives)
    return objectives


# --- in words ---------------------------------------------------------------------------------------------


def goal(objectives: Sequence[Objective], constraints: Sequence[Constraint] = ()) -> str:
    """Such as "minimize loss, latency_ms, maximize accuracy with latency_ms <= 10"."""
    ways = (("minimize", False), ("maximize", True))
    metrics = {way: [each.metric for each in objectives if each.maximize is up] for way, up in ways}
    wanted = ", ".join(f"{way} {', '.join(names)}" for way, names in metrics.items() if names)
    return f"{wanted} with {join_with_and(constraints)}" if constraints else wanted


def join_with_and(things: Iterable[object]) -> str:
    *others, last = map(str, things)
    return f"{', '.join(others)} and {last}" if others else last


# --- what counts ------------------------------------------------------------------------------------------


def needed_metrics(objectives: Iterable[Objective], constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """The metrics that a trial must end with."""
    names = [objective.metric for objective in objectives] + [constraint.metric for constraint in constraints]
    return tuple(dict.fromkeys(names))


def feasible(metrics: Mapping[str, float], constraints: Iterable[Constraint]) -> bool | None:
    """Whether all constraints are met; None: not known yet, as a metric is not there and no other one misses."""
    answer: bool | None = True
    for constraint in constraints:
        value = metrics.get(constraint.metric)
        if value is None:
            answer = None
        elif not constraint.met_by(value):
            return False
    return answer


def nearest_to_feasible(trials: Sequence[Mapping[str, float]], constraints: Sequence[Constraint]) -> int:
    """Which of several trials' metrics miss the constraints least, the earliest of equals; all must be there.

    Metrics have scales of their own, so each miss counts as a part of the largest miss of its constraint.
    """
    misses = [[constraint.miss(metrics[constraint.metric]) for constraint in constraints] for metrics in trials]
    largest = [max(column) or 1.0 for column in zip(*misses, strict=True)]
    parts = [sum(a / b for a, b in zip(row, largest, strict=True)) for row in misses]
    return parts.index(min(parts))


def undominated(losses: Sequence[Sequence[float]]) -> list[int]:
    """The numbers, rising, of the vectors that no other one dominates: is nowhere above and somewhere below.

    Of equal vectors all are kept. Everything is to be minimised and finite.
    """
    import numpy as np  # late: a list of studies needs none of it

    if not losses:
        return []
    # Sorted by the first number, then the second and so on: whoever dominates comes before what it dominates.
    points, which = np.unique(np.asarray(losses, dtype=float) + 0.0, axis=0, return_inverse=True)
    kept = np.zeros(len(points), dtype=bool)
    if points.shape[1] == 2:
        lowest = np.minimum.accumulate(points[:, 1])
        kept[0] = True
        kept[1:] = points[1:, 1] < lowest[:-1]
    else:
        left = np.arange(len(points))
        while left.size:
            first, rest = left[0], left[1:]
            kept[first] = True
            left = rest[(points[rest] < points[first]).any(axis=1)]
    found: list[int] = np.flatnonzero(kept[which.reshape(-1)]).tolist()
    return found
