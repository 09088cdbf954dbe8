"""The progress of a running study: the live display, lines, and silence."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from tests.cli import studies
from thriftune.engines.protocol import WorkerStatus
from thriftune.show.progress import LINE_SECONDS, LineView, LiveView, SilentView, frame, make_view
from thriftune.space.objectives import parse_constraints
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec

WORKERS = [WorkerStatus("worker 0", 10, 3), WorkerStatus("worker 1", 11, None)]


def history(spec: Spec) -> History:
    """Return the state of a study of two running trials."""
    return studies.fold(studies.log(finished=False), spec)


def display_text(
    spec: Spec,
    state: History,
    workers: Sequence[WorkerStatus] = WORKERS,
    now: float = 120.0,
    room: int = 40,
    width: int = 110,
) -> str:
    """Return the text of the live display."""
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(frame(spec, state, workers, now, room))
    file: Any = console.file
    return str(file.getvalue())


def test_the_display_shows_goal_trials_best_time_cost_and_workers() -> None:
    spec = studies.spec(deadline_seconds=3600.0, budget_dollars=2.0)
    shown = display_text(spec, history(spec))
    for text in (
        "study digits  minimize loss within 6 trials, 1 h 00 min, $2.00",
        "3 of 6",
        "1 waiting",
        "1 running",
        "2 completed",
        "1 failed",
        "loss 0.666667 (trial 1)  lr=0.02 act=relu",
        "20.0 s of 1 h 00 min, 59 min 40 s left",
        "$0.0020 of $2.00 if rented (AWS c7i.large on demand)",
        "trial 4 waits for a free worker; retry 1 of 1 after ValueError: bad [red]",
        "trial 2 failed: ValueError: bad [red]",
    ):
        assert text in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["0", "3", "1/3", "9", "11.0", "s", "lr=0.7", "act=relu"] in rows
    assert ["1", "-", "idle"] in rows


def test_the_display_of_several_objectives() -> None:
    spec = studies.spec(objectives=studies.TWO_OBJECTIVES, constraints=parse_constraints("speed >= 2"))
    shown = display_text(
        spec, studies.fold(studies.log_of_two_objectives((0.5, 3.0), (0.25, 2.0), (0.1, 1.0)), spec), []
    )
    assert "minimize loss, maximize speed with speed >= 2 within 6 trials" in shown
    assert "front   2 trials, loss 0.25 to 0.5, speed 2 to 3" in shown
    shown = display_text(spec, studies.fold(studies.log_of_two_objectives((0.5, 1.0)), spec), [])
    assert "best    none of 1 trial meets speed >= 2; the nearest is trial 0 with 1" in shown


def test_the_display_of_a_study_that_has_not_begun() -> None:
    spec = studies.spec(trials=None, budget_dollars=1.0)
    shown = display_text(spec, studies.fold([ev.DriverStarted(100.0, 1, "here")], spec), [])
    assert "no value yet" in shown
    assert "within $1.00" in shown


def test_a_finished_study_has_no_paused_trials() -> None:
    spec = studies.spec(stopping="asha")
    state = history(spec)
    state.apply(ev.Pause(111.0, 3, 1, "by asha"))
    state.apply(ev.Ended(112.0, 3, 1, 1.0, cut=True))
    assert "2 completed  1 paused  1 failed" in display_text(spec, state)
    state.apply(ev.Finish(113.0, "deadline reached"))
    assert "2 completed  1 stopped early  1 failed" in display_text(spec, state)


def test_the_display_of_a_study_that_is_stopping() -> None:
    spec = studies.spec()
    state = history(spec)
    state.apply(ev.StopRequested(111.0, "Ctrl-C"))
    state.apply(ev.Move(111.0, 3, 1, "Ctrl-C"))
    shown = display_text(spec, state)
    assert "stopping (Ctrl-C)" in shown
    assert "will end after its next step" in shown


def test_the_display_fits_a_small_terminal() -> None:
    spec = studies.spec()
    many = [WorkerStatus(f"worker {i}", i, None) for i in range(100)]
    shown = display_text(spec, history(spec), many, room=20)
    assert len(shown.splitlines()) <= 20
    assert "and 90 more workers" in shown
    many = [WorkerStatus(f"worker {i}", i, None) for i in range(4)]
    shown = display_text(spec, history(spec), many, room=12)
    assert len(shown.splitlines()) <= 12
    assert "and 2 more workers" in shown


def test_a_narrow_display_cuts_values_but_no_labels() -> None:
    spec = studies.spec()
    shown = display_text(spec, history(spec), width=60)
    lines = shown.splitlines()
    for label in ("trials  ", "best    loss 0.666667 (trial 1)  ", "time    20.0 s", "cost    $0.0020"):
        assert any(line.startswith(label) for line in lines), shown
    assert "worker  trial  step  loss     for" in shown
    assert all(len(line) <= 60 for line in lines)


def test_the_number_of_hidden_workers_is_singular_or_plural() -> None:
    spec = studies.spec(workers=1)
    state = history(spec)
    workers = [
        WorkerStatus("worker 0", 10, 3),
        WorkerStatus("worker 1", 11, None),
        WorkerStatus("worker 2", 12, None),
    ]
    assert "and 2 more workers" in display_text(spec, state, workers, room=5)
    assert "and 1 more worker" in display_text(spec, state, workers[:2], room=5).splitlines()[-3]


def test_the_silent_view_prints_only_important_messages(capsys: pytest.CaptureFixture[str]) -> None:
    spec = studies.spec()
    with make_view(spec, progress=False) as view:
        assert type(view) is SilentView
        view.update(history(spec), lambda: WORKERS, 120.0)
        view.note("all is well")
        view.say("disk full")
    assert capsys.readouterr() == ("", "disk full\n")


def test_a_message_during_a_message_is_printed_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(SilentView):
        def _write(self, message: str) -> None:
            if message == "first":
                self.say("second")  # as a signal handler would
            super()._write(message)

    Interrupted().say("first")
    assert capsys.readouterr().err == "first\nsecond\n"


def test_a_short_study_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    spec = studies.spec()
    with make_view(spec, progress=None) as view:
        assert type(view) is LineView
        state = history(spec)
        for i in range(10):
            view.update(state, lambda: WORKERS, 120.0 + 0.9 * LINE_SECONDS * i / 10)
        state.apply(ev.Finish(121.8, "all done"))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "study digits: all done; 2 waiting, 2 completed, 1 failed; best loss 0.666667 (trial 1) "
    )


def test_a_short_study_that_did_not_finish_gets_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Its error gives the reason instead."""
    spec = studies.spec()
    with make_view(spec, progress=None) as view:
        view.update(history(spec), lambda: WORKERS, 120.0)
    assert capsys.readouterr() == ("", "")


def test_lines_are_printed_at_intervals_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    spec = studies.spec()
    state = history(spec)
    with make_view(spec, progress=None) as view:
        for i in range(50):
            view.update(state, lambda: WORKERS, 120.0 + i / 10)
        state.apply(ev.Finish(125.0, "all done"))
    out, err = capsys.readouterr()
    first, second, end = err.splitlines()
    assert out == ""
    assert first == (
        "3 of 6 trials ended, 1 running, 1 waiting, 1 failed; best loss 0.666667 (trial 1); "
        "22.0 s, $0.0022 if rented"
    )
    assert second.endswith("24.0 s, $0.0024 if rented")
    assert end.startswith(
        "study digits: all done; 2 waiting, 2 completed, 1 failed; best loss 0.666667 (trial 1) lr"
    )


def test_lines_give_the_reason_to_wait(capsys: pytest.CaptureFixture[str]) -> None:
    spec = studies.spec(engine="ray", engine_options={"gpus": 1})
    empty = studies.fold([ev.DriverStarted(100.0, 1, "here")], spec)
    without_room = [
        WorkerStatus("node-1", None, 3, waits_for="1 CPU, 1 GPU on node-1"),
        WorkerStatus("node-2", 11, 4),
    ]
    with make_view(spec, progress=None) as view:
        view.update(empty, list, 100.0)
        view.update(empty, list, 102.0)
        view.update(history(spec), lambda: without_room, 120.0)
    first, second, _ = capsys.readouterr().err.splitlines()
    assert "; waits for 1 worker of 1 CPU, 1 GPU: no machine has room for one; " in first
    assert "1 running, 1 waiting, 1 failed; 1 without room: trial 3 waits for 1 CPU, 1 GPU on node-1; " in second
    assert "the study waits for 1 worker of 1 CPU, 1 GPU: no machine" in display_text(spec, empty, [])


def test_progress_true_prints_lines_from_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    spec = studies.spec()
    with make_view(spec, progress=True) as view:
        view.note("by the way")
        view.update(history(spec), lambda: WORKERS, 120.0)
    note, first, last = capsys.readouterr().err.splitlines()
    assert note == "by the way"
    assert first == "study digits: minimize loss within 6 trials, 1 worker"
    assert last.startswith("study digits: stopped, not finished")


def live(spec: Spec) -> tuple[LiveView, io.StringIO]:
    file = io.StringIO()
    return LiveView(spec, Console(file=file, force_terminal=True, width=100, height=30, highlight=False)), file


def test_the_live_display_is_drawn_at_most_a_few_times_a_second() -> None:
    spec = studies.spec()
    view, file = live(spec)
    state = history(spec)
    with view:
        view.update(state, lambda: WORKERS, 120.0)
        length = file.tell()
        for i in range(100):
            view.update(state, lambda: WORKERS, 120.0 + i / 1000)
        assert file.tell() == length
        view.update(state, lambda: WORKERS, 1e9)
        assert file.tell() > length
        view.say("a [bold]warning")
        view.note("a note")
    assert "a note" in file.getvalue()
    assert "a [bold]warning" in file.getvalue()
    assert file.getvalue().rstrip().splitlines()[-1].strip()


def test_the_live_display_ends_properly_on_an_interrupt() -> None:
    spec = studies.spec()
    view, file = live(spec)

    def interrupted() -> None:
        with view:
            view.update(history(spec), lambda: WORKERS, 120.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "study digits: stopped, not finished" in file.getvalue()
    assert file.getvalue().count("\x1b[?25h") == 1  # the cursor is shown again


def test_a_terminal_gets_the_live_display_and_a_dumb_one_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert type(make_view(studies.spec(), None)) is LiveView
    assert type(make_view(studies.spec(), False)) is SilentView
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_view(studies.spec(), None)) is LineView
