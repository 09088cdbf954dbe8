"""Learning of the hyperparameters: draws of theta by slice sampling, or the single most likely theta."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from scipy.special import expit, log_ndtr

from thriftune.search.bayes import slice_sampler
from thriftune.search.bayes.kernel import Array, Indices, Inputs, ThetaLayout, matern52, squared_distances
from thriftune.search.bayes.likelihood import (
    EARLIER_WEIGHT_MEAN,
    EARLIER_WEIGHT_SD,
    LogPosterior,
    default_prior,
    maximise,
)
from thriftune.search.bayes.posterior import inverse_factor

MAX_LEARNED_FROM = 100
"""The most observations that theta is learned from. More add little, and the time grows with the cube."""

MAX_ITERATIONS = 25
"""Iterations of the search for the most likely theta. Its end point need not be exact."""

PRIOR_RELATED = 0.5
"""The prior probability that a study is related to the sources of its warm start."""

RELEARN_EACH_UP_TO = 50
"""Up to this many observations, learn theta again after each one. Later, learn it less often."""

RELEARN_GROWTH = 1.05
"""With more observations, learn theta again each time their number has grown by this factor."""


@dataclass(frozen=True)
class Sampling:
    """Set the lengths of the chain that integrates theta out.

    The chain starts from the most likely theta, so a short burn-in is enough.
    Sampling(draws=10, burn_in=250, thin=5) has AMT's lengths, but not its start or its lack of priors.
    """

    draws: int = 8
    burn_in: int = 10
    thin: int = 3


def last_learned_count(n: int) -> int:
    """Return how many of the first n observations theta was last learned from.

    The result depends on n alone, so that a resumed study has the same theta.
    """
    if n <= RELEARN_EACH_UP_TO:
        return n
    rate = math.log(RELEARN_GROWTH)
    growths = math.floor(math.log(n / RELEARN_EACH_UP_TO) / rate)
    return min(n, math.ceil(RELEARN_EACH_UP_TO * math.exp(rate * growths)))


def select_observations(y: Array, most: int) -> Indices:
    """Return ascending indices of at most `most` observations: the best, and an even part of the others.

    Half of them are the best. The others are evenly spaced in the order of observation.
    """
    if len(y) <= most:
        return np.arange(len(y))
    order = np.argsort(y, kind="stable")
    best, others = order[: most // 2], np.sort(order[most // 2 :])
    even = np.linspace(0, len(others) - 1, most - len(best)).round().astype(np.intp)
    return np.sort(np.concatenate([best, others[even]]))


def most_likely(layout: ThetaLayout, X: Array, y: Array) -> Array:
    """Return the theta (1, k) with the highest posterior density (empirical Bayes)."""
    return _draws(layout, X, y, None, np.random.default_rng(0), None)


@dataclass(frozen=True)
class ThetaDraws:
    """Draws of theta (S, k), without and with the trend of sources.

    Without sources, both are the same.
    """

    without_trend: Array  # the weights of sources are 0
    with_trend: Array
    trend_probability: float  # that the study is related to the earlier ones

    def pick(self, rng: np.random.Generator) -> Array:
        """Return the draws with the trend, with the probability that it is real; else those without.

        The acquisition is not averaged over both. It would follow the model that promises more, which is the wrong
        model if its promise is false.
        """
        return self.with_trend if rng.random() < self.trend_probability else self.without_trend


def draw_thetas(
    layout: ThetaLayout,
    X: Array,
    y: Array,
    sampling: Sampling | None,
    rng: np.random.Generator,
    trend: Array | None = None,
) -> ThetaDraws:
    """Draw theta from its posterior; without `sampling`, return the most likely theta alone.

    `trend` (n, sources) is what each source predicts at X, minus its mean over X.
    """
    plain_layout = replace(layout, earlier_count=0)
    plain = _draws(plain_layout, X, y, sampling, rng, None)
    if trend is None:
        return ThetaDraws(plain, plain, 0.0)
    without_trend = np.concatenate([plain, np.zeros((len(plain), layout.earlier_count))], axis=1)
    with_trend = _draws(layout, X, y, sampling, rng, trend)
    probability = trend_probability(layout, without_trend, with_trend, X, y, trend)
    return ThetaDraws(without_trend, with_trend, probability)


def trend_probability(
    layout: ThetaLayout, without_trend: Array, with_trend: Array, X: Array, y: Array, trend: Array
) -> float:
    """Return the posterior probability that y follows the trend; the prior is PRIOR_RELATED.

    Compares the two models at the best of their draws of theta (S, k).
    """
    chosen = select_observations(y, MAX_LEARNED_FROM)
    X, y, trend = X[chosen], y[chosen], trend[chosen]
    plain_layout = replace(layout, earlier_count=0)
    plain_thetas = without_trend[:, : plain_layout.size]
    without = max(_log_evidence(plain_layout, theta, X, y, trend[:, :0]) for theta in plain_thetas)
    following = max(_log_evidence(layout, theta, X, y, trend) for theta in with_trend)
    return float(expit(math.log(PRIOR_RELATED / (1.0 - PRIOR_RELATED)) + following - without))


def _log_evidence(layout: ThetaLayout, theta: Array, X: Array, y: Array, trend: Array) -> float:
    """Return the log density of y and theta up to a constant, with the sources' weights integrated out.

    With weights a ~ N(mu, sd^2) and y - M a ~ N(0, K), the weights given y are normal, with precision
    P = M' K^-1 M + 1/sd^2.
    """
    E = Inputs(layout, X).embed(theta)
    signal, noise = math.exp(theta[layout.SIGNAL]), math.exp(theta[layout.NOISE])
    root = inverse_factor(signal * matern52(squared_distances(E, E)), noise, signal)
    white, M = root @ y, root @ trend
    prior_precision = 1.0 / EARLIER_WEIGHT_SD**2
    P = M.T @ M + prior_precision * np.eye(M.shape[1])
    P_mean = M.T @ white + prior_precision * EARLIER_WEIGHT_MEAN
    prior = default_prior(layout)
    z = ((theta - prior.mean) / prior.sd)[: layout.earlier_weights.start]
    log_density = float(np.log(root.diagonal()).sum()) - 0.5 * float(white @ white) - 0.5 * float(z @ z)
    covariance = np.linalg.inv(P)
    mean = covariance @ P_mean
    log_density += 0.5 * float(P_mean @ mean) - 0.5 * prior_precision * EARLIER_WEIGHT_MEAN**2 * len(P)
    log_density -= 0.5 * float(np.linalg.slogdet(P)[1]) - 0.5 * len(P) * math.log(prior_precision)
    # No weight is negative: a study with opposite differences is of no use. Treats several weights as independent.
    positive = log_ndtr(mean / np.sqrt(covariance.diagonal())) - log_ndtr(EARLIER_WEIGHT_MEAN / EARLIER_WEIGHT_SD)
    return log_density + float(positive.sum())


def _draws(
    layout: ThetaLayout,
    X: Array,
    y: Array,
    sampling: Sampling | None,
    rng: np.random.Generator,
    trend: Array | None,
) -> Array:
    chosen = select_observations(y, MAX_LEARNED_FROM)
    prior = default_prior(layout)
    density = LogPosterior(Inputs(layout, X[chosen]), y[chosen], prior, None if trend is None else trend[chosen])
    top = maximise(density, prior.mean, iterations=MAX_ITERATIONS)
    if sampling is None:
        return top[None]
    chain = slice_sampler.draws(density, top, prior.sd, prior.low, prior.high, rng)
    first, stop = sampling.burn_in + sampling.thin - 1, sampling.burn_in + sampling.draws * sampling.thin
    return np.array(list(islice(chain, first, stop, sampling.thin)))
