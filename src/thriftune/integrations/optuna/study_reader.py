"""Conversion of an Optuna study to the past that a thriftune searcher reads."""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from thriftune.integrations.optuna.translation import Translation
from thriftune.space.objectives import Constraint, Objective
from thriftune.space.space import Space
from thriftune.state.earlier_results import EarlierStudy
from thriftune.state.events import Config
from thriftune.state.trial_record import State, TrialRecord

# Optuna's keys in a trial's system attributes.
_RETRIED, _CONSTRAINTS = "retry_history", "constraints"

_LARGEST = 1e300
"""Constraint values are clipped here, because a past needs finite values."""


@dataclass(frozen=True)
class OptunaPast:
    """An Optuna study as a search.Past."""

    space: Space
    seed: int
    trials: Sequence[TrialRecord]
    ended: Sequence[TrialRecord]
    objectives: Sequence[Objective]
    constraints: Sequence[Constraint]
    earlier: Sequence[EarlierStudy] = ()

    @property
    def maximize(self) -> bool:
        return self.objectives[0].maximize

    def times(self, config: Config) -> int:
        return self._counts[self.space.key(config)]

    @cached_property
    def _counts(self) -> Counter[tuple[Any, ...]]:
        return Counter(self.space.key(trial.config) for trial in self.trials)


class StudyReader:
    """Reads one Optuna study. Caches the records of ended trials while the search space stays the same."""

    def __init__(self, study: Study) -> None:
        self.storage, self.study_id = study._storage, study._study_id
        self.intersection = IntersectionSearchSpace()
        self._translation: Translation | None = None
        # By trial number: its record, or None for a trial whose parameters are not all in the search space.
        self._records: dict[int, TrialRecord | None] = {}
        self._warned_of: set[str] = set()  # parameters for which newly_left_out() has returned True

    def read(
        self, study: Study, search_space: Mapping[str, BaseDistribution], excluded: int, seed: int
    ) -> tuple[Translation, OptunaPast]:
        """Return the past of a study, without the trial number `excluded`, which needs a suggestion."""
        if self._translation is None or self._translation.distributions != search_space:
            self._translation, self._records = Translation(search_space), {}
        # Read the storage and not the study: under Hyperband, a study shows only some of its trials.
        trials = [trial for trial in self._trials() if trial.number != excluded]
        retried = {number for trial in trials for number in trial.system_attrs.get(_RETRIED, ())}
        objectives = _objectives(study.directions)
        ended = [
            record
            for trial, values in _outcomes(trials, objectives)
            # A failed trial that was retried was preempted, or failed by chance: its failure says nothing.
            if (values is not None or trial.number not in retried)
            and (record := self._ended(trial, values, objectives)) is not None
        ]
        metrics = sorted({name for record in ended for name in record.metrics if name.startswith(_CONSTRAINTS)})
        for record in ended:
            if record.values is not None:  # as in Optuna, a trial meets a constraint that it has no value of
                record.metrics = {**dict.fromkeys(metrics, 0.0), **record.metrics}
        pending = [record for trial in trials if (record := self._pending(trial)) is not None]
        return self._translation, OptunaPast(
            space=self._translation.space,
            seed=seed,
            trials=sorted(ended + pending, key=lambda record: record.id),
            ended=ended,
            objectives=objectives,
            constraints=[Constraint(name, 0.0, upper=True) for name in metrics],
        )

    def is_taken_by_another(self, config: Config, past: OptunaPast, number: int) -> bool:
        """Return whether another pending trial has taken this configuration since the past was read.

        `number` is the trial that the configuration is for. Returns False for a configuration that is in the past:
        then the searcher has no untried one left.
        """
        if past.times(config):
            return False
        assert self._translation is not None
        key = past.space.key(config)
        others = (trial for trial in self._trials() if trial.number != number and not trial.state.is_finished())
        configs = (self._translation.config(trial) for trial in others)
        return any(other is not None and past.space.key(other) == key for other in configs)

    def newly_left_out(self, study: Study, name: str) -> bool:
        """Return whether a parameter is not searched although trials have completed; True once for each."""
        if name in self._warned_of or not any(trial.state is TrialState.COMPLETE for trial in self._trials()):
            return False
        if name in self.intersection.calculate(study):
            return False  # when this trial began, no trial had completed
        self._warned_of.add(name)
        return True

    def _trials(self) -> list[FrozenTrial]:
        return self.storage.get_all_trials(self.study_id, deepcopy=False)

    def _ended(
        self, trial: FrozenTrial, values: tuple[float, ...] | None, objectives: Sequence[Objective]
    ) -> TrialRecord | None:
        """Return the record of an ended trial; None if its parameters are not all in the search space."""
        cached = self._records.get(trial.number)
        if trial.number in self._records and (cached is None or cached.values == values):
            return cached
        record = self._new_record(trial)
        if record is not None:
            record.state = State.COMPLETED if trial.state is TrialState.COMPLETE else State.STOPPED
            if values is None:
                record.state = State.FAILED
            else:
                record.value, record.values = values[0], values
                record.metrics = dict(zip((each.metric for each in objectives), values, strict=True))
                record.metrics.update(_constraint_metrics(trial.system_attrs))
            record.ended_at = _unix_seconds(trial.datetime_complete)
            record.seconds = max(0.0, record.ended_at - record.created_at)
        self._records[trial.number] = record
        return record

    def _pending(self, trial: FrozenTrial) -> TrialRecord | None:
        """Return the record of a running or waiting trial; None for any other."""
        if trial.state.is_finished():
            return None
        record = self._new_record(trial)
        if record is not None and trial.state is TrialState.RUNNING:
            record.state = State.RUNNING
        return record

    def _new_record(self, trial: FrozenTrial) -> TrialRecord | None:
        assert self._translation is not None
        config = self._translation.config(trial)
        if config is None:
            return None
        return TrialRecord(trial.number, config, _unix_seconds(trial.datetime_start))


def _outcomes(
    trials: Sequence[FrozenTrial], objectives: Sequence[Objective]
) -> Iterator[tuple[FrozenTrial, tuple[float, ...] | None]]:
    """Yield the trials that have ended, in the order in which they did, with their values; None for a failure.

    A pruned trial has its last intermediate value, but none better than the median of the trials completed before
    it: the value of an early step may look better than any final one, and a pruned trial hardly is. A pruned trial
    without a value counts as failed, because an objective rejects a configuration by raising TrialPruned at once.
    """
    completed: list[float] = []  # values of the completed trials of a single objective, ascending
    finished = [trial for trial in trials if trial.state.is_finished()]
    for trial in sorted(finished, key=lambda trial: (_unix_seconds(trial.datetime_complete), trial.number)):
        values: tuple[float, ...] | None = None
        if trial.state is TrialState.COMPLETE:
            values = tuple(trial.values)
        elif trial.state is TrialState.PRUNED and trial.last_step is not None and len(objectives) == 1:
            value = trial.intermediate_values[trial.last_step]
            if completed:
                median = 0.5 * completed[(len(completed) - 1) // 2] + 0.5 * completed[len(completed) // 2]
                value = min(value, median) if objectives[0].maximize else max(value, median)
            values = (value,)
        if values is not None and not all(map(math.isfinite, values)):
            values = None
        if values is not None and trial.state is TrialState.COMPLETE and len(values) == 1:
            insort(completed, values[0])
        yield trial, values


def _objectives(directions: Sequence[StudyDirection]) -> tuple[Objective, ...]:
    return tuple(Objective(f"value {i}", each is StudyDirection.MAXIMIZE) for i, each in enumerate(directions))


def _constraint_metrics(attrs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the name and value of each constraint in a trial's system attributes.

    The values that constraints_func returned are one list. Each value given to trial.set_constraint() has a key of
    its own.
    """
    values = {f"{_CONSTRAINTS}:{i}": value for i, value in enumerate(attrs.get(_CONSTRAINTS) or ())}
    values.update((key, value) for key, value in attrs.items() if key.startswith(f"{_CONSTRAINTS}:"))
    return ((key, min(max(float(value), -_LARGEST), _LARGEST)) for key, value in values.items())


def _unix_seconds(time: datetime | None) -> float:
    return 0.0 if time is None else time.timestamp()
