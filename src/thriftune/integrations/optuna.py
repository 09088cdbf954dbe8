"""How do users of Optuna come by this search? `ThriftuneSampler`, and how an Optuna study reads as a past of ours.

Optuna is needed here only, and comes with the extra `optuna`.
"""

from __future__ import annotations

import math
import threading
import warnings
import zlib
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property, partial
from operator import index
from typing import Any

import numpy as np

from thriftune.earlier import Earlier
from thriftune.errors import MissingExtra, SettingError
from thriftune.events import Config
from thriftune.objectives import Constraint, Objective
from thriftune.parameters import LARGEST_INT, Choice, Float, Int, Parameter
from thriftune.search import Searcher
from thriftune.search.bayes import Bayes
from thriftune.space import Space
from thriftune.trial import State, TrialRecord

try:
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )
    from optuna.samplers import BaseSampler
    from optuna.samplers._base import _process_constraints_after_trial
    from optuna.search_space import IntersectionSearchSpace
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ImportError:
    raise MissingExtra("ThriftuneSampler needs optuna; install it with: pip install 'thriftune[optuna]'") from None

__all__ = ["ThriftuneSampler"]

# Keys of a trial's system attributes: ours, and those of Optuna's own.
_SUGGESTED = "thriftune:suggested"
_ENQUEUED, _RETRIED, _CONSTRAINTS = "fixed_params", "retry_history", "constraints"

_LARGEST = 1e300
"""Constraint values end here: those of a past are finite."""

_OFF = Decimal("0.001")
"""A value further than this part of a step from one was not given by the distribution."""


class ThriftuneSampler(BaseSampler):
    """Thriftune's Bayesian search as a sampler of Optuna's: `optuna.create_study(sampler=ThriftuneSampler())`.

    - `seed`: same seed, same history, same suggestion, whatever process it is made in. None: a random one.
    - `constraints_func`: as with Optuna's samplers; values above 0 are violations. Those that an objective sets by
      `trial.set_constraint()` count too.
    - `options`: those of `thriftune.search.bayes.Bayes`.

    Parameters that every completed trial has with the same range are searched; others are drawn at random, which
    is said. Randomness comes from the seed and the number of the trial, which no other trial of a study has. So
    workers with one seed never draw the same, and `reseed_rng()` has nothing to do.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        **options: Any,
    ) -> None:
        self._seed = _checked(seed)
        self._constraints_func = constraints_func
        self._options = options
        self._searcher: Searcher = Bayes(**options)
        self._reader: _Reader | None = None
        # Threads (n_jobs) take turns: each sees what the others were given, and caches need no care.
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        # Everything else is a cache, or a lock, which cannot be copied.
        return partial(type(self), seed=self._seed, constraints_func=self._constraints_func, **self._options), ()

    def infer_relative_search_space(
        self,
        study: Study,
        trial: FrozenTrial,  # noqa: ARG002 - all trials have the same
    ) -> dict[str, BaseDistribution]:
        with self._lock:
            common = self._reader_of(study).intersection.calculate(study)
        return {name: distribution for name, distribution in common.items() if not distribution.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        with self._lock:
            translation, past = self._reader_of(study).read(study, search_space, trial.number, self._seed)
            config = self._searcher.suggest(past, np.random.default_rng((self._seed, trial.number)))
            if config is None:
                return {}
            params = translation.params(config)
            # Other workers see a parameter when it is asked for, which may be late; with this, they know at once.
            numbers = {name: search_space[name].to_internal_repr(value) for name, value in params.items()}
            study._storage.set_trial_system_attr(trial._trial_id, _SUGGESTED, numbers)
            return params

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        with self._lock:
            left_out = self._reader_of(study).newly_left_out(study, param_name)
        if left_out:
            warnings.warn(
                f"{param_name}: is drawn at random, for not every completed trial has it with the same range; "
                "ask for it in every trial to have it searched",
                stacklevel=4,  # where the objective asks for it
            )
        translation = _Translation({param_name: param_distribution})
        if trial.number == 0:  # as every search of ours begins
            config = translation.space.from_unit([0.5])
        else:
            config = translation.space.sample(
                np.random.default_rng((self._seed, trial.number, zlib.crc32(param_name.encode())))
            )
        return translation.params(config)[param_name]

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,  # noqa: ARG002 - read when they are in the storage
    ) -> None:
        if self._constraints_func is not None:
            _process_constraints_after_trial(self._constraints_func, study, trial, state)

    def _reader_of(self, study: Study) -> _Reader:
        # By the storage too: each in memory numbers its studies from 0.
        reader = self._reader
        if reader is None or reader.storage is not study._storage or reader.study_id != study._study_id:
            reader = self._reader = _Reader(study)
        return reader


def _checked(seed: int | None) -> int:
    if seed is None:
        return int(np.random.default_rng().integers(2**32))
    try:
        number = index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise SettingError(f"seed {seed!r} must be a whole number from 0, or None")
    return number


# --- a study as a past ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Past:
    """See search.Past."""

    space: Space
    seed: int
    trials: Sequence[TrialRecord]
    ended: Sequence[TrialRecord]
    objectives: Sequence[Objective]
    constraints: Sequence[Constraint]
    earlier: Sequence[Earlier] = ()

    @property
    def maximize(self) -> bool:
        return self.objectives[0].maximize

    def times(self, config: Config) -> int:
        return self._tried[self.space.key(config)]

    @cached_property
    def _tried(self) -> Counter[tuple[Any, ...]]:
        return Counter(self.space.key(trial.config) for trial in self.trials)


class _Reader:
    """Reads one study. What it keeps is a cache: records of ended trials, while the space stays the same."""

    def __init__(self, study: Study) -> None:
        self.storage, self.study_id = study._storage, study._study_id
        self.intersection = IntersectionSearchSpace()
        self._translation: _Translation | None = None
        self._records: dict[int, TrialRecord | None] = {}  # None: has no place in the space
        self._told_of: set[str] = set()

    def read(
        self, study: Study, search_space: Mapping[str, BaseDistribution], without: int, seed: int
    ) -> tuple[_Translation, _Past]:
        """All but the trial with the number `without`, which is to get a suggestion."""
        if self._translation is None or self._translation.distributions != search_space:
            self._translation, self._records = _Translation(search_space), {}
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
        return self._translation, _Past(
            space=self._translation.space,
            seed=seed,
            trials=sorted(ended + pending, key=lambda record: record.id),
            ended=ended,
            objectives=objectives,
            constraints=[Constraint(name, 0.0, upper=True) for name in metrics],
        )

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


# --- a search space as a space ----------------------------------------------------------------------------


class _Translation:
    """Distributions as a space of ours; parameters as configurations and back."""

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        self.distributions = dict(distributions)
        self._axes = {name: _Axis(distribution) for name, distribution in distributions.items()}
        self.space = Space({name: axis.parameter for name, axis in self._axes.items()})

    def config(self, trial: FrozenTrial) -> dict[str, Any] | None:
        """What a trial was asked for, is fixed to or at least was suggested; None: has no place in the space."""
        suggested = trial.system_attrs.get(_SUGGESTED, {})
        given = {**trial.system_attrs.get(_ENQUEUED, {}), **trial.params}
        config: dict[str, Any] = {}
        for name, axis in self._axes.items():
            try:
                number = axis.distribution.to_internal_repr(given[name]) if name in given else suggested[name]
            except (KeyError, ValueError):  # it has none, or none that there can be
                return None
            if (place := axis.place(number)) is None:
                return None
            config[name] = place
        return config

    def params(self, config: Config) -> dict[str, Any]:
        return {name: self._axes[name].value(place) for name, place in config.items()}


class _Axis:
    """A distribution as a parameter of ours. Choices and steps go by their index, which maps back exactly.

    Optuna has a number for each value, a choice's being its index; a place is what a configuration has for it.
    """

    parameter: Parameter

    def __init__(self, distribution: BaseDistribution) -> None:
        self.distribution = distribution
        low: float = 0
        high: float
        step: float | None
        if isinstance(distribution, CategoricalDistribution):
            high, log, step = len(distribution.choices) - 1, False, 1
        else:
            assert isinstance(distribution, FloatDistribution | IntDistribution)
            low, high, log, step = distribution.low, distribution.high, distribution.log, distribution.step
        self._low, self._high = low, high
        # In decimals, as Optuna counts steps: three steps of 0.1 are 0.3.
        self._first, self._step = Decimal(str(low)), Decimal(str(step or 0))
        steps = (Decimal(str(high)) - self._first) / self._step if self._step else math.inf
        self._indexed = not log and steps <= LARGEST_INT
        if isinstance(distribution, CategoricalDistribution):
            self.parameter = Choice(range(len(distribution.choices)))
        elif self._indexed:
            self.parameter = Int(0, round(steps))
        elif isinstance(distribution, IntDistribution) and high <= LARGEST_INT:
            self.parameter = Int(distribution.low, distribution.high, log=log)
        else:  # also with more steps than an Int can have
            self.parameter = Float(low, high, log=log)

    def place(self, number: float) -> float | None:
        """None: has none."""
        if not self._low <= number <= self._high:
            return None
        if not self._step:
            return float(number)
        steps = (Decimal(str(number)) - self._first) / self._step
        if abs(steps - round(steps)) > _OFF:
            return None
        return round(steps) if self._indexed else number if isinstance(self.parameter, Float) else round(number)

    def value(self, place: Any) -> Any:
        if isinstance(self.distribution, CategoricalDistribution):
            return self.distribution.choices[place]
        if not self._step:
            return float(place)
        steps = place if self._indexed else round((Decimal(place) - self._first) / self._step)
        value = self._first + steps * self._step
        return int(value) if isinstance(self.distribution, IntDistribution) else float(value)
