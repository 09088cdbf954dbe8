"""Means and variances of the process: against scikit-learn's, by hand, and their slopes."""

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
    by_hand,
    close,
    layout_of,
    problem,
    problems,
    regressor,
    slopes,
)
from thriftune.search.bayes.kernel import Array, Inputs, matern52, squared_distances
from thriftune.search.bayes.posterior import Posterior, inverse_factor


def posterior_of(case: Problem) -> Posterior:
    return Posterior(case.layout, case.thetas, case.X, case.y, trend=case.trend)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_scikit_learns(case: Problem) -> None:
    model = posterior_of(case)
    means, variances = model.predict(case.others)
    for s, theta in enumerate(case.thetas):
        there, here = case.expected(theta, case.others), case.expected(theta, case.X)
        told = regressor(case.layout, theta).fit(by_hand(case.layout, theta, case.X), case.y - here)
        mean, sd = told.predict(by_hand(case.layout, theta, case.others), return_std=True)
        noise = math.exp(theta[case.layout.NOISE])
        assert means[s] == pytest.approx(mean + there, rel=1e-8, abs=1e-9)
        assert variances[s] == pytest.approx(sd**2 - noise, rel=1e-6, abs=1e-9)
        known = told.predict(by_hand(case.layout, theta, case.X))
        assert model.mean_at_inputs[s] == pytest.approx(known + here, rel=1e-8, abs=1e-9)


@QUICK
@given(problems())
def test_slopes_are_those_of_differences(case: Problem) -> None:
    model = posterior_of(case)
    mean, variance, mean_slope, variance_slope = model.predict_with_gradient(case.others)
    plain = model.predict(case.others)
    assert mean == pytest.approx(plain[0], rel=1e-12, abs=1e-12)
    assert variance == pytest.approx(plain[1], rel=1e-9, abs=1e-12)
    assert close(mean_slope, slopes(lambda X: model.predict(X)[0], case.others))
    assert close(variance_slope, slopes(lambda X: model.predict(X)[1], case.others))


@QUICK
@given(problems(), st.integers(0, 2**32))
def test_what_is_less_sure_counts_less(case: Problem, seed: int) -> None:
    """By the textbook: with the variances of y on the diagonal."""
    rng = np.random.default_rng(seed)
    extra_variance = rng.choice([0.0, 0.1, 3.0, 1e6], len(case.y))
    model = Posterior(case.layout, case.thetas, case.X, case.y, trend=case.trend, extra_variance=extra_variance)
    mean, variance, mean_slope, variance_slope = model.predict_with_gradient(case.others)
    for s, theta in enumerate(case.thetas):
        E, F = (Inputs(case.layout, X).embed(theta) for X in (case.X, case.others))
        signal = math.exp(theta[case.layout.SIGNAL])
        K = signal * matern52(squared_distances(E, E)) + np.diag(
            math.exp(theta[case.layout.NOISE]) + extra_variance
        )
        k = signal * matern52(squared_distances(F, E))
        rest = case.y - case.expected(theta, case.X)
        assert mean[s] == pytest.approx(k @ np.linalg.solve(K, rest) + case.expected(theta, case.others), abs=1e-6)
        assert variance[s] == pytest.approx(signal - np.einsum("mn,nm->m", k, np.linalg.solve(K, k.T)), abs=1e-6)
    assert close(mean_slope, slopes(lambda X: model.predict(X)[0], case.others))
    assert close(variance_slope, slopes(lambda X: model.predict(X)[1], case.others))


def test_pending_points_beside_what_is_not_sure() -> None:
    case = problem([1, 1], warp=True, earlier_count=0, n=6, draws=3)
    X, z = np.concatenate([case.X, case.others]), np.random.default_rng(0).standard_normal((3, 4))
    sure = Posterior(case.layout, case.thetas, X[1:], case.y[1:], z).predict(case.others + 0.01)
    extra_variance = np.array([1e12, *np.zeros(5)])
    ignored = Posterior(case.layout, case.thetas, X, case.y, z, extra_variance=extra_variance).predict(
        case.others + 0.01
    )
    assert ignored[0] == pytest.approx(sure[0], abs=1e-4)
    assert ignored[1] == pytest.approx(sure[1], abs=1e-4)


# --- pending points ---------------------------------------------------------------------------------------

PENDING = {
    "numbers": problem([1, 1], warp=False, earlier_count=0, n=8, draws=3),
    "mixed": problem([1, 3, 1], warp=True, earlier_count=0, n=10, draws=3, seed=1),
    "trend": problem([1, 2], warp=True, earlier_count=2, n=6, draws=3, seed=2),
    "one seen": problem([1, 1], warp=True, earlier_count=1, n=1, draws=3, seed=3),
}


def fantasised(case: Problem, s: int, z: Array) -> Array:
    """What the s-th draw makes up for the pending points, by the textbook: a draw of y given what was seen, here
    and below less what is expected of a trend."""
    layout, theta = case.layout, case.thetas[s]
    E = Inputs(layout, np.concatenate([case.X, case.others])).embed(theta)
    K = math.exp(theta[layout.SIGNAL]) * matern52(squared_distances(E, E))
    K += math.exp(theta[layout.NOISE]) * np.eye(len(K))
    n = len(case.y)
    weights = np.linalg.solve(K[:n, :n], K[:n, n:]).T
    mean = weights @ (case.y - case.expected(theta, case.X))
    covariance = K[n:, n:] - weights @ K[:n, n:]
    return np.asarray(mean + np.linalg.cholesky(covariance) @ z)


@pytest.mark.parametrize("case", PENDING.values(), ids=PENDING)
@pytest.mark.parametrize("zero", [False, True], ids=["sampled", "believed"])
def test_a_fantasy_is_as_if_it_had_been_seen(case: Problem, zero: bool) -> None:
    rng = np.random.default_rng(0)
    z = np.zeros((3, 4)) if zero else rng.standard_normal((3, 4))
    X = np.concatenate([case.X, case.others])
    model = Posterior(case.layout, case.thetas, X, case.y, z, case.trend)
    points = np.clip(X + rng.normal(0.0, 0.1, X.shape), 0.0, 1.0)
    mean, variance = model.predict(points)
    bare = replace(case.layout, earlier_count=0)
    for s, theta in enumerate(case.thetas):
        y = np.concatenate([case.y - case.expected(theta, case.X), fantasised(case, s, z[s])])
        seen = Posterior(bare, theta[None, : bare.size], X, y)
        assert mean[s] == pytest.approx(seen.predict(points)[0][0] + case.expected(theta, points), abs=1e-8)
        assert variance[s] == pytest.approx(seen.predict(points)[1][0], abs=1e-8)
        assert model.mean_at_inputs[s] == pytest.approx(seen.mean_at_inputs[0] + case.expected(theta, X), abs=1e-8)


# --- no Cholesky factor -----------------------------------------------------------------------------------


def test_repeated_points_with_no_noise_are_no_trouble() -> None:
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
def test_as_little_is_added_as_it_takes(K: Array, jitter: float) -> None:
    for signal in (1e-2, 1.0, 100.0):
        before = signal * K
        root = inverse_factor(before, 0.0, signal)
        assert (before == signal * K).all()
        assert root == pytest.approx(np.tril(root))
        expected = signal * (K + jitter * np.eye(len(K)))
        assert root @ expected @ root.T == pytest.approx(np.eye(len(K)), abs=1e-4)


def test_what_no_jitter_mends_is_said() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="no Cholesky factor"):
        inverse_factor(np.array([[1.0, 2.0], [2.0, 1.0]]), 0.0, 1.0)
