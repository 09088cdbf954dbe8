"""Which configuration next? The searchers by name; protocol.py defines their protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thriftune.common.registry import Registry
from thriftune.search.protocol import GainPredictor, Past, Searcher

if TYPE_CHECKING:
    from thriftune.search.bayes import Bayes
    from thriftune.search.grid import Grid
    from thriftune.search.random import Random
    from thriftune.search.sobol import Sobol

__all__ = [
    "MODEL_FREE",
    "SEARCHERS",
    "Bayes",
    "GainPredictor",
    "Grid",
    "Past",
    "Random",
    "Searcher",
    "Sobol",
]


MODEL_FREE = frozenset({"random", "sobol", "grid"})
"""Names of the searchers that ignore the values of trials, and therefore gain nothing from a warm start."""

SEARCHERS: Registry[Searcher] = Registry(
    "searcher",
    {
        "bayes": (f"{__name__}.bayes.searcher", "Bayes"),
        "random": (f"{__name__}.random", "Random"),
        "sobol": (f"{__name__}.sobol", "Sobol"),
        "grid": (f"{__name__}.grid", "Grid"),
    },
    ("suggest(past, rng)",),
)


def __getattr__(name: str) -> Any:
    return SEARCHERS.of_class(name)


def __dir__() -> list[str]:
    return sorted(__all__)
