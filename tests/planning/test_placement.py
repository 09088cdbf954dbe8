"""Tests of placement: invariants on random cases, optimality by brute force, and cases by hand."""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.errors import SettingError
from thriftune.planning.placement import Placement, PlacementResult, place, place_on_fewer

Wanted = dict[int, int]
Machines = dict[str, int]
Case = tuple[Wanted, Machines, Placement, set[int]]


def fleet(*slots: int) -> Machines:
    return {chr(ord("a") + number): each for number, each in enumerate(slots)}


def workers(trials: Collection[int], wanted: Mapping[int, int]) -> int:
    return sum(wanted[trial] for trial in trials)


def used(placement: Placement) -> dict[str, int]:
    """Return machine -> workers."""
    found: dict[str, int] = {}
    for placed in placement.values():
        for machine, count in placed.items():
            found[machine] = found.get(machine, 0) + count
    return found


def locked(machines: Machines, before: Placement, reserved: Collection[int]) -> set[int]:
    """Return the reserved trials whose machines all exist."""
    return {trial for trial in reserved if before[trial].keys() <= machines.keys()}


def can_stay(wanted: Wanted, machines: Machines, before: Placement) -> set[int]:
    """Return the trials whose size is unchanged and whose machines all exist."""
    known = {trial for trial in wanted if trial in before and sum(before[trial].values()) == wanted[trial]}
    return {trial for trial in known if before[trial].keys() <= machines.keys()}


def fits(sizes: Collection[int], machines: int, slots: int) -> bool:
    """Tell by brute force whether all trials fit by the rules, on machines of equal slots."""

    @cache
    def try_all(left: tuple[int, ...], free: tuple[int, ...]) -> bool:
        if not left:
            return True
        size, *others = left
        if size > slots:
            empty = [each for each in free if each == slots]
            needed = math.ceil(size / slots)
            used = [each for each in free if each < slots] + [0] * needed + empty[needed:]
            return needed <= len(empty) and try_all(tuple(others), tuple(sorted(used)))
        return any(
            try_all(tuple(others), tuple(sorted((*free[:at], free[at] - size, *free[at + 1 :]))))
            for at in range(len(free))
            if free[at] >= size
        )

    return try_all(tuple(sorted(sizes, reverse=True)), (slots,) * machines)


def fewest_moved(wanted: Wanted, machines: Machines, before: Placement, keep: int) -> float:
    """Return by brute force the fewest workers that must move to use only `keep` machines."""
    order = sorted(wanted, key=lambda trial: -wanted[trial])
    slots = max(machines.values())

    def try_all(at: int, free: Machines, moved: int, best: float) -> float:
        if moved >= best or at == len(order):
            return min(moved, best)
        trial = order[at]
        size = wanted[trial]
        if size > slots:
            empty = [machine for machine, left in free.items() if left == machines[machine]]
            ways = [dict.fromkeys(some, slots) for some in itertools.combinations(empty, math.ceil(size / slots))]
        else:
            ways = [{machine: size} for machine, left in free.items() if left >= size]
        for planner in ways:
            left = {machine: free[machine] - planner.get(machine, 0) for machine in free}
            cost = 0 if planner.keys() == before[trial].keys() else size
            best = try_all(at + 1, left, moved + cost, best)
        return best

    best = math.inf
    for stay in itertools.combinations(machines, keep):
        best = try_all(0, {machine: machines[machine] for machine in stay}, 0, best)
    return best


# --- cases

SIZES = st.integers(1, 10)
FLEETS = st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=6)
EQUAL = st.builds(lambda slots, count: [slots] * count, st.integers(1, 8), st.integers(1, 6))


@st.composite
def changes(draw: st.DrawFn) -> Case:
    """Draw a placement that has changed: trials ended, came or changed size, and machines came and went."""
    at_first = dict(enumerate(draw(st.lists(SIZES, max_size=10))))
    kinds = draw(FLEETS)
    placed = fleet(*kinds)
    before = place(at_first, placed).placement
    wanted = {trial: draw(st.just(size) | SIZES) for trial, size in at_first.items() if draw(st.integers(0, 4))}
    wanted |= dict(enumerate(draw(st.lists(SIZES, max_size=4)), start=100))
    machines = {machine: each for machine, each in placed.items() if draw(st.integers(0, 5))}
    machines |= {f"new {number}": each for number, each in enumerate(draw(st.just([]) | st.just(kinds[:2])))}
    some = st.sets(st.sampled_from(sorted(before))) if before else st.just(set[int]())
    reserved = draw(st.just(set[int]()) | some)
    return dict(draw(st.permutations(list(wanted.items())))), machines, before, reserved


def follows_the_rules(
    placed: PlacementResult, wanted: Wanted, machines: Machines, before: Placement, reserved: Collection[int]
) -> None:
    fixed = locked(machines, before, reserved)
    assert {*placed.placement, *placed.unplaced} == {*wanted, *fixed}
    assert not placed.placement.keys() & set(placed.unplaced)
    assert len(placed.unplaced) == len(set(placed.unplaced))
    assert all(count <= machines[machine] for machine, count in used(placed.placement).items())
    owners = {trial: assigned for trial, assigned in placed.placement.items() if len(assigned) > 1}
    for trial, assigned in placed.placement.items():
        if trial in fixed:
            assert assigned == before[trial]
            continue
        assert sum(assigned.values()) == wanted[trial]
        if assigned == before.get(trial):
            continue
        assert (len(assigned) > 1) == (wanted[trial] > max(machines.values()))
    for trial, assigned in owners.items():
        others = [other for name, other in placed.placement.items() if name != trial]
        assert not any(assigned.keys() & other.keys() for other in others)
        slots = [machines[machine] for machine in assigned]
        assert trial in fixed or sum(assigned.values()) > sum(slots) - min(
            slots
        )  # the trial needs all of its machines
    elsewhere = [trial for trial, assigned in placed.placement.items() if assigned != before.get(trial, assigned)]
    assert sorted(placed.moved) == sorted(elsewhere)


# --- invariants


@settings(max_examples=100, deadline=None)
@given(changes())
def test_workers_are_together_and_machines_are_not_overfull(case: Case) -> None:
    given = copy.deepcopy(case)
    placed = place(*case)
    follows_the_rules(placed, *case)
    assert case == given  # the arguments are not changed
    assert place(*given) == placed


@settings(max_examples=100, deadline=None)
@given(EQUAL, st.lists(st.integers(1, 20), max_size=8))
def test_a_large_trial_uses_the_fewest_machines(slots: list[int], sizes: list[int]) -> None:
    wanted = dict(enumerate(sizes))
    for trial, placed in place(wanted, fleet(*slots)).placement.items():
        assert len(placed) == math.ceil(wanted[trial] / slots[0])


@settings(max_examples=100, deadline=None)
@given(changes())
def test_a_trial_that_can_stay_is_displaced_only_by_a_larger_one(case: Case) -> None:
    wanted, machines, before, reserved = case
    placed = place(*case)
    fixed = locked(machines, before, reserved)
    came = {trial for trial in placed.placement if placed.placement[trial] != before.get(trial)}
    for trial in can_stay(wanted, machines, before) - fixed:
        if placed.placement.get(trial) != before[trial]:
            larger = {other for other in came if wanted[other] > wanted[trial]}
            assert any(placed.placement[other].keys() & before[trial].keys() for other in larger)


@settings(max_examples=100, deadline=None)
@given(changes())
def test_no_trial_waits_if_displacing_smaller_ones_makes_room(case: Case) -> None:
    wanted, machines, before, reserved = case
    placed = place(*case)
    fixed = locked(machines, before, reserved)
    for trial in placed.unplaced:
        size = wanted[trial]
        stay = {one: assigned for one, assigned in placed.placement.items() if one in fixed or wanted[one] >= size}
        own = {machine for assigned in stay.values() if len(assigned) > 1 for machine in assigned}
        taken = used(stay)
        if size <= max(machines.values(), default=0):
            assert all(taken.get(one, 0) + size > slots for one, slots in machines.items() if one not in own)
        else:
            assert sum(slots for machine, slots in machines.items() if machine not in taken) < size


@settings(max_examples=100, deadline=None)
@given(changes())
def test_placing_again_moves_nothing(case: Case) -> None:
    wanted, machines, before, reserved = case
    placed = place(*case)
    again = place(wanted, machines, placed.placement, locked(machines, before, reserved))
    assert again == PlacementResult(placed.placement, (), placed.unplaced)


@pytest.mark.parametrize(
    ("slots", "sizes"), [(4, (1, 2, 4, 8)), (8, (1, 2, 4, 8, 16)), (7, (1, 2, 6, 12)), (10, (3, 9, 18, 25))]
)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_with_divisible_sizes_all_that_fit_are_placed(
    slots: int, sizes: tuple[int, ...], data: st.DataObject
) -> None:
    """The placement before is random."""
    machines = fleet(*[slots] * data.draw(st.integers(1, 5)))
    before: dict[int, dict[str, int]] = {}
    for machine, size in data.draw(st.lists(st.tuples(st.sampled_from(list(machines)), st.sampled_from(sizes)))):
        if used(before).get(machine, 0) + size <= slots:
            before[len(before)] = {machine: size}
    new = data.draw(st.lists(st.sampled_from(sizes), max_size=6))
    wanted = {trial: sum(assigned.values()) for trial, assigned in before.items()} | dict(
        enumerate(new, start=100)
    )
    wanted |= data.draw(st.dictionaries(st.sampled_from([0, 1, 2]), st.sampled_from(sizes)))
    placed = place(wanted, machines, before)
    assert bool(placed.unplaced) != fits(wanted.values(), len(machines), slots)


@settings(max_examples=100, deadline=None)
@given(EQUAL, st.lists(st.integers(1, 20), max_size=7))
def test_with_any_sizes_the_placement_is_feasible(slots: list[int], sizes: list[int]) -> None:
    wanted = dict(enumerate(sizes))
    placed = place(wanted, fleet(*slots))
    assert fits([wanted[trial] for trial in placed.placement], len(slots), slots[0])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_fewest_workers_are_displaced(data: st.DataObject) -> None:
    """Displaced trials have one worker each, so that they displace no other trial."""
    slots = data.draw(st.integers(2, 5))
    size = data.draw(st.integers(2, 3 * slots))
    machines = fleet(*[slots] * data.draw(st.integers(1, 4)))
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 1, size]), max_size=9))
    before = place(dict(enumerate(sizes)), machines).placement
    some = st.sets(st.sampled_from(sorted(before))) if before else st.just(set())
    ended, reserved = data.draw(some), data.draw(some)
    before = {trial: assigned for trial, assigned in before.items() if trial not in ended}
    reserved -= ended
    wanted = {trial: sizes[trial] for trial in before}
    placed = place({**wanted, 99: size}, machines, before, reserved)
    changed = [trial for trial in before if placed.placement.get(trial) != before[trial]]
    smaller = [trial for trial in before if sizes[trial] < size and trial not in reserved]
    room = [
        count
        for count in range(len(smaller) + 1)
        for left in itertools.combinations(smaller, count)
        if finds_room(size, machines, {trial: before[trial] for trial in before if trial not in left})
    ]
    assert (99 in placed.placement) == bool(room)
    assert workers(changed, wanted) == (min(room) if room else 0)


def finds_room(size: int, machines: Machines, placement: Placement) -> bool:
    taken, slots = used(placement), max(machines.values())
    own = {machine for placed in placement.values() if len(placed) > 1 for machine in placed}
    if size > slots:
        return len(machines.keys() - taken.keys()) * slots >= size
    return any(machine not in own and taken.get(machine, 0) + size <= slots for machine in machines)


# --- place_on_fewer


@settings(max_examples=100, deadline=None)
@given(changes(), st.integers(0, 7))
def test_place_on_fewer_follows_the_rules_on_the_machines_that_stay(case: Case, keep: int) -> None:
    wanted, machines, before, reserved = case
    placed, removed = place_on_fewer(wanted, machines, before, keep, reserved)
    stay = {machine: slots for machine, slots in machines.items() if machine not in removed}
    follows_the_rules(placed, wanted, stay, before, reserved)
    held = {machine for trial in locked(machines, before, reserved) for machine in before[trial]}
    assert held <= stay.keys()
    assert len(stay) == max(len(held), min(keep, len(machines)))
    assert set(removed) <= set(machines.keys() - used(placed.placement).keys())


PARTS = [(4,), (2, 2), (2, 1, 1), (1, 1, 1, 1), (2, 1), (1, 1, 1), (2,), (1, 1), (1,), ()]
"""All sets of trial sizes in powers of two that fit on a machine of 4 slots."""


def standing(*parts: tuple[int, ...], of_two: int = 0) -> tuple[Wanted, Placement]:
    """Return trials of these sizes on machines a, b, ..., and one of `of_two` workers on two more machines."""
    sizes = [
        (size, {machine: size}) for machine, some in zip(fleet(*[1] * 26), parts, strict=False) for size in some
    ]
    if of_two:
        sizes.append((of_two, {"y": of_two // 2, "z": of_two - of_two // 2}))
    return {trial: size for trial, (size, _) in enumerate(sizes)}, {
        trial: on for trial, (_, on) in enumerate(sizes)
    }


def standings() -> Iterator[tuple[Wanted, Placement, Machines]]:
    for parts in itertools.combinations_with_replacement(PARTS, 3):
        yield *standing(*parts), fleet(4, 4, 4)
    for pair in itertools.combinations_with_replacement(PARTS, 2):
        yield *standing(*pair, of_two=8), {**fleet(4, 4), "y": 4, "z": 4}


def test_with_powers_of_two_the_fewest_workers_are_moved() -> None:
    observed = 0
    for wanted, before, machines in standings():
        for keep in range(1, len(machines)):
            fewest = fewest_moved(wanted, machines, before, keep)
            placed, removed = place_on_fewer(wanted, machines, before, keep)
            assert bool(placed.unplaced) == (fewest == math.inf)
            assert len(removed) == len(machines) - keep
            if not placed.unplaced:
                assert workers(placed.moved, wanted) == fewest, (before, keep)
                observed += 1
    assert observed > 150


def test_with_any_sizes_few_more_workers_are_moved_than_necessary() -> None:
    rng, machines = random.Random(0), fleet(8, 8, 8)
    over: list[float] = []
    while len(over) < 200:
        before = place({trial: rng.randint(1, 7) for trial in range(10)}, machines).placement
        before = {trial: before[trial] for trial in rng.sample(sorted(before), rng.randint(1, len(before)))}
        wanted = {trial: sum(assigned.values()) for trial, assigned in before.items()}
        fewest = fewest_moved(wanted, machines, before, 2)
        placed, _ = place_on_fewer(wanted, machines, before, 2)
        if fewest < math.inf and not placed.unplaced:
            over.append(workers(placed.moved, wanted) - fewest)
    assert min(over) == 0
    assert max(over) <= 3
    assert sum(more > 0 for more in over) <= 0.05 * len(over)


# --- by hand


def test_new_trials_leave_the_fewest_slots_free() -> None:
    placed = place({0: 1, 1: 3, 2: 2, 3: 6}, fleet(4, 4, 4, 4))
    assert placed == PlacementResult({0: {"c": 1}, 1: {"c": 3}, 2: {"d": 2}, 3: {"a": 4, "b": 2}}, (), ())


def test_a_used_machine_is_preferred_to_an_empty_one() -> None:
    assert place({0: 2, 1: 2}, fleet(2, 4), {0: {"b": 2}}).placement == {0: {"b": 2}, 1: {"b": 2}}


def test_ties_are_broken_by_the_order_of_trials_and_machines() -> None:
    assert place({7: 2, 3: 2, 5: 2}, {"z": 2, "y": 2}) == PlacementResult({7: {"z": 2}, 3: {"y": 2}}, (), (5,))


def test_displaced_trials_are_placed_again() -> None:
    before = {0: {"a": 3}, 1: {"b": 1}, 2: {"b": 2}}
    placed = place({0: 3, 1: 1, 2: 2, 3: 2}, fleet(4, 4), before)
    assert placed == PlacementResult({0: {"a": 3}, 1: {"a": 1}, 2: {"b": 2}, 3: {"b": 2}}, (1,), ())


def test_trials_are_displaced_where_the_fewest_workers_leave() -> None:
    before = {0: {"a": 3}, 1: {"b": 2}, 2: {"b": 2}}  # a has 1 slot too few, and 3 workers would have to leave it
    placed = place({0: 3, 1: 2, 2: 2, 3: 4}, fleet(6, 6), before)
    assert placed == PlacementResult({0: {"a": 3}, 1: {"a": 2}, 2: {"b": 2}, 3: {"b": 4}}, (1,), ())


def test_trials_are_displaced_for_several_sizes() -> None:
    placed = place({0: 1, 1: 1, 2: 4, 3: 2}, fleet(4, 2), {0: {"a": 1}, 1: {"b": 1}})
    assert placed == PlacementResult({2: {"a": 4}, 3: {"b": 2}}, (), (0, 1))


def test_a_trial_on_several_machines_is_displaced_as_a_whole() -> None:
    machines, before = fleet(4, 4, 4, 4), {0: {"a": 4, "b": 1}, 1: {"c": 3}}
    placed = place({0: 5, 1: 3, 2: 6}, machines, before)
    assert placed == PlacementResult({0: {"a": 4, "b": 1}, 2: {"c": 4, "d": 2}}, (), (1,))
    placed = place({0: 5, 1: 3, 2: 6}, machines, before, reserved=[1])
    assert placed == PlacementResult({1: {"c": 3}, 2: {"a": 4, "b": 2}}, (), (0,))


def test_a_large_trial_uses_the_largest_machines_and_a_small_last_one() -> None:
    assert place({0: 19}, fleet(2, 8, 4, 8)).placement == {0: {"b": 8, "d": 8, "c": 3}}
    assert place({0: 17}, fleet(8, 8, 4, 2)).placement == {0: {"a": 8, "b": 8, "d": 1}}


def test_a_large_trial_stays_when_a_larger_machine_arrives() -> None:
    before = place({0: 8}, fleet(4, 4)).placement
    assert place({0: 8}, fleet(4, 4, 16), before) == PlacementResult(before, (), ())
    assert place({0: 8}, fleet(4, 4, 16)).placement == {0: {"c": 8}}


def test_a_trial_that_breaks_the_rules_is_placed_again() -> None:
    machines = fleet(4, 4)
    assert place({0: 2}, machines, {0: {"a": 1, "b": 1}}) == PlacementResult({0: {"a": 2}}, (0,), ())
    assert place({0: 2, 1: 3}, machines, {0: {"a": 2}, 1: {"a": 3}}) == PlacementResult(
        {0: {"b": 2}, 1: {"a": 3}}, (0,), ()
    )


def test_a_trial_on_a_lost_machine_is_placed_again() -> None:
    before = {0: {"a": 2}, 1: {"gone": 2}, 2: {"b": 4, "gone": 4}, 3: {"c": 1}}
    placed = place({0: 2, 1: 2, 2: 8}, fleet(4, 4, 4), before, reserved=[2])
    assert placed == PlacementResult({0: {"a": 2}, 1: {"a": 2}, 2: {"b": 4, "c": 4}}, (1, 2), ())


def test_reserved_trials_stay() -> None:
    before = {0: {"a": 1}, 1: {"b": 2}}
    placed = place({0: 4, 2: 4}, fleet(4, 4), before, reserved=[0, 1, 1])
    assert placed == PlacementResult({0: {"a": 1}, 1: {"b": 2}}, (), (2,))
    assert place_on_fewer({0: 1}, fleet(4, 4, 4), before, 1, reserved=[1]) == (
        PlacementResult({0: {"b": 1}, 1: {"b": 2}}, (0,), ()),
        ("a", "c"),
    )


def test_without_machines_all_trials_wait() -> None:
    assert place({0: 1, 1: 2}, {}, {0: {"gone": 1}}) == PlacementResult({}, (), (1, 0))
    assert place({}, fleet(4)) == PlacementResult({}, (), ())


def test_the_machine_with_the_fewest_workers_to_move_is_removed() -> None:
    before = {0: {"a": 3}, 1: {"b": 1}, 2: {"c": 2}}
    assert place_on_fewer({0: 3, 1: 1, 2: 2}, fleet(4, 4, 4), before, 2) == (
        PlacementResult({0: {"a": 3}, 1: {"a": 1}, 2: {"c": 2}}, (1,), ()),
        ("b",),
    )
    assert place_on_fewer({0: 3, 1: 1, 2: 2}, fleet(4, 4, 4), before, 5)[1] == ()


def test_at_equal_cost_the_machine_with_smaller_trials_is_removed() -> None:
    wanted, before = standing((2, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1))
    placed, removed = place_on_fewer(wanted, fleet(4, 4, 4, 4), before, 3)
    assert (workers(placed.moved, wanted), removed) == (
        3,
        ("b",),
    )  # from a, 4 workers would move: its trial of 2 would displace others


def test_a_large_machine_is_kept_if_trials_would_wait_without_it() -> None:
    placed, removed = place_on_fewer({0: 1, 1: 1, 2: 8}, fleet(1, 1, 8), {0: {"a": 1}, 1: {"b": 1}}, 1)
    assert (placed, removed) == (PlacementResult({2: {"c": 8}}, (), (0, 1)), ("a", "b"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: place({3: 0}, fleet(4)), "trial 3: workers: 0 is too small; use 1 or more"),
        (lambda: place({3: True}, fleet(4)), "trial 3: workers: True"),
        (lambda: place({3: 1.5}, fleet(4)), "trial 3: workers: 1.5"),  # type: ignore[dict-item]
        (lambda: place({3: 1}, {"a": 0}), "machine a: slots: 0 is too small; use 1 or more"),
        (lambda: place({3: 1}, fleet(4), {3: {"a": -1}}), "before: trial 3: workers on a: -1 is too small"),
        (lambda: place({3: 1}, fleet(4), {}, [3]), "reserved: trial 3 is not placed in before"),
        (lambda: place({3: 1}, fleet(4), {3: {}}, [3]), "reserved: trial 3 is not placed in before"),
        (lambda: place({}, fleet(4), {3: {"a": 2}, 4: {"a": 3}}, [3, 4]), "trial 4 does not fit on a beside"),
        (
            lambda: place({}, fleet(4, 4), {3: {"a": 2}, 4: {"a": 2, "b": 4}}, [3, 4]),
            "trial 4 does not fit on a, b",
        ),
        (lambda: place_on_fewer({3: 1}, fleet(4), {}, -1), "keep: -1 is too small; use 0 or more"),
        (lambda: place_on_fewer({3: 0}, fleet(4), {}, 1), "trial 3: workers: 0"),
    ],
)
def test_invalid_values_are_rejected(call: Callable[[], object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        call()
