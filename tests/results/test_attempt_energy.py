"""The energy of attempts: metered joules, and an estimate of the rest."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli import studies
from tests.system.stories import Story
from thriftune.results.cost_ledger import Ledger
from thriftune.state import events as ev
from thriftune.system.energy import BUSY_CORE_WATTS, NO_METER


def ledger(story: Story) -> Ledger:
    return Ledger.of(story.history(), story.now)


def test_without_windows_a_worker_counts_as_a_busy_core() -> None:
    found = ledger(Story().begin().idle(99.99).end())
    assert found.joules == found.estimated_joules == pytest.approx(100 * BUSY_CORE_WATTS)


def test_each_worker_counts_on_its_machine() -> None:
    entries: list[ev.Event] = [ev.DriverStarted(0.0, 7, "here")]
    for name in ("a", "b"):
        entries += [ev.MachineRented(0.0, name, "spot", 1.0), ev.MachineReady(0.0, name, "spot", 4, 1.0)]
    entries += [ev.Create(0.0, 0, {"lr": 0.1, "act": "relu"}), ev.Place(0.0, 0, 1, "a", 0, {"a": 3, "b": 1})]
    found = Ledger.of(studies.fold(entries, studies.spec()), 10.0)
    assert [row.joules for row in found.rows] == [pytest.approx(105.0), pytest.approx(35.0)]
    assert found.to_json()["joules"] == pytest.approx(140.0)
    assert found.to_json()["machines"][0]["joules"] == pytest.approx(105.0)
    assert found.to_json()["machines"][1]["estimated_joules"] == pytest.approx(35.0)


def test_time_without_windows_counts_with_the_same_watts() -> None:
    found = ledger(Story().begin().window(2.0, joules=40.0, meter="RAPL").idle(0.99).end())
    assert found.joules == pytest.approx(60.0)
    assert found.estimated_joules == pytest.approx(20.0)
    assert found.to_json()["joules_estimated"] is True


def test_metered_joules_are_no_estimate() -> None:
    story = Story().begin().window(2.0, joules=40.0, meter="RAPL")
    found = Ledger.of(story.history(), story.now)
    assert (found.joules, found.estimated_joules) == (40.0, 0.0)
    assert found.to_json()["joules_estimated"] is False


@pytest.mark.parametrize("meter", NO_METER)
def test_joules_without_a_meter_are_an_estimate(meter: str) -> None:
    story = Story().begin().window(2.0, joules=40.0, meter="RAPL").window(1.0, joules=7.0, meter=meter)
    found = Ledger.of(story.history(), story.now)
    assert (found.joules, found.estimated_joules) == (47.0, 7.0)


def test_a_trial_without_windows_counts_with_the_watts_of_others() -> None:
    story = Story().begin().window(1.99, joules=40.0, meter="RAPL").end().begin().idle(2.99).end()
    metered = ledger(story).rows[0].work[1]
    assert metered.joules.total == metered.joules.estimated == pytest.approx(3.0 * 40.0 / 1.99)


def test_windows_without_joules_do_not_count() -> None:
    """A log of a version or an engine that had no meter at all."""
    story = Story().begin().window(10.0, meter="")
    assert ledger(story).joules == pytest.approx(10 * BUSY_CORE_WATTS)


def test_each_attempt_has_its_own_joules() -> None:
    story = (
        Story()
        .begin()
        .window(1.99, joules=20.0, meter="RAPL")
        .lose()
        .place(1)
        .window(4.0, joules=20.0, meter="RAPL")
    )
    first, second = ledger(story).rows[0].work
    assert first.joules.total == pytest.approx(20.0 + 0.01 * 40 / 5.99)
    assert second.joules.total == 20.0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.01, 100.0), st.floats(0.0, 1e4), st.sampled_from(["", "estimate", "RAPL"]), st.booleans()
        ),
        max_size=30,
    )
)
def test_the_sum_has_all_measured_joules(windows: list[tuple[Any, ...]]) -> None:
    story = Story().begin()
    for seconds, joules, meter, lost in windows:
        story.window(seconds, joules=joules, meter=meter)
        if lost:
            story.lose().idle(1.0).place(story.step)
    found = ledger(story.end())
    measured = math.fsum(joules for _, joules, _, _ in windows)
    metered = math.fsum(joules for _, joules, meter, _ in windows if meter == "RAPL")
    assert found.joules >= measured * (1 - 1e-9)
    assert found.joules - found.estimated_joules == pytest.approx(metered, abs=1e-6)
    assert found.joules == pytest.approx(math.fsum(row.joules for row in found.rows))
    each = [work.joules for row in found.rows for work in row.work]
    assert found.estimated_joules == pytest.approx(math.fsum(joules.estimated for joules in each))
    assert all(0.0 <= joules.estimated <= joules.total * (1 + 1e-9) for joules in each)
