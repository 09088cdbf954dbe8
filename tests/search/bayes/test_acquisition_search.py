"""Tests the search for the highest acquisition: against brute force, and that no step leads down."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.bayes.problems import QUICK, thetas_of
from tests.search.conformance import FINITE, INFINITE
from tests.space.test_space import spaces
from thriftune.search.bayes.acquisition import Acquisition, LogEI
from thriftune.search.bayes.acquisition_search import improve, rank_points, sobol_points
from thriftune.search.bayes.kernel import Array
from thriftune.search.bayes.posterior import Posterior
from thriftune.search.bayes.unit_cube import Cube
from thriftune.space.parameters import Choice, Float, Int
from thriftune.space.space import Space

LATTICE = Space({"a": Choice(["x", "y", "z"]), "n": Int(1, 12), "m": Int(1, 40, log=True), "b": Choice([0, 1])})
CONTINUOUS = Space({"x": Float(0, 1), "y": Float(1e-3, 1, log=True), "z": Float(-1, 1)})
DISCRETE = {"finite": FINITE, "lattice": LATTICE}


class Peak:
    """An acquisition term that is highest at one point."""

    def __init__(self, top: Array) -> None:
        self.top = top

    def __call__(self, X: Array) -> Array:
        return np.asarray(-np.square(X - self.top).sum(axis=1))

    def with_gradient(self, X: Array) -> tuple[Array, Array]:
        return self(X), -2.0 * (X - self.top)


def model(cube: Cube, seed: int, n: int = 8) -> Posterior:
    rng = np.random.default_rng(seed)
    X = cube.encode(cube.snap(rng.random((n, cube.p))))[0]
    return Posterior(cube.layout, thetas_of(cube.layout, 3, rng), X, rng.standard_normal(n))


def improvement(cube: Cube, seed: int) -> Acquisition:
    posterior = model(cube, seed)
    return Acquisition(LogEI(posterior, posterior.mean_at_inputs.min(axis=1)), [], posterior)


def value_at(cube: Cube, acquisition: Acquisition, U: Array) -> Array:
    return acquisition(cube.encode(U)[0])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("space", DISCRETE.values(), ids=DISCRETE)
def test_the_best_of_a_finite_space_is_found(space: Space, seed: int) -> None:
    cube = Cube(space)
    acquisition = improvement(cube, seed)
    everything = np.array([space.to_unit(config) for config in space.every()])
    rng = np.random.default_rng(seed)
    found = rank_points(cube, acquisition, everything[:2], rng)
    assert value_at(cube, acquisition, found[:1])[0] == pytest.approx(
        value_at(cube, acquisition, everything).max(), abs=1e-9
    )


def test_the_best_of_a_continuous_space_is_found_nearly_always() -> None:
    cube = Cube(CONTINUOUS)
    many = np.random.default_rng(1).random((5_000, 3))
    missed = []
    for seed in range(8):
        acquisition = improvement(cube, seed)
        start = sobol_points(cube, 256, np.random.default_rng(seed))
        found = rank_points(cube, acquisition, np.full((1, 3), 0.5), np.random.default_rng(seed))
        best = value_at(cube, acquisition, found[:1])[0]
        assert best > value_at(cube, acquisition, start).max()
        missed.append(value_at(cube, acquisition, many).max() - best)
    assert np.median(missed) <= 0.0
    assert max(missed) < 0.3  # another peak, nearly as high


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("space", [INFINITE, LATTICE, CONTINUOUS], ids=["infinite", "lattice", "continuous"])
def test_points_are_snapped_and_ordered_by_acquisition(space: Space, seed: int) -> None:
    cube = Cube(space)
    acquisition = improvement(cube, seed)
    found = rank_points(cube, acquisition, np.full((2, cube.p), 0.5), np.random.default_rng(seed))
    values = value_at(cube, acquisition, found)
    assert (cube.snap(found) == found).all()
    assert (np.diff(values) <= 1e-9).all()
    assert len(found) >= 256
    again = rank_points(cube, acquisition, np.full((2, cube.p), 0.5), np.random.default_rng(seed))
    assert (again == found).all()


@QUICK
@given(spaces(), st.integers(0, 2**32))
def test_no_step_leads_down(space: Space, seed: int) -> None:
    cube = Cube(space)
    acquisition = improvement(cube, seed)
    U = sobol_points(cube, 4, np.random.default_rng(seed))
    before, kept = value_at(cube, acquisition, U), U.copy()
    after, values = improve(cube, acquisition, U, before, 5, np.random.default_rng(0))
    assert (kept == U).all()
    assert (values >= before).all()
    assert (cube.snap(after) == after).all()
    assert values == pytest.approx(value_at(cube, acquisition, after), abs=1e-6)


def test_improve_follows_gradients_and_tries_neighbours() -> None:
    space = Space({"x": Float(0, 1), "a": Choice(["u", "v", "w"]), "n": Int(0, 9), "m": Int(0, 99)})
    cube = Cube(space)
    wanted = {"x": 0.7, "a": "w", "n": 2, "m": 31}
    acquisition = Acquisition(None, [Peak(space.encode(wanted))], model(cube, 0))
    start = np.array([space.to_unit({"x": 0.1, "a": "u", "n": 9, "m": 90})])
    found, values = improve(
        cube, acquisition, start, value_at(cube, acquisition, start), 30, np.random.default_rng(0)
    )
    assert values[0] == pytest.approx(0.0, abs=1e-9)
    assert found[0] == pytest.approx(space.to_unit(wanted), abs=1e-4)


def test_an_inactive_parameter_does_not_change_until_its_condition_holds() -> None:
    cube = Cube(INFINITE)
    acquisition = Acquisition(
        None, [Peak(INFINITE.encode({"opt": "adam", "lr": 1e-3, "width": 64}))], model(cube, 0)
    )
    start = np.array([INFINITE.to_unit({"opt": "sgd", "lr": 1e-2, "momentum": 0.99, "width": 8})])
    found, _ = improve(cube, acquisition, start, value_at(cube, acquisition, start), 30, np.random.default_rng(0))
    config = INFINITE.from_unit(found[0].tolist())
    assert "momentum" not in config
    assert config["opt"] == "adam"
    assert config["lr"] == pytest.approx(1e-3, rel=1e-2)
    assert config["width"] == 64


def test_sobol_points_fill_the_cube_and_differ_by_seed() -> None:
    cube = Cube(CONTINUOUS)
    first, again, other = (sobol_points(cube, 64, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any(axis=1).all()
    for column in first.T:
        assert np.histogram(column, 8, (0.0, 1.0))[0].min() >= 6
