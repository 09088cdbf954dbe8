"""Which hyperparameters are likely? Draws of theta by slice sampling, or the single most likely one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

import numpy as np

from thriftune.search.bayes import slice_sampler
from thriftune.search.bayes.kernel import Array, Indices, Inputs, Layout
from thriftune.search.bayes.likelihood import LogPosterior, default_prior, maximum

LEARNED_FROM = 150
"""Observations that theta is learned from at most: more tell little about it, and cost their cube."""

EVERY_TIME = 50
"""Up to so many observations, theta is learned anew after each; then after every twentieth part more."""


@dataclass(frozen=True)
class Sampling:
    """How theta is integrated out. The chain starts from the most likely theta, so that little needs to be burned
    in; AMT's own, from anywhere, is Sampling(draws=10, burn_in=250, thin=5)."""

    draws: int = 8
    burn_in: int = 10
    thin: int = 2


def learned_at(n: int) -> int:
    """How many of the first n observations theta was last learned from.

    A function of n alone, so that a resumed study has the same theta.
    """
    if n <= EVERY_TIME:
        return n
    rate = math.log(1.05)
    return min(n, math.ceil(EVERY_TIME * math.exp(rate * math.floor(math.log(n / EVERY_TIME) / rate))))


def spread_out(y: Array, most: int) -> Indices:
    """At most so many observations: half of them the best, the rest evenly from the others as they came."""
    if len(y) <= most:
        return np.arange(len(y))
    order = np.argsort(y, kind="stable")
    best, others = order[: most // 2], np.sort(order[most // 2 :])
    even = np.linspace(0, len(others) - 1, most - len(best)).round().astype(np.intp)
    return np.sort(np.concatenate([best, others[even]]))


def most_likely(layout: Layout, X: Array, y: Array, trend: Array | None = None) -> Array:
    """(1, k) empirical Bayes: the theta of the highest posterior density."""
    return _density_and_top(layout, X, y, trend)[1][None]


def sampled(
    layout: Layout, X: Array, y: Array, how: Sampling, rng: np.random.Generator, trend: Array | None = None
) -> Array:
    """(S, k) draws of theta from its posterior."""
    density, top = _density_and_top(layout, X, y, trend)
    prior = density.prior
    chain = slice_sampler.draws(density, top, prior.sd, prior.low, prior.high, rng)
    kept = islice(chain, how.burn_in + how.thin - 1, how.burn_in + how.draws * how.thin, how.thin)
    return np.array(list(kept))


def _density_and_top(layout: Layout, X: Array, y: Array, trend: Array | None) -> tuple[LogPosterior, Array]:
    chosen = spread_out(y, LEARNED_FROM)
    prior = default_prior(layout)
    density = LogPosterior(
        Inputs(layout, X[chosen]), y[chosen], prior, None if trend is None else trend[chosen]
    )
    return density, maximum(density, prior.mean, iterations=ITERATIONS)


ITERATIONS = 40
