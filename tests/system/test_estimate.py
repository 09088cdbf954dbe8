"""What does a step of a trial cost with each setting?"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.system.estimate import NO_EVIDENCE, Cost, Estimate, Known, evidence
from thriftune.system.known_work import UNTURNED, key, setting_of

KEPT, TWO, BOTH = key({"memory": "kept"}), key({"threads": 2}), key({"memory": "kept", "threads": 2})


def warm(setting: str, cost: float, beside: int = 1) -> Cost:
    return Cost(setting, beside, False, cost)


def test_more_windows_make_it_surer() -> None:
    few = Estimate([warm(UNTURNED, 1.0), warm(KEPT, 0.8)]).effect({"memory": "kept"}, {})
    many = Estimate([warm(UNTURNED, 1.0), warm(KEPT, 0.8)] * 10).effect({"memory": "kept"}, {})
    assert few.log_ratio == pytest.approx(math.log(0.8), abs=0.03)
    assert many.log_ratio == pytest.approx(math.log(0.8), abs=0.002)
    assert 0.12 < few.error < 0.15
    assert many.error < 0.02


def test_what_nobody_has_seen_is_expected_to_change_nothing_and_may_do_much() -> None:
    unseen = Estimate([warm(UNTURNED, 1.0)]).effect({"threads": 2}, {})
    assert unseen.log_ratio == 0.0
    assert unseen.error == pytest.approx(0.4)


def test_a_setting_and_itself_do_not_differ() -> None:
    assert Estimate([]).effect({"threads": 2}, {"threads": 2}) == (0.0, 0.0)


def test_other_company_leaves_doubt_and_is_learned_of() -> None:
    apart = [warm(UNTURNED, 1.0, beside=2)] * 3 + [warm(TWO, 0.6)]
    doubt = Estimate(apart).effect({"threads": 2}, {})
    assert doubt.log_ratio == pytest.approx(math.log(0.6), abs=0.1)
    assert doubt.error > 0.14
    sure = Estimate([*apart, warm(UNTURNED, 0.75)]).effect({"threads": 2}, {})
    assert sure.log_ratio == pytest.approx(math.log(0.6 / 0.75), abs=0.04)
    assert sure.error < 0.1


def test_how_much_company_and_first_steps_cost_is_learned_of_other_trials() -> None:
    """Beside another, a step takes a quarter longer; an attempt's first, half as long again."""
    others = [
        evidence([Cost(UNTURNED, beside, cold, scale * (1.25 if beside == 2 else 1.0) * (1.5 if cold else 1.0))
                  for beside in (1, 2) for cold in (False, True) for _ in range(2)])
        for scale in (0.1, 1.0, 7.0)
    ]  # fmt: skip
    told = NO_EVIDENCE.plus(others[0]).plus(others[1]).plus(others[2])
    assert told.minus(others[2]).free == others[0].free + others[1].free
    apart = [warm(UNTURNED, 1.0, beside=2), Cost(TWO, 1, True, 0.6)]
    effect = Estimate(apart, told).effect({"threads": 2}, {})
    assert effect.log_ratio == pytest.approx(math.log(0.6 / 1.5 * 1.25), abs=0.1)
    assert effect.error < Estimate(apart).effect({"threads": 2}, {}).error / 2


def test_one_setting_in_one_company_tells_nothing_of_company() -> None:
    alone = evidence([warm(UNTURNED, 1.0), warm(KEPT, 2.0, beside=2)])
    assert not alone.precision.any()


def test_what_is_known_counts_like_windows() -> None:
    known = Known({KEPT: 0.6}, {}, {KEPT: 3})
    estimate = Estimate([], known=[known])
    effect = estimate.effect({"memory": "kept"}, {})
    assert effect.log_ratio == pytest.approx(math.log(0.6), abs=0.01)
    assert effect.error == pytest.approx(0.04, abs=0.001)
    assert estimate.looks({"memory": "kept"}) == 3
    assert not estimate.seen({"memory": "kept"})
    both = Estimate([warm(UNTURNED, 1.0), warm(KEPT, 0.8)] * 3, known=[known]).effect({"memory": "kept"}, {})
    assert math.log(0.6) < both.log_ratio < math.log(0.8)


def test_knobs_that_are_known_alone_are_known_together_but_for_what_they_do_to_each_other() -> None:
    estimate = Estimate([warm(UNTURNED, 1.0), warm(KEPT, 0.7), warm(TWO, 0.6)] * 4)
    both = estimate.effect(setting_of(BOTH), {})
    assert both.log_ratio == pytest.approx(math.log(0.42), abs=0.05)
    assert estimate.effect({"memory": "kept"}, {}).error < both.error < 0.2


def test_a_look_at_what_is_less_known_tells_more() -> None:
    estimate = Estimate([warm(UNTURNED, 1.0)] * 5 + [warm(KEPT, 0.9)])
    at_kept = estimate.error_after({"memory": "kept"}, {}, {"memory": "kept"}, 1)
    at_home = estimate.error_after({"memory": "kept"}, {}, {}, 1)
    assert at_kept < at_home < estimate.effect({"memory": "kept"}, {}).error
    looked = Estimate([warm(UNTURNED, 1.0)] * 5 + [warm(KEPT, 0.9)] * 2)
    assert looked.effect({"memory": "kept"}, {}).error == pytest.approx(at_kept, rel=0.3)


def test_in_other_company_a_look_at_what_is_well_known_tells_more() -> None:
    estimate = Estimate([warm(UNTURNED, 1.0, beside=2)] * 5 + [warm(TWO, 0.9)])
    assert estimate.error_after({"threads": 2}, {}, {}, 1) < estimate.error_after(
        {"threads": 2}, {}, {"threads": 2}, 1
    )


def test_noise_is_what_windows_that_are_alike_differ_by() -> None:
    rng = random.Random(0)
    noisy = Estimate([warm(UNTURNED, math.exp(rng.gauss(0.0, 0.2))) for _ in range(100)])
    assert noisy.noise == pytest.approx(0.2, rel=0.2)
    assert Estimate([]).noise == 0.1
    assert Estimate([warm(UNTURNED, 1.0), warm(KEPT, 5.0)]).noise == 0.1
    assert Estimate([warm(UNTURNED, 1.0)] * 1000).noise == 0.02
    slowly = [warm(UNTURNED, 1.01**step) for step in range(100)]
    assert Estimate(slowly).noise < 0.03, "what changes slowly is no noise"
    others = evidence([warm(UNTURNED, 1.0 + step % 2) for step in range(50)])
    assert Estimate([], others).noise > 0.4, "those of the same study are as noisy"


def test_what_gets_slower_as_it_goes_on_is_not_slower_by_what_is_turned_then() -> None:
    costs = [Cost(UNTURNED, 1, False, 0.1 * step, step) for step in range(1, 7)]
    costs += [Cost(KEPT, 1, False, 0.1 * step, step) for step in range(7, 19)]
    effect = Estimate(costs).effect({"memory": "kept"}, {})
    assert abs(effect.log_ratio) < 2 * effect.error
    assert abs(effect.log_ratio) < 0.3


settings = st.sampled_from([UNTURNED, KEPT, TWO, BOTH])
costs = st.lists(st.builds(Cost, settings, st.integers(1, 16), st.booleans(), st.floats(1e-6, 1e6)), max_size=40)


@given(costs, settings, settings)
def test_whatever_was_measured_an_effect_is_a_number_and_the_opposite_of_its_reverse(
    measured: list[Cost], one: str, other: str
) -> None:
    estimate = Estimate(measured, evidence(measured))
    there, back = (estimate.effect(setting_of(a), setting_of(b)) for a, b in ((one, other), (other, one)))
    assert math.isfinite(there.log_ratio)
    assert 0.0 <= there.error < 1.0
    assert there.log_ratio == pytest.approx(-back.log_ratio)
    assert there.error == pytest.approx(back.error)
    for look in (one, other):
        assert estimate.error_after(setting_of(one), setting_of(other), setting_of(look), 2) <= there.error + 1e-9


@given(costs, st.floats(1e-3, 1e3))
def test_what_is_measured_in_other_units_has_the_same_effects(measured: list[Cost], scale: float) -> None:
    scaled = [cost._replace(cost=cost.cost * scale) for cost in measured]
    one, other = (Estimate(each).effect({"threads": 2}, {}) for each in (measured, scaled))
    assert one.error == pytest.approx(other.error)
    assert one.log_ratio == pytest.approx(other.log_ratio, abs=0.05)


# --- a knob that was just turned, and windows that tell nothing


def test_the_first_window_of_a_setting_takes_longer_and_the_next_tell_by_how_much() -> None:
    base = [Cost("{}", 1, False, 1.0)] * 4
    one = Estimate([*base, Cost(TWO, 1, False, 1.0, turned=True)]).effect({"threads": 2}, {})
    assert -0.12 < one.log_ratio < -0.02, "threads had to begin"
    three = [Cost(TWO, 1, False, 1.0, turned=True), *[Cost(TWO, 1, False, 0.7)] * 2]
    more = Estimate([*base, *three]).effect({"threads": 2}, {})
    assert more.log_ratio == pytest.approx(math.log(0.7), abs=0.06)
    assert more.error < one.error
    other = Estimate([*base, Cost(TWO, 1, False, 1.0, turned=True)], evidence([*base, *three] * 3))
    assert other.effect({"threads": 2}, {}).log_ratio < one.log_ratio, "other trials have shown it"


def test_a_window_that_was_disturbed_counts_as_a_look_and_says_nothing() -> None:
    costs = [*[Cost("{}", 1, False, 1.0)] * 4, Cost(TWO, 1, False, 9.0, disturbed=True)]
    estimate = Estimate(costs)
    assert estimate.looks({"threads": 2}) == 1
    assert estimate.effect({"threads": 2}, {}) == Estimate(costs[:-1]).effect({"threads": 2}, {})
    assert estimate.noise == Estimate(costs[:-1]).noise
