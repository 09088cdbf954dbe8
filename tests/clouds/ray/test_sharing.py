"""Fair shares: nobody over capacity, nobody better off but at the cost of one who has no more."""

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


def left_of(total: dict[str, float], wanted: dict[str, Want], given_: dict[str, int]) -> dict[str, float]:
    return {
        name: amount - sum(want.worker.get(name, 0.0) * given_[study] for study, want in wanted.items())
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


def test_who_needs_what_is_not_there_gets_nothing_and_takes_nothing() -> None:
    wanted = {"a": Want({"CPU": 1, "GPU": 1}, 3), "b": Want({"CPU": 1}, 9)}
    assert shares({"CPU": 4.0}, wanted) == {"a": 0, "b": 4}


def test_a_worker_of_tenths_fits_as_often_as_it_should() -> None:
    assert workers_that_fit({"CPU": 0.3}, {"CPU": 0.1}) == 3
    assert workers_that_fit({"CPU": 1.0}, {"CPU": 0.1, "GPU": 0.0}) == 10
    assert shares({"CPU": 0.3}, {"a": Want({"CPU": 0.1}, 9)}) == {"a": 3}


def test_a_worker_that_needs_nothing_is_no_worker() -> None:
    with pytest.raises(SettingError, match="needs nothing"):
        Want({"CPU": 0}, 1)


@given(totals, wants)
def test_never_more_than_there_is_or_is_wanted(total: dict[str, float], wanted: dict[str, Want]) -> None:
    found = shares(total, wanted)
    assert found.keys() == wanted.keys()
    assert all(0 <= found[study] <= want.workers for study, want in wanted.items())
    assert all(amount >= -1e-6 for amount in left_of(total, wanted, found).values())


@given(totals, wants)
def test_nothing_is_left_for_who_wants_more(total: dict[str, float], wanted: dict[str, Want]) -> None:
    found = shares(total, wanted)
    left = left_of(total, wanted, found)
    assert all(
        found[study] == want.workers or not workers_that_fit(left, want.worker) for study, want in wanted.items()
    )


@given(totals, wants)
def test_nobody_envies_who_has_a_larger_share(total: dict[str, float], wanted: dict[str, Want]) -> None:
    """One more for a study would have to be taken from somebody whose share, without it, is no larger."""
    found = shares(total, wanted)
    for study, want in wanted.items():
        if found[study] == want.workers:
            continue
        share = dominant_share(total, want.worker, found[study])
        modest = {  # all that was given to others before their share was above this one's
            other: sum(dominant_share(total, each.worker, count) <= share + 1e-9 for count in range(found[other]))
            for other, each in wanted.items()
            if other != study
        }
        assert not workers_that_fit(left_of(total, wanted, {**modest, study: found[study]}), want.worker)


@given(totals, wants, st.randoms())
def test_the_order_of_the_studies_does_not_matter(
    total: dict[str, float], wanted: dict[str, Want], chance: object
) -> None:
    turned = dict(sorted(wanted.items(), key=lambda _: chance.random()))  # type: ignore[attr-defined]
    assert shares(total, turned) == shares(total, wanted)


@given(totals, bundles, st.integers(1, 5), st.integers(0, 40))
def test_alike_studies_differ_by_one_at_most(
    total: dict[str, float], worker: dict[str, float], studies: int, workers: int
) -> None:
    """Whatever they are called: ties are all that names decide."""
    found = shares(total, {str(number): Want(worker, workers) for number in range(studies)})
    assert max(found.values()) - min(found.values()) <= 1
