"""Which hyperparameters are likely? Draws of theta by slice sampling, or the single most likely one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from scipy.special import expit, log_ndtr

from thriftune.search.bayes import slice_sampler
from thriftune.search.bayes.kernel import Array, Indices, Inputs, Layout, matern52, squared_distances
from thriftune.search.bayes.likelihood import SHARE_MEAN, SHARE_SD, LogPosterior, default_prior, maximum
from thriftune.search.bayes.posterior import inverse_factor

LEARNED_FROM = 100
"""Observations that theta is learned from at most: more tell little about it, and cost their cube."""

ITERATIONS = 25
"""Of the search for the most likely theta; where it ends need not be exact."""

RELATED = 0.5
"""How likely a study is taken to be of use to one that is warm started from it, before that has begun."""

EVERY_TIME = 50
"""Up to so many observations, theta is learned anew after each; then after every twentieth part more."""


@dataclass(frozen=True)
class Sampling:
    """Set the lengths of the chain that integrates theta out.

    The chain starts from the most likely theta, so a short burn-in is enough.
    Sampling(draws=10, burn_in=250, thin=5) has AMT's lengths, but not its start or its lack of priors.
    """

    draws: int = 8
    burn_in: int = 10
    thin: int = 3


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


def most_likely(layout: Layout, X: Array, y: Array) -> Array:
    """(1, k) empirical Bayes: the theta of the highest posterior density."""
    return _draws(layout, X, y, None, np.random.default_rng(0), None)


@dataclass(frozen=True)
class Learned:
    """Draws of theta (S, k): with what past studies tell, if there are any, and without."""

    alone: Array
    together: Array
    chance: float  # that there is anything to it

    def pick(self, rng: np.random.Generator) -> Array:
        """Those of one kind, by chance. Averaged over both, the one that promises more would be followed, which is
        the wrong one if what it promises is not there."""
        return self.together if rng.random() < self.chance else self.alone


def learned(
    layout: Layout,
    X: Array,
    y: Array,
    how: Sampling | None,
    rng: np.random.Generator,
    trend: Array | None = None,
) -> Learned:
    """From the posterior of theta; without a Sampling, the most likely one alone.

    `trend` (n, sources), centred: of a warm start.
    """
    bare = replace(layout, sources=0)
    without = _draws(bare, X, y, how, rng, None)
    if trend is None:
        return Learned(without, without, 0.0)
    alone = np.concatenate([without, np.zeros((len(without), layout.sources))], axis=1)
    together = _draws(layout, X, y, how, rng, trend)
    return Learned(alone, together, relevance(layout, alone, together, X, y, trend))


def relevance(layout: Layout, alone: Array, together: Array, X: Array, y: Array, trend: Array) -> float:
    """The probability that y follows the trend; RELATED before anything is seen.

    Each of the two models is taken at the best of its draws (S, k).
    """
    chosen = spread_out(y, LEARNED_FROM)
    X, y, trend = X[chosen], y[chosen], trend[chosen]
    bare = replace(layout, sources=0)
    without = max(_evidence(bare, theta, X, y, trend[:, :0]) for theta in alone[:, : bare.size])
    using = max(_evidence(layout, theta, X, y, trend) for theta in together)
    return float(expit(math.log(RELATED / (1.0 - RELATED)) + using - without))


def _evidence(layout: Layout, theta: Array, X: Array, y: Array, trend: Array) -> float:
    """The log density of y and theta, the shares of the trend integrated out, but for a constant.

    With shares a ~ N(mu, sd^2) and y - M a ~ N(0, K), they are normal given y: of precision M' K^-1 M + 1/sd^2, P.
    """
    E = Inputs(layout, X).embed(theta)
    signal, noise = math.exp(theta[layout.SIGNAL]), math.exp(theta[layout.NOISE])
    root = inverse_factor(signal * matern52(squared_distances(E, E)), noise, signal)
    white, M = root @ y, root @ trend
    weak = 1.0 / SHARE_SD**2
    P = M.T @ M + weak * np.eye(M.shape[1])
    pull = M.T @ white + weak * SHARE_MEAN
    prior = default_prior(layout)
    z = ((theta - prior.mean) / prior.sd)[: layout.shares.start]
    fit = float(np.log(root.diagonal()).sum()) - 0.5 * float(white @ white) - 0.5 * float(z @ z)
    covariance = np.linalg.inv(P)
    mean = covariance @ pull
    fit += 0.5 * float(pull @ mean) - 0.5 * weak * SHARE_MEAN**2 * len(P)
    fit -= 0.5 * float(np.linalg.slogdet(P)[1]) - 0.5 * len(P) * math.log(weak)
    # No share is negative: what has the opposite ups and downs is of no use. For several, as if independent.
    positive = log_ndtr(mean / np.sqrt(covariance.diagonal())) - log_ndtr(SHARE_MEAN / SHARE_SD)
    return fit + float(positive.sum())


def _draws(
    layout: Layout,
    X: Array,
    y: Array,
    how: Sampling | None,
    rng: np.random.Generator,
    trend: Array | None,
) -> Array:
    chosen = spread_out(y, LEARNED_FROM)
    prior = default_prior(layout)
    density = LogPosterior(Inputs(layout, X[chosen]), y[chosen], prior, None if trend is None else trend[chosen])
    top = maximum(density, prior.mean, iterations=ITERATIONS)
    if how is None:
        return top[None]
    chain = slice_sampler.draws(density, top, prior.sd, prior.low, prior.high, rng)
    kept = islice(chain, how.burn_in + how.thin - 1, how.burn_in + how.draws * how.thin, how.thin)
    return np.array(list(kept))
