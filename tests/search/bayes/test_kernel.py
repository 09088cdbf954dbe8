"""Tests the properties of the kernel and of the warping of its inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from tests.search.bayes.problems import QUICK, Problem, layout_of, problems
from thriftune.search.bayes.kernel import Array, Inputs, ThetaLayout, matern52, squared_distances

ONE = layout_of([1], warped=[0])


def warp(u: Array, a: float, b: float) -> Array:
    theta = np.array([0.0, 0.0, 0.0, math.log(a), math.log(b)])
    return Inputs(ONE, u[:, None]).embed(theta)[:, 0]


def correlation(layout: ThetaLayout, theta: Array, X: Array) -> Array:
    E = Inputs(layout, X).embed(theta)
    return matern52(squared_distances(E, E))


@QUICK
@given(problems())
def test_the_kernel_is_symmetric_positive_definite_and_one_on_the_diagonal(case: Problem) -> None:
    X = np.concatenate([case.X, case.X[:1], case.others])  # one point twice
    K = correlation(case.layout, case.theta, X)
    assert np.abs(K - K.T).max() < 1e-14
    assert np.diag(K) == pytest.approx(np.ones(len(K)))
    assert K[0, len(case.X)] == pytest.approx(1.0)
    assert np.linalg.eigvalsh(K).min() > -1e-10


def test_two_choices_have_the_mean_squared_distance_of_two_random_numbers() -> None:
    layout = layout_of([3], warped=[])
    E = Inputs(layout, np.eye(3)).embed(np.zeros(layout.size))
    u, v = np.random.default_rng(0).random((2, 100_000))
    expected = np.square(u - v).mean()
    assert squared_distances(E, E) == pytest.approx(expected * (1.0 - np.eye(3)), abs=2e-3)


SHAPES = [(a, b) for a in (0.25, 0.5, 1.0, 2.0, 4.0) for b in (0.25, 0.5, 1.0, 2.0, 4.0)]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_a_warping_is_kumaraswamys_and_rises_from_0_to_1(a: float, b: float) -> None:
    u = np.linspace(0.0, 1.0, 201)
    w = warp(u, a, b)
    assert w[1:-1] == pytest.approx(1.0 - (1.0 - u[1:-1] ** a) ** b, rel=1e-9)
    assert (np.diff(w) > 0.0).all()
    assert (w >= 0.0).all()
    assert (w <= 1.0).all()
    # The warping is evaluated WARP_MARGIN away from the ends, which is visible where the curve is steepest.
    assert w[0] < 0.03
    assert w[-1] > 0.99


def test_a_warping_with_a_and_b_1_is_the_identity() -> None:
    u = np.linspace(0.0, 1.0, 11)
    assert warp(u, 1.0, 1.0) == pytest.approx(u, abs=2e-9)


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_the_derivative_is_finite_at_the_ends_of_the_unit_interval(a: float, b: float) -> None:
    theta = np.array([[0.0, 0.0, 0.0, math.log(a), math.log(b)]])
    inputs = Inputs(ONE, np.array([[0.0], [1.0]]))
    assert np.isfinite(inputs.derivative_by_x(theta)).all()
    assert np.isfinite(inputs.gradient_by_theta(theta[0], inputs.embed(theta[0]), np.ones((2, 1)))).all()
