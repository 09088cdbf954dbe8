"""Tests of the translation of earlier results: tables of values, and random pairs of spaces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.space.test_space import built, choices, conditions, fixed, floats, ints, same, stepped
from thriftune.space.parameters import Choice, Float, Int, Parameter
from thriftune.space.space import Space
from thriftune.state.earlier_results import EarlierStudy, TranslatedTrials, translate
from thriftune.state.events import Config

LINEAR, LOG = Float(0, 1), Float(1e-5, 1, log=True)


def earlier(space: Mapping[str, Parameter], *configs: Config) -> EarlierStudy:
    """Return a source. The value of each trial is its number, and the last trial failed."""
    values = [*map(float, range(len(configs) - 1)), None]
    return EarlierStudy("old", Space(space), "loss", False, tuple(zip(configs, values, strict=True)))


def one(old: Parameter, new: Parameter, *values: Any) -> tuple[list[Any], list[str]]:
    """Translate values of one changed parameter; return its new values and the notes."""
    still = {"still": Float(0, 1)}
    found = translate(
        earlier({"x": old, **still}, *({"x": value, "still": 0.5} for value in values)), Space({"x": new, **still})
    )
    return [config["x"] for config in found.configs], found.notes


def test_valid_values_do_not_change() -> None:
    space = Space({"lr": LOG, "width": Int(16, 256), "act": Choice(["relu", None, 1.5])})
    configs: list[dict[str, Any]] = [
        {"lr": 1e-5, "width": 256, "act": 1.5},
        {"lr": 0.1 + 0.2, "width": 16, "act": None},
    ]
    assert translate(earlier(space, *configs), space) == TranslatedTrials(
        configs, [0.0, None], frozenset(), [], [0.0, 0.0]
    )


@pytest.mark.parametrize(
    ("old", "new", "values", "taken", "notes"),
    [
        # The value stays the same, not its position in the range.
        (LINEAR, LOG, [0.5, 1.0], [0.5, 1.0], []),
        (LOG, LINEAR, [1e-5, 0.1], [1e-5, 0.1], []),
        (LOG, Float(1e-9, 10, log=True), [1e-5], [1e-5], []),
        # A value slightly outside the range becomes the bound.
        (Float(-1, 2), LINEAR, [-0.1, 1.09], [0.0, 1.0],
         ["x: 1 value below 0 taken as 0", "x: 1 value above 1 taken as 1"]),
        (Float(-1, 2), LINEAR, [-0.11, 0.5], [0.5], ["1 trial dropped: x -0.11 is outside 0 to 1"]),
        (LOG, Float(1e-3, 1, log=True), [6e-4, 8e-4, 1e-3], [1e-3] * 3,
         ["x: 2 values below 0.001 taken as 0.001"]),
        (LOG, Float(1e-3, 1, log=True), [4e-4, 1e-2], [1e-2],
         ["1 trial dropped: x 0.0004 is outside 0.001 to 1"]),
        (Float(1, 99, log=True), Float(1, 10, log=True), [12, 13], [10.0],
         ["x: 1 value above 10 taken as 10", "1 trial dropped: x 13 is outside 1 to 10"]),
        # 0 has no logarithm. Other values are far below on the log scale, but close to the bound on the old scale.
        (LINEAR, LOG, [0.0, 0.0, 0.2], [1e-5, 1e-5, 0.2],
         ["x: 2 values of 0, which has no logarithm, taken as 1e-05"]),
        (LINEAR, LOG, [1e-9], [1e-5], ["x: 1 value below 1e-05 taken as 1e-05"]),
        (Float(1e-9, 1, log=True), LOG, [1e-9], [], ["1 trial dropped: x 1e-09 is outside 1e-05 to 1"]),
        (Choice([0, 0.1]), LOG, [0, 0.1], [1e-5, 0.1],
         ["x: 1 value of 0, which has no logarithm, taken as 1e-05"]),
        (LINEAR, Float(0.5, 1, log=True), [0.0, 0.47, 0.7], [0.5, 0.7],
         ["x: 1 value below 0.5 taken as 0.5", "1 trial dropped: x 0 is outside 0.5 to 1"]),
        (Float(-1, 1), LOG, [-1e-7, 0.5], [0.5], ["1 trial dropped: x -1e-07 is outside 1e-05 to 1"]),
        (LINEAR, Float(2, 100, log=True), [0.0, 1.0, 1.95], [2.0],
         ["x: 1 value below 2 taken as 2", "2 trials dropped: x 0 and 1 are outside 2 to 100"]),
        (Int(0, 64), Int(1, 64, log=True), [0, 3], [1, 3],
         ["x: 1 value of 0, which has no logarithm, taken as 1"]),
        # Whole numbers and floats.
        (Float(0, 9), Int(0, 9), [2.5, 3.4, 4.0], [3, 3, 4], ["x: 2 values rounded"]),
        (Float(0, 9), Int(0, 2), [2.4, 2.5], [2],
         ["x: 1 value rounded", "1 trial dropped: x 2.5 is outside 0 to 2"]),
        (Int(1, 9), Float(1, 8), [2, 8], [2.0, 8.0], []),
        (Int(0, 2048), Int(16, 256), [1024, 1024, 64], [64], ["2 trials dropped: x 1024 is outside 16 to 256"]),
        (Int(0, 2048), Int(16, 256), [999, 300, 2048, 1024], [],
         ["4 trials dropped: x 999, 300 and 2 more are outside 16 to 256"]),
        # Choices.
        (Choice(["a", "b"]), Choice(["b", "c"]), ["a", "b", "a"], ["b"],
         ["2 trials dropped: x 'a' is not among the choices here"]),
        (Choice(["a", "b"]), Choice(["c"]), ["a", "b"], [],
         ["2 trials dropped: x 'a' and 'b' are not among the choices here"]),
        (Choice([16, 32]), Int(10, 20), [16, 32], [16], ["1 trial dropped: x 32 is outside 10 to 20"]),
        (Int(10, 20), Choice([16, 32]), [16, 17], [16], ["1 trial dropped: x 17 is not among the choices here"]),
        (Float(0, 99), Choice([16, 32]), [16.0], [16], []),
        (Choice([1, "b"]), Choice([1.0, True, "b"][::2]), [1, "b"], [1.0, "b"], []),
        (Choice([True, None, "1"]), Float(0, 2), [True, None, "1"], [],
         ["3 trials dropped: x True, None and '1' are outside 0 to 2"]),
        (Choice([10**400, 1]), Float(0, 2), [1], [1.0], []),
        # Parameters with a single value in one of the spaces.
        (Float(0, 1), Float(0.5, 0.5), [0.5, 0.7], [0.5, 0.5], ["x: 1 value taken as 0.5, the only one here"]),
        (Choice(["a", "b"]), Int(3, 3), ["a"], [3], ["x: 1 value taken as 3, the only one here"]),
        (Float(1, 1), Float(0, 2), [1.0, 1.0], [1.0, 1.0], ["x did not vary there"]),
        (Choice(["a"]), Choice(["a"]), ["a"], ["a"], []),
    ],
)  # fmt: skip
def test_values(old: Parameter, new: Parameter, values: list[Any], taken: list[Any], notes: list[str]) -> None:
    found = one(old, new, *values)
    assert same(found, (taken, notes))


def test_a_value_too_large_for_a_float_is_outside() -> None:
    found, (note,) = one(Choice([10**400, 1]), Float(0, 2), 10**400, 1)
    assert found == [1.0]
    assert note.startswith("1 trial dropped: x 1000")


def test_new_and_removed_parameters() -> None:
    old = {"lr": LOG, "depth": Int(1, 9), "act": Choice(["a", "b"]), "fixed": Int(3, 3)}
    new = Space({"lr": LOG, "momentum": LINEAR, "width": Int(1, 100, log=True), "opt": Choice(["sgd", "adam"])})
    found = translate(earlier(old, {"lr": 0.1, "depth": 2, "act": "b", "fixed": 3}), new)
    assert found.configs == [{"lr": 0.1, "momentum": 0.5, "width": 7, "opt": "sgd"}]
    assert found.missing == {"momentum", "width", "opt"}
    assert found.notes == [
        "momentum, width and opt are new here",
        "depth and act are gone here, the effect counts as noise",
    ]
    found = translate(earlier({"lr": LOG, "depth": Int(1, 9)}, {"lr": 0.1, "depth": 2}), Space({"lr": LOG}))
    assert (found.missing, found.notes) == (frozenset(), ["depth is gone here, the effect counts as noise"])


def test_a_parameter_that_did_not_vary_is_missing() -> None:
    old = {"lr": LOG, "fixed": Int(3, 3), "act": Choice(["a"])}
    new = Space({"lr": LOG, "fixed": Int(1, 5), "act": Choice(["a", "b"])})
    found = translate(earlier(old, {"lr": 0.1, "fixed": 3, "act": "a"}), new)
    assert found.configs == [{"lr": 0.1, "fixed": 3, "act": "a"}]
    assert found.missing == {"fixed", "act"}
    assert found.notes == ["fixed did not vary there", "act did not vary there"]


def test_nothing_in_common() -> None:
    found = translate(earlier({"a": LINEAR}, {"a": 0.5}), Space({"b": LINEAR}))
    assert found == TranslatedTrials([], [], frozenset({"b"}), ["no parameter in common"], [])


def test_conditions_of_the_new_space_apply() -> None:
    opt = Choice(["sgd", "adam"])
    old = {"opt": opt, "momentum": Float(0, 0.9, when={"opt": "sgd"}), "beta": Float(0, 1, when={"opt": "adam"})}
    trials = [{"opt": "sgd", "momentum": 0.3}, {"opt": "adam", "beta": 0.2}, {"opt": "sgd", "momentum": 2.0}]
    swapped = {"opt": opt, "momentum": Float(0, 1), "beta": Float(0, 1, when={"opt": "sgd"})}
    found = translate(earlier(old, *trials), Space(swapped))
    assert found.configs == [{"opt": "sgd", "momentum": 0.3, "beta": 0.5}, {"opt": "adam", "momentum": 0.5}]
    assert found.values == [0.0, 1.0]
    assert found.missing == {"beta"}, "no trial that is taken has a value of its own for it"
    assert found.notes == [
        "momentum: 1 value unknown and taken as 0.5",
        "beta: 1 value unknown and taken as 0.5",
        "1 trial dropped: momentum 2 is outside 0 to 1",
    ]


def test_a_condition_holds_for_a_value_moved_to_a_bound() -> None:
    old = {"x": Int(0, 100), "y": LINEAR}
    new = Space({"x": Int(0, 99), "y": LINEAR, "z": Float(0, 1, when={"x": 99})})
    assert translate(earlier(old, {"x": 100, "y": 0.1}), new).configs == [{"x": 99, "y": 0.1, "z": 0.5}]


def test_a_trial_is_dropped_once_and_its_changes_are_not_noted() -> None:
    old = {"a": LINEAR, "b": LINEAR, "c": Float(0, 9)}
    new = Space({"a": LOG, "b": Float(0.5, 1), "c": Int(0, 1)})
    found = translate(earlier(old, {"a": 0.0, "b": 0.0, "c": 9.0}, {"a": 0.1, "b": 1.0, "c": 7.5}), new)
    assert found.configs == []
    assert found.missing == {"a", "b", "c"}
    assert found.notes == [
        "1 trial dropped: b 0 is outside 0.5 to 1",
        "1 trial dropped: c 7.5 is outside 0 to 1",
    ]


# --- any two spaces ---------------------------------------------------------------------------------------


@st.composite
def related(draw: st.DrawFn) -> Space:
    """Draw a space with a few names, so that two spaces share some of them."""
    parameters: dict[str, Parameter] = {}
    for name in draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True)):
        when = draw(conditions(parameters))
        small = st.sampled_from([Float(0, 1), Float(1e-3, 1, log=True), Int(0, 3), Choice([0, 1, "a", None])])
        parameters[name] = draw(
            st.one_of(choices(when), ints(when), floats(when), stepped(when), fixed(when), small)
        )
    return built(parameters)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(related(), related(), st.integers(0, 2**32))
def test_any_space_can_be_translated_to_any_other(old: Space, new: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    past = earlier(old, *(old.sample(rng) for _ in range(5)), *old.grid(1))
    found = translate(past, new)
    assert len(found.configs) == len(found.values) <= len(past.trials)
    for config in found.configs:
        assert same(new.check(config), config)
        assert np.isfinite(new.encode(config)).all()
    assert found.missing <= set(new)
    assert len(found.values) == len(past.trials) or found.notes, "nothing is dropped in silence"
    assert all(math.isfinite(value) for value in found.values if value is not None)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(related(), st.integers(0, 2**32))
def test_translation_to_the_same_space_changes_nothing(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    configs = [space.sample(rng) for _ in range(5)]
    past = earlier(space, *configs)
    found = translate(past, Space.from_json(space.to_json()))
    assert same(found.configs, configs)
    assert found.values == [value for _, value in past.trials]
    assert found.notes == []
