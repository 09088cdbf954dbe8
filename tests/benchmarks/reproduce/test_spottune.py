"""SpotTune's figures: on made-up prices, in seconds; and what is counted until the best are selected."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reproduce import PAPERS, Entry, Reproduction, Request, Section, reproduce
from benchmarks.reproduce import spottune_studies as studies
from benchmarks.reproduce.spottune import SAVED, WORKLOADS
from thriftune.errors import SettingError
from thriftune.market.prices import PriceHistory, PriceSeries
from thriftune.replay import recorded
from thriftune.replay.traces import Trace
from thriftune.replay.what_if import PolicySummary

LINEAR = "linear"
HOUR = 3600.0


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def found(told: list[str]) -> Reproduction:
    return reproduce("spottune", Request(None, quick=True, told=told.append))


def section(found: Reproduction, title: str) -> Section:
    (one,) = (each for each in found.sections if each.title.startswith(title))
    return one


def entry(found: Reproduction, title: str, what: str) -> Entry:
    (one,) = (each for each in section(found, title).entries if each.what == what)
    return one


# --- the reproduction


def test_every_number_is_one(found: Reproduction) -> None:
    assert found.paper == "spottune"
    assert len(found.sections) >= 5
    for each in (entry for one in found.sections for entry in one.entries):
        assert math.isfinite(each.ours), each
        assert each.spread is None  # once each, when quick
        assert each.unit in ("$", "%", "h", "times", "")


def test_what_the_paper_reports_stands_beside_ours(found: Reproduction) -> None:
    papers = [each.paper for each in section(found, "Figure 7, averages").entries]
    assert papers == [0.415, 0.8604, 0.7564, 0.9418, 0.5716, 2.14, 0.6459, 2.65, 3.36, 13.11, 16.61]
    assert entry(found, "Figure 9", "free steps, on average, theta 0.7").paper == 0.775
    assert set(SAVED) == {
        (a, b) for a in ("theta 1.0", "theta 0.7") for b in ("cheapest_spot", "fastest_spot")
    } | {("theta 0.7", "theta 1.0")}


def test_fewer_steps_cost_less_and_end_sooner(found: Reproduction) -> None:
    for what in ("cost", "time"):
        shares = [each.ours for each in section(found, "Figure 8").entries if f": {what}," in each.what]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
    assert entry(found, "Figure 7, averages", "theta 0.7: saved, against theta 1.0").ours > 0.0


def test_the_three_panels_agree(found: Reproduction) -> None:
    def number(panel: str, approach: str) -> float:
        return entry(found, f"Figure 7 ({panel})", f"trees (GBTR), {approach}").ours

    early = number("a", "theta 0.7") * number("b", "theta 0.7")
    fastest = number("a", "the fastest spot machine") * number("b", "the fastest spot machine")
    assert number("c", "the fastest spot machine") == pytest.approx(early / fastest)


def test_that_prices_are_made_up_is_said_first(found: Reproduction, told: list[str]) -> None:
    assert found.differs[0].startswith("Prices are made up")
    assert "Quick" in found.differs[-1]
    assert told[0] == "making up prices"
    assert any(line.startswith("trees: ") for line in told)


def test_every_picture_is_drawn(found: Reproduction, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = [each for each in found.sections if each.draw is not None]
    assert len({each.name for each in drawn}) == len(drawn) == 4
    for each in drawn:
        assert each.draw is not None
        path = tmp_path / f"{each.name}.png"
        each.draw(path)
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_paper_that_is_not_known() -> None:
    with pytest.raises(SettingError, match=r"'alexnet' is not known; use one of spottune, rubberband"):
        reproduce("alexnet", Request(None))
    assert set(PAPERS) == {"spottune", "rubberband", "scispot", "earlycurve"}


def test_the_workloads_are_those_that_come_with_thriftune() -> None:
    assert sorted(WORKLOADS) == recorded.names()


# --- the market


def test_recorded_prices_are_taken_where_they_are(tmp_path: Path) -> None:
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


def test_a_machine_is_outbid_when_the_price_passes_its_own() -> None:
    times = np.arange(0.0, 100 * HOUR, HOUR / 2)
    steady = PriceSeries("a.large", "z", [0.0], [0.1], end=100 * HOUR)
    jumps = PriceSeries("b.large", "z", times, np.where(np.arange(len(times)) % 2, 0.15, 0.05), end=100 * HOUR)
    where = studies.Market(PriceHistory([steady, jumps]), {}, recorded=False)
    assert where.outbid(studies.LEAST_DELTA) == [0.0, pytest.approx(0.5, abs=0.03)]
    assert where.outbid((0.2, 0.2)) == [0.0, 0.0]
    calm, lost = where.outbid(studies.RANDOM_DELTA)
    assert calm == 0.0
    assert 0.15 < lost < 0.35  # half of the times the price is low, and then half of the maximum prices are passed


# --- until the best are selected


@pytest.fixture(scope="module")
def trace() -> Trace:
    """The price jumps every other hour above any maximum price, so that machines are lost and refunded."""
    hours = np.arange(200.0)
    busy = PriceSeries("r4.large", "z", hours * HOUR, np.where(hours % 4 == 3, 0.9, 0.02), end=200 * HOUR)
    calm = PriceSeries("m4.4xlarge", "z", [0.0], [0.2], end=200 * HOUR)
    machines = {type: studies.TABLE_3[type] for type in ("r4.large", "m4.4xlarge")}
    return studies.Market(PriceHistory([busy, calm]), machines, recorded=False).trace(LINEAR)


@pytest.fixture(scope="module")
def compared(trace: Trace) -> dict[str, PolicySummary]:
    return studies.compared(LINEAR, trace, 1)


def test_without_early_selection_it_is_the_whole_bill(compared: dict[str, PolicySummary]) -> None:
    for approach in (studies.CHEAPEST, studies.FASTEST, studies.WHOLE):
        for outcome in compared[approach].outcomes:
            counted = studies.until_selected(outcome.replayed, 1.0)
            assert counted.dollars == pytest.approx(outcome.replayed.dollars)
            assert counted.seconds == pytest.approx(outcome.replayed.seconds)


def test_what_goes_on_after_the_selection_is_not_counted(compared: dict[str, PolicySummary]) -> None:
    (outcome,) = compared[studies.EARLY].outcomes
    counted = studies.until_selected(outcome.replayed, studies.THETA)
    assert counted.dollars < outcome.replayed.dollars
    assert counted.seconds < outcome.replayed.seconds


def test_steps_on_machines_that_were_taken_within_the_hour_are_free(compared: dict[str, PolicySummary]) -> None:
    (run,) = studies.runs_of(compared[studies.WHOLE], 1.0)
    ledger = compared[studies.WHOLE].outcomes[0].replayed.result.ledger
    free = sum(row.steps_done - row.steps_lost for row in ledger.rows if row.refunded)
    assert run.free_steps == pytest.approx(free / sum(row.steps_done - row.steps_lost for row in ledger.rows))
    assert run.refunded == pytest.approx(ledger.refunded / (ledger.refunded + ledger.dollars))
    assert 0.0 < run.free_steps < 1.0
    (single,) = studies.runs_of(compared[studies.CHEAPEST], 1.0)
    assert (single.free_steps, single.refunded) == (0.0, 0.0)  # never outbid


def test_the_same_machines_at_another_pace(trace: Trace) -> None:
    types = studies.types("trees", studies.TABLE_3)
    other = studies.paced(trace, types)
    assert [kind.name for kind in other.kinds] == [kind.name for kind in trace.kinds]
    assert all(kind.speed == types[kind.name.split(" ")[0]].speed for kind in other.kinds)
    assert types["m4.4xlarge"].speed > types["r4.large"].speed > 1.0


def test_means_over_workloads_and_their_spread_over_seeds() -> None:
    mean, spread = studies.by_seed([[1.0, 3.0], [3.0, 5.0]])
    assert (mean, spread) == pytest.approx((3.0, math.sqrt(2.0)))
    assert studies.by_seed([[1.0], [2.0]]) == (1.5, None)
