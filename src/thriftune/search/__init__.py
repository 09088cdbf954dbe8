"""Which configuration next? The searcher protocol, and the searchers by name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from thriftune.errors import SettingError
from thriftune.events import Config
from thriftune.objectives import Constraint, Objective
from thriftune.search.grid import Grid
from thriftune.search.random import Random
from thriftune.search.sobol import Sobol
from thriftune.space import Space

if TYPE_CHECKING:
    from thriftune.earlier import Earlier
    from thriftune.trial import TrialRecord

__all__ = [
    "BLIND",
    "BY_NAME",
    "Bayes",
    "Grid",
    "Past",
    "Random",
    "Searcher",
    "Sobol",
    "check_searcher",
    "named",
    "written",
]


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
    def earlier(self) -> Sequence[Earlier]:
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


BLIND = frozenset({"random", "sobol", "grid"})
"""Those that go by no trial's value, of this study or of an earlier one."""

BY_NAME = {"bayes": "Bayes", "random": "Random", "sobol": "Sobol", "grid": "Grid"}
"""The searchers that a name stands for, and their classes here."""


def check_searcher(given: object) -> None:
    """Whether it is the name of a searcher, or one that can be asked; SettingError if not."""
    if isinstance(given, str):
        named(given)
    elif isinstance(given, type):
        raise SettingError(f"searcher: {given.__name__} is a class; give an object, {given.__name__}()")
    elif not callable(getattr(given, "suggest", None)):
        raise SettingError(
            f"searcher: {given!r} has no method suggest(past, rng); give an object that has one, "
            f"or one of {', '.join(map(repr, BY_NAME))}"
        )


def named(name: str) -> Searcher:
    if name not in BY_NAME:
        raise SettingError(f"searcher {name!r} is not known; use one of {', '.join(BY_NAME)}")
    searcher: Searcher = getattr(sys.modules[__name__], BY_NAME[name])()
    return searcher


def written(searcher: str | Searcher) -> tuple[str, dict[str, Any]]:
    """Its name and its options, as a study file has them; of a user's own, the name of its class."""
    if isinstance(searcher, str):
        return searcher, {}
    kind = type(searcher)
    for name, of in BY_NAME.items():
        if kind.__module__.startswith(f"{__name__}.") and kind.__name__ == of:
            return name, dict(getattr(searcher, "options", {}))
    return kind.__name__, {}


def __getattr__(name: str) -> Any:
    if name == "Bayes":  # needs SciPy, which takes a while to import, and which only a driver uses
        from thriftune.search.bayes import Bayes

        return Bayes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
