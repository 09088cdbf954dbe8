"""Tests random, Sobol and grid search, and the searchers by name."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

from tests.search.conformance import FINITE, INFINITE, FakePast, SearcherConformance, rng, run
from thriftune.errors import SettingError
from thriftune.search import SEARCHERS
from thriftune.search.grid import Grid
from thriftune.search.protocol import Searcher
from thriftune.search.random import Random
from thriftune.search.sobol import BLOCK, Sobol
from thriftune.space.parameters import Choice, Float, Int
from thriftune.space.space import Space


class TestRandom(SearcherConformance):
    def searcher(self) -> Searcher:
        return Random()

    def test_the_last_untried_configurations_are_equally_likely(self) -> None:
        # Random draws seldom hit one of two values in a thousand, so the walk nearly always decides.
        space = Space({"n": Int(0, 999)})
        past = FakePast(space)
        for n in range(2, 1000):
            past.add({"n": n})
        chosen = [Random().suggest(past, np.random.default_rng(seed))["n"] for seed in range(200)]
        assert set(chosen) == {0, 1}
        assert 60 < sum(chosen) < 140

    def test_the_walk_reaches_an_infinite_branch_that_random_draws_miss(self) -> None:
        steps = {f"d{i}": Choice([0, 1], when={f"d{i - 1}": 1} if i else None) for i in range(40)}
        space = Space({**steps, "x": Float(0, 1, when={"d39": 1})})
        suggested = run(Random(), FakePast(space), 60)
        assert len({space.key(c) for c in suggested}) == 60


class TestSobol(SearcherConformance):
    def searcher(self) -> Searcher:
        return Sobol()

    def test_points_fill_every_stratum(self) -> None:
        # The first 2**k points of a scrambled sequence have one point in each of 2**k slices of every axis.
        space = Space({"x": Float(0, 1), "a": Choice(list(range(8))), "n": Int(0, 15)})
        suggested = run(Sobol(), FakePast(space, seed=5), 16)
        assert sorted(int(c["x"] * 16) for c in suggested) == list(range(16))
        assert sorted(c["a"] for c in suggested) == [k for k in range(8) for _ in range(2)]
        assert sorted(c["n"] for c in suggested) == list(range(16))

    def test_the_seed_changes_the_sequence(self) -> None:
        first, second = (run(Sobol(), FakePast(INFINITE, seed=seed), 4) for seed in (0, 1))
        assert first != second

    def test_consecutive_blocks_continue_the_sequence_without_a_warning(self) -> None:
        space = Space({"x": Float(0, 1), "y": Float(0, 1)})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            suggested = run(Sobol(), FakePast(space, seed=2), 4 * BLOCK)
        assert sorted(int(c["x"] * 4 * BLOCK) for c in suggested) == list(range(4 * BLOCK))


class TestGrid(SearcherConformance):
    exhausts = True

    def searcher(self) -> Searcher:
        return Grid()

    def test_the_grid_is_suggested_in_order_and_ends(self) -> None:
        space = Space({"a": Choice(["x", "y"]), "x": Float(0, 1, when={"a": "y"})})
        past = FakePast(space)
        expected = [{"a": "x"}, {"a": "y", "x": 0.0}, {"a": "y", "x": 0.5}, {"a": "y", "x": 1.0}]
        assert run(Grid(points=3), past, 10) == expected
        assert Grid(points=3).suggest(past, rng(past)) is None

    def test_the_grid_wraps_around_to_an_untried_configuration(self) -> None:
        past = FakePast(Space({"a": Choice(["x", "y"])}))
        past.add({"a": "y"})  # an enqueued trial is trial 0 in place of the grid's first configuration
        assert Grid().suggest(past, rng(past)) == {"a": "x"}

    @pytest.mark.parametrize("points", [0, -1, 2.5, True, "5"])
    def test_invalid_points_are_refused(self, points: int) -> None:
        with pytest.raises(
            SettingError,
            match=r"^grid: points: .* (must be a whole number|is too small)",
        ):
            Grid(points)


@pytest.mark.parametrize(("name", "kind"), [("random", Random), ("sobol", Sobol), ("grid", Grid)])
def test_searchers_by_name(name: str, kind: type[Searcher]) -> None:
    assert isinstance(SEARCHERS.make(name, {}), kind)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SettingError, match=r"^searcher 'rnadom' is not known; use one of bayes, random, sobol"):
        SEARCHERS.make("rnadom", {})


def test_scipy_is_not_imported_before_it_is_needed() -> None:
    code = "import sys; from thriftune.search import Sobol; Sobol(); sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_finite_space_is_small() -> None:
    assert FINITE.size == 10
