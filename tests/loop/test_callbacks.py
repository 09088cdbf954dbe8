"""Tests of callbacks: when they are called, with what, and what an error in one does."""

from __future__ import annotations

import os
import signal
import traceback
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests.support.tables import Table
from thriftune.errors import SettingError, StudyInterrupted
from thriftune.loop.callbacks import Callbacks
from thriftune.state import events as ev
from thriftune.state.trial_record import Report, State, TrialRecord

# --- calls and their order --------------------------------------------------------------------------------


class CallRecorder:
    """Callbacks that record their calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.callbacks = Callbacks(self.on_report, self.on_trial_end)

    def on_report(self, trial: TrialRecord, report: Report) -> None:
        self.lines.append(f"report {trial.id} step {report.step}: {report.metrics}")

    def on_trial_end(self, trial: TrialRecord) -> None:
        self.lines.append(f"end {trial.id} {trial.state}")

    def calls_for(self, table: Table, *events: ev.Event) -> list[str]:
        """Run one cycle of the driver, and return the calls."""
        self.lines = []
        before, ended = len(table.log), len(table.history.ended)
        table(*events)
        self.callbacks.call(table.log[before:], table.history.ended[ended:], table.history)
        return self.lines


def test_callbacks_are_called_in_the_order_of_the_log() -> None:
    table, recorder = Table(slots=2, trials=2), CallRecorder()
    first, second = table.a_report(0, 1, 0.5), table.a_report(1, 1, 0.4)
    assert recorder.calls_for(table, first, table.an_end(0), second) == [
        "report 0 step 1: {'loss': 0.5}",
        "end 0 COMPLETED",
        "report 1 step 1: {'loss': 0.4}",
    ]
    assert recorder.calls_for(table, table.an_end(1)) == ["end 1 COMPLETED"]


def test_on_trial_end_is_called_when_a_failed_trial_is_given_up() -> None:
    table, recorder = Table(trials=1, retries=1), CallRecorder()
    failed = ev.Failed(table.now, 0, 1, "raised", "boom")
    assert recorder.calls_for(table, failed) == []
    table.retry()
    assert recorder.calls_for(table, ev.Failed(table.now, 0, 2, "raised", "boom")) == ["end 0 FAILED"]


def test_on_trial_end_is_called_for_a_trial_that_ends_with_its_machine() -> None:
    table, recorder = Table(slots=1, trials=2, target_value=0.1), CallRecorder()
    table.report(0, 1, 0.05)
    assert recorder.calls_for(table, ev.MachineLost(table.now, ev.THIS_MACHINE, "lost")) == ["end 0 COMPLETED"]


def test_on_report_gets_all_metrics_of_a_step_that_is_reported_twice() -> None:
    table, recorder = Table(trials=1), CallRecorder()
    table.report(0, 1, 0.5)
    again = table.a_report(0, 1, accuracy=0.9)
    assert recorder.calls_for(table, again) == ["report 0 step 1: {'loss': 0.5, 'accuracy': 0.9}"]


def test_a_callback_that_is_not_a_function_is_an_error() -> None:
    with pytest.raises(SettingError, match=r"^on_report: 3 is not a function$"):
        Callbacks(3)  # type: ignore[arg-type]


# --- in a study -------------------------------------------------------------------------------------------


def train(trial: tt.Trial) -> None:
    for step in trial.steps():
        trial.report(loss=trial["x"] + step)


def study(tmp_path: Path, **settings: Any) -> tt.Result:
    defaults: dict[str, Any] = {
        "minimize": "loss", "trials": 3, "max_steps": 2, "name": "s", "workers": 1, "searcher": "random",
        "stopping": "none", "progress": False,
    }  # fmt: skip
    return tt.tune(train, {"x": tt.Float(0, 1)}, store=tmp_path / "s.db", **defaults | settings)


def test_a_study_calls_its_callbacks(tmp_path: Path) -> None:
    calls: list[Any] = []
    result = study(
        tmp_path,
        on_report=lambda trial, report: calls.append((trial.id, report.step)),
        on_trial_end=lambda trial: calls.append((trial.id, str(trial.state))),
        on_study_end=lambda result: calls.append(result.finished),
    )
    assert calls == [
        *[each for number in range(3) for each in ((number, 1), (number, 2), (number, "COMPLETED"))],
        "all 3 trials done",
    ]
    assert result.best.finished


def test_a_report_is_stored_before_on_report_is_called(tmp_path: Path) -> None:
    """A process that dies in a callback loses no report."""
    stored = []

    def on_report(trial: TrialRecord, report: Report) -> None:
        record = tt.load("s", store=tmp_path / "s.db").trials[trial.id]
        stored.append(report.step in [each.step for each in record.reports])

    study(tmp_path, on_report=on_report)
    assert stored == [True] * 6


def test_a_resumed_study_repeats_no_calls_of_earlier_runs(tmp_path: Path) -> None:
    ends: list[int] = []
    finished: list[str | None] = []
    study(tmp_path, trials=2)
    callbacks: dict[str, Any] = {
        "on_trial_end": lambda trial: ends.append(trial.id),
        "on_study_end": lambda result: finished.append(result.finished),
    }
    study(tmp_path, trials=2, **callbacks)
    assert (ends, finished) == ([], [])
    study(tmp_path, trials=3, **callbacks)
    assert (ends, finished) == ([2], ["all 3 trials done"])


class OutOfSpace(Exception):
    pass


@pytest.mark.parametrize("name", ["on_report", "on_trial_end"])
def test_an_error_in_a_callback_stops_the_study_and_is_raised_and_the_study_can_be_resumed(
    name: str, tmp_path: Path
) -> None:
    calls = []

    def upload(*arguments: Any) -> None:
        calls.append(arguments)
        raise OutOfSpace("the bucket is full")

    with pytest.raises(OutOfSpace, match="the bucket is full") as caught:
        study(tmp_path, **{name: upload})
    assert "in upload" in "".join(traceback.format_exception(caught.value))
    assert len(calls) == 1
    stopped = tt.load("s", store=tmp_path / "s.db")
    assert stopped.history.stop_requested_by == "an error in a callback (OutOfSpace)"
    assert stopped.history.driver is None  # the driver stopped cleanly
    assert not stopped.history.running
    assert study(tmp_path).finished == "all 3 trials done"


def test_an_error_in_on_study_end_is_raised_after_the_study_has_finished(tmp_path: Path) -> None:
    def on_study_end(result: tt.Result) -> None:
        raise OutOfSpace(result.finished)

    with pytest.raises(OutOfSpace, match="all 3 trials done"):
        study(tmp_path, on_study_end=on_study_end)
    assert tt.load("s", store=tmp_path / "s.db").result.finished == "all 3 trials done"


def test_an_error_after_the_last_trial_is_raised_and_the_study_has_finished(tmp_path: Path) -> None:
    ended: list[str | None] = []

    def on_trial_end(trial: TrialRecord) -> None:
        if trial.id == 2:
            raise OutOfSpace

    with pytest.raises(OutOfSpace):
        study(tmp_path, on_trial_end=on_trial_end, on_study_end=lambda result: ended.append(result.finished))
    assert tt.load("s", store=tmp_path / "s.db").result.finished == "all 3 trials done"
    assert ended == []


def test_ctrl_c_in_a_callback_stops_the_study_cleanly(tmp_path: Path) -> None:
    steps: list[int] = []

    def on_report(trial: TrialRecord, report: Report) -> None:
        if not steps:
            os.kill(os.getpid(), signal.SIGINT)
        steps.append(report.step)  # the callback is not interrupted

    with pytest.raises(StudyInterrupted, match="stopped by Ctrl-C"):
        study(tmp_path, on_report=on_report, trials=1, max_steps=1_000_000)
    assert steps[:1] == [1]
    assert tt.load("s", store=tmp_path / "s.db").history.stop_requested_by == "Ctrl-C"


def test_a_keyboard_interrupt_raised_in_a_callback_stops_the_study_at_once(tmp_path: Path) -> None:
    def on_report(trial: TrialRecord, report: Report) -> None:
        raise KeyboardInterrupt

    with pytest.raises(StudyInterrupted, match="stopped now"):
        study(tmp_path, on_report=on_report)
    assert study(tmp_path).finished == "all 3 trials done"


def test_a_callback_may_stop_the_study(tmp_path: Path) -> None:
    def on_trial_end(trial: TrialRecord) -> None:
        tt.stop("s", store=tmp_path / "s.db")

    with pytest.raises(StudyInterrupted, match="stopped by thriftune stop"):
        study(tmp_path, on_trial_end=on_trial_end, trials=1_000)
    assert tt.load("s", store=tmp_path / "s.db").trials[0].state is State.COMPLETED


def test_a_stop_requested_in_a_callback_takes_effect_at_once(tmp_path: Path) -> None:
    def stop(trial: tt.TrialRecord) -> None:
        tt.stop("s", tmp_path / "s.db")

    def train(trial: tt.Trial) -> float:
        return float(trial["x"])

    with pytest.raises(tt.StudyInterrupted):
        tt.tune(
            train, {"x": tt.Float(0, 1)}, minimize="loss", trials=500, workers=1, name="s", progress=False,
            store=tmp_path / "s.db", on_trial_end=stop,
        )  # fmt: skip
    assert len(tt.load("s", tmp_path / "s.db").trials) < 10
