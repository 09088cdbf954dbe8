"""Tests of spaces: configurations survive the unit cube and JSON, and errors name the parameter."""

from __future__ import annotations

import json
import math
import pickle
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from thriftune.errors import SpaceError
from thriftune.space.conditions import between
from thriftune.space.parameters import Choice, Fixed, Float, Int, Parameter
from thriftune.space.space import Space
from thriftune.space.values import identity

PATIENT = settings(deadline=None)
"""No deadline: a test must not fail because the machine is busy."""

# --- random spaces ----------------------------------------------------------------------------------------

REALS = st.floats(-1e300, 1e300) | st.floats(-10, 10) | st.integers(-1000, 1000)
POSITIVE = st.floats(1e-300, 1e300) | st.floats(1e-6, 10.0) | st.integers(1, 1000)
WHOLE = st.integers(-(2**40), 2**40) | st.integers(-5, 20)
CENTS = st.integers(-500, 500)
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(-9, 9)


@st.composite
def floats(draw: st.DrawFn, when: Any = None) -> Float:
    log = draw(st.booleans())
    low, high = sorted(draw(st.tuples(*[POSITIVE if log else REALS] * 2)))
    return Float(low, high, log, when=when)


@st.composite
def ints(draw: st.DrawFn, when: Any = None, widest: int = 2**41) -> Int:
    log = draw(st.booleans())
    low = draw(st.integers(1, 2**40) | st.integers(1, 9)) if log else draw(WHOLE)
    high = draw(st.integers(low, min(low + widest, 2**40)))
    return Int(low, high, log, when=when)


@st.composite
def stepped(draw: st.DrawFn, when: Any = None, most: int = 10_000) -> Float | Int:
    low, step, steps = draw(CENTS), draw(st.integers(1, 70)), draw(st.integers(0, most))
    high = low + steps * step
    if draw(st.booleans()):
        return Int(low, high, step=step, when=when)
    return Float(low / 100, high / 100, step=step / 100, when=when)


NESTED = st.recursive(SCALARS, lambda each: st.lists(each, max_size=2) | st.lists(each, max_size=2).map(tuple))
"""Values of choices and fixed parameters."""


def choices(when: Any = None) -> st.SearchStrategy[Choice]:
    values = st.lists(SCALARS, min_size=1, max_size=4, unique_by=lambda v: v)
    nested = st.lists(NESTED, min_size=1, max_size=4, unique_by=identity)
    return (values | nested).map(lambda c: Choice(c, when=when))


def fixed(when: Any = None) -> st.SearchStrategy[Fixed]:
    return NESTED.map(lambda value: Fixed(value, when=when))


@st.composite
def conditions(draw: st.DrawFn, before: Mapping[str, Parameter]) -> dict[str, Any] | None:
    names = draw(st.lists(st.sampled_from([*before]), max_size=2, unique=True)) if before else []
    when: dict[str, Any] = {}
    for name in names:
        parent = before[name]
        if isinstance(parent, Choice):
            one = st.sampled_from(parent.choices)
        elif isinstance(parent, Int):
            one = st.integers(0, (parent.high - parent.low) // (parent.step or 1)).map(
                lambda k, low=parent.low, step=parent.step or 1: low + k * step  # type: ignore[misc]
            )
        elif isinstance(parent, Fixed):
            one = st.just(parent.value)
        else:
            assert isinstance(parent, Float)
            levels = Space({"it": replace(parent, when=None)}).scales["it"].levels(5)
            one = st.sampled_from(levels) if parent.step else st.floats(parent.low, parent.high)
        ranges = st.lists(one, min_size=2, max_size=2).map(lambda ends: between(*sorted(ends)))
        if isinstance(parent, Float) and parent.low < parent.high and not parent.step:
            when[name] = draw(ranges)
        elif isinstance(parent, Int):
            when[name] = draw(one | st.lists(one, min_size=1, max_size=3) | ranges)
        else:
            when[name] = draw(one | st.lists(one, min_size=1, max_size=3))
    return when or None


@st.composite
def spaces(draw: st.DrawFn, finite: bool = False) -> Space:
    parameters: dict[str, Parameter] = {}
    for name in draw(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=5, unique=True)):
        when = draw(conditions(parameters))
        kinds: list[st.SearchStrategy[Parameter]] = [choices(when), ints(when, 3 if finite else 2**41)]
        kinds += [stepped(when, 3 if finite else 10_000), fixed(when)]
        parameters[name] = draw(st.one_of(kinds if finite else [*kinds, floats(when)]))
    return built(parameters)


def built(parameters: Mapping[str, Parameter]) -> Space:
    """Return the space of drawn parameters, unless they are not valid together."""
    try:
        return Space(parameters)
    except SpaceError as error:
        assume("unclear" not in str(error) and "fixed values only" not in str(error))
        raise


def same(a: Any, b: Any) -> bool:
    """Return whether two configurations are equal in values, order and types; 1, 1.0 and True differ."""
    return repr(a) == repr(b)


def brute_force(space: Space, levels: Callable[[Parameter], list[Any]]) -> Iterator[dict[str, Any]]:
    """Return every combination of active parameters once, by the definition of a condition."""
    seen = []
    for values in product(*(levels(p) for p in space.parameters)):
        config: dict[str, Any] = {}
        for (name, parameter), value in zip(space.items(), values, strict=True):
            when = parameter.when or {}
            if all(other in config and config[other] in allowed for other, allowed in when.items()):
                config[name] = value
        if config not in seen:
            seen.append(config)
            yield config


def all_values(parameter: Parameter) -> list[Any]:
    if isinstance(parameter, Choice):
        return list(parameter.choices)
    if isinstance(parameter, Int):
        return list(range(parameter.low, parameter.high + 1, parameter.step or 1))
    if isinstance(parameter, Fixed):
        return [parameter.value]
    assert isinstance(parameter, Float)
    if parameter.step and parameter.low < parameter.high:
        whole = [round(100 * each) for each in (parameter.low, parameter.high, parameter.step)]
        return [cents / 100 for cents in range(whole[0], whole[1] + 1, whole[2])]
    return [parameter.low]


# --- the unit cube ----------------------------------------------------------------------------------------


@PATIENT
@given(spaces(), st.integers(0, 2**32))
def test_a_sample_is_valid_and_survives_the_round_trip(space: Space, seed: int) -> None:
    config = space.sample(np.random.default_rng(seed))
    assert same(space.check(config), config)
    point = space.encode(config)
    assert point.shape == (space.dimensions,)
    assert (point >= 0).all()
    assert (point <= 1).all()
    assert same(space.decode(point), config)
    assert same(space.check(json.loads(json.dumps(config))), config)
    assert same(space.restored(json.loads(json.dumps(config))), config)
    assert space.key(json.loads(json.dumps(config))) == space.key(config)
    assert same(space.from_unit(space.to_unit(config)), config)
    hash(space.key(config))


@PATIENT
@given(spaces(), st.data())
def test_any_point_decodes_to_a_config_that_survives_the_round_trip(space: Space, data: st.DataObject) -> None:
    unit = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 1e-13, 1 - 1e-13, 0.5])
    point = data.draw(st.lists(unit, min_size=space.dimensions, max_size=space.dimensions))
    config = space.decode(point)
    assert same(space.check(config), config)
    assert same(space.decode(space.encode(config)), config)


@PATIENT
@given(floats())
@example(Float(0.1234567890123456, 0.9876543210987654))
@example(Float(1.00000000000049e-5, 1.0, log=True))
@example(Float(1.0, 1.0 + 2**-52, log=True))
@example(Float(1.0, 1.0 + 1e-10))
@example(Float(0.0, 0.30000000000000004))
@example(Float(5e-324, 1e-320))
@example(Float(0.6, 0.6))
@example(Float(-0.0, 1.0))
@example(Float(-4.1111271612831795, -4.1092991157464365))
def test_bounds_of_a_float_are_reached_and_survive(parameter: Float) -> None:
    space = Space({"x": parameter})
    for bound, u in ((parameter.low, 0.0), (parameter.high, 1.0)):
        config = {"x": bound + 0.0}
        assert same(space.from_unit([u]), config)
        assert same(space.decode(space.encode(config)), config)


@PATIENT
@given(ints(), st.data())
def test_every_value_of_an_int_survives(parameter: Int, data: st.DataObject) -> None:
    space = Space({"n": parameter})
    config = {"n": data.draw(st.integers(parameter.low, parameter.high))}
    assert same(space.decode(space.encode(config)), config)
    assert same(space.from_unit([0.0]), {"n": parameter.low})
    assert same(space.from_unit([1.0]), {"n": parameter.high})


def test_scales() -> None:
    space = Space({"lr": Float(1e-4, 1.0, log=True), "n": Int(1, 4), "a": Choice(["x", "y", "z"])})
    assert space.decode([0.5, 0.5, 0.1, 0.3, 0.2]) == {"lr": 0.01, "n": 3, "a": "y"}
    assert space.encode({"lr": 0.01, "n": 3, "a": "y"}) == pytest.approx([0.5, 0.625, 0, 1, 0])
    assert space.columns == {"lr": slice(0, 1), "n": slice(1, 2), "a": slice(2, 5)}
    assert space.dimensions == 5


def test_inactive_parameters_leave_the_config_and_blank_columns() -> None:
    space = Space({"a": Choice(["x", "y"]), "n": Int(1, 9, when={"a": "x"}), "b": Choice([1, 2], when={"n": 1})})
    assert space.encode({"a": "y"}).tolist() == [0, 1, 0.5, 0, 0]
    assert space.decode([0, 1, 0.0, 1, 0]) == {"a": "y"}
    assert space.decode([1, 0, 0.0, 0, 1]) == {"a": "x", "n": 1, "b": 2}


@pytest.mark.parametrize("point", [[0.1], [0.1, math.nan], [[0.1, 0.2]]])
def test_decode_refuses_invalid_points(point: Any) -> None:
    with pytest.raises(SpaceError, match=r"no point of the unit cube; give 2 numbers"):
        Space({"x": Float(0, 1), "y": Float(0, 1)}).decode(point)


def test_samples_are_uniform_on_their_scale() -> None:
    space = Space({"lr": Float(1e-4, 1.0, log=True), "n": Int(1, 4), "a": Choice([True, False])})
    rng = np.random.default_rng(0)
    drawn = [space.sample(rng) for _ in range(4000)]
    assert sum(c["lr"] < 1e-2 for c in drawn) == pytest.approx(2000, abs=150)
    for n in range(1, 5):
        assert sum(c["n"] == n for c in drawn) == pytest.approx(1000, abs=130)
    assert sum(c["a"] for c in drawn) == pytest.approx(2000, abs=150)


def test_types_are_plain_python() -> None:
    space = Space(
        {"x": Float(np.float32(0), 1), "n": Int(np.int64(1), 4.0), "a": Choice(np.array([1, 2]))}  # type: ignore[arg-type]
    )
    for config in (space.sample(np.random.default_rng(0)), space.decode(np.zeros(4)), *space.grid(2)):
        assert [type(v) for v in config.values()] == [float, int, int]
    clean = space.check({"a": np.int64(2), "n": np.int32(1), "x": 1})
    assert same(clean, {"x": 1.0, "n": 1, "a": 2})


# --- sizes, grids, keys -----------------------------------------------------------------------------------


@PATIENT
@given(spaces(finite=True))
def test_size_and_every_agree_with_brute_force(space: Space) -> None:
    assume(math.prod(len(all_values(p)) for p in space.parameters) < 300)
    expected = list(brute_force(space, all_values))
    assert same(list(space.every()), expected)
    assert space.size == len(expected)
    assert len({space.key(c) for c in expected}) == len(expected)


def test_size_of_large_and_of_infinite_spaces() -> None:
    bits: dict[str, Parameter] = {f"b{i}": Choice([0, 1]) for i in range(100)}
    assert Space(bits).size == 2**100
    assert Space({**bits, **{f"n{i}": Int(1, 10, when={f"b{i}": 1}) for i in range(100)}}).size == 11**100
    assert Space({"x": Float(0, 1)}).size == math.inf
    assert Space({"x": Float(1, 1)}).size == 1


def test_a_float_that_is_never_active_leaves_the_space_finite() -> None:
    space = Space(
        {"a": Choice([1, 2]), "b": Int(0, 2, when={"a": 1}), "x": Float(0, 1, when={"a": 2, "b": [0, 1]})}
    )
    assert space.size == 4
    assert list(space.every()) == [{"a": 1, "b": 0}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2}]


def test_every_of_an_infinite_space_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"infinite and cannot be listed; use grid"):
        Space({"x": Float(0, 1)}).every()


def test_grid() -> None:
    space = Space({"a": Choice(["x", "y"]), "lr": Float(0.01, 1, log=True, when={"a": "x"}), "n": Int(1, 2)})
    assert list(space.grid(3)) == [
        *({"a": "x", "lr": lr, "n": n} for lr in (0.01, 0.1, 1.0) for n in (1, 2)),
        *({"a": "y", "n": n} for n in (1, 2)),
    ]
    assert list(Space({"x": Float(0, 1)}).grid(1)) == [{"x": 0.5}]
    assert [c["n"] for c in Space({"n": Int(0, 100)}).grid(5)] == [0, 25, 50, 75, 100]
    assert [c["n"] for c in Space({"n": Int(1, 16, log=True)}).grid(5)] == [1, 2, 4, 8, 16]


@PATIENT
@given(ints(), st.integers(2, 12))
def test_grid_of_an_int_is_distinct_and_reaches_both_bounds(parameter: Int, points: int) -> None:
    values = [c["n"] for c in Space({"n": parameter}).grid(points)]
    assert values == sorted(set(values))
    assert len(values) == min(points, parameter.high - parameter.low + 1)
    assert (values[0], values[-1]) == (parameter.low, parameter.high)


@PATIENT
@given(spaces(), st.integers(1, 3))
def test_a_grid_has_only_valid_and_distinct_configurations(space: Space, points: int) -> None:
    configs = list(space.grid(points))
    assert len({space.key(c) for c in configs}) == len(configs)
    assert all(same(space.check(c), c) for c in configs)


def test_grid_is_lazy() -> None:
    space = Space({f"n{i}": Int(1, 2**40) for i in range(50)})
    assert set(next(space.every()).values()) == {1}
    assert set(next(space.grid(10)).values()) == {1}


def test_a_grid_of_thousands_of_parameters() -> None:
    names = [f"p{i}" for i in range(3000)]
    configs = Space({name: Float(0.0, 1.0) for name in names}).grid(2)
    assert next(configs) == dict.fromkeys(names, 0.0)
    assert next(configs) == {**dict.fromkeys(names, 0.0), names[-1]: 1.0}
    chain = Space(
        {
            name: Choice(["stop", "go"], when={before: "go"} if before else None)
            for before, name in pairwise(["", *names])
        }
    )
    assert chain.size == 3001
    assert next(chain.grid(2)) == {"p0": "stop"}
    assert list(islice(chain.every(), 3))[-1] == {"p0": "go", "p1": "go", "p2": "stop"}


def test_keys() -> None:
    space = Space({"a": Choice([None, "x"]), "n": Int(1, 3, when={"a": "x"})})
    assert space.key({"n": 1, "a": "x"}) == space.key({"a": "x", "n": 1})
    assert len({space.key(c) for c in space.every()}) == 4
    assert hash(space.key({"a": None})) == hash(space.key({"a": None}))


# --- the written form, equality ---------------------------------------------------------------------------


@PATIENT
@given(spaces())
def test_json_and_pickle_round_trip(space: Space) -> None:
    again = Space.from_json(json.loads(json.dumps(space.to_json())))
    for copy in (again, Space(space), pickle.loads(pickle.dumps(space))):
        assert copy == space
        assert hash(copy) == hash(space)
        assert same(list(copy.items()), list(space.items()))
        assert space.difference(copy) == []


def test_a_study_file_holds_a_space() -> None:
    table = tomllib.loads("""
        lr = {type = "float", low = 1e-4, high = 1e-1, log = true}
        opt = {type = "choice", choices = ["sgd", "adam", "lion"]}
        width = {type = "int", low = 16, high = 256, when = {opt = ["adam", "lion"]}}
    """)
    space = Space(
        {
            "lr": Float(1e-4, 0.1, log=True),
            "opt": Choice(["sgd", "adam", "lion"]),
            "width": Int(16, 256, when={"opt": {"lion", "adam"}}),
        }
    )
    assert Space.from_json(table) == space
    assert space.to_json() == table


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([1], "a space is a table of parameters, not [1]"),
        ({"lr": 3}, "the space has fixed values only"),
        ({"lr": {"low": 1, "high": 2}}, "lr: type is missing; use float, int or choice"),
        ({"lr": {"value": 1, "high": 2}}, "lr: high is no setting of fixed; use value, when"),
        ({"lr": {"type": "flaot"}}, "lr: type 'flaot' is not known"),
        ({"lr": {"type": ["float"]}}, "lr: type ['float'] is not known"),
        ({"lr": {"type": "float", "low": 1}}, "lr: high is missing; a float needs it"),
        ({"a": {"type": "choice"}}, "a: choices is missing; a choice needs it"),
        (
            {"lr": {"type": "int", "low": 1, "hihg": 2}},
            "lr: hihg is no setting of int; use low, high, log, step, when",
        ),
        ({"lr": {"type": "float", "low": "1e-4", "high": 1}}, "lr: low '1e-4' is not a number"),
    ],
)
def test_bad_tables_are_refused(data: Any, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        Space.from_json(data)
    assert str(caught.value).startswith(message)


def test_difference() -> None:
    old = Space({"lr": Float(0, 0.1), "act": Choice(["a"]), "n": Int(1, 2), "m": Int(1, 2), "k": Int(1, 2)})
    new = Space(
        {
            "lr": Float(0, 1),
            "m": Int(1, 2, when={"lr": between(0.5, 1)}),
            "n": Choice([1]),
            "width": Int(1, 2),
            "k": Int(1, 3, log=True),
        }
    )
    assert old.difference(new) == [
        "lr: high was 0.1, is now 1.0",
        "act: is gone",
        "n: was Int, is now Choice",
        "m: when was None, is now {'lr': between(0.5, 1.0)}",
        "k: high was 2, is now 3",
        "k: log was False, is now True",
        "width: is new",
        "the order was lr, n, m, k, is now lr, m, n, k",
    ]
    assert old != new
    assert Space({"a": Choice([1])}).difference(Space({"a": Choice([True])})) == [
        "a: choices was [1], is now [True]"
    ]


def test_equality() -> None:
    a, b = Int(1, 2), Float(0, 1)
    assert Space({"a": a, "b": b}) == Space({"a": Int(1.0, 2.0), "b": Float(0.0, 1.0)})  # type: ignore[arg-type]
    assert Space({"a": a, "b": b}) != Space({"b": b, "a": a})
    assert Space({"a": Choice([1, 0])}) != Space({"a": Choice([True, False])})
    assert Space({"a": a}) != {"a": a}


def test_a_space_is_a_mapping() -> None:
    space = Space({"n": Int(1, 2), "x": Float(0, 1)})
    assert (len(space), list(space), space.names) == (2, ["n", "x"], ("n", "x"))
    assert space["n"] == space.parameters[0] == Int(1, 2)
    assert "y" not in space
    assert repr(space).startswith("Space({'n': Int(low=1, high=2")


# --- what is wrong is said by name ------------------------------------------------------------------------

X = Choice(["u", "v"])

BAD_SPACES: list[tuple[Any, str]] = [
    ([1], "a space maps names to parameters, which [1] does not; use a dict"),
    ({}, "the space is empty; name at least one Float, Int or Choice"),
    ({1: X}, "1 cannot name a parameter; use a string that is not empty"),
    ({"": X}, "'' cannot name a parameter; use a string that is not empty"),
    ({"lr": 0.1}, "the space has fixed values only, so nothing varies; make one a Float, Int or Choice"),
    (
        {"lr": Float},
        "lr: <class 'thriftune.space.parameters.Float'> is not a parameter; use Float, Int, Choice or a value",
    ),
    ({"lr": Float(0.1, 0.01)}, "lr: low 0.1 is above high 0.01; swap them"),
    ({"n": Int(3, 1)}, "n: low 3 is above high 1; swap them"),
    ({"lr": Float(0, 1, log=True)}, "lr: low 0 has no logarithm; raise it above 0 or drop log"),
    ({"n": Int(-1, 1, log=True)}, "n: low -1 has no logarithm; raise it above 0 or drop log"),
    ({"lr": Float(0, 1, log="yes")}, "lr: log 'yes' is neither true nor false; write one of them"),  # type: ignore[arg-type]
    ({"lr": Float(math.nan, 1)}, "lr: low nan is not finite; give a plain number"),
    ({"lr": Float(0, math.inf)}, "lr: high inf is not finite; give a plain number"),
    ({"lr": Float(0, 10**400)}, "lr: high inf is not finite; give a plain number"),
    ({"n": Int(0, math.inf)}, "n: high inf is not finite; give a plain number"),  # type: ignore[arg-type]
    ({"lr": Float(-1e308, 1e308)}, "lr: the span from -1e+308 to 1e+308 is more than a float holds; narrow it"),
    ({"lr": Float("0", 1)}, "lr: low '0' is not a number; write one, without quotes"),  # type: ignore[arg-type]
    ({"lr": Float(0, None)}, "lr: high None is not a number; write one, without quotes"),  # type: ignore[arg-type]
    ({"lr": Float(False, 1)}, "lr: low False is not a number; write one, without quotes"),
    ({"n": Int(0, True)}, "n: high True is not a number; write one, without quotes"),
    ({"n": Int(0.5, 3)}, "n: low 0.5 is not a whole number; round it or use Float"),  # type: ignore[arg-type]
    ({"n": Int(0, 2**40 + 1)}, "n: high 1099511627777 is beyond 2**40; use Float, or its exponent"),
    ({"n": Int(-(2**41), 0)}, "n: low -2199023255552 is beyond 2**40; use Float, or its exponent"),
    ({"a": Choice([])}, "a: choices is empty; give at least one value"),
    ({"a": Choice("relu")}, "a: choices 'relu' is not a list; write Choice([...])"),
    ({"a": Choice({"x"})}, "a: choices {'x'} is not a list; write Choice([...])"),  # type: ignore[arg-type]
    ({"a": Choice([1, "x", True])}, "a: choice True is listed twice, first as 1; remove one"),
    ({"a": Choice([1.0, 1])}, "a: choice 1 is listed twice, first as 1.0; remove one"),
    ({"a": Choice([math.nan])}, "a: choice nan is not finite; give a number or a string instead"),
    ({"a": Choice([-math.inf])}, "a: choice -inf is not finite; give a number or a string instead"),
    (
        {"a": Choice([(1, {2})])},
        "a: choice {2} is not a str, int, float, bool, None, or a tuple or list of these; "
        "choose by a name and look the object up in the training function",
    ),
    ({"a": Choice([1], when=["b"])}, "a: when ['b'] is no mapping; write {other: value}"),  # type: ignore[arg-type]
    ({"a": Choice([1], when={"b": 1})}, "a: when names 'b', which is not in the space; add it there"),
    ({"a": Choice([1], when={"a": 1})}, "a: when names a itself; remove that"),
    ({"b": Int(1, 2, when={"x": "u"}), "x": X}, "b: when names x, which comes later; move it before b"),
    (
        {"a": Int(1, 2, when={"b": 1}), "b": Int(1, 2, when={"a": 1})},
        "a: when goes in a circle, a -> b -> a; break it",
    ),
    (
        {"x": X, "a": Int(1, 2, when={"b": 1}), "b": Int(1, 2, when={"c": 1}), "c": Int(1, 2, when={"a": 1})},
        "a: when goes in a circle, a -> b -> c -> a; break it",
    ),
    ({"x": X, "b": Int(1, 2, when={"x": []})}, "b: when gives no value for x; give at least one"),
    (
        {"x": X, "b": Int(1, 2, when={"x": ["u", "w"]})},
        "b: when can never hold; x: 'w' is not among its choices; use one of 'u', 'v'",
    ),
    (
        {"a": Int(1, 2), "b": Int(1, 2, when={"a": 3})},
        "b: when can never hold; a: 3 is outside its range; use 1 to 2",
    ),
    (
        {"a": Int(1, 2), "b": Int(1, 2, when={"a": 1.5})},
        "b: when can never hold; a: 1.5 is not a whole number; use 1 to 2",
    ),
    (
        {"a": Float(1, 2), "b": Int(1, 2, when={"a": [1.0, 1.5]})},
        "b: when asks for [1.0, 1.5] of a, a Float, which hardly ever has one exact value; "
        "give a range: when={'a': tt.between(low, high)}",
    ),
    (
        {"a": Float(1, 2), "b": Int(1, 2, when={"a": between(2.5, 3)})},
        "b: when can never hold; no value of a is in between(2.5, 3)",
    ),
    (
        {"a": Int(1, 9, step=4), "b": Int(1, 2, when={"a": between(2, 4)})},
        "b: when can never hold; no value of a is in between(2, 4)",
    ),
    (
        {"a": Float(1, 2), "b": Int(1, 2, when={"a": between(2, 1)})},
        "b: when of a is between(2, 1), whose low is above its high; swap them",
    ),
    (
        {"a": Float(1, 2), "b": Int(1, 2, when={"a": between("1", 2)})},  # type: ignore[arg-type]
        "b: when of a: low '1' is not a number; write one, without quotes",
    ),
    (
        {"x": X, "b": Int(1, 2, when={"x": between(1, 2)})},
        "b: when has a range for x, which is no Float or Int; list its values",
    ),
    (
        {"x": Choice([1, 2, (1, 2)]), "b": Int(1, 2, when={"x": (1, 2)})},
        "b: when of x is unclear: [1, 2] may be one choice or a list of choices; change the choices of x",
    ),
    ({"a": Float(0, 1, step=0)}, "a: step 0.0 must be above 0; leave it out to have any value"),
    ({"a": Float(0, 1, step="x")}, "a: step 'x' is not a number; write one, without quotes"),  # type: ignore[arg-type]
    ({"a": Int(0, 9, step=0.5)}, "a: step 0.5 is not a whole number; round it or use Float"),  # type: ignore[arg-type]
    (
        {"a": Float(0.1, 1, log=True, step=0.1)},
        "a: step 0.1 does not go with log; drop one of them, or list the values in a Choice",
    ),
    (
        {"a": Float(0, 1, step=0.3)},
        "a: high 1.0 is no multiple of step 0.3 above low 0.0; write high=0.9 or high=1.2",
    ),
    ({"a": Int(1, 100, step=10)}, "a: high 100 is no multiple of step 10 above low 1; write high=91 or high=101"),
    (
        {"a": Float(1e9, 1e9 + 1, step=1e-7)},
        "a: step 1e-07 is finer than a float from 1000000000.0 to 1000000001.0 holds; widen it",
    ),
    (
        {"a": Float(0, 1e6, step=1e-7)},
        "a: step 1e-07 gives over 2**40 values; leave it out to have any value",
    ),
    (
        {"a": Float(0, 1), "b": {1}},
        "b: fixed value {1} is not a str, int, float, bool, None, or a tuple or list "
        "of these; choose by a name and look the object up in the training function",
    ),
]


@pytest.mark.parametrize(("parameters", "message"), BAD_SPACES)
def test_bad_spaces_are_refused(parameters: Any, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        Space(parameters)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([1], "a configuration maps names to values, which [1] does not; use a dict"),
        ({"lr": 1, "opt": "sgd", "mum": 1}, "mum is not a parameter; the space has lr, opt, n"),
        ({"lr": 1}, "opt: has no value; give it one"),
        ({"lr": 1, "opt": "adam"}, "n: has no value; give it one"),
        ({"lr": 1, "opt": "sgd", "n": 1}, "n: is 1, but applies only when opt is 'adam' or 'lion'; leave it out"),
        ({"lr": 2, "opt": "sgd"}, "lr: 2.0 is outside its range; use 0.0 to 1.0"),
        ({"lr": "1", "opt": "sgd"}, "lr: value '1' is not a number; write one, without quotes"),
        ({"lr": True, "opt": "sgd"}, "lr: value True is not a number; write one, without quotes"),
        ({"lr": 1, "opt": ["sgd"]}, "opt: ['sgd'] is not among its choices; use one of 'sgd', 'adam', 'lion'"),
        ({"lr": 1, "opt": "adam", "n": 10}, "n: 10 is outside its range; use 1 to 9"),
        ({"lr": 1, "opt": "adam", "n": 1.0}, "n: 1.0 is not a whole number; use 1 to 9"),
        ({"lr": 1, "opt": "adam", "n": True}, "n: True is not a whole number; use 1 to 9"),
    ],
)
def test_bad_configurations_are_refused(config: Any, message: str) -> None:
    space = Space(
        {
            "lr": Float(0, 1),
            "opt": Choice(["sgd", "adam", "lion"]),
            "n": Int(1, 9, when={"opt": ["adam", "lion"]}),
        }
    )
    with pytest.raises(SpaceError) as caught:
        space.check(config)
    assert str(caught.value) == message
