"""The searcher protocol: what a searcher is given, and what it returns."""

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
    """What a searcher may look at: everything observed so far, running trials included."""

    @property
    def space(self) -> Space: ...

    @property
    def seed(self) -> int:
        """The study's seed, for what must stay the same from one suggestion to the next; not negative."""
        ...

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """Every trial, in the order of their suggestion; those without a value yet are waiting or running."""
        ...

    @property
    def ended(self) -> Sequence[TrialRecord]:
        """Those that have ended, in the order in which they did: it only ever grows at its end."""
        ...

    @property
    def objectives(self) -> Sequence[Objective]:
        """What is wanted; a trial's `values` are in the same order."""
        ...

    @property
    def constraints(self) -> Sequence[Constraint]:
        """What a trial must meet besides; see objectives.feasible(trial.metrics, constraints)."""
        ...

    @property
    def maximize(self) -> bool:
        """Of the first objective, whose value is a trial's `value`."""
        ...

    @property
    def earlier(self) -> Sequence[EarlierStudy]:
        """What other studies knew, which this one began with; earlier.translate() reads it in this space."""
        ...

    def times(self, config: Config) -> int:
        """How many trials have this configuration, whatever their state. Constant time."""
        ...


class Searcher(Protocol):
    """A pure function of what has been observed; what it keeps between calls is only a cache.

    `rng` is derived from the study's seed and the number of the suggestion, so that a resumed study goes on
    as it would have. Never suggests a configuration twice while untried ones are left. None: nothing left.
    """

    def suggest(self, past: Past, rng: np.random.Generator) -> Config | None: ...


@runtime_checkable
class Foresighted(Protocol):
    """A searcher that can tell what to expect of a trial, so that a study can stop when it is next to nothing."""

    def suggest(self, past: Past, rng: np.random.Generator) -> Config | None: ...

    def expected_gain(self, past: Past) -> float | None:
        """Return by how much the configuration just suggested is expected to improve the best value.

        At least 0, in the units of the objective; None if it is not known. Called after suggest(), with the same
        past.
        """
        ...
