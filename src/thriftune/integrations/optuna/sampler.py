"""Thriftune's search as a sampler of Optuna's."""

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
from thriftune.integrations.optuna.past import Reader
from thriftune.integrations.optuna.translation import SUGGESTED, Translation
from thriftune.search.bayes import Bayes
from thriftune.search.protocol import Searcher

_TURNS = 5
"""Times that a suggestion is made at most, if other workers are given the same at the same time."""


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
        self._reader: Reader | None = None
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
            reader = self._reader_of(study)
            for turn in range(_TURNS):
                translation, past = reader.read(study, search_space, trial.number, self._seed)
                config = self._searcher.suggest(past, np.random.default_rng((self._seed, trial.number, turn)))
                if config is None:
                    return {}
                params = translation.params(config)
                # Other workers see a parameter when it is asked for, which may be late; with this, they know at
                # once. Of two that were given the same at the same time, at least one sees it, and asks again.
                numbers = {name: search_space[name].to_internal_repr(value) for name, value in params.items()}
                study._storage.set_trial_system_attr(trial._trial_id, SUGGESTED, numbers)
                if not reader.given_meanwhile(config, past, trial.number):
                    break
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
        translation = Translation({param_name: param_distribution})
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

    def _reader_of(self, study: Study) -> Reader:
        # By the storage too: each in memory numbers its studies from 0.
        reader = self._reader
        if reader is None or reader.storage is not study._storage or reader.study_id != study._study_id:
            reader = self._reader = Reader(study)
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
