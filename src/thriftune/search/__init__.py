"""Which configuration next? The searcher protocol, and the searchers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from thriftune.errors import SettingError
from thriftune.events import Config
from thriftune.space import Space
from thriftune.trial import TrialRecord


class Past(Protocol):
    """What a searcher may look at: everything observed so far, running trials included."""

    @property
    def space(self) -> Space: ...

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """Every trial, in the order of their suggestion; those without a value yet are waiting or running."""
        ...

    @property
    def maximize(self) -> bool: ...

    def times(self, config: Config) -> int:
        """How many trials have this configuration, whatever their state. Constant time."""
        ...


class Searcher(Protocol):
    """A pure function of what has been observed; what it keeps between calls is only a cache.

    `rng` is derived from the study's seed and the number of the suggestion, so that a resumed study goes on as
    it would have. Never suggests a configuration a second time while untried ones are left. None: nothing left.
    """

    def suggest(self, past: Past, rng: np.random.Generator) -> Config | None: ...
