"""The log posterior of theta: against scikit-learn's, against differences, and where there is none."""

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
    by_hand,
    close,
    layout_of,
    problems,
    regressor,
    slopes,
)
from thriftune.search.bayes.kernel import Array, Inputs
from thriftune.search.bayes.likelihood import LogPosterior, default_prior, maximise


def density_of(case: Problem) -> LogPosterior:
    return LogPosterior(Inputs(case.layout, case.X), case.y, default_prior(case.layout), case.told)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_scikit_learns_times_the_prior(case: Problem) -> None:
    density = density_of(case)
    rest = case.y - (case.told @ case.theta[case.layout.earlier_weights] if case.told is not None else 0.0)
    told = regressor(case.layout, case.theta).fit(by_hand(case.layout, case.theta, case.X), rest)
    # Both are up to a constant, which is known.
    expected = told.log_marginal_likelihood_value_ + 0.5 * len(case.y) * math.log(2.0 * math.pi)
    assert density(case.theta) - density.prior.log_density(case.theta) == pytest.approx(expected, rel=1e-9)


@QUICK
@given(problems())
def test_its_gradient_is_that_of_differences(case: Problem) -> None:
    density = density_of(case)
    value, gradient = density.with_gradient(case.theta)
    assert value == pytest.approx(density(case.theta), rel=1e-12)
    assert close(gradient, slopes(lambda T: np.array([density(t) for t in T]), case.theta[None])[0])


def singular(noise: float) -> tuple[LogPosterior, Array]:
    """Three times the same point, in numbers that know no rounding."""
    layout = layout_of([1, 1], warped=[])
    X = np.full((3, 2), 0.5)
    theta = np.array([0.0, math.log(noise), 0.0, 0.0])
    return LogPosterior(Inputs(layout, X), np.array([0.0, 1.0, 2.0]), default_prior(layout)), theta


def test_without_a_cholesky_factor_it_is_minus_infinity_and_flat() -> None:
    density, theta = singular(1e-20)
    assert density(theta) == -math.inf
    value, gradient = density.with_gradient(theta)
    assert value == -math.inf
    assert gradient.tolist() == [0.0] * 4


def test_with_the_least_noise_repeated_points_have_one() -> None:
    density, theta = singular(1e-6)
    value, gradient = density.with_gradient(theta)
    assert math.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_maximum_is_within_the_bounds_and_no_step_leads_up(case: Problem) -> None:
    density = density_of(case)
    prior = density.prior
    best = maximise(density, prior.mean, iterations=200)
    assert (prior.low <= best).all()
    assert (best <= prior.high).all()
    assert density(best) >= density(prior.mean)
    _, gradient = density.with_gradient(best)
    inside = (best > prior.low) & (best < prior.high)
    assert np.abs(gradient[inside]).max() < 1e-2
    assert (gradient[best == prior.low] <= 0.0).all()
    assert (gradient[best == prior.high] >= 0.0).all()


def test_a_start_without_a_density_is_given_back() -> None:
    density, theta = singular(1e-20)
    density.prior = replace(density.prior, low=density.prior.low - 100.0)
    assert maximise(density, theta, iterations=5).tolist() == theta.tolist()
