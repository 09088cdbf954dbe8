"""Past work that was like this is found, and what was like nothing is not taken for it."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.system.similarity_conformance import A_PROFILE, Make, SimilarityConformance
from thriftune.errors import SettingError
from thriftune.system.clusters import best_parted, clusters
from thriftune.system.known_work import Work, best, key
from thriftune.system.profiles import Profiles
from thriftune.system.similarity import SIMILARITIES, KMeans, Match, Nearest, agreement

ONE, TWO, KEPT = key({"threads": 1}), key({"threads": 2}), key({"memory": "kept"})


class TheSame:
    """A user's own: work is alike if its counters are all within a tenth."""

    def match(self, profile: Mapping[str, float], known: Sequence[Work]) -> Match | None:
        found = [
            (max(abs(profile[counter] - work.profile[counter]) for counter in shared), number)
            for number, work in enumerate(known)
            if (shared := [name for name in profile if name in work.profile and math.isfinite(profile[name])])
        ]
        if not found:
            return None
        distance, number = min(found)
        return Match(known[number].effects, distance, 0.1)


SIMILAR: dict[str, Make] = {
    "nearest": Nearest,
    "nearest-one": lambda: Nearest(neighbours=1),
    "kmeans": KMeans,
    "kmeans-two": lambda: KMeans(k=2),
    "ones-own": TheSame,
}


@pytest.mark.parametrize("make", SIMILAR.values(), ids=SIMILAR)
class TestSimilarities(SimilarityConformance):
    pass


# --- which there are --------------------------------------------------------------------------------------


def test_by_name_and_with_options() -> None:
    assert isinstance(SIMILARITIES.make("nearest", {}), Nearest)
    assert SIMILARITIES.name_and_options(SIMILARITIES.make("kmeans", {"k": 2})) == ("kmeans", {"k": 2})
    assert SIMILARITIES.name_and_options(Nearest(neighbours=5)) == ("nearest", {"neighbours": 5})
    for wrong in ("near", 5, Nearest):
        with pytest.raises(SettingError, match=r"^system: similarity"):
            SIMILARITIES.check(wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "three"])
def test_options_are_whole_numbers(wrong: Any) -> None:
    with pytest.raises(SettingError, match=r"neighbours .* must be a whole number, at least 1"):
        Nearest(neighbours=wrong)
    with pytest.raises(SettingError, match=r"k .* must be a whole number, at least 1"):
        KMeans(k=wrong)


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    script = (
        "import sys; sys.path[:0] = {!r}; from thriftune.system.similarity import KMeans, Nearest, SIMILARITIES;"
        "KMeans(), Nearest(), SIMILARITIES.check('nearest'); sys.exit('numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script.format(sys.path)], check=True)


# --- profiles ---------------------------------------------------------------------------------------------


def distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    profiles = Profiles.of([one])
    return float(profiles.distances(profiles.row(other))[0])


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({"minor_faults": 110_000.0}, True),
        ({"minor_faults": 110_000.0, "user_seconds": 0.8, "system_seconds": 0.5, "read_bytes": 3e8}, True),
        ({"minor_faults": 50.0}, False),
        ({"user_seconds": 2.0, "system_seconds": 0.05}, False),
        ({"user_seconds": 2.0, "system_seconds": 0.8, "minor_faults": 180_000.0, "read_bytes": 8e8}, False),
        ({"write_bytes": 4e8}, False),
        # What is next to nothing in both, or missing from one of them, says nothing.
        ({"write_bytes": 40_000.0}, True),
        ({"major_faults": 3.0, "write_bytes": 4096.0}, True),
        ({"written_calls": 1e5}, True),
        # What others do says little.
        ({"run_delay_seconds": 0.2, "involuntary_switches": 900.0}, True),
        # Whether the files that it reads were in memory says nothing of it.
        ({"disk_read_bytes": 2e9, "blocks_in": 4e6, "major_faults": 9000.0}, True),
    ],
)
def test_what_counts_as_a_difference(change: dict[str, float], alike: bool) -> None:
    before = {**A_PROFILE, "major_faults": 0.0, "write_bytes": 0.0, "disk_read_bytes": 0.0, "blocks_in": 0.0}
    before |= {"run_delay_seconds": 0.01, "involuntary_switches": 200.0}
    for one, other in ((before, before | change), (before | change, before)):
        match = Nearest().match(one, [Work(other, {})])
        assert match is not None
        assert match.confident == alike


def test_idle_counters_do_not_water_a_difference_down() -> None:
    other = {**A_PROFILE, "minor_faults": 300.0}
    idle = {f"event_{number}": float(number) for number in range(50)}
    assert distance(A_PROFILE | idle, other | idle) == pytest.approx(distance(A_PROFILE, other))


@given(st.lists(st.floats(0, 1e10), min_size=8, max_size=8))
def test_distances_are_the_same_both_ways(numbers: list[float]) -> None:
    one, other = (dict(zip(A_PROFILE, some, strict=True)) for some in (numbers[:4], numbers[4:]))
    assert distance(one, other) == pytest.approx(distance(other, one))
    assert distance(one, one) == 0.0


def test_the_distance_of_noise_is_about_1() -> None:
    rng = np.random.default_rng(0)
    found = [distance(noisy(A_PROFILE, rng), noisy(A_PROFILE, rng)) for _ in range(300)]
    assert np.median(found) == pytest.approx(1.0, abs=0.15)


# --- groups of work ---------------------------------------------------------------------------------------

RANGES = {
    "user_seconds": (0.05, 2.0),
    "system_seconds": (0.01, 1.0),
    "minor_faults": (10.0, 4e5),
    "voluntary_switches": (1.0, 3e3),
    "involuntary_switches": (10.0, 1e3),
    "read_call_bytes": (1e3, 5e8),
    "read_calls": (10.0, 1e4),
    "written_bytes": (1.0, 1e8),
    "resident_bytes": (3e7, 4e9),
    "run_delay_seconds": (0.01, 0.5),
}


def a_group(rng: np.random.Generator) -> Work:
    """What some kind of work is like, were it not for noise."""
    profile = {name: math.exp(rng.uniform(math.log(low), math.log(high))) for name, (low, high) in RANGES.items()}
    return Work(profile, {setting: rng.uniform(0.6, 1.3) for setting in (ONE, TWO, KEPT)})


def noisy(numbers: Mapping[str, float], rng: np.random.Generator, noise: float = 0.2) -> dict[str, float]:
    return {name: number * math.exp(rng.normal(0.0, noise)) for name, number in numbers.items()}


def measured(group: Work, rng: np.random.Generator) -> Work:
    return Work(noisy(group.profile, rng), noisy(group.effects, rng, 0.01))


def fractions(make: Make, groups: int, pieces: int, seeds: int) -> tuple[float, float]:
    """Of work of a known kind, how much is matched with its like; of work of another kind, how much is matched."""
    right, taken_for_another = [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        kinds, stranger = [a_group(rng) for _ in range(groups)], a_group(rng)
        known = [measured(kind, rng) for kind in kinds for _ in range(pieces)]
        similarity = make()
        for kind in kinds:
            match = similarity.match(measured(kind, rng).profile, known)
            assert match is not None
            said = {**kind.effects, "{}": 1.0}[best(match.effects)]
            right.append(match.confident and said <= 1.03 * min(1.0, *kind.effects.values()))
        match = similarity.match(measured(stranger, rng).profile, known)
        assert match is not None
        taken_for_another.append(match.confident)
    return float(np.mean(right)), float(np.mean(taken_for_another))


@pytest.mark.parametrize(("groups", "pieces"), [(1, 1), (1, 2), (2, 1), (6, 1), (6, 5), (20, 3)])
def test_nearest_knows_its_like_and_no_stranger(groups: int, pieces: int) -> None:
    right, taken_for_another = fractions(Nearest, groups, pieces, seeds=200 // groups)
    assert right >= 0.95
    assert taken_for_another <= 0.1


@pytest.mark.parametrize(("groups", "pieces"), [(1, 1), (1, 2), (2, 1), (6, 5)])
def test_kmeans_does_where_there_are_clusters(groups: int, pieces: int) -> None:
    right, taken_for_another = fractions(KMeans, groups, pieces, seeds=100 // groups)
    assert right >= 0.9
    assert taken_for_another <= 0.1


def test_the_paper_s_two_clusters_do_not_hold_six_kinds_of_work() -> None:
    right, taken_for_another = fractions(lambda: KMeans(k=2), groups=6, pieces=5, seeds=16)
    assert right < 0.7
    assert taken_for_another > 0.2


def test_one_counter_tells_work_apart_though_the_others_are_noise() -> None:
    """Page faults, say, by which it is known whether keeping memory pays."""
    rng = np.random.default_rng(0)
    many = [Work(noisy({**A_PROFILE, "minor_faults": 4e5}, rng), {KEPT: 0.6}) for _ in range(5)]
    few = [Work(noisy({**A_PROFILE, "minor_faults": 4e3}, rng), {KEPT: 1.1}) for _ in range(5)]
    for faults, like in ((4e5, KEPT), (4e3, "{}")):
        match = Nearest().match(noisy({**A_PROFILE, "minor_faults": faults}, rng), many + few)
        assert match is not None
        assert match.confident
        assert best(match.effects) == like


# --- limits -----------------------------------------------------------------------------------------------


def row_of_work(bests: Sequence[str], factor: float) -> list[Work]:
    """Each with all counters so many times those of the one before."""
    return [
        Work({name: rate * factor**number for name, rate in A_PROFILE.items()}, {setting: 0.7, KEPT: 0.9})
        for number, setting in enumerate(bests)
    ]


def limit(known: Sequence[Work]) -> float:
    match = Nearest().match(A_PROFILE, known)
    assert match is not None
    return match.limit


def test_the_limit_widens_where_work_further_apart_agrees() -> None:
    apart = distance(row_of_work([ONE] * 20, 2.0)[9].profile, row_of_work([ONE] * 20, 2.0)[10].profile)
    assert 1.5 * apart > 2.0
    assert limit(row_of_work([ONE] * 20, 2.0)) == pytest.approx(1.5 * apart, rel=0.1)
    assert limit(row_of_work([ONE] * 8, 2.0)) == 2.0, "these are too few to tell"
    assert limit(row_of_work([ONE, TWO] * 10, 2.0)) == 2.0, "these do not agree"
    assert limit(row_of_work([ONE] * 20, 1.01)) == 2.0, "that they are close is no reason to think more of noise"


def test_pieces_are_merged_by_their_geometric_mean() -> None:
    known = [
        Work(A_PROFILE, {ONE: 0.5, TWO: 0.9}),
        Work(A_PROFILE, {ONE: 0.8}),
        Work({name: 100 * rate for name, rate in A_PROFILE.items()}, {ONE: 9.0}),
    ]
    match = Nearest().match(A_PROFILE, known)
    assert match is not None
    assert match.effects == pytest.approx({ONE: math.sqrt(0.4), TWO: 0.9}), "and what is not alike is left out"
    nearest = Nearest(neighbours=1).match(A_PROFILE, known)
    assert nearest is not None
    assert nearest.effects == pytest.approx(known[0].effects)


# --- k-means ----------------------------------------------------------------------------------------------

points = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=20).map(np.array)


@settings(deadline=None)
@given(points, st.integers(1, 6))
def test_clusters_are_where_no_step_helps(points: Any, k: int) -> None:
    found = clusters(points, k)
    assert 1 <= len(found.centres) <= k
    assert sorted(set(found.labels.tolist())) == list(range(len(found.centres)))
    for label, centre in enumerate(found.centres):
        assert centre == pytest.approx(points[found.labels == label].mean(0))
    squared = ((points[:, None] - found.centres[None]) ** 2).sum(2)
    own = squared[np.arange(len(points)), found.labels]
    assert own == pytest.approx(squared.min(1), abs=1e-6)
    assert found.inertia == pytest.approx(own.sum())
    again = clusters(points.copy(), k)
    assert (again.labels == found.labels).all()
    assert (again.centres == found.centres).all()


@pytest.mark.parametrize("seed", range(20))
def test_two_clusters_are_the_best_there_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    some = rng.normal(size=(8, 2))
    some[:4] += 3.0

    def inertia(part: Sequence[bool]) -> float:
        return sum(float(((side - side.mean(0)) ** 2).sum()) for side in (some[list(part)], some[~np.array(part)]))

    parts = [part for part in itertools.product([False, True], repeat=8) if any(part) and not all(part)]
    assert clusters(some, 2).inertia == pytest.approx(min(map(inertia, parts)))


@pytest.mark.parametrize("groups", [2, 3, 6, 10])
def test_as_many_clusters_as_there_are_groups(groups: int) -> None:
    rng = np.random.default_rng(groups)
    some = np.concatenate([rng.normal(rng.uniform(-100, 100, 3), 1.0, (5, 3)) for _ in range(groups)])
    assert len(best_parted(some, 20).centres) == groups


def test_clusters_of_points_that_are_all_the_same() -> None:
    found = best_parted(np.ones((5, 2)), 4)
    assert (len(found.centres), found.inertia) == (1, 0.0)


# --- is it any good? --------------------------------------------------------------------------------------


class Says:
    """That everything is like one piece of work, so far away."""

    def __init__(self, distance: float, effects: Mapping[str, float]) -> None:
        self.asked: list[int] = []
        self._match = Match(effects, distance, 1.0)

    def match(self, profile: Mapping[str, float], known: Sequence[Work]) -> Match | None:
        assert profile not in [work.profile for work in known], "the piece asked for is left out"
        self.asked.append(len(known))
        return self._match


def test_agreement_by_hand() -> None:
    works = [
        Work({"user_seconds": 1.0}, {ONE: 0.8, TWO: 0.9}),  # what is said to be best is
        Work({"user_seconds": 2.0}, {ONE: 0.92, TWO: 0.9}),  # within 3 %
        Work({"user_seconds": 3.0}, {ONE: 1.5, TWO: 0.9}),  # 1.5 instead of 0.9
        Work({"user_seconds": 4.0}, {TWO: 0.9}),  # not tried here, so that two threads are left
    ]
    says = Says(1.0, {ONE: 0.7, TWO: 0.8, KEPT: 0.5})
    found = agreement(says, works)
    assert says.asked == [3] * 4
    assert (found.pieces, found.abstained, found.right) == (4, 0.0, 0.75)
    assert found.regret == pytest.approx((0.0 + (0.92 / 0.9 - 1) + (1.5 / 0.9 - 1) + 0.0) / 4)
    found = agreement(Says(1.1, {ONE: 0.7}), works)
    assert (found.pieces, found.abstained) == (4, 1.0)
    assert math.isnan(found.right)
    assert math.isnan(found.regret)
    assert agreement(Nearest(), []).pieces == 0


def test_agreement_tells_which_is_better() -> None:
    rng = np.random.default_rng(3)
    works = [measured(kind, rng) for kind in [a_group(rng) for _ in range(6)] for _ in range(4)]
    nearest, two_means = agreement(Nearest(), works), agreement(KMeans(k=2), works)
    assert nearest.right > two_means.right
    assert nearest.regret < two_means.regret
    assert nearest.abstained < 0.2
