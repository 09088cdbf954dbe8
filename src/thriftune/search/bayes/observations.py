"""The observations in a study's past as arrays: points, values to be minimised, pending and failed points."""

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

MIN_TRIALS_AT_LEVEL = 4
"""A level needs values of this many trials. Until the last level has them, the search is for the best at a lower
level."""

MAX_LEVELS = 4
"""The most steps that are levels: those at which most trials were cut short."""

LEVEL_SPACING = 1.5
"""Each level is at a step at least this many times the one before."""

CUT_SHORT = (State.STOPPED, State.PAUSED)
"""The states of trials that were cut short: they reported values, but not up to their last step."""

_step = attrgetter("step")


@dataclass(frozen=True)
class StepLevel:
    """The trials that reached a certain step, or their end, with their values there.

    Ordered by the time at which they reached it.
    """

    trials: list[TrialRecord]
    X: Array  # (n, D)
    values: Array  # (n, objectives), lower is better


@dataclass(frozen=True)
class Observations:
    """All observations that a model is made of."""

    levels: list[StepLevel]  # by ascending step, at least one; the search is for the best at the last level
    feasible: Booleans  # of the trials at the last level: True if it is known to meet all constraints
    pending: Array  # (m, D) all and only the trials that may still reach the last level
    ended: list[TrialRecord]  # the n trials that ended with finite values, in the order in which they ended
    X: Array  # (n, D) the points of `ended`
    failed: Array  # (f, D) the points of the trials that failed or ended with a value that is not finite
    has_cut_short: bool  # True if a trial was stopped early or paused

    @property
    def target(self) -> StepLevel:
        return self.levels[-1]


class TimedValue(NamedTuple):
    """The value of a trial at a step, or at its end, with the time in seconds at which it was reported."""

    time: float
    trial: TrialRecord
    value: float


class ObservationReader:
    """Converts a past to arrays. Its only state is a cache of the encoded points, keyed by trial id."""

    def __init__(self) -> None:
        self._space: Space | None = None
        self._rows: dict[int, tuple[TrialRecord, Array]] = {}

    def read(self, past: Past) -> Observations:
        if past.space is not self._space:
            self._space, self._rows = past.space, {}
        ended, failed = [], []
        for trial in past.ended:
            if trial.state is State.FAILED or not all(map(math.isfinite, trial.values or ())):
                failed.append(trial)
            elif trial.values:  # a trial that was stopped early may have none
                ended.append(trial)
        levels = self._levels(past, ended)
        at_target = {trial.id for trial in levels[-1].trials}
        # A paused trial may never go on.
        running = [trial for trial in past.trials if not trial.state.ended and trial.state is not State.PAUSED]
        return Observations(
            levels,
            np.array([bool(feasible(trial.metrics, past.constraints)) for trial in levels[-1].trials], dtype=bool),
            self._points(past, [trial for trial in running if trial.id not in at_target]),
            ended,
            self._points(past, ended),
            self._points(past, failed),
            any(trial.state in CUT_SHORT for trial in past.trials),
        )

    def _levels(self, past: Past, ended: list[TrialRecord]) -> list[StepLevel]:
        """Return the levels of a past; a single one if no trial was cut short.

        With several objectives, a trial's last values count as its final ones: each suggestion weights the
        objectives differently, so no value at a step can predict the final one.
        """
        if not any(map(_was_cut_short, past.trials)) or len(past.objectives) > 1:
            return [self._level(past, ended, [trial.values or () for trial in ended])]
        return [
            self._level(past, [each.trial for each in reached], [(each.value,) for each in reached])
            for _, reached in values_at_levels(past.trials, ended)
        ]

    def _level(self, past: Past, trials: list[TrialRecord], values: Sequence[tuple[float, ...]]) -> StepLevel:
        signs = np.array([-1.0 if objective.maximize else 1.0 for objective in past.objectives])
        lower_is_better = np.array(values, dtype=float).reshape(len(trials), len(signs)) * signs
        return StepLevel(trials, self._points(past, trials), lower_is_better)

    def _points(self, past: Past, trials: list[TrialRecord]) -> Array:
        return np.array([self._row(past, trial) for trial in trials]).reshape(len(trials), past.space.dimensions)

    def _row(self, past: Past, trial: TrialRecord) -> Array:
        cached = self._rows.get(trial.id)
        if cached is None or cached[0] is not trial:
            cached = self._rows[trial.id] = (trial, past.space.encode(trial.config))
        return cached[1]


def values_at_levels(
    trials: Sequence[TrialRecord], ended: Sequence[TrialRecord], metric: str | None = None
) -> list[tuple[int | None, list[TimedValue]]]:
    """Return for each level its step and the values of the trials that reached it; the last level is the end.

    Levels are the steps at which many trials were cut short, ascending, and the end of a trial, whose step is
    None. A level with fewer than MIN_TRIALS_AT_LEVEL values is left out, unless all have fewer: then the largest
    is returned.

    - `ended`: the trials with a finite value that ended, in the order in which they did.
    - `metric`: None for the first objective of the trials' study, as the study computes its value.
    """
    levels: list[tuple[int | None, list[TimedValue]]] = []
    for step in _level_steps(Counter(trial.step for trial in trials if _was_cut_short(trial))):
        values = (_value_at(trial, step, metric) for trial in trials if trial.state is not State.FAILED)
        levels.append((step, sorted((value for value in values if value), key=_report_order)))
    complete = (trial for trial in ended if trial.state is State.COMPLETED or not trial.reports)
    finals = ((trial, _last_value(trial, metric)) for trial in complete)
    levels.append(
        (None, [TimedValue(trial.ended_at or 0.0, trial, final) for trial, final in finals if final is not None])
    )
    large_enough = [level for level in levels if len(level[1]) >= MIN_TRIALS_AT_LEVEL]
    return large_enough or [max(levels, key=lambda level: len(level[1]))]


def _last_value(trial: TrialRecord, metric: str | None) -> float | None:
    return trial.value if metric is None else trial.metrics.get(metric)


def _was_cut_short(trial: TrialRecord) -> bool:
    return trial.state in CUT_SHORT and bool(trial.reports)


def _level_steps(cut_short: Counter[int]) -> list[int]:
    """Return the steps at which most trials were cut short, ascending, given the number of trials for each step.

    Steps near each other count as the lowest of them.
    """
    merged: Counter[int] = Counter()
    lowest = 0
    for step in sorted(cut_short):
        if step >= LEVEL_SPACING * lowest:
            lowest = step
        merged[lowest] += cut_short[step]
    return sorted(step for step, _ in merged.most_common(MAX_LEVELS))


def _value_at(trial: TrialRecord, step: int, metric: str | None) -> TimedValue | None:
    """Return the trial's first value at the step or later, if finite.

    A trial that completed before the step counts with its final value.
    """
    reports = trial.reports
    for i in range(bisect_left(reports, step, key=_step), len(reports)):
        value = reports[i].value if metric is None else reports[i].metrics.get(metric)
        if value is not None:
            return TimedValue(reports[i].at, trial, value) if math.isfinite(value) else None
    final = _last_value(trial, metric)
    # A known result has no reports, so its steps are not known.
    is_complete = trial.state is State.COMPLETED and trial.origin != KNOWN
    if is_complete and final is not None and math.isfinite(final):
        return TimedValue(trial.ended_at or 0.0, trial, final)
    return None


def _report_order(value: TimedValue) -> tuple[float, int]:
    return value.time, value.trial.id
