"""How does an Optuna study read as a past of ours?"""

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

# Keys of a trial's system attributes, Optuna's own.
_RETRIED, _CONSTRAINTS = "retry_history", "constraints"

_LARGEST = 1e300
"""Constraint values end here: those of a past are finite."""


@dataclass(frozen=True)
class Past:
    """See search.Past."""

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
        return self._tried[self.space.key(config)]

    @cached_property
    def _tried(self) -> Counter[tuple[Any, ...]]:
        return Counter(self.space.key(trial.config) for trial in self.trials)


class Reader:
    """Reads one study. What it keeps is a cache: records of ended trials, while the space stays the same."""

    def __init__(self, study: Study) -> None:
        self.storage, self.study_id = study._storage, study._study_id
        self.intersection = IntersectionSearchSpace()
        self._translation: Translation | None = None
        self._records: dict[int, TrialRecord | None] = {}  # None: has no place in the space
        self._told_of: set[str] = set()

    def read(
        self, study: Study, search_space: Mapping[str, BaseDistribution], without: int, seed: int
    ) -> tuple[Translation, Past]:
        """All but the trial with the number `without`, which is to get a suggestion."""
        if self._translation is None or self._translation.distributions != search_space:
            self._translation, self._records = Translation(search_space), {}
        # Of the storage and not of the study, which under Hyperband shows some of them.
        trials = [trial for trial in self._trials() if trial.number != without]
        retried = {number for trial in trials for number in trial.system_attrs.get(_RETRIED, ())}
        objectives = _objectives(study.directions)
        ended = [
            record
            for trial, values in _outcomes(trials, objectives)
            # A trial that is tried again was lost with its machine, or failed by chance.
            if (values is not None or trial.number not in retried)
            and (record := self._ended(trial, values, objectives)) is not None
        ]
        metrics = sorted({name for record in ended for name in record.metrics if name.startswith(_CONSTRAINTS)})
        for record in ended:
            if record.values is not None:  # as in Optuna, a constraint that a trial does not know of is met
                record.metrics = {**dict.fromkeys(metrics, 0.0), **record.metrics}
        pending = [record for trial in trials if (record := self._pending(trial)) is not None]
        return self._translation, Past(
            space=self._translation.space,
            seed=seed,
            trials=sorted(ended + pending, key=lambda record: record.id),
            ended=ended,
            objectives=objectives,
            constraints=[Constraint(name, 0.0, upper=True) for name in metrics],
        )

    def given_meanwhile(self, config: Config, past: Past, number: int) -> bool:
        """Whether another trial was given the same since the past was read, which did not know of it then."""
        if past.times(config):  # nothing else is left
            return False
        assert self._translation is not None
        key = past.space.key(config)
        others = (trial for trial in self._trials() if trial.number != number and not trial.state.is_finished())
        configs = (self._translation.config(trial) for trial in others)
        return any(other is not None and past.space.key(other) == key for other in configs)

    def newly_left_out(self, study: Study, name: str) -> bool:
        """Whether a parameter is not searched although trials have completed, asked for the first time."""
        if name in self._told_of or not any(trial.state is TrialState.COMPLETE for trial in self._trials()):
            return False
        if name in self.intersection.calculate(study):
            return False  # when this trial began, none had completed
        self._told_of.add(name)
        return True

    def _trials(self) -> list[FrozenTrial]:
        return self.storage.get_all_trials(self.study_id, deepcopy=False)

    def _ended(
        self, trial: FrozenTrial, values: tuple[float, ...] | None, objectives: Sequence[Objective]
    ) -> TrialRecord | None:
        known = self._records.get(trial.number)
        if trial.number in self._records and (known is None or known.values == values):
            return known
        record = self._blank(trial)
        if record is not None:
            record.state = State.COMPLETED if trial.state is TrialState.COMPLETE else State.STOPPED
            if values is None:
                record.state = State.FAILED
            else:
                record.value, record.values = values[0], values
                record.metrics = dict(zip((each.metric for each in objectives), values, strict=True))
                record.metrics.update(_constraint_metrics(trial.system_attrs))
            record.ended_at = _seconds(trial.datetime_complete)
            record.seconds = max(0.0, record.ended_at - record.created_at)
        self._records[trial.number] = record
        return record

    def _pending(self, trial: FrozenTrial) -> TrialRecord | None:
        if trial.state.is_finished():
            return None
        record = self._blank(trial)
        if record is not None and trial.state is TrialState.RUNNING:
            record.state = State.RUNNING
        return record

    def _blank(self, trial: FrozenTrial) -> TrialRecord | None:
        assert self._translation is not None
        config = self._translation.config(trial)
        return None if config is None else TrialRecord(trial.number, config, _seconds(trial.datetime_start))


def _outcomes(
    trials: Sequence[FrozenTrial], objectives: Sequence[Objective]
) -> Iterator[tuple[FrozenTrial, tuple[float, ...] | None]]:
    """Those that have ended, in the order in which they did, and their values; None: it failed.

    A pruned trial has its last intermediate value, but none better than the median of those completed before: an
    early step may look better than any last one, and what was pruned hardly is. One without a value has failed:
    raising TrialPruned at once is how objectives refuse a configuration.
    """
    completed: list[float] = []  # of a single objective, rising
    finished = [trial for trial in trials if trial.state.is_finished()]
    for trial in sorted(finished, key=lambda trial: (_seconds(trial.datetime_complete), trial.number)):
        values: tuple[float, ...] | None = None
        if trial.state is TrialState.COMPLETE:
            values = tuple(trial.values)
        elif trial.state is TrialState.PRUNED and trial.last_step is not None and len(objectives) == 1:
            value = trial.intermediate_values[trial.last_step]
            if completed:
                middle = 0.5 * completed[(len(completed) - 1) // 2] + 0.5 * completed[len(completed) // 2]
                value = min(value, middle) if objectives[0].maximize else max(value, middle)
            values = (value,)
        if values is not None and not all(map(math.isfinite, values)):
            values = None
        if values is not None and trial.state is TrialState.COMPLETE and len(values) == 1:
            insort(completed, values[0])
        yield trial, values


def _objectives(directions: Sequence[StudyDirection]) -> tuple[Objective, ...]:
    return tuple(Objective(f"value {i}", each is StudyDirection.MAXIMIZE) for i, each in enumerate(directions))


def _constraint_metrics(attrs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """What constraints_func returned is a list; what trial.set_constraint() was given has a key each."""
    told = {f"{_CONSTRAINTS}:{i}": value for i, value in enumerate(attrs.get(_CONSTRAINTS) or ())}
    told.update((key, value) for key, value in attrs.items() if key.startswith(f"{_CONSTRAINTS}:"))
    return ((key, min(max(float(value), -_LARGEST), _LARGEST)) for key, value in told.items())


def _seconds(at: datetime | None) -> float:
    return 0.0 if at is None else at.timestamp()
