"""Tests the log posterior of theta against scikit-learn and numeric differences, and for singular covariances."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.search.bayes.problems import (
    CASES,
    QUICK,
    Problem,
    close,
    layout_of,
    numeric_gradient,
    problems,
    regressor,
    warped_points,
)
from thriftune.search.bayes.kernel import Array, Inputs
from thriftune.search.bayes.likelihood import LogPosterior, default_prior, maximise


def density_of(case: Problem) -> LogPosterior:
    return LogPosterior(Inputs(case.layout, case.X), case.y, default_prior(case.layout), case.trend_at_X)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_density_is_scikit_learns_times_the_prior(case: Problem) -> None:
    density = density_of(case)
    trend = 0.0 if case.trend_at_X is None else case.trend_at_X @ case.theta[case.layout.earlier_weights]
    points = warped_points(case.layout, case.theta, case.X)
    fitted = regressor(case.layout, case.theta).fit(points, case.y - trend)
    # Ours leaves out a constant.
    expected = fitted.log_marginal_likelihood_value_ + 0.5 * len(case.y) * math.log(2.0 * math.pi)
    assert density(case.theta) - density.prior.log_density(case.theta) == pytest.approx(expected, rel=1e-9)


@QUICK
@given(problems())
def test_the_gradient_equals_numeric_differences(case: Problem) -> None:
    density = density_of(case)
    value, gradient = density.with_gradient(case.theta)
    assert value == pytest.approx(density(case.theta), rel=1e-12)
    assert close(gradient, numeric_gradient(lambda T: np.array([density(t) for t in T]), case.theta[None])[0])


def singular(noise: float) -> tuple[LogPosterior, Array]:
    """Return a density with three equal points, whose coordinates have no rounding errors."""
    layout = layout_of([1, 1], warped=[])
    X = np.full((3, 2), 0.5)
    theta = np.array([0.0, math.log(noise), 0.0, 0.0])
    return LogPosterior(Inputs(layout, X), np.array([0.0, 1.0, 2.0]), default_prior(layout)), theta


def test_without_a_cholesky_factor_the_density_is_minus_infinity_and_its_gradient_zero() -> None:
    density, theta = singular(1e-20)
    assert density(theta) == -math.inf
    value, gradient = density.with_gradient(theta)
    assert value == -math.inf
    assert gradient.tolist() == [0.0] * 4


def test_repeated_points_with_the_lowest_noise_have_a_density() -> None:
    density, theta = singular(1e-6)
    value, gradient = density.with_gradient(theta)
    assert math.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_maximum_is_within_the_bounds_and_stationary(case: Problem) -> None:
    density = density_of(case)
    prior = density.prior
    best = maximise(density, prior.mean, iterations=200)
    assert (prior.low <= best).all()
    assert (best <= prior.high).all()
    assert density(best) >= density(prior.mean)
    _, gradient = density.with_gradient(best)
    interior = (best > prior.low) & (best < prior.high)
    assert np.abs(gradient[interior]).max() < 1e-2
    assert (gradient[best == prior.low] <= 0.0).all()
    assert (gradient[best == prior.high] >= 0.0).all()


def test_a_start_without_a_density_is_returned() -> None:
    density, theta = singular(1e-20)
    density.prior = replace(density.prior, low=density.prior.low - 100.0)
    assert maximise(density, theta, iterations=5).tolist() == theta.tolist()
