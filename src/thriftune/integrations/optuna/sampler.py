"""Thriftune's search as an Optuna sampler."""

from __future__ import annotations

import threading
import warnings
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.samplers._base import _process_constraints_after_trial
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from thriftune.errors import SettingError
from thriftune.integrations.optuna.study_reader import StudyReader
from thriftune.integrations.optuna.translation import SUGGESTED, Translation
from thriftune.search.bayes import Bayes
from thriftune.search.protocol import Searcher

_MAX_TRIES = 5
"""The most suggestions that are made for one trial, if other workers take the same ones at the same time."""


class ThriftuneSampler(BaseSampler):
    """Thriftune's Bayesian search as an Optuna sampler: `optuna.create_study(sampler=ThriftuneSampler())`.

    - `seed`: the same seed and history give the same suggestion in every process. None takes a random seed.
    - `constraints_func`: as for Optuna's samplers; values above 0 are violations. Values that an objective sets
      with `trial.set_constraint()` count, too.
    - `options`: those of `thriftune.search.bayes.Bayes`.

    The parameters that every completed trial has, with the same range, are searched. Others are drawn at random,
    with a warning. Random numbers depend on the seed and the number of the trial, which is unique in a study.
    Workers with the same seed therefore never draw the same numbers, and `reseed_rng()` does nothing.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        **options: Any,
    ) -> None:
        self._seed = _checked_seed(seed)
        self._constraints_func = constraints_func
        self._options = options
        self._searcher: Searcher = Bayes(**options)
        self._reader: StudyReader | None = None
        # Only one thread (n_jobs) at a time makes a suggestion. It sees the suggestions of the others, and the
        # caches need no locks of their own.
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        # All other attributes are caches, or the lock, which cannot be pickled.
        return partial(type(self), seed=self._seed, constraints_func=self._constraints_func, **self._options), ()

    def infer_relative_search_space(
        self,
        study: Study,
        trial: FrozenTrial,  # noqa: ARG002 (the same for all trials)
    ) -> dict[str, BaseDistribution]:
        with self._lock:
            common = self._reader_for(study).intersection.calculate(study)
        return {name: distribution for name, distribution in common.items() if not distribution.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        with self._lock:
            reader = self._reader_for(study)
            for number_of_try in range(_MAX_TRIES):
                translation, past = reader.read(study, search_space, trial.number, self._seed)
                rng = np.random.default_rng((self._seed, trial.number, number_of_try))
                config = self._searcher.suggest(past, rng)
                if config is None:
                    return {}
                params = translation.params(config)
                # Other workers see a parameter only once the objective requests it, which may be late. The system
                # attribute shows them the suggestion now. If two workers take the same configuration at the same
                # time, at least one of them sees it and tries again.
                numbers = {name: search_space[name].to_internal_repr(value) for name, value in params.items()}
                study._storage.set_trial_system_attr(trial._trial_id, SUGGESTED, numbers)
                if not reader.is_taken_by_another(config, past, trial.number):
                    break
            return params

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        with self._lock:
            left_out = self._reader_for(study).newly_left_out(study, param_name)
        if left_out:
            warnings.warn(
                f"{param_name}: is drawn at random, because not every completed trial has it with the same range; "
                "suggest it in every trial to have it searched",
                stacklevel=4,  # the line of the objective that requests it
            )
        translation = Translation({param_name: param_distribution})
        if trial.number == 0:  # the middle of the space, as in every Bayesian search of thriftune
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
        values: Sequence[float] | None,  # noqa: ARG002 (read from the storage later)
    ) -> None:
        if self._constraints_func is not None:
            _process_constraints_after_trial(self._constraints_func, study, trial, state)

    def _reader_for(self, study: Study) -> StudyReader:
        """Return the reader of a study; a new one if the study is not that of the last call."""
        # Compare the storage, too: each in-memory storage numbers its studies from 0.
        reader = self._reader
        if reader is None or reader.storage is not study._storage or reader.study_id != study._study_id:
            reader = self._reader = StudyReader(study)
        return reader


def _checked_seed(seed: int | None) -> int:
    """Return the seed, or a random one for None; raise SettingError if it is not a whole number from 0."""
    if seed is None:
        return int(np.random.default_rng().integers(2**32))
    try:
        number = index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise SettingError(f"seed {seed!r} must be a whole number from 0, or None")
    return number
