"""The timeline of a study: which trial used which machine when, as a figure."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli import studies
from tests.cli.test_bill import rented
from tests.show.test_history_plot import FIRST_BYTES
from tests.support import rentals
from thriftune.errors import SettingError, ThriftuneError
from thriftune.results.cost_ledger import AttemptWork, Ledger, LedgerRow
from thriftune.show.timeline_plot import assign_lanes, layout_of, plot_timeline, stack_attempts
from thriftune.state import events as ev


def row(
    since: float, end: float, *work: AttemptWork, machine: str = "m", preempted: bool = False, slots: int = 1
) -> LedgerRow:
    """Return the row of a machine in a ledger."""
    life = (machine, "spot", since, end, False, slots)
    return LedgerRow(*life, 1.0, None, 1.0, 0.0, 0.0, preempted, False, work)


def work_of(trial: int, since: float, until: float, workers: int = 1) -> AttemptWork:
    """Return the work of an attempt on a machine."""
    return AttemptWork(trial, 1, workers, since, until, 1.0, 0.0, False)


def ledger_of(entries: list[ev.Event]) -> Ledger:
    """Return the ledger at the end of a log."""
    return Ledger.of(studies.fold(entries, studies.spec()), entries[-1].at)


def figure_text(path: Path, ledger: Ledger) -> str:
    """Draw a ledger as SVG, and return the file's text."""
    mpl = pytest.importorskip("matplotlib")
    with mpl.rc_context({"svg.fonttype": "none"}):
        plot_timeline("study", ledger, path)
    return path.read_text()


# --- the layout


def test_a_lane_is_reused_after_its_machine_has_ended() -> None:
    a, b, c, d = row(0.0, 10.0), row(5.0, 20.0), row(10.0, 12.0), row(11.0, 30.0)
    assert assign_lanes([d, c, b, a]) == [[a, c], [b], [d]]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_the_number_of_lanes_is_at_most_that_of_simultaneous_machines(lives: list[tuple[int, int]]) -> None:
    rows = [row(float(since), float(since + seconds)) for since, seconds in lives]
    lanes = assign_lanes(rows)
    assert sorted(id(each) for lane in lanes for each in lane) == sorted(map(id, rows))
    for lane in lanes:
        assert all(one.end <= other.since for one, other in pairwise(lane))
    # A machine that ends as it starts still occupies a lane at that moment.
    at_once = [sum(one.since <= each.since < max(one.end, one.since + 0.5) for one in rows) for each in rows]
    assert len(lanes) <= max(at_once, default=0)


def test_simultaneous_trials_of_one_machine_are_stacked() -> None:
    work = [work_of(0, 0.0, 10.0), work_of(1, 0.0, 5.0, 2), work_of(2, 5.0, 9.0), work_of(3, 10.0, 11.0, 3)]
    assert stack_attempts(work) == ([0, 1, 1, 0], 3)
    assert stack_attempts([]) == ([], 0)


def test_the_height_of_a_trial_is_its_share_of_the_slots() -> None:
    shared = row(0.0, 20.0, work_of(4, 1.0, 10.0), work_of(5, 1.0, 10.0, 2), slots=4)
    layout = layout_of([("spot", [[shared]])])
    (life,) = layout.machines
    (one, thin), (other, thick) = layout.trials
    assert (one, other) == (4, 5)
    assert (life.since, life.until, thin.since, thin.until) == (0.0, 20.0, 1.0, 10.0)
    assert thin.bottom - thin.top == pytest.approx((life.bottom - life.top) / 4)
    assert thick.bottom - thick.top == pytest.approx((life.bottom - life.top) / 2)
    assert thin.top == life.top
    assert thick.top == pytest.approx(thin.bottom)


def test_preemptions_are_marked_and_lanes_have_names() -> None:
    machine_lanes = [[row(0.0, 10.0, machine="a", preempted=True), row(12.0, 15.0, machine="b")], [row(0.0, 9.0)]]
    layout = layout_of([("spot", machine_lanes)])
    ((at, lane),) = layout.preemptions
    assert at == 10.0
    assert layout.machines[0].top < lane < layout.machines[0].bottom
    assert list(layout.names.values()) == ["a and 1 more", "m"]


# --- the figure


@pytest.mark.parametrize("kind", FIRST_BYTES)
def test_each_file_format_can_be_written(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"bill.{kind}"
    plot_timeline("rented", ledger_of(rented()), path)
    assert path.read_bytes().startswith(FIRST_BYTES[kind])


def test_the_figure_has_a_title_and_labels(tmp_path: Path) -> None:
    figure = figure_text(tmp_path / "rented.svg", ledger_of(rented()))
    for text in (
        "study: 3 machines, 2 preempted, $2.00",
        "spot: 3 machines, at most 1 at once",
        "spot-0 and 2 more",
        "trial 0",
        "waits",
        "preempted",
        "time, minutes",
    ):
        assert text in figure


def test_the_figure_of_this_machine_shows_drives_as_runs(tmp_path: Path) -> None:
    second_drive = [
        ev.DriverStarted(120.0, 78, "there"),
        ev.MachineReady(120.0, ev.THIS_MACHINE, "AWS c7i.large", 4, 0.36),
        ev.DriverStopped(130.0),
    ]
    figure = figure_text(tmp_path / "own.svg", ledger_of([*studies.log(), *second_drive]))
    for text in ("study: 2 runs, $0.0020 if rented", "AWS c7i.large: 2 runs", "this machine", "trial 2"):
        assert text in figure
    for text in ("preempted", "at once", "more"):
        assert text not in figure


def test_many_machines_and_trials_are_not_named(tmp_path: Path) -> None:
    history, _, now = rentals.study(3, trials=150, most=60)
    figure = figure_text(tmp_path / "many.svg", Ledger.of(history, now))
    assert "150 trials; colours repeat" in figure
    for offer in ("price", "chance", "room", "stays"):
        assert f"{offer}: " in figure
    assert "trial 0" not in figure
    assert "stays-1" not in figure


def test_a_machine_that_ended_as_it_started_can_be_drawn(tmp_path: Path) -> None:
    figure = figure_text(tmp_path / "gone.svg", Ledger([row(5.0, 5.0, machine="brief", slots=0, preempted=True)]))
    assert "brief" in figure


def test_an_empty_ledger_and_other_file_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"must end in .png"):
        plot_timeline("study", ledger_of(rented()), tmp_path / "bill.gif")
    pytest.importorskip("matplotlib")
    with pytest.raises(ThriftuneError, match="nothing to plot: 'study' has used no machine yet"):
        plot_timeline("study", Ledger([]), tmp_path / "bill.png")
