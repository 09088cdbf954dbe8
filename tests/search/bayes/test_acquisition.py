"""Tests the acquisition function: against simulation, far in the tail, and all its gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from scipy.special import erfcx, log_ndtr

from tests.search.bayes.problems import QUICK, Problem, close, layout_of, numeric_gradient, problem, problems
from thriftune.search.bayes.acquisition import (
    Acquisition,
    AcquisitionTerm,
    LogEI,
    LogProbabilityBelow,
    NegativeLogCost,
    log_h,
    log_h_derivative,
)
from thriftune.search.bayes.posterior import Posterior

EXACT = {  # z: log h(z) and its derivative, computed with sixty digits and then rounded
    1e8: (18.420680743952365, 1e-8),
    40.0: (3.6888794541139363, 0.025),
    3.0: (1.0987396653277078, 0.33284096845179524),
    0.0: (-0.91893853320467274, 1.2533141373155003),
    -0.999: (-2.4832171154475854, 1.9035493173589594),
    -1.0: (-2.4851210257126413, 1.9042712333296918),
    -1.001: (-2.4870256579553894, 1.9049932727342131),
    -10.0: (-55.553122036122356, 10.194383033412553),
    -38.0: (-730.19618340211374, 38.052522760041328),
    -100.0: (-5010.1295788002498, 100.01999400419587),
    -999.0: (-499015.2324510965, 999.00200199598401),
    -1001.0: (-501015.23645108583, 1001.001997996016),
    -1e4: (-50000019.339619307, 10000.000199999994),
    -1e8: (-5000000000000037.8, 100000000.00000002),
}


def models(case: Problem) -> tuple[Posterior, Posterior]:
    """Return a posterior with all draws of theta, and one with the first draw only."""
    return (
        Posterior(case.layout, case.thetas, case.X, case.y, trend=case.trend),
        Posterior(case.layout, case.thetas[:1], case.X, case.y, trend=case.trend),
    )


@pytest.mark.parametrize("z", EXACT)
def test_log_h_and_its_derivative_are_exact(z: float) -> None:
    value, derivative = EXACT[z]
    computed = log_h(np.array([z]))
    assert computed[0] == pytest.approx(value, rel=1e-11)
    assert log_h_derivative(np.array([z]), computed)[0] == pytest.approx(derivative, rel=3e-6)


def test_log_h_rises_and_is_finite() -> None:
    z = np.concatenate([-np.geomspace(1e12, 1e-6, 4000), [0.0], np.geomspace(1e-6, 1e12, 1000)])
    value = log_h(z)
    derivative = log_h_derivative(z, value)
    assert np.isfinite(value).all()
    assert np.isfinite(derivative).all()
    assert (np.diff(value) > 0.0).all()
    assert (derivative > 0.0).all()
    assert (np.diff(derivative) < 0.0).all()


@pytest.mark.parametrize("z", [-1e4, -3e3, -990.0, -100.0, -10.0, -1.5, -0.5, 0.0, 2.0, 9.0])
def test_the_derivative_of_log_h_equals_numeric_differences(z: float) -> None:
    step = 1e-5 * max(1.0, abs(z))
    above, below = log_h(np.array([z + step])), log_h(np.array([z - step]))
    derivative = log_h_derivative(np.array([z]), log_h(np.array([z])))
    assert derivative[0] == pytest.approx(((above - below) / (2.0 * step))[0], rel=1e-5)


def test_expected_improvement_is_the_mean_improvement_of_random_draws() -> None:
    mean = np.array([[0.0, 1.0, -0.5, 2.0], [0.3, 0.0, 0.0, -1.0]])
    variance = np.array([[1.0, 4.0, 0.01, 1.0], [0.5, 1.0, 2.0, 0.1]])
    best = np.array([0.0, 0.5])
    half = np.random.default_rng(0).standard_normal((100_000, 2, 1))
    drawn = mean + np.sqrt(variance) * np.concatenate([half, -half])
    expected = np.maximum(best[:, None] - drawn, 0.0).mean(axis=(0, 1))
    case = problem([1], warp=False, earlier_count=0, n=3)
    assert np.exp(LogEI(models(case)[0], best).from_moments(mean, variance)) == pytest.approx(expected, rel=0.01)


@QUICK
@given(problems())
def test_expected_improvement_is_averaged_over_draws_of_theta(case: Problem) -> None:
    best = np.linspace(-1.0, 0.5, len(case.thetas))
    averaged = LogEI(models(case)[0], best)
    single = [
        LogEI(Posterior(case.layout, theta[None], case.X, case.y, trend=case.trend), best[s : s + 1])(case.others)
        for s, theta in enumerate(case.thetas)
    ]
    assert np.exp(averaged(case.others)) == pytest.approx(np.exp(single).mean(axis=0), rel=1e-6)


@pytest.mark.parametrize("best", [-1e8, -1e3, -40.0, 1e3])
def test_the_gradient_is_not_zero_where_the_improvement_is_negligible(best: float) -> None:
    case = problem([1, 3, 1], warp=True, earlier_count=0, n=8)
    value, gradient = LogEI(models(case)[0], np.full(2, best)).with_gradient(case.others)
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()
    assert (gradient != 0.0).any(axis=1).all()


@QUICK
@given(problems())
def test_gradients_equal_numeric_differences(case: Problem) -> None:
    all_draws, one = models(case)
    for best in (0.5, -1.0, -8.0):
        objective = LogEI(all_draws, np.full(len(case.thetas), best))
        others: list[AcquisitionTerm] = [LogProbabilityBelow(one, best), NegativeLogCost(one, 3.0)]
        terms = [
            objective,
            *others,
            Acquisition(objective, others, all_draws),
            Acquisition(None, others, all_draws),
        ]
        for term in terms:
            value, gradient = term.with_gradient(case.others)
            assert value == pytest.approx(term(case.others), rel=1e-9, abs=1e-9)
            assert close(gradient, numeric_gradient(term, case.others))


def test_a_negligible_probability_has_a_gradient() -> None:
    layout = layout_of([1], warped=[])
    X, x = np.array([[0.1], [0.9]]), np.array([[0.4]])
    model = Posterior(layout, np.array([[0.0, math.log(1e-4), 0.0]]), X, np.array([0.0, 1.0]))
    for limit in (-1e8, -1e4, -30.0, 0.5, 30.0, 1e8):
        mean, variance, mean_gradient, variance_gradient = (each[0, 0] for each in model.predict_with_gradient(x))
        z = (limit - mean) / math.sqrt(variance)
        value, gradient = LogProbabilityBelow(model, limit).with_gradient(x)
        assert value[0] == pytest.approx(log_ndtr(z))
        ratio = math.sqrt(2.0 / math.pi) / erfcx(-z / math.sqrt(2.0))
        expected = (
            -ratio * (mean_gradient + z * variance_gradient / (2.0 * math.sqrt(variance))) / math.sqrt(variance)
        )
        assert gradient[0] == pytest.approx(expected)


def test_the_acquisition_is_the_sum_of_its_terms() -> None:
    case = problem([1, 2], warp=True, earlier_count=1, n=6)
    model, one = models(case)
    objective = LogEI(model, np.zeros(2))
    acquisition, mean, variance = Acquisition(objective, [NegativeLogCost(one, 0.5)], model).with_moments(
        case.others
    )
    expected = model.predict(case.others)
    assert acquisition == pytest.approx(objective(case.others) - 0.5 * one.predict(case.others)[0][0])
    assert mean == pytest.approx(expected[0])
    assert variance == pytest.approx(expected[1])
    assert Acquisition(None, [], model)(case.others).tolist() == [0.0] * 4
