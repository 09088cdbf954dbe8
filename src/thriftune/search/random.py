"""Random search: uniform on each parameter's own scale, without repeats while untried configurations remain."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from thriftune.search.protocol import Past

MAX_DRAWS = 32
"""After this many draws of tried configurations, walk through the space instead."""

MIN_WALK = 10_000
"""The walk visits at least this many configurations. It is exact for spaces that are not larger."""


class Random:
    """Draw until a configuration is untried; after MAX_DRAWS draws, take one of the least tried at random.

    The least tried configuration is an untried one if any is left, else a repeat.
    """

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        for _ in range(MAX_DRAWS):
            config = past.space.sample(rng)
            if not past.times(config):
                return config
        return _least_tried(past, rng)


def _least_tried(past: Past, rng: np.random.Generator) -> dict[str, Any]:
    """Return a random one of the least tried among the first max(MIN_WALK, trials + 1) configurations.

    If any configuration is untried, an untried one is returned: n trials leave at least one of n + 1
    configurations untried, and a shorter walk has visited the whole space. The grid of an infinite space has at
    least n + 1 configurations: an active parameter gives either all its values, so that every parameter that
    depends on it becomes active too, or as many values as the grid has points.
    """
    space, trials = past.space, len(past.trials)
    walk = space.grid(trials + 1) if space.size == math.inf else space.every()
    chosen: dict[str, Any] = {}
    fewest, ties = math.inf, 0
    for config in islice(walk, max(MIN_WALK, trials + 1)):
        times = past.times(config)
        if times < fewest:
            fewest, ties = times, 0
        if times == fewest:
            # Reservoir sampling of one item: the k-th tie replaces the earlier choice with probability 1/k.
            ties += 1
            if rng.random() * ties < 1.0:
                chosen = config
    return chosen
