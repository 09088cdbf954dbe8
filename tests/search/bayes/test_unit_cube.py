"""Tests that the arrays of a cube have the same points that the space itself encodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.search.bayes.problems import QUICK
from tests.space.test_space import same, spaces
from thriftune.search.bayes.kernel import CHOICE_WEIGHT, Array
from thriftune.search.bayes.unit_cube import MAX_VALUES_WITHOUT_GRADIENT, Cube
from thriftune.space.conditions import between
from thriftune.space.parameters import Choice, Float, Int
from thriftune.space.space import Space

MIXED = Space(
    {
        "opt": Choice(["sgd", "adam", None]),
        "lr": Float(1e-4, 1e-1, log=True),
        "layers": Int(1, 3, when={"opt": ["sgd", "adam"]}),
        "width": Int(8, 512, log=True, when={"layers": [2, 3]}),
        "act": Choice(["relu", "tanh"], when={"layers": 3, "opt": "adam"}),
        "decay": Float(0, 1, when={"lr": between(1e-4, 1e-2)}),
        "one": Int(4, 4),
        "constant": Float(0.6, 0.6),
        "only": Choice(["x"]),
        "two": Int(0, 1),
    }
)


def encoded(space: Space, U: Array) -> Array:
    return np.array([space.encode(space.from_unit(row)) for row in U.tolist()])


def some_points(p: int, count: int, seed: int) -> Array:
    """Return random points, many of whose coordinates are exactly 0 or 1."""
    rng = np.random.default_rng(seed)
    U = rng.random((count, p))
    ends = rng.random((count, p))
    return np.where(ends < 0.2, 0.0, np.where(ends > 0.8, 1.0, U))


def configuration_points(space: Space, cube: Cube, seed: int) -> Array:
    """Return points that are certainly configurations."""
    U = cube.snap(some_points(cube.p, 20, seed))
    # Snap again: an inactive parameter is at 0.5 in the unit cube, which may not be one of its values.
    return cube.snap(np.array([space.to_unit(space.from_unit(row)) for row in U.tolist()]))


# --- comparison with the space ----------------------------------------------------------------------------


def test_the_cube_encodes_as_the_space_does() -> None:
    cube = Cube(MIXED)
    U = cube.snap(some_points(cube.p, 500, 0))
    X, active = cube.encode(U)
    assert pytest.approx(encoded(MIXED, U), abs=1e-11) == X
    assert active.tolist() == [[name in MIXED.from_unit(row) for name in MIXED.names] for row in U.tolist()]
    assert active.any(axis=0).all()


@QUICK
@example(Space({"n": Int(1, 180085556752, log=True), "c": Choice([None], when={"n": [180085556751]})}), 0)
@given(spaces(), st.integers(0, 2**32))
def test_the_cube_encodes_any_space_as_the_space_does(space: Space, seed: int) -> None:
    cube = Cube(space)
    U = configuration_points(space, cube, seed)
    X, active = cube.encode(U)
    assert pytest.approx(encoded(space, U), abs=1e-9) == X
    assert active.tolist() == [[name in space.from_unit(row) for name in space.searched] for row in U.tolist()]


@QUICK
@given(spaces(finite=True), st.integers(0, 2**32))
def test_any_point_of_a_finite_space_is_snapped_to_a_configuration(space: Space, seed: int) -> None:
    cube = Cube(space)
    U = cube.snap(some_points(cube.p, 20, seed))
    assert pytest.approx(encoded(space, U), abs=1e-12) == cube.encode(U)[0]


@pytest.mark.parametrize(
    "space",
    [
        Space({"n": Int(1, 5000, log=True)}),
        Space({"n": Int(0, 5000), "x": Float(0, 1, when={"n": list(range(2000))})}),
    ],
    ids=["small numbers are far apart", "a condition on it"],
)
def test_a_large_int_is_snapped_to_its_values(space: Space) -> None:
    cube = Cube(space)
    U = cube.snap(np.random.default_rng(0).random((100, cube.p)))
    assert pytest.approx(encoded(space, U), abs=1e-9) == cube.encode(U)[0]


@QUICK
@given(spaces(), st.integers(0, 2**32))
def test_a_configuration_survives_the_round_trip(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(10):
        config = space.sample(rng)
        row = space.to_unit(config)
        assert same(space.from_unit(row), config)
        inactive = [name for name in space.searched if name not in config]
        assert [u for name, u in zip(space.searched, row, strict=True) if name in inactive] == [0.5] * len(
            inactive
        )


@QUICK
@given(spaces(), st.integers(0, 2**32))
def test_snapped_points_are_in_the_cube_and_do_not_change_again(space: Space, seed: int) -> None:
    cube = Cube(space)
    U = np.random.default_rng(seed).uniform(-0.2, 1.2, (30, cube.p))
    before = U.copy()
    snapped = cube.snap(U)
    assert (before == U).all()
    assert (snapped >= 0.0).all()
    assert (snapped <= 1.0).all()
    assert (cube.snap(snapped) == snapped).all()


# --- variation of points ----------------------------------------------------------------------------------


def test_the_layout_of_a_mixed_space() -> None:
    layout = Cube(MIXED).layout
    widths = [3, 1, 1, 1, 2, 1, 1, 1, 1, 1]
    assert layout.parameter_count == len(widths)
    assert layout.column_parameter.tolist() == np.repeat(np.arange(10), widths).tolist()
    assert [
        MIXED.columns[name].start for name in ("lr", "layers", "width", "decay")
    ] == layout.warped_columns.tolist()
    for name, parameter in MIXED.items():
        weight = CHOICE_WEIGHT if isinstance(parameter, Choice) else 1.0
        assert set(layout.column_weights[MIXED.columns[name]]) == {weight}


@pytest.mark.parametrize(
    ("parameter", "smooth"),
    [
        (Float(0, 1), True),
        (Float(2, 2), False),
        (Int(1, MAX_VALUES_WITHOUT_GRADIENT), False),
        (Int(0, MAX_VALUES_WITHOUT_GRADIENT), True),
        (Int(0, 2**40), True),
        (Choice([*range(100)]), False),
    ],
)
def test_floats_and_large_ints_are_smooth(parameter: Float | Int | Choice, smooth: bool) -> None:
    assert Cube(Space({"p": parameter})).smooth.tolist() == [smooth]


@QUICK
@given(spaces(), st.integers(0, 2**32))
def test_neighbours_differ_in_one_active_parameter(space: Space, seed: int) -> None:
    cube = Cube(space)
    U = configuration_points(space, cube, seed)[:4]
    _, active = cube.encode(U)
    others, owners = cube.neighbours(U, active, np.random.default_rng(0))
    assert (cube.snap(others) == others).all()
    assert len(others) == len(owners)
    for row, owner in zip(others, owners, strict=True):
        (changed,) = np.flatnonzero(row != U[owner])
        assert active[owner, changed]
        assert not same(space.from_unit(row.tolist()), space.from_unit(U[owner].tolist()))


def test_neighbours_are_all_values_of_small_ints_and_the_nearest_of_large_ones() -> None:
    space = Space({"a": Choice(["x", "y", "z"]), "n": Int(1, 3), "m": Int(1, 100), "x": Float(0, 1)})
    cube = Cube(space)
    for m, nearest in ((50, {48, 49, 51, 52}), (1, {2, 3}), (99, {97, 98, 100})):
        config = {"a": "y", "n": 1, "m": m, "x": 0.5}
        U = np.array([space.to_unit(config)])
        others, owners = cube.neighbours(U, np.ones((1, 4), dtype=bool), np.random.default_rng(0))
        found = [
            {name: v for name, v in space.from_unit(row).items() if v != config[name]} for row in others.tolist()
        ]
        expected = [{"a": "x"}, {"a": "z"}, {"n": 2}, {"n": 3}, *({"m": near} for near in sorted(nearest))]
        assert found == expected
        assert owners.tolist() == [0] * len(expected)


@QUICK
@given(spaces(), st.integers(0, 2**32))
def test_samples_near_a_point_are_in_the_cube(space: Space, seed: int) -> None:
    cube = Cube(space)
    centres = configuration_points(space, cube, seed)[:3]
    U = cube.sample_near(centres, 200, np.random.default_rng(seed))
    assert U.shape == (600, cube.p)
    assert (U >= 0.0).all()
    assert (U <= 1.0).all()
    assert (np.repeat(centres, 200, axis=0) != U).any(axis=1).all()


@pytest.mark.parametrize(("p", "changed"), [(1, 1.0), (3, 3.0), (6, 3.5), (30, 3.9)])
def test_samples_near_a_corner_are_close_and_in_the_cube(p: int, changed: float) -> None:
    cube = Cube(Space({f"x{i}": Float(0, 1) for i in range(p)}))
    for corner in (0.0, 1.0):
        U = cube.sample_near(np.full((1, p), corner), 20_000, np.random.default_rng(0))
        assert (U >= 0.0).all()
        assert (U <= 1.0).all()
        away = np.abs(U - corner)
        assert (away > 0.0).sum(axis=1).mean() == pytest.approx(changed, abs=0.1)
        assert np.median(away[away > 0.0]) < 0.05
        assert away.max() > 0.5
