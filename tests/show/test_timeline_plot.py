"""Which trial was on which machine when, as a picture."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli import studies
from tests.cli.test_bill import rented
from tests.show.test_history_plot import BEGINNINGS
from tests.support import rentals
from thriftune.errors import SettingError, ThriftuneError
from thriftune.results.ledger import AttemptWork, Ledger, LedgerRow
from thriftune.show.timeline_plot import assign_lanes, layout_of, plot_timeline, stack_attempts
from thriftune.state import events as ev


def row(
    since: float, end: float, *work: AttemptWork, machine: str = "m", taken_away: bool = False, slots: int = 1
) -> LedgerRow:
    life = (machine, "spot", since, end, False, slots)
    return LedgerRow(*life, 1.0, None, 1.0, 0.0, 0.0, taken_away, False, work)


def on_it(trial: int, since: float, until: float, workers: int = 1) -> AttemptWork:
    return AttemptWork(trial, 1, workers, since, until, 1.0, 0.0, False)


def ledger_of(entries: list[ev.Event]) -> Ledger:
    return Ledger.of(studies.fold(entries, studies.spec()), entries[-1].at)


def words_of(path: Path, ledger: Ledger) -> str:
    mpl = pytest.importorskip("matplotlib")
    with mpl.rc_context({"svg.fonttype": "none"}):
        plot_timeline("study", ledger, path)
    return path.read_text()


# --- who is where


def test_a_lane_is_used_again_when_its_machine_is_gone() -> None:
    a, b, c, d = row(0.0, 10.0), row(5.0, 20.0), row(10.0, 12.0), row(11.0, 30.0)
    assert assign_lanes([d, c, b, a]) == [[a, c], [b], [d]]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_there_are_no_more_lanes_than_machines_at_once(lives: list[tuple[int, int]]) -> None:
    rows = [row(float(since), float(since + seconds)) for since, seconds in lives]
    found = assign_lanes(rows)
    assert sorted(id(each) for lane in found for each in lane) == sorted(map(id, rows))
    for lane in found:
        assert all(one.end <= other.since for one, other in pairwise(lane))
    # A life of no length takes the lane of those that begin when it does.
    at_once = [sum(one.since <= each.since < max(one.end, one.since + 0.5) for one in rows) for each in rows]
    assert len(found) <= max(at_once, default=0)


def test_trials_of_one_machine_are_one_above_the_other() -> None:
    work = [on_it(0, 0.0, 10.0), on_it(1, 0.0, 5.0, 2), on_it(2, 5.0, 9.0), on_it(3, 10.0, 11.0, 3)]
    assert stack_attempts(work) == ([0, 1, 1, 0], 3)
    assert stack_attempts([]) == ([], 0)


def test_a_trial_with_many_workers_takes_its_share_of_the_machine() -> None:
    shared = row(0.0, 20.0, on_it(4, 1.0, 10.0), on_it(5, 1.0, 10.0, 2), slots=4)
    layout = layout_of([("spot", [[shared]])])
    (life,) = layout.machines
    (one, thin), (other, thick) = layout.trials
    assert (one, other) == (4, 5)
    assert (life.since, life.until, thin.since, thin.until) == (0.0, 20.0, 1.0, 10.0)
    assert thin.bottom - thin.top == pytest.approx((life.bottom - life.top) / 4)
    assert thick.bottom - thick.top == pytest.approx((life.bottom - life.top) / 2)
    assert thin.top == life.top
    assert thick.top == pytest.approx(thin.bottom)


def test_a_cross_is_where_a_machine_was_taken_away_and_a_name_beside_its_lane() -> None:
    there = [[row(0.0, 10.0, machine="a", taken_away=True), row(12.0, 15.0, machine="b")], [row(0.0, 9.0)]]
    layout = layout_of([("spot", there)])
    ((at, lane),) = layout.preemptions
    assert at == 10.0
    assert layout.machines[0].top < lane < layout.machines[0].bottom
    assert list(layout.names.values()) == ["a and 1 more", "m"]


# --- the picture


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_kinds(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"bill.{kind}"
    plot_timeline("rented", ledger_of(rented()), path)
    assert path.read_bytes().startswith(BEGINNINGS[kind])


def test_it_says_what_there_is_to_see(tmp_path: Path) -> None:
    drawn = words_of(tmp_path / "rented.svg", ledger_of(rented()))
    for text in (
        "study: 3 machines, 2 preempted, $2.00",
        "spot: 3 machines, at most 1 at once",
        "spot-0 and 2 more",
        "trial 0",
        "waits",
        "preempted",
        "time, minutes",
    ):
        assert text in drawn


def test_on_this_machine_it_tells_of_drives(tmp_path: Path) -> None:
    again = [
        ev.DriverStarted(120.0, 78, "there"),
        ev.MachineReady(120.0, ev.THIS_MACHINE, "AWS c7i.large", 4, 0.36),
        ev.DriverStopped(130.0),
    ]
    drawn = words_of(tmp_path / "own.svg", ledger_of([*studies.log(), *again]))
    for text in ("study: 2 runs, $0.0020 if rented", "AWS c7i.large: 2 runs", "this machine", "trial 2"):
        assert text in drawn
    for text in ("preempted", "at once", "more"):
        assert text not in drawn


def test_of_many_machines_and_trials_none_is_named(tmp_path: Path) -> None:
    history, _, now = rentals.study(3, trials=150, most=60)
    drawn = words_of(tmp_path / "many.svg", Ledger.of(history, now))
    assert "150 trials; colours repeat" in drawn
    for offer in ("price", "chance", "room", "stays"):
        assert f"{offer}: " in drawn
    assert "trial 0" not in drawn
    assert "stays-1" not in drawn


def test_a_machine_that_was_gone_at_once_can_be_drawn(tmp_path: Path) -> None:
    drawn = words_of(tmp_path / "gone.svg", Ledger([row(5.0, 5.0, machine="brief", slots=0, taken_away=True)]))
    assert "brief" in drawn


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"must end in .png"):
        plot_timeline("study", ledger_of(rented()), tmp_path / "bill.gif")
    pytest.importorskip("matplotlib")
    with pytest.raises(ThriftuneError, match="nothing to plot: 'study' has used no machine yet"):
        plot_timeline("study", Ledger([]), tmp_path / "bill.png")
