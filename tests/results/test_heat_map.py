"""A trial's counters by window, as shades."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.system.stories import KEPT, Story, tuned
from thriftune.results.heat_map import PACE, HeatMap, draw, heat_map, merge_columns


def ramp(windows: int, scale: float = 1.0) -> Story:
    story = Story().begin()
    for number in range(windows):
        story.window(0.5, steps=2, minor_faults=scale * number, resident_bytes=2e8, still=0.0)
    return story.end()


def test_a_row_for_each_counter_and_the_seconds_a_step_first() -> None:
    found = heat_map(ramp(5).history(), 0, [])
    assert [row.name for row in found.rows] == [PACE, "minor_faults", "resident_bytes"]
    assert found.zero_counters == ["still"]
    assert [(column.first_step, column.last_step) for column in found.columns] == [
        (1, 2), (3, 4), (5, 6), (7, 8), (9, 10),
    ]  # fmt: skip
    pace, faults, resident = found.rows
    assert faults.shares() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert set(pace.values) == {0.25}
    assert resident.shares() == [0.0] * 5  # it is the same all along
    assert (pace.range, faults.range, resident.range) == ("0.25 s", "0 to 4 /s", "200M B")


def test_the_scale_is_that_of_the_study() -> None:
    story = ramp(3)
    for value in (8.0, 4.0):
        story.begin().window(0.5, minor_faults=value).end()
    faults = next(row for row in heat_map(story.history(), 0, []).rows if row.name == "minor_faults")
    assert (faults.low, faults.high) == (0.0, 8.0)
    assert faults.shares() == [0.0, 0.125, 0.25]
    story.begin().window(0.5, minor_faults=800.0, kind="another machine").end()
    again = next(row for row in heat_map(story.history(), 0, []).rows if row.name == "minor_faults")
    assert again == faults


def test_a_first_step_is_shown_but_does_not_set_the_scale() -> None:
    found = heat_map(tuned(Story()).history(), 0, [2, 3])
    pace = found.rows[0]
    assert pace.values[0] == 2.0
    assert pace.high == 1.0
    assert pace.shares()[:2] == [1.0, 1.0]
    only_cold = heat_map(Story().begin().window(3.0, cold=True).history(), 0, [])
    assert only_cold.rows[0].high == 3.0


def test_a_missing_count_is_blank() -> None:
    story = (
        Story().begin().window(1.0, faults=1.0).window(1.0).window(1.0, faults=math.nan).window(1.0, faults=3.0)
    )
    found = heat_map(story.history(), 0, [])
    assert found.rows[1].values == [1.0, None, None, 3.0]
    line = next(line for line in draw(found, 80) if line.startswith("faults"))
    assert line == "faults         ····        ████ 1 to 3 /s"


def test_drawn_in_characters() -> None:
    assert draw(heat_map(tuned(Story()).history(), 0, [2, 3]), 80) == [
        "decision               1   2",
        "seconds_a_step ████████░░░░································ 0.71 to 1 s",
        "minor_faults   ████████···································· 10k to 50k /s",
        "up to step     1   2   3   4   5   6   7   8   9   10  11",
        "a column is a window of steps; · lowest of the study ░▒▓█ highest",
    ]


def test_windows_are_merged_to_fit_the_width() -> None:
    assert draw(heat_map(ramp(100).history(), 0, [3, 50]), 60) == [
        "decision        1               2",
        "seconds_a_step ·································· 0.25 s",
        "minor_faults   ·······░░░░░░░▒▒▒▒▒▒▒▓▓▓▓▓▓███████ 0 to 99 /s",
        "resident_bytes ·································· 200M B",
        "up to step     4 16 34 52 70 88 104 128 152 176 200",
        "a column is up to 3 windows of steps; · lowest of the study ░▒▓█ highest",
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 400), st.integers(40, 120), st.floats(1e-9, 1e15), st.lists(st.integers(0, 400), max_size=15)
)
def test_lines_fit_the_width(windows: int, width: int, scale: float, first_windows: list[int]) -> None:
    found = heat_map(ramp(windows, scale).history(), 0, first_windows)
    lines = draw(found, max(width, 60))
    assert max(map(len, lines[:-1])) <= max(width, 60)
    assert len(lines[-1]) <= 80


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.01, 50.0), st.integers(1, 9), st.floats(0.0, 1e9)), min_size=1),
    st.integers(1, 60),
)
def test_merging_keeps_the_sums(windows: list[tuple[float, int, float]], most: int) -> None:
    story = Story().begin()
    for seconds, steps, faults in windows:
        story.window(seconds, steps=steps, minor_faults=faults)
    whole = heat_map(story.history(), 0, [0, len(windows) - 1])
    few = merge_columns(whole, most)
    assert len(few.columns) == min(most, len(windows))

    def total(found: HeatMap, name: str) -> float:
        row = next((row for row in found.rows if row.name == name), None)
        if row is None:
            return 0.0
        weights = [column.steps if name == PACE else column.seconds for column in found.columns]
        return math.fsum(weight * (value or 0.0) for weight, value in zip(weights, row.values, strict=True))

    for name in (PACE, "minor_faults"):
        assert total(few, name) == pytest.approx(total(whole, name))
    assert sum(column.windows for column in few.columns) == len(windows)
    assert [number for column in few.columns for number in column.decisions] == [1, 2]
    for row in few.rows:
        assert all(share is not None and 0.0 <= share <= 1.0 for share in row.shares())


def test_decisions_after_the_ninth_have_no_number() -> None:
    first, *_ = draw(heat_map(ramp(12).history(), 0, list(range(12))), 60)
    assert first == "decision       1 2 3 4 5 6 7 8 9 + + +"


def test_a_decision_after_the_last_window_is_not_marked() -> None:
    story = Story().begin().window(1.0).decide(KEPT)
    assert not any(line.startswith("decision") for line in draw(heat_map(story.history(), 0, [1]), 80))
