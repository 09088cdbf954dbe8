"""Random search: uniform on each parameter's own scale, and nothing twice while something is left."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from thriftune.search.protocol import Past

DRAWS = 32
"""Draws before the space is gone through instead."""

WALK = 10_000
"""Configurations looked at, at least, when it is; exact for spaces no larger than this."""


class Random:
    """Draws until it finds an untried configuration. Where draws keep hitting tried ones, takes one of the
    least tried, each with the same chance: an untried one if there is any, else a repeat."""

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        for _ in range(DRAWS):
            config = past.space.sample(rng)
            if not past.times(config):
                return config
        return _least_tried(past, rng)


def _least_tried(past: Past, rng: np.random.Generator) -> dict[str, Any]:
    """One of the least tried configurations among the first max(WALK, trials + 1).

    If any is untried, one of these is: n trials leave one of n + 1 configurations untried, and a shorter walk
    has seen them all. The grid of an infinite space has n + 1: a parameter active in it either gives all its
    values, so that all that depends on them is active too, or as many as there are points.
    """
    space, trials = past.space, len(past.trials)
    walk = space.grid(trials + 1) if space.size == math.inf else space.every()
    chosen: dict[str, Any] = {}
    fewest, ties = math.inf, 0
    for config in islice(walk, max(WALK, trials + 1)):
        times = past.times(config)
        if times < fewest:
            fewest, ties = times, 0
        if times == fewest:
            # A reservoir of one: the k-th tie replaces those before it with chance 1/k.
            ties += 1
            if rng.random() * ties < 1.0:
                chosen = config
    return chosen
