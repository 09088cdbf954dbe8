"""Which setting next, of one trial?"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.system.estimate import Cost, Estimate, Known
from thriftune.system.known_work import UNTURNED, key, setting_of
from thriftune.system.probing import MOST_LOOKS, Choice, Knobs, choose, in_words

VALUES: Mapping[str, Sequence[Any]] = {"memory": ["kept"], "threads": [2, 4]}
PLENTY = 100.0


def ran(
    ratio: Mapping[str, float],
    values: Mapping[str, Sequence[Any]] = VALUES,
    *,
    windows: int = 40,
    noise: float = 0.0,
    seed: int = 0,
    every: bool = False,
) -> list[Choice]:
    """What is chosen window by window, where a step under a setting takes `ratio` of what it takes with nothing
    turned (a setting that is not there: as much)."""
    rng = random.Random(seed)
    costs: list[Cost] = []
    chosen = [Choice({}, "", False)]
    for window in range(windows):
        setting = key(chosen[-1].setting)
        costs.append(Cost(setting, 1, False, ratio.get(setting, 1.0) * math.exp(rng.gauss(0.0, noise))))
        effects = Estimate(costs)
        chosen.append(choose(effects, Knobs(values), windows_left=windows - window, every=every))
    return chosen


def effects_of(*costs: tuple[str, float]) -> Estimate:
    """Of a trial that was never with others."""
    return Estimate([Cost(setting, 1, False, cost, 10) for setting, cost in costs])


KEPT, TWO, BOTH = key({"memory": "kept"}), key({"threads": 2}), key({"memory": "kept", "threads": 2})


def test_what_is_best_is_found_and_kept() -> None:
    chosen = ran({KEPT: 0.6, TWO: 0.7, BOTH: 0.45, key({"memory": "kept", "threads": 4}): 0.5})
    assert chosen[-1].setting == {"memory": "kept", "threads": 2}
    assert not chosen[-1].looks
    assert chosen[-1].why.startswith("55% less a step than with nothing turned")
    assert sum(each.looks for each in chosen) <= 5


def test_where_nothing_helps_nothing_is_turned() -> None:
    chosen = ran({KEPT: 1.0, TWO: 1.3, key({"threads": 4}): 2.0})
    assert chosen[-1] == Choice({}, "nothing better was found", False)
    assert [key(each.setting) for each in chosen if each.looks].count(TWO) == 1, "what is worse is dropped at once"


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_turn_a_knob_for_long(seed: int) -> None:
    """Of settings that change nothing, on a machine whose steps differ by a tenth."""
    chosen = ran({}, {"memory": ["kept"]}, noise=0.1, seed=seed, windows=30)
    assert sum(each.looks for each in chosen) <= 2 * MOST_LOOKS
    assert chosen[-1].setting in ({}, {"memory": "kept"})


def test_of_settings_that_change_nothing_few_are_turned() -> None:
    ends = [ran({}, {"memory": ["kept"]}, noise=0.1, seed=seed, windows=30)[-1].setting for seed in range(200)]
    assert sum(end != {} for end in ends) < 40


def test_what_is_clearly_better_is_found_in_noise() -> None:
    ends = [ran({KEPT: 0.65}, {"memory": ["kept"]}, noise=0.1, seed=seed)[-1].setting for seed in range(200)]
    assert sum(end == {"memory": "kept"} for end in ends) > 180


def test_a_gain_that_may_be_noise_is_looked_at_again_and_so_is_what_it_is_compared_with() -> None:
    effects = effects_of((UNTURNED, 1.0), (KEPT, 0.96))
    first = choose(effects, Knobs({"memory": ["kept"]}), windows_left=PLENTY)
    assert first.looks
    assert first.setting == {"memory": "kept"}
    again = choose(effects_of((UNTURNED, 1.0), (KEPT, 0.96), (KEPT, 0.96)), Knobs(VALUES), windows_left=PLENTY)
    assert again.setting == {}
    assert again.looks


def test_the_grid_looks_at_every_combination() -> None:
    looked = {key(each.setting) for each in ran({KEPT: 1.5, TWO: 1.5}, every=True) if each.looks}
    assert looked >= {KEPT, TWO, BOTH, key({"threads": 4}), key({"memory": "kept", "threads": 4})}


def test_near_the_end_nothing_is_looked_at() -> None:
    effects = effects_of((UNTURNED, 1.0))
    assert choose(effects, Knobs(VALUES), windows_left=3.0) == Choice({}, "as it is", False)
    assert choose(effects, Knobs(VALUES), windows_left=4.0).looks


def test_before_nothing_turned_was_measured_nothing_is_compared() -> None:
    assert choose(effects_of(), Knobs(VALUES), windows_left=PLENTY) == Choice({}, "as it is", False)


def test_what_may_not_be_had_now_is_not_taken() -> None:
    """The cores are another trial's again."""
    effects = effects_of((UNTURNED, 1.0), (KEPT, 0.8), (BOTH, 0.4))
    assert choose(effects, Knobs({"memory": ["kept"], "threads": []}), windows_left=PLENTY).setting == {
        "memory": "kept"
    }
    assert choose(effects, Knobs({"memory": ["kept"], "threads": [2]}), windows_left=0).setting == setting_of(BOTH)


def test_of_equals_the_one_with_the_fewest_threads_is_taken() -> None:
    effects = effects_of(*[(UNTURNED, 1.0), (TWO, 0.5), (key({"threads": 4}), 0.49), (BOTH, 0.49)] * 5)
    assert choose(effects, Knobs(VALUES), windows_left=0).setting == {"threads": 2}


def test_what_is_known_of_like_work_is_taken_without_a_look() -> None:
    known = {KEPT: 0.6, TWO: 0.9, key({"threads": 4}): 1.0, BOTH: 0.55, key({"memory": "kept", "threads": 4}): 0.6}
    choice = choose(
        Estimate([], known=[Known(known, {}, dict.fromkeys(known, MOST_LOOKS))]),
        Knobs(VALUES),
        windows_left=PLENTY,
    )
    assert choice.setting == {"memory": "kept", "threads": 2}
    assert not choice.looks


def test_what_the_trial_itself_has_shown_counts_more_than_what_is_known() -> None:
    own = [Cost(UNTURNED, 1, False, 1.0), *[Cost(KEPT, 1, False, 1.1)] * 6]
    estimate = Estimate(own, known=[Known({KEPT: 0.8}, {}, {})])
    assert choose(estimate, Knobs({"memory": ["kept"]}), windows_left=PLENTY).setting == {}


settings = st.fixed_dictionaries(
    {},
    optional={"memory": st.just("kept"), "threads": st.sampled_from([2, 4]), "loaders": st.sampled_from([1, 2])},
).map(key)
ALL = {**VALUES, "loaders": [1, 2]}


@given(
    st.lists(st.tuples(settings, st.integers(1, 3), st.booleans(), st.floats(0.01, 100.0)), max_size=30),
    st.floats(0.0, 50.0),
    st.booleans(),
)
def test_whatever_was_measured_something_that_may_be_had_is_chosen(
    costs: list[tuple[str, int, bool, float]], left: float, every: bool
) -> None:
    effects = Estimate([Cost(*cost) for cost in costs])
    choice = choose(effects, Knobs(ALL), windows_left=left, every=every)
    assert all(value in ALL[name] for name, value in choice.setting.items())
    assert choice.looks <= (left >= 4)
    assert choice == choose(effects, Knobs(ALL), windows_left=left, every=every)


def test_settings_in_words() -> None:
    assert in_words({}) == "nothing turned"
    assert in_words({"memory": "kept", "threads": 2}) == "memory kept, threads 2"


# --- what it is compared with


def test_what_was_seen_in_other_company_is_taken_where_it_is_far_better() -> None:
    """Alone everything may be quicker, whatever is turned; but not by that much."""
    costs = [Cost(UNTURNED, 2, False, 1.0)] * 3
    far = choose(Estimate([*costs, Cost(TWO, 1, False, 0.6)]), Knobs({"threads": [2]}), windows_left=PLENTY)
    assert (far.setting, far.looks) == ({"threads": 2}, False)
    near = Estimate([*costs, Cost(TWO, 1, False, 0.9)])
    assert choose(near, Knobs({"threads": [2]}), windows_left=0).setting == {}
    again = choose(near, Knobs({"threads": [2]}), windows_left=PLENTY)
    assert (again.setting, again.looks) == ({}, True), "how quick is it alone?"
    assert again.why == "looks again at nothing turned: threads 2 may be better"
    known = Estimate([*costs, *[Cost(TWO, 1, False, 0.9), Cost(UNTURNED, 1, False, 0.9)] * 3])
    assert choose(known, Knobs({"threads": [2]}), windows_left=PLENTY) == Choice(
        {}, "nothing better was found", False
    )


@pytest.mark.parametrize(
    ("seen", "left", "looks"), [(1.02, 4, True), (1.15, 60, True), (1.15, 4, False), (1.5, 60, False)]
)
def test_what_may_be_better_is_looked_at_again_where_enough_is_left_to_gain_by_it(
    seen: float, left: int, looks: bool
) -> None:
    estimate = Estimate([*[Cost(UNTURNED, 1, False, 1.0)] * 3, Cost(TWO, 1, False, seen, turned=True)])
    choice = choose(estimate, Knobs({"threads": [2]}), windows_left=left)
    assert choice.looks is looks
    if looks:
        assert choice.why == "looks at it again: it may be better, which noise hides"


def test_a_look_that_would_tell_nothing_waits() -> None:
    """Nobody knows how much of the first step was its being the first."""
    cold = Estimate([Cost(UNTURNED, 1, True, 1.0)])
    assert choose(cold, Knobs(VALUES), windows_left=PLENTY) == Choice({}, "is measured first", False)


def test_two_knobs_that_are_known_to_help_are_both_turned_without_a_look() -> None:
    costs = [Cost(UNTURNED, 1, False, 1.0), Cost(KEPT, 1, False, 0.6), Cost(TWO, 1, False, 0.6)]
    choice = choose(Estimate(costs), Knobs({"memory": ["kept"], "threads": [2]}), windows_left=PLENTY)
    assert (choice.setting, choice.looks) == ({"memory": "kept", "threads": 2}, False)


def test_what_cannot_be_changed_stays_in_every_setting() -> None:
    knobs = Knobs({"threads": [2]}, fixed={"memory": "kept"}, base={"memory": "kept"})
    assert choose(effects_of((KEPT, 1.0)), knobs, windows_left=PLENTY).setting == {"memory": "kept", "threads": 2}
    found = effects_of((KEPT, 1.0), (BOTH, 0.5))
    kept = choose(found, knobs, windows_left=PLENTY)
    assert kept.setting == {"memory": "kept", "threads": 2}
    assert " less a step than with memory kept (error " in kept.why
    busy = Knobs({"threads": []}, fixed={"memory": "kept"}, base={"memory": "kept"})
    assert choose(found, busy, windows_left=PLENTY).setting == {"memory": "kept"}


def test_what_lasts_is_what_others_are_compared_with() -> None:
    knobs = Knobs({"threads": [2]}, fixed={"memory": "kept"})
    good = choose(effects_of((UNTURNED, 1.0), (KEPT, 0.7)), knobs, windows_left=0)
    assert (good.setting, good.why.partition(" less")[0]) == ({"memory": "kept"}, "27%")
    bad = choose(effects_of((UNTURNED, 1.0), (KEPT, 1.2)), knobs, windows_left=0)
    assert bad.setting == {"memory": "kept"}
    assert bad.why == "nothing better was found, and memory kept cannot be taken back"
    both = choose(effects_of((UNTURNED, 1.0), (KEPT, 1.2), (BOTH, 0.8)), knobs, windows_left=PLENTY)
    assert both.setting == {"memory": "kept", "threads": 2}
    assert "than with memory kept" in both.why


def test_what_a_trial_began_with_is_looked_at_without() -> None:
    knobs = Knobs({"memory": ["kept"]}, base={"memory": "kept"})
    assert choose(effects_of((KEPT, 1.0)), knobs, windows_left=PLENTY) == Choice({}, "looks at it", True)
    assert choose(effects_of((KEPT, 1.0), (UNTURNED, 0.5)), knobs, windows_left=PLENTY).setting == {}


def test_what_trials_have_failed_with_is_not_had() -> None:
    knobs = Knobs(VALUES, harmful=frozenset([KEPT]))
    chosen = choose(effects_of((UNTURNED, 1.0), (KEPT, 0.5)), knobs, windows_left=0)
    assert chosen.setting == {}
