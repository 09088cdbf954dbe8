"""What has been seen? The trials of a past as arrays: points, values to be minimised, and what else they told."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thriftune.search.bayes.kernel import Array, Booleans
from thriftune.space.objectives import feasible
from thriftune.state.events import KNOWN
from thriftune.state.trial_record import State, TrialRecord

if TYPE_CHECKING:
    from thriftune.search.protocol import Past
    from thriftune.space.space import Space

FEWEST = 4
"""Trials that must have come so far before that is what is searched for; until then, what more have come to is."""

MOST_LEVELS = 4
"""Of unfinished trials: the steps at which most were cut, `SPACING` apart from each other."""

SPACING = 1.5

CUT = (State.STOPPED, State.PAUSED)

_step = attrgetter("step")


@dataclass(frozen=True)
class Level:
    """What was seen of the trials that have come so far, in the order in which they did."""

    trials: list[TrialRecord]
    X: Array  # (n, D)
    values: Array  # (n, objectives), lower is better


@dataclass(frozen=True)
class Observations:
    levels: list[Level]  # how far trials came, rising; the last is what is searched for. One, if none was cut
    feasible: Booleans  # of the trials on the last level: known to be
    pending: Array  # (m, D) trials on their way there
    ended: list[TrialRecord]  # n that have ended and have their values, in the order in which they did
    X: Array  # (n, D)
    failed: Array  # (f, D)
    cut: bool  # whether trials were stopped early, or set aside

    @property
    def target(self) -> Level:
        return self.levels[-1]


class Arrival(NamedTuple):
    """A trial came to some step, or to its end: when, and with which value."""

    at: float
    trial: TrialRecord
    value: float


class Reader:
    """Makes arrays of a past. What it keeps is a cache: the encoded points of trials it has seen before."""

    def __init__(self) -> None:
        self._space: Space | None = None
        self._rows: dict[int, tuple[TrialRecord, Array]] = {}

    def read(self, past: Past) -> Observations:
        if past.space is not self._space:
            self._space, self._rows = past.space, {}
        known, failed = [], []
        for trial in past.ended:
            if trial.state is State.FAILED or not all(map(math.isfinite, trial.values or ())):
                failed.append(trial)
            elif trial.values:  # one that was stopped early may have none
                known.append(trial)
        levels = self._levels(past, known)
        there = {trial.id for trial in levels[-1].trials}
        # What is set aside may never go on.
        goes_on = [trial for trial in past.trials if not trial.state.ended and trial.state is not State.PAUSED]
        return Observations(
            levels,
            np.array([bool(feasible(trial.metrics, past.constraints)) for trial in levels[-1].trials], dtype=bool),
            self._points(past, [trial for trial in goes_on if trial.id not in there]),
            known,
            self._points(past, known),
            self._points(past, failed),
            any(trial.state in CUT for trial in past.trials),
        )

    def _levels(self, past: Past, known: list[TrialRecord]) -> list[Level]:
        """Of several objectives each suggestion weighs them anew, so a trial's last values count as its final."""
        if not any(map(_was_cut, past.trials)) or len(past.objectives) > 1:
            return [self._level(past, known, [trial.values or () for trial in known])]
        return [
            self._level(past, [each.trial for each in those], [(each.value,) for each in those])
            for _, those in arrivals(past.trials, known)
        ]

    def _level(self, past: Past, trials: list[TrialRecord], values: Sequence[tuple[float, ...]]) -> Level:
        signs = np.array([-1.0 if objective.maximize else 1.0 for objective in past.objectives])
        lower = np.array(values, dtype=float).reshape(len(trials), len(signs)) * signs
        return Level(trials, self._points(past, trials), lower)

    def _points(self, past: Past, trials: list[TrialRecord]) -> Array:
        return np.array([self._row(past, trial) for trial in trials]).reshape(len(trials), past.space.dimensions)

    def _row(self, past: Past, trial: TrialRecord) -> Array:
        found = self._rows.get(trial.id)
        if found is None or found[0] is not trial:
            found = self._rows[trial.id] = (trial, past.space.encode(trial.config))
        return found[1]


def arrivals(
    trials: Sequence[TrialRecord], ended: Sequence[TrialRecord], metric: str | None = None
) -> list[tuple[int | None, list[Arrival]]]:
    """Return who came to each step at which many trials were cut, steps rising, and last who came to their end.

    The step of the end is None. A step or end to which fewer than FEWEST came is left out, unless that holds for
    all of them. `ended`: in the order in which they did, with a finite value. `metric`: another one than the first
    objective of the trials' study, of which the value counts that the study counts.
    """
    came: list[tuple[int | None, list[Arrival]]] = []
    for step in _steps(Counter(trial.step for trial in trials if _was_cut(trial))):
        found = (_at(trial, step, metric) for trial in trials if trial.state is not State.FAILED)
        came.append((step, sorted((each for each in found if each), key=_when)))
    whole = (trial for trial in ended if trial.state is State.COMPLETED or not trial.reports)
    ends = ((trial, _last(trial, metric)) for trial in whole)
    came.append((None, [Arrival(trial.ended_at or 0.0, trial, end) for trial, end in ends if end is not None]))
    return [each for each in came if len(each[1]) >= FEWEST] or [max(came, key=lambda each: len(each[1]))]


def _last(trial: TrialRecord, metric: str | None) -> float | None:
    return trial.value if metric is None else trial.metrics.get(metric)


def _was_cut(trial: TrialRecord) -> bool:
    return trial.state in CUT and bool(trial.reports)


def _steps(cut: Counter[int]) -> list[int]:
    """Rising: the steps at which most were cut. Those near each other count as the lowest of them."""
    together: Counter[int] = Counter()
    lowest = 0
    for step in sorted(cut):
        if step >= SPACING * lowest:
            lowest = step
        together[lowest] += cut[step]
    return sorted(step for step, _ in together.most_common(MOST_LEVELS))


def _at(trial: TrialRecord, step: int, metric: str | None) -> Arrival | None:
    """Its coming to that step; one that ended well before has come there too."""
    reports = trial.reports
    for i in range(bisect_left(reports, step, key=_step), len(reports)):
        value = reports[i].value if metric is None else reports[i].metrics.get(metric)
        if value is not None:
            return Arrival(reports[i].at, trial, value) if math.isfinite(value) else None
    last = _last(trial, metric)
    # A known result has come to its end by no step that anybody knows.
    ended_well = trial.state is State.COMPLETED and trial.origin != KNOWN
    if ended_well and last is not None and math.isfinite(last):
        return Arrival(trial.ended_at or 0.0, trial, last)
    return None


def _when(arrival: Arrival) -> tuple[float, int]:
    return arrival.at, arrival.trial.id
