"""Tests the means, variances and gradients of the process against scikit-learn and textbook formulas."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.bayes.problems import (
    CASES,
    QUICK,
    Problem,
    close,
    layout_of,
    numeric_gradient,
    problem,
    problems,
    regressor,
    warped_points,
)
from thriftune.search.bayes.kernel import Array, Inputs, matern52, squared_distances
from thriftune.search.bayes.posterior import Posterior, inverse_factor


def posterior_of(case: Problem) -> Posterior:
    return Posterior(case.layout, case.thetas, case.X, case.y, trend=case.trend)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_predictions_equal_scikit_learns(case: Problem) -> None:
    model = posterior_of(case)
    means, variances = model.predict(case.others)
    for s, theta in enumerate(case.thetas):
        trend_at_others, trend_at_X = case.weighted_trend(theta, case.others), case.weighted_trend(theta, case.X)
        points = warped_points(case.layout, theta, case.X)
        fitted = regressor(case.layout, theta).fit(points, case.y - trend_at_X)
        mean, sd = fitted.predict(warped_points(case.layout, theta, case.others), return_std=True)
        noise = math.exp(theta[case.layout.NOISE])
        assert means[s] == pytest.approx(mean + trend_at_others, rel=1e-8, abs=1e-9)
        assert variances[s] == pytest.approx(sd**2 - noise, rel=1e-6, abs=1e-9)
        assert model.mean_at_inputs[s] == pytest.approx(fitted.predict(points) + trend_at_X, rel=1e-8, abs=1e-9)


@QUICK
@given(problems())
def test_gradients_equal_numeric_differences(case: Problem) -> None:
    model = posterior_of(case)
    mean, variance, mean_gradient, variance_gradient = model.predict_with_gradient(case.others)
    plain = model.predict(case.others)
    assert mean == pytest.approx(plain[0], rel=1e-12, abs=1e-12)
    assert variance == pytest.approx(plain[1], rel=1e-9, abs=1e-12)
    assert close(mean_gradient, numeric_gradient(lambda X: model.predict(X)[0], case.others))
    assert close(variance_gradient, numeric_gradient(lambda X: model.predict(X)[1], case.others))


@QUICK
@given(problems(), st.integers(0, 2**32))
def test_extra_variances_are_added_to_the_diagonal(case: Problem, seed: int) -> None:
    """Compare with the textbook formulas."""
    rng = np.random.default_rng(seed)
    extra_variance = rng.choice([0.0, 0.1, 3.0, 1e6], len(case.y))
    model = Posterior(case.layout, case.thetas, case.X, case.y, trend=case.trend, extra_variance=extra_variance)
    mean, variance, mean_gradient, variance_gradient = model.predict_with_gradient(case.others)
    for s, theta in enumerate(case.thetas):
        E, F = (Inputs(case.layout, X).embed(theta) for X in (case.X, case.others))
        signal = math.exp(theta[case.layout.SIGNAL])
        K = signal * matern52(squared_distances(E, E)) + np.diag(
            math.exp(theta[case.layout.NOISE]) + extra_variance
        )
        k = signal * matern52(squared_distances(F, E))
        rest = case.y - case.weighted_trend(theta, case.X)
        assert mean[s] == pytest.approx(
            k @ np.linalg.solve(K, rest) + case.weighted_trend(theta, case.others), abs=1e-6
        )
        assert variance[s] == pytest.approx(signal - np.einsum("mn,nm->m", k, np.linalg.solve(K, k.T)), abs=1e-6)
    assert close(mean_gradient, numeric_gradient(lambda X: model.predict(X)[0], case.others))
    assert close(variance_gradient, numeric_gradient(lambda X: model.predict(X)[1], case.others))


def test_pending_points_with_uncertain_observations() -> None:
    case = problem([1, 1], warp=True, earlier_count=0, n=6, draws=3)
    X, z = np.concatenate([case.X, case.others]), np.random.default_rng(0).standard_normal((3, 4))
    without_first = Posterior(case.layout, case.thetas, X[1:], case.y[1:], z).predict(case.others + 0.01)
    extra_variance = np.array([1e12, *np.zeros(5)])
    ignored = Posterior(case.layout, case.thetas, X, case.y, z, extra_variance=extra_variance).predict(
        case.others + 0.01
    )
    assert ignored[0] == pytest.approx(without_first[0], abs=1e-4)
    assert ignored[1] == pytest.approx(without_first[1], abs=1e-4)


# --- pending points ---------------------------------------------------------------------------------------

PENDING = {
    "numbers": problem([1, 1], warp=False, earlier_count=0, n=8, draws=3),
    "mixed": problem([1, 3, 1], warp=True, earlier_count=0, n=10, draws=3, seed=1),
    "trend": problem([1, 2], warp=True, earlier_count=2, n=6, draws=3, seed=2),
    "one observation": problem([1, 1], warp=True, earlier_count=1, n=1, draws=3, seed=3),
}


def fantasised(case: Problem, s: int, z: Array) -> Array:
    """Return the fantasies of draw s, minus the trend, by the textbook: a draw of y' given y."""
    layout, theta = case.layout, case.thetas[s]
    E = Inputs(layout, np.concatenate([case.X, case.others])).embed(theta)
    K = math.exp(theta[layout.SIGNAL]) * matern52(squared_distances(E, E))
    K += math.exp(theta[layout.NOISE]) * np.eye(len(K))
    n = len(case.y)
    weights = np.linalg.solve(K[:n, :n], K[:n, n:]).T
    mean = weights @ (case.y - case.weighted_trend(theta, case.X))
    covariance = K[n:, n:] - weights @ K[:n, n:]
    return np.asarray(mean + np.linalg.cholesky(covariance) @ z)


@pytest.mark.parametrize("case", PENDING.values(), ids=PENDING)
@pytest.mark.parametrize("zero", [False, True], ids=["sampled", "mean"])
def test_a_fantasy_counts_like_an_observation(case: Problem, zero: bool) -> None:
    rng = np.random.default_rng(0)
    z = np.zeros((3, 4)) if zero else rng.standard_normal((3, 4))
    X = np.concatenate([case.X, case.others])
    model = Posterior(case.layout, case.thetas, X, case.y, z, case.trend)
    points = np.clip(X + rng.normal(0.0, 0.1, X.shape), 0.0, 1.0)
    mean, variance = model.predict(points)
    plain_layout = replace(case.layout, earlier_count=0)
    for s, theta in enumerate(case.thetas):
        y = np.concatenate([case.y - case.weighted_trend(theta, case.X), fantasised(case, s, z[s])])
        observed = Posterior(plain_layout, theta[None, : plain_layout.size], X, y)
        trend = case.weighted_trend(theta, points)
        assert mean[s] == pytest.approx(observed.predict(points)[0][0] + trend, abs=1e-8)
        assert variance[s] == pytest.approx(observed.predict(points)[1][0], abs=1e-8)
        trend_at_X = case.weighted_trend(theta, X)
        assert model.mean_at_inputs[s] == pytest.approx(observed.mean_at_inputs[0] + trend_at_X, abs=1e-8)


# --- no Cholesky factor -----------------------------------------------------------------------------------


def test_repeated_points_without_noise_can_be_modelled() -> None:
    layout = layout_of([1, 1], warped=[])
    X = np.repeat(np.random.default_rng(0).random((3, 2)), 10, axis=0)
    y = np.repeat([1.0, -1.0, 0.5], 10)
    theta = np.array([[0.0, math.log(1e-30), 0.0, 0.0]])
    mean, variance = Posterior(layout, theta, X, y).predict(X)
    assert mean[0] == pytest.approx(y, abs=1e-3)
    assert (variance > 0.0).all()


@pytest.mark.parametrize(
    ("K", "jitter"),
    [
        (np.eye(3), 0.0),
        (np.ones((3, 3)), 1e-10),
        (np.array([[1.0, 1.0 + 1e-5], [1.0 + 1e-5, 1.0]]), 1e-4),
        (np.array([[1.0, 1.005], [1.005, 1.0]]), 1e-2),
        (np.array([[1.0]]), 0.0),
    ],
)
def test_the_smallest_sufficient_jitter_is_added(K: Array, jitter: float) -> None:
    for signal in (1e-2, 1.0, 100.0):
        before = signal * K
        root = inverse_factor(before, 0.0, signal)
        assert (before == signal * K).all()
        assert root == pytest.approx(np.tril(root))
        expected = signal * (K + jitter * np.eye(len(K)))
        assert root @ expected @ root.T == pytest.approx(np.eye(len(K)), abs=1e-4)


def test_a_covariance_without_a_factor_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="no Cholesky factor"):
        inverse_factor(np.array([[1.0, 2.0], [2.0, 1.0]]), 0.0, 1.0)
