"""The choice of a trial's next setting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.system.estimate import Effect, Estimate, WindowCost
from thriftune.system.knob_settings import KnobSetting, key
from thriftune.system.next_setting import Possible, choose_setting, first_setting, usual_effect

MODE: KnobSetting = {"mode": "b"}


def windows(*costs: tuple[KnobSetting, float]) -> list[WindowCost]:
    return [WindowCost(key(setting), 1, False, cost, step) for step, (setting, cost) in enumerate(costs, 1)]


def estimate(*costs: tuple[KnobSetting, float], **priors: Effect) -> Estimate:
    """An estimate after these windows. `priors`: by name of a knob."""

    def prior(part: str) -> Effect:
        return next((effect for name, effect in priors.items() if name in part), Effect(0.0, 0.4))

    return Estimate(windows(*costs), prior=prior)


def test_an_unknown_value_is_probed_once_the_usual_one_is_measured() -> None:
    possible = Possible({"mode": ["b"]})
    chosen = choose_setting(estimate(({}, 1.0)), possible, {}, windows_left=10)
    assert (chosen.setting, chosen.is_probe) == (MODE, True)


def test_no_probe_with_few_windows_left() -> None:
    chosen = choose_setting(estimate(({}, 1.0)), Possible({"mode": ["b"]}), {}, windows_left=3)
    assert (chosen.setting, chosen.is_probe) == ({}, False)


def test_a_first_step_alone_is_no_measurement() -> None:
    cold = Estimate([WindowCost("{}", 1, True, 1.0)])
    chosen = choose_setting(cold, Possible({"mode": ["b"]}), {}, windows_left=10)
    assert (chosen.setting, chosen.is_probe) == ({}, False)
    assert "measured first" in chosen.why


def test_what_is_expected_to_help_is_applied() -> None:
    helps = estimate(({}, 1.0), mode=Effect(-0.2, 0.1))
    chosen = choose_setting(helps, Possible({"mode": ["b"]}), {}, windows_left=10)
    assert (chosen.setting, chosen.is_probe) == (MODE, False)
    assert chosen.why == "18% less a step than with no knob expected (error 10%)"


@pytest.mark.parametrize(("cost", "setting"), [(0.5, MODE), (1.6, {})])
def test_measurements_decide(cost: float, setting: KnobSetting) -> None:
    measured = estimate(({}, 1.0), ({}, 1.0), (MODE, cost), (MODE, cost), mode=Effect(-0.2, 0.1))
    assert choose_setting(measured, Possible({"mode": ["b"]}), MODE, windows_left=10).setting == setting


def test_a_gain_too_small_for_a_knob_is_none() -> None:
    measured = estimate(*[({}, 1.0), (MODE, 0.98)] * 20)
    assert choose_setting(measured, Possible({"mode": ["b"]}), {}, windows_left=10).setting == {}


def test_of_equal_numbers_of_threads_the_least_is_chosen() -> None:
    measured = estimate(*[({}, 1.0), ({"threads": 2}, 0.6), ({"threads": 8}, 0.59)] * 10)
    possible = Possible({"threads": [8, 2]})
    assert choose_setting(measured, possible, {}, windows_left=3).setting == {"threads": 2}


def test_fixed_and_harmful_settings() -> None:
    helps = estimate(({"memory": "kept"}, 1.0), mode=Effect(-0.5, 0.1))
    fixed = Possible({"mode": ["b"]}, {"memory": "kept"})
    both = {"memory": "kept", "mode": "b"}
    assert choose_setting(helps, fixed, {}, windows_left=3).setting == both
    harmful = Possible({"mode": ["b"]}, {"memory": "kept"}, frozenset([key(both)]))
    assert choose_setting(helps, harmful, {}, windows_left=3).setting == {"memory": "kept"}


def test_an_attempt_begins_only_with_what_is_almost_sure_to_help() -> None:
    possible = Possible({"mode": ["b"]})
    assert first_setting(estimate(mode=Effect(-0.3, 0.1)), possible).setting == MODE
    assert first_setting(estimate(mode=Effect(-0.1, 0.1)), possible).setting == {}


def test_built_in_knobs_are_expected_to_help() -> None:
    kept, two = key({"memory": "kept"}), key({"threads": 2})
    assert usual_effect(kept, 1, "time").log_ratio < -0.03
    assert usual_effect(two, 1, "time").log_ratio < -0.06
    assert usual_effect(key({"threads": 1}), 2, "time").log_ratio > 0.0
    assert usual_effect(two, 1, "dollars").log_ratio == usual_effect(two, 1, "energy").log_ratio == 0.0
    assert usual_effect(key({"threads": "many"}), 1, "time") == (0.0, 0.4)
    assert usual_effect(key({"memory": "kept", "threads": 2}), 1, "time") == (0.0, 0.1)


settings = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 3), max_size=2)


@given(
    st.lists(st.tuples(settings, st.floats(0.01, 100.0)), max_size=15), settings, st.sets(settings.map(key)),
    st.floats(0.0, 100.0),
)  # fmt: skip
def test_only_possible_settings_are_chosen(
    costs: list[tuple[dict[str, Any], float]], current: dict[str, Any], harmful: set[str], left: float
) -> None:
    possible = Possible({"a": [1, 2], "b": [3]}, {}, frozenset(harmful - {"{}"}))
    chosen = choose_setting(Estimate(windows(*costs)), possible, current, windows_left=left)
    assert possible.allows(chosen.setting)
