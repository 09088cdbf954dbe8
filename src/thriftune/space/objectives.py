"""Objectives and constraints: how to parse them, which metrics meet them, and which are not dominated."""

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
    """A metric to minimise or maximise."""

    metric: str
    maximize: bool

    def __str__(self) -> str:
        return f"{'maximize' if self.maximize else 'minimize'} {self.metric}"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit on a metric at the end of a trial: at most `limit` if `upper`, else at least `limit`."""

    metric: str
    limit: float
    upper: bool

    def __str__(self) -> str:
        limit = int(self.limit) if self.limit.is_integer() and abs(self.limit) < 1e15 else self.limit
        return f"{self.metric} {'<=' if self.upper else '>='} {limit!r}"

    def met_by(self, value: float) -> bool:
        """Return whether a value meets the constraint. NaN does not."""
        return value <= self.limit if self.upper else value >= self.limit

    def miss(self, value: float) -> float:
        """Return how far a value is beyond the limit; 0 if it meets the constraint."""
        return 0.0 if self.met_by(value) else min(abs(value - self.limit), sys.float_info.max)


# --- parsing ----------------------------------------------------------------------------------------------

_CONSTRAINT = re.compile(r"\s*([^<>=]*[^<>=\s])\s*([<>]=)\s*([^<>=\s]+)\s*")


def parse_objectives(minimize: Names | None, maximize: Names | None) -> tuple[Objective, ...]:
    """Return the objectives of the settings `minimize` and `maximize`, in this order."""
    objectives = [Objective(name, False) for name in _listed("minimize", minimize, "the name of a metric")]
    objectives += [Objective(name, True) for name in _listed("maximize", maximize, "the name of a metric")]
    if not objectives:
        raise SettingError("give minimize or maximize or both: the name of a metric, or a list of names")
    check_objectives(objectives)
    return tuple(objectives)


def check_objectives(objectives: Sequence[Objective]) -> None:
    """Raise SettingError for objectives that are not valid, named twice, or missing."""
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


def parse_constraints(texts: Names | None) -> tuple[Constraint, ...]:
    """Return the constraints of the setting `constraints`, each once.

    Raises SettingError.
    """
    listed = _listed("constraints", texts, "such as 'latency_ms <= 10'")
    constraints = tuple(dict.fromkeys(map(_parse_constraint, listed)))
    for lower in (each for each in constraints if not each.upper):
        for upper in (each for each in constraints if each.upper and each.metric == lower.metric):
            if lower.limit > upper.limit:
                raise SettingError(f"constraints: no value can meet both {lower} and {upper}")
    return constraints


def _parse_constraint(text: object) -> Constraint:
    match = _CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
    try:
        limit = float(match[3]) if match else math.nan
    except ValueError:
        limit = math.nan
    if match is None or not math.isfinite(limit):
        raise SettingError(
            f"constraints: {text!r} is not a constraint; write NAME <= NUMBER or NAME >= NUMBER, "
            "such as 'latency_ms <= 10'"
        )
    _check_name(match[1])
    return Constraint(match[1], limit + 0.0, match[2] == "<=")


def _check_name(metric: str) -> None:
    """Raise SettingError for a name with control characters, which a terminal cannot show."""
    if not metric.isprintable():
        raise SettingError(f"the metric {metric!r} has characters that cannot be shown; give it another name")


def _listed(setting: str, names: Names | None, description: str) -> Sequence[str]:
    """Return one or several names as a list.

    `description`: what a name is, for the error.
    """
    if names is None:
        return ()
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Sequence):
        raise SettingError(f"{setting}: {names!r} must be {description}, or a list of such")
    return names


def objectives_to_json(objectives: Iterable[Objective]) -> list[list[Any]]:
    """Return the objectives as pairs of the metric and whether it is maximised."""
    return [[objective.metric, objective.maximize] for objective in objectives]


def objectives_from_json(data: Mapping[str, Any]) -> tuple[Objective, ...]:
    """Return the objectives of a stored spec, or raise SettingError.

    Old specs have one metric and no list.
    """
    pairs = data["objectives"] if "objectives" in data else [(data["metric"], data["maximize"])]
    objectives = tuple(Objective(metric, maximize) for metric, maximize in pairs)
    check_objectives(objectives)
    return objectives


# --- text -------------------------------------------------------------------------------------------------


def goal(objectives: Sequence[Objective], constraints: Sequence[Constraint] = ()) -> str:
    """Return a text such as "minimize loss, latency_ms, maximize accuracy with latency_ms <= 10"."""
    ways = (("minimize", False), ("maximize", True))
    metrics = {way: [each.metric for each in objectives if each.maximize is up] for way, up in ways}
    text = ", ".join(f"{way} {', '.join(names)}" for way, names in metrics.items() if names)
    return f"{text} with {join_with_and(constraints)}" if constraints else text


def join_with_and(things: Iterable[object]) -> str:
    """Return a text such as "a, b and c"."""
    *others, last = map(str, things)
    return f"{', '.join(others)} and {last}" if others else last


# --- metrics of trials ------------------------------------------------------------------------------------


def needed_metrics(objectives: Iterable[Objective], constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """Return the metrics that a trial must have at its end: those of all objectives and constraints."""
    names = [objective.metric for objective in objectives] + [constraint.metric for constraint in constraints]
    return tuple(dict.fromkeys(names))


def feasible(metrics: Mapping[str, float], constraints: Iterable[Constraint]) -> bool | None:
    """Return whether the metrics meet all constraints.

    Returns None if one is missing and the others meet theirs.
    """
    answer: bool | None = True
    for constraint in constraints:
        value = metrics.get(constraint.metric)
        if value is None:
            answer = None
        elif not constraint.met_by(value):
            return False
    return answer


def nearest_to_feasible(trials: Sequence[Mapping[str, float]], constraints: Sequence[Constraint]) -> int:
    """Return the index of the trial that misses the constraints least, the first of equals.

    `trials`: the metrics of each trial, with all constrained metrics. Metrics have different scales, so each miss
    counts as a fraction of the largest miss of the same constraint.
    """
    misses = [[constraint.miss(metrics[constraint.metric]) for constraint in constraints] for metrics in trials]
    largest = [max(column) or 1.0 for column in zip(*misses, strict=True)]
    totals = [sum(a / b for a, b in zip(row, largest, strict=True)) for row in misses]
    return totals.index(min(totals))
