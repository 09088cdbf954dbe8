"""Tests of the SciSpot reproduction on synthetic lifetimes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reproduce import Entry, Reproduction, Request, reproduce
from benchmarks.reproduce import scispot_studies as studies
from benchmarks.reproduce.scispot_studies import AGES, FITS, JOBS
from tests.benchmarks.reproduce.checks import check_pictures, entries_from_json, section
from thriftune.errors import SettingError
from thriftune.market.lifetime import Bathtub, KaplanMeier, Lifetimes, Phases

HEAD = "machine_type,zone,lifetime_s,end_kind,start,day_of_week,hour_of_day,idle\n"
MESSAGES: list[str] = []


@pytest.fixture(scope="module")
def reproduction() -> Reproduction:
    MESSAGES.clear()
    return reproduce("scispot", Request(None, quick=True, progress=MESSAGES.append))


@pytest.fixture(scope="module")
def lives() -> Lifetimes:
    return studies.synthetic_record((8, 16), 80, np.random.default_rng(3))


def entries(reproduction: Reproduction, name: str, begins: str) -> list[Entry]:
    return [each for each in section(reproduction, name).entries if each.what.startswith(begins)]


# --- the output


def test_every_figure_is_finite(reproduction: Reproduction) -> None:
    assert reproduction.paper == "scispot"
    names = ["lifetimes", "sizes", "running_time", "age", "length", "wrong_model", "checkpoints", "bag"]
    assert [each.name for each in reproduction.sections] == names
    for each in reproduction.sections:
        assert each.comment
        for one in each.entries:
            assert math.isfinite(one.ours), one
            assert one.spread is None  # there is a single seed
            assert one.unit in ("", "$", "%", "h", "times")


def test_the_source_of_the_data_is_the_first_difference(reproduction: Reproduction) -> None:
    assert "synthetic" in reproduction.differs[0]
    assert studies.LIFETIMES_FILE in reproduction.differs[0]
    assert MESSAGES[0].startswith("lifetimes")
    assert MESSAGES[-1].startswith("a bag of 50 jobs")


def test_entries_can_be_written_as_json(reproduction: Reproduction) -> None:
    rows = entries_from_json(reproduction)
    assert sum(one["paper"] is not None for one in rows) > 10


def test_every_section_has_its_picture(reproduction: Reproduction, tmp_path: Path) -> None:
    check_pictures(reproduction, tmp_path)


def test_the_bathtub_fits_better_than_the_exponential(reproduction: Reproduction) -> None:
    r2 = {each.what: each.ours for each in entries(reproduction, "lifetimes", "r2 of ")}
    assert r2["r2 of Bathtub"] > r2["r2 of Exponential"]
    assert r2["r2 of Phases"] > r2["r2 of Bathtub"] > 0.9
    shape = {each.what.partition(",")[0]: each for each in entries(reproduction, "lifetimes", "")}
    assert (shape["tau2"].paper, shape["b"].paper) == (0.8, 24.0)


def test_a_job_of_six_hours_fails_on_old_machines(reproduction: Reproduction) -> None:
    memoryless, printed, ours = entries(reproduction, "age", "machines of 19 h and more")
    assert (memoryless.ours, memoryless.paper) == (1.0, 1.0)
    assert printed.ours == ours.ours  # both take a new machine
    assert 0.2 < ours.ours < 0.6
    assert ours.paper == 0.4


def test_no_policy_has_fewer_failures_than_the_least(reproduction: Reproduction) -> None:
    printed, ours, least = (each.ours for each in entries(reproduction, "length", "mean over sizes"))
    assert least <= min(printed, ours) <= 1.0


def test_a_model_of_other_machines_is_better_than_memoryless(reproduction: Reproduction) -> None:
    (more,) = entries(reproduction, "wrong_model", "more failures")
    (fewer,) = entries(reproduction, "wrong_model", "fewer failures")
    assert more.ours < 0.1
    assert fewer.ours > more.paper == 0.02  # type: ignore[operator]


def test_a_schedule_that_knows_the_bathtub_is_never_worse(reproduction: Reproduction) -> None:
    (least,) = entries(reproduction, "checkpoints", "expected time saved against Young-Daly, least")
    (most,) = entries(reproduction, "checkpoints", "expected time saved against Young-Daly, most")
    assert 0.0 <= least.ours <= most.ours < 1.0
    assert least.paper is None


def test_preemptible_machines_make_a_bag_cheap(reproduction: Reproduction) -> None:
    for cheaper in entries(reproduction, "bag", "on-demand over"):
        assert 2.0 < cheaper.ours < 1.2 * studies.ON_DEMAND_PER_CORE / studies.PREEMPTIBLE_PER_CORE
        assert cheaper.paper == 5.0
    for overhead in entries(reproduction, "bag", "time that lost machines took"):
        assert 0.0 <= overhead.ours < 0.2


# --- lifetimes


def test_synthetic_machines_are_named_by_size(lives: Lifetimes) -> None:
    assert lives.types == ["synthetic-8", "synthetic-16"]
    assert len(lives) == 160
    again = studies.synthetic_record((8, 16), 80, np.random.default_rng(3))
    assert (again.hours == lives.hours).all()


def test_only_sizes_of_the_paper_with_enough_machines_are_evaluated() -> None:
    many = studies.synthetic_record((4, 64), 100, np.random.default_rng(0))
    assert studies.judged_types(many) == {4: "synthetic-4"}
    few = studies.synthetic_record((4,), 20, np.random.default_rng(0))
    assert studies.judged_types(few) == {}


def test_a_record_with_too_few_machines_is_refused(tmp_path: Path) -> None:
    rows = [f"n1-highcpu-{cores},z,{600 * i},preempted,0,1,9,0\n" for cores in (16, 32) for i in range(1, 30)]
    (tmp_path / studies.LIFETIMES_FILE).write_text(HEAD + "".join(rows))
    with pytest.raises(SettingError, match=r"too few machines with 16 and 32 cores, 30 preempted"):
        reproduce("scispot", Request(tmp_path, quick=True))


# --- reuse


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), fit=st.sampled_from(FITS))
def test_knowing_takes_least_time_and_least_has_fewest_failures(seed: int, fit: Bathtub) -> None:
    rng = np.random.default_rng(seed)
    hours = rng.uniform(0.0, 24.0, 30) ** rng.uniform(0.5, 1.0)
    truth = KaplanMeier.fit(hours, rng.random(30) < 0.8)
    model = Phases(0.3, 0.5, 30.0, 0.8, 24.3, 0.2)
    results = studies.judged(model, fit, truth)
    reached = ~np.isnan(results["memoryless"].failure)
    for each in results.values():
        assert each.failure.shape == each.hours.shape == (len(AGES), len(JOBS))
        assert (~np.isnan(each.failure) == reached).all()
        assert ((each.failure >= 0.0) & (each.failure <= 1.0))[reached].all()
        assert (results["least"].failure <= each.failure + 1e-9)[reached].all()
        finite = reached & np.isfinite(each.hours)
        assert (results["knowing"].hours <= each.hours * (1.0 + 1e-6))[finite].all()


def test_ages_that_no_machine_reaches_are_nan() -> None:
    truth = KaplanMeier.fit([1.0, 2.0, 4.0], [True, True, True])
    failure = studies.judged(FITS[0], FITS[0], truth)["memoryless"].failure
    assert np.isnan(failure[AGES >= 4.0]).all()
    assert not np.isnan(failure[AGES < 4.0]).any()
    assert (failure[AGES == 0.0, JOBS == 0.5], failure[AGES == 0.0, JOBS == 12.0]) == (0.0, 1.0)


def test_each_half_fits_once_and_evaluates_once(lives: Lifetimes) -> None:
    halves = studies.by_halves(lives, "synthetic-16")
    assert len(halves) == 2
    means = [float(np.nanmean(each["ours"].failure)) for each in halves]
    assert studies.mean_of(halves, "ours") == pytest.approx(np.mean(means))
    # The memoryless policy depends only on the half that evaluates it, not on the model.
    other = studies.by_halves(lives, "synthetic-16", FITS[0])
    for part in ("failure", "hours"):
        assert studies.mean_of(other, "memoryless", part) == studies.mean_of(halves, "memoryless", part)


# --- the bag


def test_machines_cost_their_price_per_core(lives: Lifetimes) -> None:
    trace = studies.preemptible(lives)
    prices = {kind.name: kind.price_at(0.0) for kind in trace.kinds if not kind.is_on_demand}
    assert prices == {"synthetic-8": pytest.approx(0.06), "synthetic-16": pytest.approx(0.12)}


def test_a_bag_is_done_under_every_policy(lives: Lifetimes) -> None:
    messages: list[str] = []
    on_demand, *others = studies.bag(studies.preemptible(lives), 10, 1, messages.append)
    assert [each.policy for each in others] == ["reuse", "thrifty"]
    assert (on_demand.overhead, on_demand.lost) == (0.0, 0.0)
    assert all(0.0 < each.dollars < on_demand.dollars for each in others)
    assert len(messages) == 3
