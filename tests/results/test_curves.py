from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli import studies
from thriftune.results.curves import BestSoFar, best_so_far, draw, learning_curve, wants_log
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.state import events as ev


def test_best_so_far_is_in_the_order_of_ending() -> None:
    history = studies.fold(studies.log(), studies.spec())
    assert best_so_far(history) == [
        BestSoFar(1, 4 / 3, 0),
        BestSoFar(2, 2 / 3, 1),
        BestSoFar(3, 2 / 3, 1),  # a failed trial counts as a trial, but has no value
    ]
    upwards = studies.spec(objectives=(Objective("loss", True),))
    assert [point.trial for point in best_so_far(studies.fold(studies.log(), upwards))] == [0, 0, 0]


def test_only_trials_that_meet_the_constraints_are_best_so_far() -> None:
    spec = studies.spec(objectives=studies.TWO_OBJECTIVES, constraints=parse_constraints("speed >= 2"))
    history = studies.fold(studies.log_of_two_objectives((0.5, 1.0), (0.75, 2.0), (0.25, 1.0), (0.5, 9.0)), spec)
    assert best_so_far(history) == [BestSoFar(2, 0.75, 1), BestSoFar(3, 0.75, 1), BestSoFar(4, 0.5, 3)]


def test_the_curve_is_empty_before_the_first_value() -> None:
    history = studies.fold([ev.DriverStarted(1.0, 1, "x")], studies.spec())
    assert best_so_far(history) == []


def test_a_learning_curve_leaves_out_values_that_are_not_finite() -> None:
    trial = studies.fold(studies.log(), studies.spec()).trials[0]
    assert learning_curve(trial, "loss") == [(1.0, 4.0), (2.0, 2.0), (3.0, pytest.approx(4 / 3))]
    assert learning_curve(trial, "gap") == []
    assert learning_curve(trial, "unknown") == []


@pytest.mark.parametrize(
    ("values", "log"), [([], False), ([1, 10], False), ([0.001, 1], True), ([0, 100], False), ([-1, 100], False)]
)
def test_wide_ranges_of_positive_values_want_a_logarithmic_axis(values: list[float], log: bool) -> None:
    assert wants_log(values) is log


def dots(lines: list[str], width: int) -> list[str]:
    """Return the drawn dots as one character each."""
    rows = []
    for line in lines[:-1]:
        cells = [ord(c) - 0x2800 if c != " " else 0 for c in line.partition("┤")[2].ljust(width)]
        for left, right in ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80)):
            rows.append("".join(".#"[bool(cell & bit)] for cell in cells for bit in (left, right)))
    return rows


def test_a_line_is_drawn() -> None:
    lines = draw([(0, 0), (3, 3)], width=2, height=1)
    assert dots(lines, 2) == ["...#", "..#.", ".#..", "#..."]
    assert lines == ["3 ┤⡠⠊", "  └03"]


def test_stairs_are_drawn() -> None:
    lines = draw([(1, 8), (2, 4.5), (3, 1)], width=3, height=2, stairs=True)
    assert dots(lines, 3) == [
        "###...",
        "..#...",
        "..#...",
        "..#...",
        "..####",
        ".....#",
        ".....#",
        ".....#",
    ]
    assert [line[:3] for line in lines] == ["8 ┤", "1 ┤", "  └"]
    assert lines[-1] == "  └1 3"


def test_no_points_and_one_point_can_be_drawn() -> None:
    assert draw([]) == []
    assert draw([(1, 0.5)], width=4, height=2) == ["    ┤", "0.5 ┤⠁", "    └1"]


def test_axis_labels_have_enough_digits() -> None:
    def labels(*values: float) -> list[str]:
        lines = draw(list(enumerate(values)), width=8, height=4)[:-1]
        return [label for line in lines if (label := line.partition("┤")[0].strip())]

    assert labels(0.5, 0.5, 0.5) == ["0.5"]
    assert labels(1.0, 0.5) == ["1", "0.5"]
    assert labels(0.1234567, 0.1234599) == ["0.12346", "0.123457"]


def test_the_last_line_states_a_logarithmic_axis() -> None:
    assert draw([(1, 0.001), (2, 1)])[-1].endswith("  (logarithmic)")
    assert "logarithmic" not in draw([(1, 0.5), (2, 1)])[-1]
    assert "logarithmic" not in draw([(1, 0.001), (2, 1)], log=False)[-1]


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30),
    st.integers(1, 40),
    st.integers(1, 10),
    st.booleans(),
)
def test_a_plot_of_any_numbers_fits_its_size(values: list[float], width: int, height: int, stairs: bool) -> None:
    lines = draw(list(enumerate(values)), width=width, height=height, stairs=stairs)
    assert len(lines) == height + 1
    cells = [line.partition("┤")[2] for line in lines[:-1]]
    assert all(len(cell) <= width for cell in cells)
    assert any(cells)
    assert math.isfinite(max(values))
