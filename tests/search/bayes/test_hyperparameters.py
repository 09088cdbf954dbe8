"""When theta is draw_thetas, from what, and whether past studies are believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from tests.search.bayes.problems import thetas_of
from thriftune.search.bayes.hyperparameters import (
    PRIOR_RELATED,
    Sampling,
    ThetaDraws,
    _log_evidence,
    draw_thetas,
    last_learned_count,
    most_likely,
    select_observations,
    trend_probability,
)
from thriftune.search.bayes.kernel import Inputs, ThetaLayout, matern52, squared_distances
from thriftune.search.bayes.likelihood import EARLIER_WEIGHT_MEAN, EARLIER_WEIGHT_SD, LogPosterior, default_prior

PLAIN = ThetaLayout(2, np.arange(2), np.ones(2), np.arange(2))
TRENDY = replace(PLAIN, earlier_count=1)


def test_theta_is_learned_after_each_observation_first_and_then_more_rarely() -> None:
    counts = [last_learned_count(n) for n in range(1, 2000)]
    assert counts[:50] == list(range(1, 51))
    assert all(before <= after <= n for n, before, after in zip(range(2, 2000), counts, counts[1:], strict=False))
    assert len(set(counts)) < 150
    assert all(n <= 1.08 * count + 1 for n, count in enumerate(counts, 1))


def test_of_many_observations_the_best_and_an_even_part_of_the_rest() -> None:
    y = np.random.default_rng(0).normal(size=1000)
    chosen = select_observations(y, 100)
    assert len(set(chosen.tolist())) == 100
    assert set(np.argsort(y)[:50]) <= set(chosen)
    assert list(select_observations(y[:100], 100)) == list(range(100))


def some_data(n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.random((n, 2))
    y = np.sin(5 * X[:, 0]) + X[:, 1]
    return X, (y - y.mean()) / y.std()


def test_the_evidence_is_the_integral_over_the_share() -> None:
    X, y = some_data()
    trend = np.linspace(-1, 1, len(y))[:, None]
    theta = thetas_of(TRENDY, 1, np.random.default_rng(0))[0]
    E = Inputs(TRENDY, X).embed(theta)
    K = np.exp(theta[0]) * matern52(squared_distances(E, E)) + np.exp(theta[1]) * np.eye(len(y))
    shares = np.linspace(0, 9, 4001)
    prior = norm.pdf(shares, EARLIER_WEIGHT_MEAN, EARLIER_WEIGHT_SD) / norm.cdf(
        EARLIER_WEIGHT_MEAN / EARLIER_WEIGHT_SD
    )
    density = [multivariate_normal.pdf(y - a * trend[:, 0], cov=K) for a in shares]
    against = np.log(np.trapezoid(density * prior, shares)) - multivariate_normal.logpdf(y, cov=K)
    ours = _log_evidence(TRENDY, theta, X, y, trend) - _log_evidence(TRENDY, theta, X, y, trend[:, :0])
    assert ours == pytest.approx(against, abs=1e-5)


@pytest.mark.parametrize(("sign", "least", "most"), [(1.0, 0.9, 1.0), (-1.0, 0.0, 0.4)])
def test_a_trend_is_believed_as_far_as_it_is_seen(sign: float, least: float, most: float) -> None:
    X, _ = some_data(20)
    rng = np.random.default_rng(0)
    y = np.sin(30 * X[:, 0]) + np.cos(25 * X[:, 1])  # too rough to be draw_thetas from 20 points
    y = (y - y.mean()) / y.std()
    trend = sign * (y + 0.1 * rng.standard_normal(len(y)))[:, None]
    found = draw_thetas(TRENDY, X, y, Sampling(4, 4, 2), rng, trend)
    assert least <= found.trend_probability <= most
    assert (found.without_trend[:, TRENDY.earlier_weights] == 0).all()
    assert found.with_trend.shape == found.without_trend.shape == (4, TRENDY.size)


def test_a_trend_that_says_nothing_is_as_likely_as_before() -> None:
    X, y = some_data()
    alone, together = (default_prior(layout).mean for layout in (PLAIN, TRENDY))
    together[PLAIN.SIGNAL] = alone[PLAIN.SIGNAL]
    off = 0.5 * np.log(0.2) ** 2  # what the prior says of a process that has all of the signal and a trend besides
    chance = trend_probability(TRENDY, np.append(alone, 0.0)[None], together[None], X, y, np.zeros((len(y), 1)))
    assert chance == pytest.approx(PRIOR_RELATED / (PRIOR_RELATED + (1 - PRIOR_RELATED) * np.exp(off)))


def test_one_kind_of_theta_is_picked_by_its_chance() -> None:
    kinds = ThetaDraws(np.zeros((1, 1)), np.ones((1, 1)), 0.3)
    picked = [float(kinds.pick(np.random.default_rng(seed))[0, 0]) for seed in range(1000)]
    assert np.mean(picked) == pytest.approx(0.3, abs=0.05)
    assert draw_thetas(PLAIN, *some_data(), None, np.random.default_rng(0)).trend_probability == 0.0


def test_the_most_likely_theta_is_more_likely_than_the_draws() -> None:
    X, y = some_data()
    density = LogPosterior(Inputs(PLAIN, X), y, default_prior(PLAIN))
    top = density(most_likely(PLAIN, X, y)[0])
    draws = draw_thetas(PLAIN, X, y, Sampling(6, 5, 2), np.random.default_rng(0)).without_trend
    assert draws.shape == (6, PLAIN.size)
    assert all(density(theta) < top + 0.5 for theta in draws)
