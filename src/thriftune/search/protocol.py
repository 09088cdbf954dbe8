"""The protocol of searchers: their input, and what they return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from thriftune.space.objectives import Constraint, Objective
from thriftune.space.space import Space
from thriftune.state.events import Config

if TYPE_CHECKING:
    from thriftune.state.earlier_results import EarlierStudy
    from thriftune.state.trial_record import TrialRecord


class Past(Protocol):
    """The part of a study's history that a searcher may use: all observations, and the running trials."""

    @property
    def space(self) -> Space: ...

    @property
    def seed(self) -> int:
        """The study's seed, for random choices that must be the same in all suggestions; not negative."""
        ...

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """All trials, in the order of their suggestion; a trial without a value is waiting or running."""
        ...

    @property
    def ended(self) -> Sequence[TrialRecord]:
        """All and only the trials that have ended, in the order of their ends. Trials are only ever appended."""
        ...

    @property
    def objectives(self) -> Sequence[Objective]:
        """The objectives; a trial's `values` are in the same order."""
        ...

    @property
    def constraints(self) -> Sequence[Constraint]:
        """The constraints that a trial must meet; see objectives.feasible(trial.metrics, constraints)."""
        ...

    @property
    def maximize(self) -> bool:
        """Whether the first objective is maximised; its value is a trial's `value`."""
        ...

    @property
    def earlier(self) -> Sequence[EarlierStudy]:
        """The sources of a warm start; earlier_results.translate() converts one to this space."""
        ...

    def times(self, config: Config) -> int:
        """Return how many trials have this configuration, whatever their state. Takes constant time."""
        ...


class Searcher(Protocol):
    """A pure function of the past; any state it holds between calls is only a cache.

    A searcher suggests no configuration twice while untried ones are left. It returns None if nothing is left to
    suggest. `rng` is derived from the study's seed and the number of the suggestion, so that a resumed study
    continues with the same suggestions.
    """

    def suggest(self, past: Past, rng: np.random.Generator) -> Config | None: ...


@runtime_checkable
class GainPredictor(Protocol):
    """A searcher that predicts how much a trial will improve the best value.

    With it, a study can stop when the expected gain is almost zero.
    """

    def suggest(self, past: Past, rng: np.random.Generator) -> Config | None: ...

    def expected_gain(self, past: Past) -> float | None:
        """Return by how much the configuration just suggested is expected to improve the best value.

        The gain is at least 0, in the units of the objective; None if it is not known. Called after suggest(),
        with the same past.
        """
        ...
