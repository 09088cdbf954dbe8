"""Sobol search: a scrambled low-discrepancy sequence, which leaves smaller gaps than random points."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from thriftune.search.random import Random

if TYPE_CHECKING:
    from thriftune.search.protocol import Past

BLOCK = 64
"""The number of points drawn at once; a power of two, as scipy needs."""

MAX_SKIPPED = 64
"""After this many points whose configurations are all tried, use random search."""


class Sobol:
    """Suggest point n of the sequence as suggestion n, or the next point that is untried.

    The study's seed scrambles the sequence.
    """

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        number = len(past.trials)
        for i in range(number, number + MAX_SKIPPED):
            block = _block(len(past.space.searched), past.seed, i // BLOCK)
            config = past.space.from_unit(block[i % BLOCK])
            if not past.times(config):
                return config
        return Random().suggest(past, rng)


@lru_cache(maxsize=16)
def _block(dimensions: int, seed: int, number: int) -> list[list[float]]:
    """Return the BLOCK points from index number * BLOCK on.

    Each parameter takes one dimension. One dimension for each value of a Choice would waste dimensions.
    """
    from scipy.stats import qmc  # takes most of a second to import

    engine = qmc.Sobol(dimensions, scramble=True, seed=np.random.default_rng(seed))
    if number:  # scipy cannot skip zero points
        engine.fast_forward(number * BLOCK)
    points: list[list[float]] = engine.random(BLOCK).tolist()
    return points
