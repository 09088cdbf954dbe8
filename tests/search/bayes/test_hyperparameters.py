"""Tests when theta is learned and from what, and how probable the trend of sources is."""

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
WITH_TREND = replace(PLAIN, earlier_count=1)


def test_theta_is_learned_after_each_observation_at_first_and_less_often_later() -> None:
    counts = [last_learned_count(n) for n in range(1, 2000)]
    assert counts[:50] == list(range(1, 51))
    assert all(before <= after <= n for n, before, after in zip(range(2, 2000), counts, counts[1:], strict=False))
    assert len(set(counts)) < 150
    assert all(n <= 1.08 * count + 1 for n, count in enumerate(counts, 1))


def test_the_best_and_an_even_part_of_the_other_observations_are_selected() -> None:
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


def test_the_evidence_is_the_integral_over_the_weight() -> None:
    X, y = some_data()
    trend = np.linspace(-1, 1, len(y))[:, None]
    theta = thetas_of(WITH_TREND, 1, np.random.default_rng(0))[0]
    E = Inputs(WITH_TREND, X).embed(theta)
    K = np.exp(theta[0]) * matern52(squared_distances(E, E)) + np.exp(theta[1]) * np.eye(len(y))
    weights = np.linspace(0, 9, 4001)
    prior = norm.pdf(weights, EARLIER_WEIGHT_MEAN, EARLIER_WEIGHT_SD) / norm.cdf(
        EARLIER_WEIGHT_MEAN / EARLIER_WEIGHT_SD
    )
    density = [multivariate_normal.pdf(y - a * trend[:, 0], cov=K) for a in weights]
    expected = np.log(np.trapezoid(density * prior, weights)) - multivariate_normal.logpdf(y, cov=K)
    computed = _log_evidence(WITH_TREND, theta, X, y, trend) - _log_evidence(WITH_TREND, theta, X, y, trend[:, :0])
    assert computed == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("sign", "lowest", "highest"), [(1.0, 0.9, 1.0), (-1.0, 0.0, 0.4)])
def test_a_trend_is_probable_if_the_observations_follow_it(sign: float, lowest: float, highest: float) -> None:
    X, _ = some_data(20)
    rng = np.random.default_rng(0)
    y = np.sin(30 * X[:, 0]) + np.cos(25 * X[:, 1])  # too rough for a model of 20 points
    y = (y - y.mean()) / y.std()
    trend = sign * (y + 0.1 * rng.standard_normal(len(y)))[:, None]
    thetas = draw_thetas(WITH_TREND, X, y, Sampling(4, 4, 2), rng, trend)
    assert lowest <= thetas.trend_probability <= highest
    assert (thetas.without_trend[:, WITH_TREND.earlier_weights] == 0).all()
    assert thetas.with_trend.shape == thetas.without_trend.shape == (4, WITH_TREND.size)


def test_a_trend_of_zeros_keeps_its_prior_probability() -> None:
    X, y = some_data()
    without_trend, with_trend = (default_prior(layout).mean for layout in (PLAIN, WITH_TREND))
    with_trend[PLAIN.SIGNAL] = without_trend[PLAIN.SIGNAL]
    # The prior of a process with a trend expects a smaller signal.
    log_penalty = 0.5 * np.log(0.2) ** 2
    plain_thetas = np.append(without_trend, 0.0)[None]
    probability = trend_probability(WITH_TREND, plain_thetas, with_trend[None], X, y, np.zeros((len(y), 1)))
    assert probability == pytest.approx(
        PRIOR_RELATED / (PRIOR_RELATED + (1 - PRIOR_RELATED) * np.exp(log_penalty))
    )


def test_draws_with_the_trend_are_picked_with_its_probability() -> None:
    thetas = ThetaDraws(np.zeros((1, 1)), np.ones((1, 1)), 0.3)
    picked = [float(thetas.pick(np.random.default_rng(seed))[0, 0]) for seed in range(1000)]
    assert np.mean(picked) == pytest.approx(0.3, abs=0.05)
    assert draw_thetas(PLAIN, *some_data(), None, np.random.default_rng(0)).trend_probability == 0.0


def test_the_most_likely_theta_is_more_likely_than_the_draws() -> None:
    X, y = some_data()
    density = LogPosterior(Inputs(PLAIN, X), y, default_prior(PLAIN))
    top = density(most_likely(PLAIN, X, y)[0])
    draws = draw_thetas(PLAIN, X, y, Sampling(6, 5, 2), np.random.default_rng(0)).without_trend
    assert draws.shape == (6, PLAIN.size)
    assert all(density(theta) < top + 0.5 for theta in draws)
