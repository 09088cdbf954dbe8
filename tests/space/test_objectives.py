"""Tests of objectives and constraints: parsing, feasibility and fronts, against plain definitions."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.errors import SettingError
from thriftune.space.objectives import (
    Constraint,
    feasible,
    goal,
    join_with_and,
    nearest_to_feasible,
    needed_metrics,
    parse_constraints,
    parse_objectives,
)

# --- as users write them ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("minimize", "maximize", "expected"),
    [
        ("loss", None, ["minimize loss"]),
        (None, "acc", ["maximize acc"]),
        (["b", "a"], None, ["minimize b", "minimize a"]),
        (("b", "a"), ["d", "c"], ["minimize b", "minimize a", "maximize d", "maximize c"]),
        ("loss", ["acc"], ["minimize loss", "maximize acc"]),
        ([], "acc", ["maximize acc"]),
    ],
)
def test_objectives_in_their_order(minimize: Any, maximize: Any, expected: list[str]) -> None:
    assert [str(objective) for objective in parse_objectives(minimize, maximize)] == expected


@pytest.mark.parametrize(
    ("minimize", "maximize", "message"),
    [
        (None, None, "give minimize or maximize or both: the name of a metric, or a list of names"),
        ([], (), "give minimize or maximize or both: the name of a metric, or a list of names"),
        ("a", ["b", "a"], "a: is named twice; name each metric once, in minimize or in maximize"),
        (["a", "a"], None, "a: is named twice; name each metric once, in minimize or in maximize"),
        ("", None, "the metric to optimise must be a name, not ''"),
        ("a\x1b[31m", None, r"the metric 'a\x1b[31m' has characters that cannot be shown; give it another name"),
        (["a", None], None, "the metric to optimise must be a name, not None"),
        (3, None, "minimize: 3 must be the name of a metric, or a list of such"),
        (None, {"a"}, "maximize: {'a'} must be the name of a metric, or a list of such"),
    ],
)
def test_invalid_objectives(minimize: Any, maximize: Any, message: str) -> None:
    with pytest.raises(SettingError) as error:
        parse_objectives(minimize, maximize)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latency_ms <= 10", Constraint("latency_ms", 10.0, True)),
        ("  accuracy>=0.7 ", Constraint("accuracy", 0.7, False)),
        ("val/top 1 acc. >= -1e-3", Constraint("val/top 1 acc.", -0.001, False)),
        ("x <= 1_000", Constraint("x", 1000.0, True)),
        ("x >= -0", Constraint("x", 0.0, False)),
    ],
)
def test_constraints(text: str, expected: Constraint) -> None:
    assert parse_constraints([text]) == parse_constraints(text) == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "x <=", "<= 3", " <= 3", "x < 3", "x == 3", "x => 3", "x <= y", "1 <= x <= 2", "x <= nan"),
        *("x >= inf", "x <= 1 2", "x <== 3", "3", 3, None, ("x", 3)),
    ],
)
def test_invalid_constraints(text: Any) -> None:
    message = (
        f"constraints: {text!r} is not a constraint; write NAME <= NUMBER or NAME >= NUMBER, "
        "such as 'latency_ms <= 10'"
    )
    with pytest.raises(SettingError, match=f"^{re.escape(message)}$"):
        parse_constraints([text])


def test_constraints_together() -> None:
    assert parse_constraints(None) == parse_constraints([]) == ()
    assert [str(each) for each in parse_constraints(["x >= 1", "x <= 1", "x >= 1"])] == ["x >= 1", "x <= 1"]
    with pytest.raises(SettingError, match="constraints: no value can meet both x >= 2 and x <= 1"):
        parse_constraints(["x <= 1", "y <= 0", "x >= 2"])
    with pytest.raises(SettingError, match="constraints: 3 must be such as 'latency_ms <= 10', or a list of such"):
        parse_constraints(3)  # type: ignore[arg-type]


@given(st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_a_constraint_is_read_back_as_it_is_shown(limit: float, upper: bool) -> None:
    constraint = Constraint("x", limit, upper)
    assert parse_constraints(str(constraint)) == (constraint,)


# --- in words ---------------------------------------------------------------------------------------------


def test_text_of_objectives_and_constraints() -> None:
    assert goal(parse_objectives("loss", None)) == "minimize loss"
    assert goal(parse_objectives(["loss", "size"], "acc")) == "minimize loss, size, maximize acc"
    bounds = parse_constraints(["size <= 5", "acc >= 0.5", "acc <= 1"])
    assert goal(parse_objectives(None, "acc"), bounds) == "maximize acc with size <= 5, acc >= 0.5 and acc <= 1"
    assert [join_with_and("abc"[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert needed_metrics(parse_objectives("loss", "acc"), bounds) == ("loss", "acc", "size")


# --- what counts ------------------------------------------------------------------------------------------

BOUNDS = parse_constraints(["a <= 1", "b >= 0"])


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({}, None),
        ({"a": 1.0}, None),
        ({"b": 0.0}, None),
        ({"a": 1.0, "b": 0.0}, True),
        ({"a": 1.1, "b": 0.0}, False),
        ({"a": 1.1}, False),
        ({"b": -0.1}, False),
        ({"a": math.nan, "b": 0.0}, False),
        ({"a": -math.inf, "b": math.inf}, True),
    ],
)
def test_feasible(metrics: dict[str, float], expected: bool | None) -> None:
    assert feasible(metrics, BOUNDS) is expected
    assert feasible(metrics, ()) is True


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from([-1.0, 0.0, 1.0, 2.0, math.nan])))
def test_more_metrics_cannot_change_a_known_feasibility(metrics: dict[str, float]) -> None:
    """Try all possible values of the missing metrics: the result is known only if all of them agree."""
    ways = [{"a": a, "b": b, **metrics} for a in (0.0, 9.0) for b in (0.0, -9.0)]
    answers = {way["a"] <= 1 and way["b"] >= 0 for way in ways}
    assert feasible(metrics, BOUNDS) is (answers.pop() if len(answers) == 1 else None)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(2.0, 0.0), (1.5, 0.0), (1.5, 0.0)], 1),
        ([(1.0, -5.0), (900.0, 0.0), (2.0, -1.0)], 2),  # each constraint on its own scale
        ([(1.0, -1e308), (1e308, 0.0), (1e308, -1e308)], 0),
        ([(3.0, 1.0)], 0),
    ],
)
def test_nearest(rows: list[tuple[float, float]], expected: int) -> None:
    assert nearest_to_feasible([{"a": a, "b": b} for a, b in rows], BOUNDS) == expected
