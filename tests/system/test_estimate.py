"""The estimate of what a step costs under each setting."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.state.events import UsageMeasured
from thriftune.state.trial_record import TrialRecord, UsageWindow
from thriftune.system.estimate import (
    NO_EVIDENCE,
    Effect,
    Estimate,
    WindowCost,
    comparable_windows,
    evidence,
    machine_kind,
    no_core_is_idle,
    window_costs,
)
from thriftune.system.knob_settings import NOTHING_APPLIED, key, setting_of

KEPT, TWO, BOTH = key({"memory": "kept"}), key({"threads": 2}), key({"memory": "kept", "threads": 2})


def warm(setting: str, cost: float, trials: int = 1) -> WindowCost:
    return WindowCost(setting, trials, False, cost)


def test_more_windows_make_an_effect_surer() -> None:
    few = Estimate([warm(NOTHING_APPLIED, 1.0), warm(KEPT, 0.8)]).effect({"memory": "kept"}, {})
    many = Estimate([warm(NOTHING_APPLIED, 1.0), warm(KEPT, 0.8)] * 10).effect({"memory": "kept"}, {})
    assert few.log_ratio == pytest.approx(math.log(0.8), abs=0.03)
    assert many.log_ratio == pytest.approx(math.log(0.8), abs=0.002)
    assert 0.12 < few.error < 0.15
    assert many.error < 0.02


def test_an_unmeasured_setting_has_the_neutral_prior() -> None:
    unseen = Estimate([warm(NOTHING_APPLIED, 1.0)]).effect({"threads": 2}, {})
    assert unseen.log_ratio == 0.0
    assert unseen.error == pytest.approx(0.4)


def test_a_setting_has_no_effect_relative_to_itself() -> None:
    assert Estimate([]).effect({"threads": 2}, {"threads": 2}) == (0.0, 0.0)


def test_windows_beside_other_trials_leave_doubt() -> None:
    apart = [warm(NOTHING_APPLIED, 1.0, trials=2)] * 3 + [warm(TWO, 0.6)]
    doubt = Estimate(apart).effect({"threads": 2}, {})
    assert doubt.log_ratio == pytest.approx(math.log(0.6), abs=0.1)
    assert doubt.error > 0.14
    sure = Estimate([*apart, warm(NOTHING_APPLIED, 0.75)]).effect({"threads": 2}, {})
    assert sure.log_ratio == pytest.approx(math.log(0.6 / 0.75), abs=0.04)
    assert sure.error < 0.1


def test_other_trials_tell_what_circumstances_cost() -> None:
    """Beside another, a step takes a quarter longer; an attempt's first, half as long again."""
    others = [
        evidence(
            [
                WindowCost(NOTHING_APPLIED, trials, cold, scale * 1.25 ** (trials - 1) * 1.5**cold)
                for trials in (1, 2)
                for cold in (False, True)
                for _ in range(2)
            ]
        )
        for scale in (0.1, 1.0, 7.0)
    ]  # fmt: skip
    total = NO_EVIDENCE.plus(others[0]).plus(others[1]).plus(others[2])
    assert total.minus(others[2]).free == others[0].free + others[1].free
    apart = [warm(NOTHING_APPLIED, 1.0, trials=2), WindowCost(TWO, 1, True, 0.6)]
    effect = Estimate(apart, total).effect({"threads": 2}, {})
    assert effect.log_ratio == pytest.approx(math.log(0.6 / 1.5 * 1.25), abs=0.1)
    assert effect.error < Estimate(apart).effect({"threads": 2}, {}).error / 2


def test_windows_in_one_circumstance_tell_nothing_of_circumstances() -> None:
    alone = evidence([warm(NOTHING_APPLIED, 1.0), warm(KEPT, 2.0, trials=2)])
    assert not alone.precision.any()


def test_a_prior_counts_until_windows_tell_otherwise() -> None:
    def prior(part: str) -> Effect:
        return Effect(-0.5, 0.1)

    assert Estimate([], prior=prior).effect({"threads": 2}, {}) == pytest.approx((-0.5, 0.1))
    few = Estimate([warm(NOTHING_APPLIED, 1.0), warm(TWO, 1.0)], prior=prior).effect({"threads": 2}, {})
    many = Estimate([warm(NOTHING_APPLIED, 1.0), warm(TWO, 1.0)] * 50, prior=prior).effect({"threads": 2}, {})
    assert -0.4 < few.log_ratio < -0.2
    assert many.log_ratio == pytest.approx(0.0, abs=0.02)


def test_effects_of_knobs_alone_tell_most_of_their_effect_together() -> None:
    estimate = Estimate([warm(NOTHING_APPLIED, 1.0), warm(KEPT, 0.7), warm(TWO, 0.6)] * 4)
    both = estimate.effect(setting_of(BOTH), {})
    assert both.log_ratio == pytest.approx(math.log(0.42), abs=0.05)
    assert estimate.effect({"memory": "kept"}, {}).error < both.error < 0.2


def test_noise_is_the_difference_of_equal_windows() -> None:
    rng = random.Random(0)
    noisy = Estimate([warm(NOTHING_APPLIED, math.exp(rng.gauss(0.0, 0.2))) for _ in range(100)])
    assert noisy._noise == pytest.approx(0.2, rel=0.2)
    assert Estimate([])._noise == 0.1
    assert Estimate([warm(NOTHING_APPLIED, 1.0), warm(KEPT, 5.0)])._noise == 0.1
    assert Estimate([warm(NOTHING_APPLIED, 1.0)] * 1000)._noise == 0.02
    slowly = [warm(NOTHING_APPLIED, 1.01**step) for step in range(100)]
    assert Estimate(slowly)._noise < 0.03, "slow changes are no noise"
    others = evidence([warm(NOTHING_APPLIED, 1.0 + step % 2) for step in range(50)])
    assert Estimate([], others)._noise > 0.4, "trials of a study have similar noise"


def test_training_that_gets_slower_is_not_slower_by_a_knob() -> None:
    costs = [WindowCost(NOTHING_APPLIED, 1, False, 0.1 * step, step) for step in range(1, 7)]
    costs += [WindowCost(KEPT, 1, False, 0.1 * step, step) for step in range(7, 19)]
    effect = Estimate(costs).effect({"memory": "kept"}, {})
    assert abs(effect.log_ratio) < 2 * effect.error
    assert abs(effect.log_ratio) < 0.3


settings = st.sampled_from([NOTHING_APPLIED, KEPT, TWO, BOTH])
costs = st.lists(
    st.builds(WindowCost, settings, st.integers(1, 16), st.booleans(), st.floats(1e-6, 1e6)), max_size=40
)


@given(costs, settings, settings)
def test_an_effect_is_finite_and_the_opposite_of_its_reverse(
    measured: list[WindowCost], one: str, other: str
) -> None:
    estimate = Estimate(measured, evidence(measured))
    there, back = (estimate.effect(setting_of(a), setting_of(b)) for a, b in ((one, other), (other, one)))
    assert math.isfinite(there.log_ratio)
    assert 0.0 <= there.error < 1.0
    assert there.log_ratio == pytest.approx(-back.log_ratio)
    assert there.error == pytest.approx(back.error)


@given(costs, st.floats(1e-3, 1e3))
def test_effects_do_not_depend_on_the_unit_of_cost(measured: list[WindowCost], scale: float) -> None:
    scaled = [cost._replace(cost=cost.cost * scale) for cost in measured]
    one, other = (Estimate(each).effect({"threads": 2}, {}) for each in (measured, scaled))
    assert one.error == pytest.approx(other.error)
    assert one.log_ratio == pytest.approx(other.log_ratio, abs=0.05)


# --- a setting's first window, and crowded windows


def test_a_settings_first_window_takes_longer() -> None:
    base = [WindowCost("{}", 1, False, 1.0)] * 4
    one = Estimate([*base, WindowCost(TWO, 1, False, 1.0, changed=True)]).effect({"threads": 2}, {})
    assert -0.12 < one.log_ratio < -0.02, "threads had to begin"
    three = [WindowCost(TWO, 1, False, 1.0, changed=True), *[WindowCost(TWO, 1, False, 0.7)] * 2]
    more = Estimate([*base, *three]).effect({"threads": 2}, {})
    assert more.log_ratio == pytest.approx(math.log(0.7), abs=0.06)
    assert more.error < one.error
    other = Estimate([*base, WindowCost(TWO, 1, False, 1.0, changed=True)], evidence([*base, *three] * 3))
    assert other.effect({"threads": 2}, {}).log_ratio < one.log_ratio, "other trials have shown it"


def test_a_crowded_window_tells_nothing_of_the_effect() -> None:
    costs = [*[WindowCost("{}", 1, False, 1.0)] * 4, WindowCost(TWO, 1, False, 9.0, crowded=True)]
    estimate = Estimate(costs)
    assert estimate.windows({"threads": 2}) == 1
    assert estimate.effect({"threads": 2}, {}) == Estimate(costs[:-1]).effect({"threads": 2}, {})
    assert estimate._noise == Estimate(costs[:-1])._noise


# --- from a trial's windows


def window(
    step: int, setting: dict[str, object], *, waiting: float = 0.0, cold: bool = False, kind: str = "here"
) -> UsageWindow:
    counters = {"cpu_pressure_seconds": waiting}
    return UsageWindow(UsageMeasured(0.0, 0, 1, step, 1, 1.0, setting, cold, counters, kind), 1)


def test_a_changed_setting_is_marked_but_not_in_an_attempts_first_window() -> None:
    kept: dict[str, object] = {"memory": "kept"}
    windows = [window(1, {}, cold=True), window(2, {}), window(3, kept), window(4, kept), window(5, {}, cold=True)]
    costs = window_costs(windows, lambda usage: usage.seconds)
    assert [cost.changed for cost in costs] == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("setting", "waiting", "crowded"),
    [({"threads": 2}, 0.51, True), ({"threads": 2}, 0.3, False), ({"memory": "kept"}, 0.51, False)],
)
def test_threads_that_share_cores_are_crowded(setting: dict[str, object], waiting: float, crowded: bool) -> None:
    (cost,) = window_costs([window(1, setting, waiting=waiting)], lambda usage: usage.seconds)
    assert cost.crowded is crowded
    assert no_core_is_idle(window(1, setting, waiting=waiting).usage)


def test_windows_on_other_kinds_of_machines_are_left_out() -> None:
    trial = TrialRecord(0, {}, 0.0)
    assert (machine_kind(trial), comparable_windows(trial)) == ("", [])
    trial.windows.extend([window(1, {}, kind="there"), window(2, {}), window(3, {})])
    assert machine_kind(trial) == "here"
    assert [each.usage.step for each in comparable_windows(trial)] == [2, 3]
