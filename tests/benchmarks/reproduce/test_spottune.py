"""Tests of the SpotTune reproduction on synthetic prices."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reproduce import PAPERS, Entry, Reproduction, Request, Section, reproduce
from benchmarks.reproduce import spottune_studies as studies
from benchmarks.reproduce.spottune import SAVED, WORKLOADS
from thriftune.errors import SettingError
from thriftune.market.price_history import PriceHistory, PriceSeries
from thriftune.replay import recorded
from thriftune.replay.traces import Trace
from thriftune.replay.what_if import PolicySummary

LINEAR = "linear"
HOUR = 3600.0


@pytest.fixture(scope="module")
def messages() -> list[str]:
    return []


@pytest.fixture(scope="module")
def reproduction(messages: list[str]) -> Reproduction:
    return reproduce("spottune", Request(None, quick=True, progress=messages.append))


def section(reproduction: Reproduction, title: str) -> Section:
    (one,) = (each for each in reproduction.sections if each.title.startswith(title))
    return one


def entry(reproduction: Reproduction, title: str, what: str) -> Entry:
    (one,) = (each for each in section(reproduction, title).entries if each.what == what)
    return one


# --- the reproduction


def test_every_figure_is_finite(reproduction: Reproduction) -> None:
    assert reproduction.paper == "spottune"
    assert len(reproduction.sections) >= 5
    for each in (entry for one in reproduction.sections for entry in one.entries):
        assert math.isfinite(each.ours), each
        assert each.spread is None  # a quick run has one start
        assert each.unit in ("$", "%", "h", "times", "")


def test_entries_have_the_papers_numbers(reproduction: Reproduction) -> None:
    papers = [each.paper for each in section(reproduction, "Figure 7, averages").entries]
    assert papers == [0.415, 0.8604, 0.7564, 0.9418, 0.5716, 2.14, 0.6459, 2.65, 3.36, 13.11, 16.61]
    assert entry(reproduction, "Figure 9", "free steps, on average, theta 0.7").paper == 0.775
    assert set(SAVED) == {
        (a, b) for a in ("theta 1.0", "theta 0.7") for b in ("cheapest_spot", "fastest_spot")
    } | {("theta 0.7", "theta 1.0")}


def test_fewer_steps_cost_less_and_end_sooner(reproduction: Reproduction) -> None:
    for what in ("cost", "time"):
        shares = [each.ours for each in section(reproduction, "Figure 8").entries if f": {what}," in each.what]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
    assert entry(reproduction, "Figure 7, averages", "theta 0.7: saved, against theta 1.0").ours > 0.0


def test_the_three_panels_agree(reproduction: Reproduction) -> None:
    def number(panel: str, approach: str) -> float:
        return entry(reproduction, f"Figure 7 ({panel})", f"trees (GBTR), {approach}").ours

    early = number("a", "theta 0.7") * number("b", "theta 0.7")
    fastest = number("a", "the fastest spot machine") * number("b", "the fastest spot machine")
    assert number("c", "the fastest spot machine") == pytest.approx(early / fastest)


def test_the_source_of_the_prices_is_the_first_difference(reproduction: Reproduction, messages: list[str]) -> None:
    assert reproduction.differs[0].startswith("Prices are synthetic")
    assert "Quick" in reproduction.differs[-1]
    assert messages[0] == "drawing synthetic prices"
    assert any(line.startswith("trees: ") for line in messages)


def test_every_picture_is_drawn(reproduction: Reproduction, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = [each for each in reproduction.sections if each.draw is not None]
    assert len({each.name for each in drawn}) == len(drawn) == 4
    for each in drawn:
        assert each.draw is not None
        path = tmp_path / f"{each.name}.png"
        each.draw(path)
        assert path.read_bytes().startswith(b"\x89PNG")


def test_an_unknown_paper_is_refused() -> None:
    with pytest.raises(SettingError, match=r"'alexnet' is not known; use one of spottune, rubberband"):
        reproduce("alexnet", Request(None))
    assert set(PAPERS) == {"spottune", "rubberband", "scispot", "earlycurve"}


def test_the_workloads_are_the_shipped_ones() -> None:
    assert sorted(WORKLOADS) == recorded.names()


# --- the market


def test_recorded_prices_are_used_if_available(tmp_path: Path) -> None:
    series = [
        PriceSeries(type, zone, [0.0], [0.01], end=10 * HOUR)
        for type in (*studies.ON_DEMAND_2016, "m9.odd")
        for zone in ("us-east-1a", "us-east-1b")
    ]
    PriceHistory(series).write(tmp_path / studies.PRICES_2016)
    whole, quick = (studies.market(Request(tmp_path, quick=each)) for each in (False, True))
    assert whole.recorded
    assert len(whole.prices.markets) == 12
    assert quick.prices.markets == sorted((type, "us-east-1a") for type in studies.ON_DEMAND_2016)
    empty = studies.market(Request(tmp_path / "nowhere", quick=True))
    assert not empty.recorded
    assert {type for type, _ in empty.prices.markets} == set(studies.TABLE_3)


def test_a_machine_is_lost_when_the_price_exceeds_its_maximum() -> None:
    times = np.arange(0.0, 100 * HOUR, HOUR / 2)
    steady = PriceSeries("a.large", "z", [0.0], [0.1], end=100 * HOUR)
    jumps = PriceSeries("b.large", "z", times, np.where(np.arange(len(times)) % 2, 0.15, 0.05), end=100 * HOUR)
    market = studies.Market(PriceHistory([steady, jumps]), {}, recorded=False)
    assert market.lost_within_hour(studies.LEAST_DELTA) == [0.0, pytest.approx(0.5, abs=0.03)]
    assert market.lost_within_hour((0.2, 0.2)) == [0.0, 0.0]
    calm, lost = market.lost_within_hour(studies.RANDOM_DELTA)
    assert calm == 0.0
    # A quarter: the price is low half of the time, and then exceeds half of the maximum prices.
    assert 0.15 < lost < 0.35


# --- until the best are selected


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Return a trace with a price peak in one hour of four.

    The peak is above any maximum price, so machines are lost and refunded.
    """
    hours = np.arange(200.0)
    busy = PriceSeries("r4.large", "z", hours * HOUR, np.where(hours % 4 == 3, 0.9, 0.02), end=200 * HOUR)
    calm = PriceSeries("m4.4xlarge", "z", [0.0], [0.2], end=200 * HOUR)
    machines = {type: studies.TABLE_3[type] for type in ("r4.large", "m4.4xlarge")}
    return studies.Market(PriceHistory([busy, calm]), machines, recorded=False).trace(LINEAR)


@pytest.fixture(scope="module")
def compared(trace: Trace) -> dict[str, PolicySummary]:
    return studies.compared(LINEAR, trace, 1)


def test_without_early_selection_the_whole_bill_counts(compared: dict[str, PolicySummary]) -> None:
    for approach in (studies.CHEAPEST, studies.FASTEST, studies.WHOLE):
        for outcome in compared[approach].outcomes:
            counted = studies.until_selected(outcome.replayed, 1.0)
            assert counted.dollars == pytest.approx(outcome.replayed.dollars)
            assert counted.seconds == pytest.approx(outcome.replayed.seconds)


def test_work_after_the_selection_does_not_count(compared: dict[str, PolicySummary]) -> None:
    (outcome,) = compared[studies.EARLY].outcomes
    counted = studies.until_selected(outcome.replayed, studies.THETA)
    assert counted.dollars < outcome.replayed.dollars
    assert counted.seconds < outcome.replayed.seconds


def test_steps_on_refunded_machines_are_free(compared: dict[str, PolicySummary]) -> None:
    (run,) = studies.runs_of(compared[studies.WHOLE], 1.0)
    ledger = compared[studies.WHOLE].outcomes[0].replayed.result.ledger
    free = sum(row.steps_done - row.steps_lost for row in ledger.rows if row.refunded)
    assert run.free_steps == pytest.approx(free / sum(row.steps_done - row.steps_lost for row in ledger.rows))
    assert run.refunded == pytest.approx(ledger.refunded / (ledger.refunded + ledger.dollars))
    assert 0.0 < run.free_steps < 1.0
    (single,) = studies.runs_of(compared[studies.CHEAPEST], 1.0)
    assert (single.free_steps, single.refunded) == (0.0, 0.0)  # no machine is lost


def test_paced_changes_only_the_speeds(trace: Trace) -> None:
    types = studies.types("trees", studies.TABLE_3)
    other = studies.paced(trace, types)
    assert [kind.name for kind in other.kinds] == [kind.name for kind in trace.kinds]
    assert all(kind.speed == types[kind.name.split(" ")[0]].speed for kind in other.kinds)
    assert types["m4.4xlarge"].speed > types["r4.large"].speed > 1.0


def test_means_over_workloads_and_their_spread_over_seeds() -> None:
    mean, spread = studies.by_seed([[1.0, 3.0], [3.0, 5.0]])
    assert (mean, spread) == pytest.approx((3.0, math.sqrt(2.0)))
    assert studies.by_seed([[1.0], [2.0]]) == (1.5, None)
