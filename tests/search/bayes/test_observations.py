"""The trials of a past as arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.search.conformance import FINITE, INFINITE, FakePast
from thriftune.objectives import Constraint, Objective
from thriftune.search.bayes.observations import Observations, Reader
from thriftune.space import Space
from thriftune.trial import State


def filled(count: int = 6, space: Space = INFINITE, **settings: object) -> FakePast:
    """That many trials, all of which run."""
    past = FakePast(space, **settings)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    for _ in range(count):
        past.add(space.sample(rng))
    return past


def ids(past: FakePast, seen: Observations, points: str) -> list[int]:
    """The trials that an array's rows are the points of."""
    encoded = [past.space.encode(trial.config).tolist() for trial in past.trials]
    return [encoded.index(row) for row in getattr(seen, points).tolist()]


def test_in_the_order_in_which_they_ended() -> None:
    past = filled()
    for number, value in ((3, 0.3), (0, 0.1), (4, 0.4)):
        past.end(past.trials[number], value)
    seen = Reader().read(past)
    assert [trial.id for trial in seen.trials] == ids(past, seen, "X") == [3, 0, 4]
    assert seen.values.tolist() == [[0.3], [0.1], [0.4]]
    assert ids(past, seen, "pending") == [1, 2, 5]
    assert seen.failed.shape == (0, INFINITE.dimensions)
    assert seen.feasible.tolist() == [True] * 3


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_without_a_finite_value_it_has_failed(value: float | None) -> None:
    past = filled(3)
    past.end(past.trials[1], value)
    past.end(past.trials[0], 1.0)
    seen = Reader().read(past)
    assert ids(past, seen, "failed") == [1]
    assert ids(past, seen, "X") == [0]
    assert ids(past, seen, "pending") == [2]


def test_a_failed_trial_counts_for_nothing_but_its_failure() -> None:
    past = filled(2)
    past.end(past.trials[0], 0.5)
    past.trials[0].state = State.FAILED  # it had reported before it failed
    seen = Reader().read(past)
    assert (len(seen.trials), ids(past, seen, "failed")) == (0, [0])


@pytest.mark.parametrize("state", [State.WAITING, State.RUNNING, State.PAUSED])
def test_what_has_not_ended_is_pending(state: State) -> None:
    past = filled(1)
    past.trials[0].state = state
    assert len(Reader().read(past).pending) == 1


def test_several_objectives() -> None:
    past = filled(3, objectives=(Objective("loss", False), Objective("accuracy", True), Objective("size", False)))
    past.end(past.trials[0], 0.5, accuracy=0.9, size=10.0)
    past.end(past.trials[1], 0.4, accuracy=math.nan, size=20.0)
    past.end(past.trials[2], 0.3, size=30.0)  # one is missing
    seen = Reader().read(past)
    assert seen.values.tolist() == [[0.5, -0.9, 10.0]]
    assert ids(past, seen, "failed") == [1], "what was stopped before it told all is no failure"


def test_constraints() -> None:
    past = filled(5, constraints=(Constraint("ms", 10.0, True), Constraint("accuracy", 0.5, False)))
    table = [(9.0, 0.6), (11.0, 0.6), (10.0, 0.5), (9.0, 0.4), (math.nan, 0.9)]
    for trial, (ms, accuracy) in zip(past.trials, table, strict=True):
        past.end(trial, 1.0, ms=ms, accuracy=accuracy)
    seen = Reader().read(past)
    assert seen.feasible.tolist() == [True, False, True, False, False]
    assert len(seen.failed) == 0


def test_nothing_yet() -> None:
    seen = Reader().read(FakePast(INFINITE))
    D = INFINITE.dimensions
    assert (seen.X.shape, seen.failed.shape, seen.pending.shape) == ((0, D), (0, D), (0, D))
    assert (seen.values.shape, seen.feasible.shape) == ((0, 1), (0,))


def test_a_reader_that_has_seen_another_past_tells_the_same_as_a_fresh_one() -> None:
    reader = Reader()
    pasts = [filled(4), filled(6), filled(5, FINITE), filled(4)]
    shifted = FakePast(INFINITE)  # other trials by the same numbers
    for trial in reversed(pasts[1].trials):
        shifted.add(trial.config)
    for past in [*pasts, shifted, pasts[0].copy()]:
        past.end(past.trials[2], 1.0)
        past.end(past.trials[0], None)
        found, expected = reader.read(past), Reader().read(past)
        assert found.trials == expected.trials
        for name in ("X", "values", "feasible", "failed", "pending"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist()
