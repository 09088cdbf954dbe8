"""What has been seen? The trials of a past as arrays: points, values to be minimised, and what else they told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from thriftune.objectives import feasible
from thriftune.search.bayes.kernel import Array, Booleans
from thriftune.trial import State, TrialRecord

if TYPE_CHECKING:
    from thriftune.search import Past
    from thriftune.space import Space


@dataclass(frozen=True)
class Observations:
    """In the order in which the trials ended, so that what was known earlier is the beginning of each array."""

    trials: list[TrialRecord]  # n that have ended and have their values
    X: Array  # (n, D)
    values: Array  # (n, objectives), lower is better
    feasible: Booleans  # (n,) known to be
    failed: Array  # (f, D)
    pending: Array  # (m, D)


class Reader:
    """Makes arrays of a past. What it keeps is a cache: the encoded points of trials it has seen before."""

    def __init__(self) -> None:
        self._space: Space | None = None
        self._rows: dict[int, tuple[TrialRecord, Array]] = {}

    def read(self, past: Past) -> Observations:
        if past.space is not self._space:
            self._space, self._rows = past.space, {}
        signs = np.array([-1.0 if objective.maximize else 1.0 for objective in past.objectives])
        known, failed = [], []
        for trial in past.ended:
            if trial.state is State.FAILED or not all(map(math.isfinite, trial.values or ())):
                failed.append(trial)
            elif trial.values:  # one that was stopped early may have none
                known.append(trial)
        values = np.array([trial.values for trial in known], dtype=float).reshape(len(known), len(signs)) * signs
        return Observations(
            known,
            self._points(past, known),
            values,
            np.array([bool(feasible(trial.metrics, past.constraints)) for trial in known], dtype=bool),
            self._points(past, failed),
            self._points(past, [trial for trial in past.trials if not trial.state.ended]),
        )

    def _points(self, past: Past, trials: list[TrialRecord]) -> Array:
        return np.array([self._row(past, trial) for trial in trials]).reshape(len(trials), past.space.dimensions)

    def _row(self, past: Past, trial: TrialRecord) -> Array:
        found = self._rows.get(trial.id)
        if found is None or found[0] is not trial:
            found = self._rows[trial.id] = (trial, past.space.encode(trial.config))
        return found[1]
