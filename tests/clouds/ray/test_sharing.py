"""Tests fair shares: within capacity, nothing wasted, and no study could get more without a poorer one losing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.clouds.ray.sharing import Want, dominant_share, shares, workers_that_fit
from thriftune.errors import SettingError

NAMES = ("CPU", "GPU", "memory")
amounts = st.integers(0, 6)
bundles = st.dictionaries(st.sampled_from(NAMES), amounts.map(float), min_size=1).filter(
    lambda bundle: any(bundle.values())
)
wants = st.dictionaries(st.sampled_from("abcde"), st.builds(Want, bundles, st.integers(0, 12)), max_size=5)
totals = st.fixed_dictionaries({name: st.integers(0, 40).map(float) for name in NAMES})


def free_after(total: dict[str, float], wanted: dict[str, Want], granted: dict[str, int]) -> dict[str, float]:
    return {
        name: amount - sum(want.worker.get(name, 0.0) * granted[study] for study, want in wanted.items())
        for name, amount in total.items()
    }


def test_the_example_of_the_paper() -> None:
    """9 CPUs and 18 GB; tasks of 1 CPU and 4 GB, and of 3 CPUs and 1 GB: three of one and two of the other."""
    total = {"CPU": 9.0, "memory": 18.0}
    wanted = {"a": Want({"CPU": 1, "memory": 4}, 100), "b": Want({"CPU": 3, "memory": 1}, 100)}
    assert shares(total, wanted) == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("workers", "expected"),
    [((4, 4), (2, 2)), ((1, 9), (1, 3)), ((0, 9), (0, 4)), ((9, 0), (4, 0)), ((0, 0), (0, 0))],
)
def test_equal_workers_share_equally(workers: tuple[int, int], expected: tuple[int, int]) -> None:
    wanted = {name: Want({"CPU": 1}, count) for name, count in zip("ab", workers, strict=True)}
    assert tuple(shares({"CPU": 4.0}, wanted).values()) == expected


def test_a_study_that_needs_a_missing_resource_gets_and_takes_nothing() -> None:
    wanted = {"a": Want({"CPU": 1, "GPU": 1}, 3), "b": Want({"CPU": 1}, 9)}
    assert shares({"CPU": 4.0}, wanted) == {"a": 0, "b": 4}


def test_fractions_of_resources_add_up() -> None:
    assert workers_that_fit({"CPU": 0.3}, {"CPU": 0.1}) == 3
    assert workers_that_fit({"CPU": 1.0}, {"CPU": 0.1, "GPU": 0.0}) == 10
    assert shares({"CPU": 0.3}, {"a": Want({"CPU": 0.1}, 9)}) == {"a": 3}


def test_refuses_a_worker_that_needs_nothing() -> None:
    with pytest.raises(SettingError, match="needs no resource"):
        Want({"CPU": 0}, 1)


@given(totals, wants)
def test_grants_at_most_what_is_wanted_and_available(total: dict[str, float], wanted: dict[str, Want]) -> None:
    granted = shares(total, wanted)
    assert granted.keys() == wanted.keys()
    assert all(0 <= granted[study] <= want.workers for study, want in wanted.items())
    assert all(amount >= -1e-6 for amount in free_after(total, wanted, granted).values())


@given(totals, wants)
def test_leaves_nothing_that_a_study_could_use(total: dict[str, float], wanted: dict[str, Want]) -> None:
    granted = shares(total, wanted)
    free = free_after(total, wanted, granted)
    assert all(
        granted[study] == want.workers or not workers_that_fit(free, want.worker) for study, want in wanted.items()
    )


@given(totals, wants)
def test_no_study_could_get_more_without_a_poorer_one_losing(
    total: dict[str, float], wanted: dict[str, Want]
) -> None:
    """Another worker would have to come from a study whose share would then be no larger."""
    granted = shares(total, wanted)
    for study, want in wanted.items():
        if granted[study] == want.workers:
            continue
        share = dominant_share(total, want.worker, granted[study])
        fair = {  # the workers granted to others while their share was not above this one's
            other: sum(
                dominant_share(total, each.worker, count) <= share + 1e-9 for count in range(granted[other])
            )
            for other, each in wanted.items()
            if other != study
        }
        assert not workers_that_fit(free_after(total, wanted, {**fair, study: granted[study]}), want.worker)


@given(totals, wants, st.randoms())
def test_the_order_of_the_studies_does_not_matter(
    total: dict[str, float], wanted: dict[str, Want], chance: object
) -> None:
    shuffled = dict(sorted(wanted.items(), key=lambda _: chance.random()))  # type: ignore[attr-defined]
    assert shares(total, shuffled) == shares(total, wanted)


@given(totals, bundles, st.integers(1, 5), st.integers(0, 40))
def test_studies_with_the_same_wants_differ_by_at_most_one_worker(
    total: dict[str, float], worker: dict[str, float], studies: int, workers: int
) -> None:
    granted = shares(total, {str(number): Want(worker, workers) for number in range(studies)})
    assert max(granted.values()) - min(granted.values()) <= 1
