"""Sobol search: a scrambled low-discrepancy sequence, which leaves smaller gaps than chance does."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from thriftune.search.random import Random

if TYPE_CHECKING:
    from thriftune.search.protocol import Past

BLOCK = 64
"""Points drawn at a time; a power of two, as scipy asks."""

AHEAD = 64
"""Points looked at for an untried configuration before chance takes over."""


class Sobol:
    """Suggestion n is point n of the sequence as the study's seed scrambles it, or the next untried one."""

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        number = len(past.trials)
        for i in range(number, number + AHEAD):
            block = _block(len(past.space.searched), past.seed, i // BLOCK)
            config = past.space.from_unit(block[i % BLOCK])
            if not past.times(config):
                return config
        return Random().suggest(past, rng)


@lru_cache(maxsize=16)
def _block(dimensions: int, seed: int, number: int) -> list[list[float]]:
    """Points number * BLOCK and on. One dimension a parameter: a Choice with one a value would waste them."""
    from scipy.stats import qmc  # takes most of a second to import

    engine = qmc.Sobol(dimensions, scramble=True, seed=np.random.default_rng(seed))
    if number:  # scipy cannot skip nothing
        engine.fast_forward(number * BLOCK)
    points: list[list[float]] = engine.random(BLOCK).tolist()
    return points
