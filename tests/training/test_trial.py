"""Tests of the trial handle: steps, reports, checkpoints and the request to end."""

from __future__ import annotations

import errno
import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thriftune.errors import SettingError
from thriftune.state.events import CheckpointSaved, DiskFull, Event, Reported, Warned
from thriftune.state.trial_record import State, TrialRecord
from thriftune.training.run import EndTrial, Run, TrialFailed
from thriftune.training.trial import Trial


class FakeLink:
    """A link that keeps all events, and asks to end after `end_after` reports."""

    def __init__(self, end_after: float = math.inf) -> None:
        self.sent: list[Event] = []
        self.end_after = end_after
        self.waited: list[tuple[int, float]] = []

    def send(self, event: Event) -> int:
        self.sent.append(event)
        return len(self.reports) if isinstance(event, Reported) else 0

    def seconds_left(self) -> float | None:
        return None

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:
        if after_report:
            self.waited.append((after_report, timeout_seconds))
        return len(self.reports) >= self.end_after

    @property
    def reports(self) -> list[Reported]:
        return [event for event in self.sent if isinstance(event, Reported)]

    @property
    def reported(self) -> list[tuple[int, dict[str, float], bool]]:
        return [(report.step, dict(report.metrics), report.saved) for report in self.reports]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[Trial, FakeLink]]:
    """Return a function that makes a trial and its link; a second call makes a later attempt of the trial."""

    def make(end_after: float = math.inf, **settings: Any) -> tuple[Trial, FakeLink]:
        given = {
            "trial": 3,
            "attempt": 1,
            "config": {"lr": 0.1, "act": "relu"},
            "resume_step": 0,
            "objectives": ("loss",),
            "max_steps": 5,
            "seed": 11,
            "folder": str(tmp_path / "3"),
            "keep": 2,
        }
        link = FakeLink(end_after)
        return Trial(Run(**{**given, **settings}), link), link

    return make


Make = Callable[..., tuple[Trial, FakeLink]]


def write(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "state").write_text(text)


def read(into: list[str]) -> Callable[[Path], object]:
    return lambda folder: into.append((folder / "state").read_text())


# --- attributes -------------------------------------------------------------------------------------------


def test_trial_has_the_values_of_its_run(make: Make, tmp_path: Path) -> None:
    trial, _ = make(attempt=2)
    assert (trial.id, trial.attempt, trial.seed, trial.max_steps, trial.metric) == (3, 2, 11, 5, "loss")
    assert trial.config == {"lr": 0.1, "act": "relu"}
    assert trial["lr"] == 0.1
    assert "lr" in trial
    assert trial.folder == tmp_path / "3"
    assert trial.folder.is_dir()


def test_changing_config_does_not_change_the_trial(make: Make) -> None:
    trial, _ = make()
    trial.config["lr"] = 9.0
    assert trial["lr"] == 0.1


def test_inactive_parameter_raises_key_error(make: Make) -> None:
    trial, _ = make()
    with pytest.raises(KeyError, match="'momentum' is not in this configuration, which has lr, act; a param"):
        trial["momentum"]
    assert "momentum" not in trial
    assert trial.get("momentum") is None
    assert trial.get("momentum", 0.9) == 0.9


def test_trial_record_reads_like_a_mapping() -> None:
    record = TrialRecord(0, {"lr": 0.1}, created_at=0.0)
    assert (record.get("lr"), record.get("momentum", 0.9)) == (0.1, 0.9)
    assert record.step == 0
    assert record["lr"] == 0.1
    with pytest.raises(KeyError, match="'y' is not in this configuration, which has lr; a parameter"):
        record["y"]


def test_trial_record_has_a_short_repr() -> None:
    record = TrialRecord(3, {"lr": 0.1}, created_at=0.0)
    assert repr(record) == "<TrialRecord 3 WAITING config={'lr': 0.1}>"
    record.state, record.value = State.COMPLETED, 0.25
    assert repr(record) == "<TrialRecord 3 COMPLETED value=0.25 config={'lr': 0.1}>"
    record.state, record.error = State.FAILED, 'Traceback:\n  File "x.py"\nValueError: boom\n'
    assert repr(record).endswith(" config={'lr': 0.1} error='ValueError: boom'>")


def test_save_and_restore_need_a_function_of_a_folder(make: Make) -> None:
    trial, link = make()
    wrong: Any = "ckpt.pt"
    with pytest.raises(SettingError, match=r"save: 'ckpt\.pt' is no function; give a function"):
        trial.report(loss=1.0, save=wrong)
    with pytest.raises(SettingError, match=r"restore: 'ckpt\.pt' is no function; give a function"):
        trial.restore(wrong)
    assert not link.sent
    nothing: Any = lambda: None  # noqa: E731
    with pytest.raises(SettingError, match=r"restore: <lambda>\(\) takes no argument; it is called with one"):
        trial.restore(nothing)
    with pytest.raises(
        SettingError, match=r"save: <lambda>\(\) takes no argument; it is called with one argument, a folder"
    ):
        trial.report(loss=1.0, save=nothing)

    def save(folder: Path) -> None:
        raise TypeError("of its own")

    with pytest.raises(TypeError, match="of its own"):
        trial.report(loss=1.0, save=save)


# --- steps ------------------------------------------------------------------------------------------------


def test_steps_count_from_one(make: Make) -> None:
    trial, link = make()
    for step in trial.steps():
        trial.report(loss=1 / step)
    assert [step for step, _, _ in link.reported] == [1, 2, 3, 4, 5]
    assert {(report.trial, report.attempt) for report in link.reports} == {(3, 1)}
    assert not trial.cut


def test_steps_without_a_report_count(make: Make) -> None:
    trial, link = make()
    for step in trial.steps():
        if step % 2 == 0:
            trial.report(loss=0.5)
    assert [step for step, _, _ in link.reported] == [2, 4]


def test_steps_need_max_steps(make: Make) -> None:
    trial, _ = make(max_steps=None)
    with pytest.raises(SettingError, match=r"trial.steps\(\) needs a number of steps: give max_steps="):
        next(trial.steps())


def test_two_reports_in_a_step_have_the_same_step(make: Make) -> None:
    trial, link = make()
    for _ in trial.steps():
        trial.report(loss=0.5)
        trial.report(accuracy=0.9)
    assert [step for step, _, _ in link.reported] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_report_after_the_loop_has_its_last_step(make: Make) -> None:
    trial, link = make(max_steps=2)
    for _ in trial.steps():
        trial.report(loss=0.5)
    trial.report(test_loss=0.6)
    assert link.reported[-1] == (2, {"test_loss": 0.6}, False)


def test_loop_ends_after_the_step_when_asked_to_end(make: Make) -> None:
    trial, link = make(end_after=2)
    for _ in trial.steps():
        trial.report(loss=0.5)
    assert len(link.reported) == 2
    assert trial.cut


def test_judged_trial_waits_for_the_answer_before_the_next_step(make: Make) -> None:
    began = time.monotonic()
    trial, link = make(judged=True, max_steps=3)
    for _ in trial.steps():
        trial.report(loss=1.0)
        trial.told_to_end()
    assert [number for number, _ in link.waited] == [1, 2, 3]  # once each, however often it looks
    assert all(0.0 <= seconds <= 0.1 * (time.monotonic() - began) for _, seconds in link.waited)


def test_trial_that_is_not_judged_does_not_wait(make: Make) -> None:
    trial, link = make()
    for _ in trial.steps():
        trial.report(loss=1.0)
    assert link.waited == []


def test_end_request_at_the_last_step_does_not_cut(make: Make) -> None:
    trial, _ = make(end_after=5)
    for _ in trial.steps():
        trial.report(loss=0.5)
    assert not trial.cut


def test_end_request_before_the_first_step(make: Make) -> None:
    trial, _ = make(end_after=0)
    assert list(trial.steps()) == []
    assert trial.cut


# --- checkpoints ------------------------------------------------------------------------------------------


def test_first_attempt_restores_nothing(make: Make) -> None:
    trial, _ = make()
    assert trial.restore(read([])) == 0


def test_later_attempt_continues_after_the_restored_step(make: Make) -> None:
    first, link = make()
    for step in first.steps():
        first.report(loss=0.5, save=write(f"after {step}"))
        if step == 3:
            break
    assert link.reported == [(step, {"loss": 0.5}, True) for step in (1, 2, 3)]
    found: list[str] = []
    second, link = make(attempt=2, resume_step=2)  # the third was never recorded
    assert second.restore(read(found)) == 2
    assert found == ["after 2"]
    assert list(second.steps()) == [3, 4, 5]


def test_without_restore_a_later_attempt_starts_from_the_beginning(make: Make) -> None:
    first, _ = make()
    first.report(loss=0.5, save=write("x"))
    second, _ = make(attempt=2, resume_step=1)
    assert list(second.steps()) == [1, 2, 3, 4, 5]


def test_saves_that_are_never_restored_are_said(make: Make) -> None:
    trial, link = make(attempt=2, resume_step=2)
    next(iter(trial.steps()))
    next(iter(trial.steps()))
    (warning,) = (event for event in link.sent if isinstance(event, Warned))
    assert warning.message == (
        "trials that are interrupted begin again at step 1, although their state is saved: call trial.restore() "
        "before trial.steps(). The bill does not count the repeated steps"
    )
    assert warning.once


def test_an_attempt_that_has_nothing_to_restore_is_not_warned(make: Make) -> None:
    trial, link = make(attempt=2)
    next(iter(trial.steps()))
    assert not [event for event in link.sent if isinstance(event, Warned)]


def test_attempt_restored_at_the_last_step_reports_for_that_step(make: Make) -> None:
    first, _ = make(max_steps=1)
    first.report(loss=0.5, save=write("x"))
    second, link = make(attempt=2, max_steps=1, resume_step=1)
    second.restore(read([]))
    assert list(second.steps()) == []
    second.finish(0.5)
    assert link.reported == [(1, {"loss": 0.5}, False)]


def test_reports_without_steps_continue_after_the_restored_step(make: Make) -> None:
    first, _ = make()
    first.report(loss=0.5, save=write("x"))
    second, link = make(attempt=2, resume_step=1)
    second.restore(read([]))
    second.report(loss=0.4)
    assert link.reported == [(2, {"loss": 0.4}, False)]


def test_corrupt_checkpoint_is_skipped_with_a_warning(make: Make, tmp_path: Path) -> None:
    first, _ = make()
    for step in (1, 2):
        first.report(loss=0.5, save=write(f"after {step}"))
    (damaged,) = tmp_path.glob("3/checkpoints/step-*2/state/state")
    damaged.write_text("AFTER 2")
    second, link = make(attempt=2, resume_step=2)
    found: list[str] = []
    assert second.restore(read(found)) == 1
    assert found == ["after 1"]
    (warning,) = link.sent
    assert isinstance(warning, Warned)
    assert "checkpoint of step 2 is corrupt" in warning.message
    assert next(second.steps()) == 2


def test_only_corrupt_checkpoints_start_from_the_beginning(make: Make, tmp_path: Path) -> None:
    first, _ = make()
    first.report(loss=0.5, save=write("x"))
    for damaged in tmp_path.glob("3/checkpoints/step-*/state/state"):
        damaged.unlink()
    second, link = make(attempt=2, resume_step=1)
    assert second.restore(read([])) == 0
    assert next(second.steps()) == 1
    assert len(link.sent) == 1


def test_nan_is_reported_and_not_saved(make: Make, tmp_path: Path) -> None:
    trial, link = make()
    trial.report(loss=0.5, save=write("good"))
    with pytest.raises(TrialFailed, match="loss is nan at step 2") as failed:
        trial.report(loss=math.nan, save=write("bad"))
    assert failed.value.kind == "nan"
    assert [(step, saved) for step, _, saved in link.reported] == [(1, True), (2, False)]
    assert len(list(tmp_path.glob("3/checkpoints/step-*"))) == 1


def test_nan_of_any_objective_fails(make: Make) -> None:
    trial, link = make(objectives=("loss", "size"))
    with pytest.raises(TrialFailed, match="size is inf at step 1") as failed:
        trial.report(loss=0.5, size=math.inf, save=write("bad"))
    assert failed.value.kind == "nan"
    assert link.reported[0][2] is False


def test_nan_of_another_metric_is_allowed(make: Make) -> None:
    trial, link = make()
    trial.report(loss=0.5, gradient=math.nan, save=write("x"))
    assert link.reported[0][2] is True


def test_metrics_are_recorded_if_save_fails(make: Make) -> None:
    trial, link = make()

    def save(folder: Path) -> None:
        raise RuntimeError("cannot be pickled")

    with pytest.raises(RuntimeError, match="cannot be pickled"):
        trial.report(loss=0.5, save=save)
    assert link.reported == [(1, {"loss": 0.5}, False)]


def test_full_disk_does_not_fail_the_trial(make: Make) -> None:
    trial, link = make()

    def save(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    trial.report(loss=0.5, save=save)
    full, report = link.sent
    assert isinstance(full, DiskFull)
    assert "no room for the checkpoint of step 1" in full.error
    assert isinstance(report, Reported)
    assert not report.saved


# --- reports without steps() ------------------------------------------------------------------------------


def test_reports_without_steps_are_counted(make: Make) -> None:
    trial, link = make(max_steps=None)
    for _ in range(3):
        trial.report({"loss": 0.5}, accuracy=0.9)
    assert link.reported == [(step, {"loss": 0.5, "accuracy": 0.9}, False) for step in (1, 2, 3)]


def test_step_can_be_given(make: Make) -> None:
    trial, link = make(max_steps=None)
    trial.report(loss=0.5, step=100)
    trial.report(loss=0.4)
    numpys: Any = np.int64(200)
    trial.report(loss=0.3, step=numpys)
    assert [step for step, _, _ in link.reported] == [100, 101, 200]
    assert all(type(report.step) is int for report in link.reports)


@pytest.mark.parametrize("step", [0, -1, 1.5, "3", True])
def test_invalid_step_is_refused(make: Make, step: Any) -> None:
    trial, link = make()
    with pytest.raises(
        SettingError, match=r"^step 0 must be .* a loop that counts from 0 reports step=epoch \+ 1$"
    ):
        trial.report(loss=1, step=0)
    with pytest.raises(SettingError, match="must be a whole number from 1"):
        trial.report(loss=0.5, step=step)
    assert not link.sent


def test_report_past_max_steps_ends_the_trial(make: Make) -> None:
    trial, link = make(max_steps=2)
    trial.report(loss=0.5)
    trial.report(loss=0.4)
    with pytest.raises(EndTrial):
        trial.report(loss=0.3)
    assert len(link.reported) == 2
    assert not trial.cut  # it ended by itself


def test_end_request_without_steps_raises_end_trial(make: Make) -> None:
    trial, link = make(end_after=1)
    with pytest.raises(EndTrial):
        trial.report(loss=0.5, save=write("x"))
    assert link.reported == [(1, {"loss": 0.5}, True)]
    assert trial.cut


def test_end_trial_is_no_exception() -> None:
    assert not issubclass(EndTrial, Exception)


def test_told_to_end_can_be_called(make: Make) -> None:
    trial, _ = make(end_after=0)
    assert trial.told_to_end()
    assert trial.cut


# --- what is returned -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "metrics"),
    [
        (0.5, {"loss": 0.5}),
        (1, {"loss": 1.0}),
        (np.float32(0.5), {"loss": 0.5}),
        ({"loss": 0.5, "accuracy": 0.9}, {"loss": 0.5, "accuracy": 0.9}),
    ],
)
def test_returned_value_is_a_report(make: Make, returned: Any, metrics: dict[str, float]) -> None:
    trial, link = make()
    trial.finish(returned)
    assert link.reported == [(1, metrics, False)]


def test_several_objectives_need_a_returned_mapping(make: Make) -> None:
    trial, link = make(objectives=("loss", "size"))
    with pytest.raises(SettingError) as wrong:
        trial.finish(0.5)
    said = "the function returned 0.5; with several objectives, return {'loss': ..., 'size': ...}"
    assert str(wrong.value) == said
    trial.finish({"loss": 0.5, "size": 3})
    assert link.reported == [(1, {"loss": 0.5, "size": 3.0}, False)]
    assert trial.metric == "loss"


def test_returning_none_is_no_report(make: Make) -> None:
    trial, link = make()
    trial.finish(None)
    assert not link.sent


def test_returned_value_belongs_to_the_last_step(make: Make) -> None:
    trial, link = make(max_steps=2, end_after=2)
    for _ in trial.steps():
        trial.report(loss=0.5)
    trial.finish({"test_loss": 0.6})
    assert link.reported[-1] == (2, {"test_loss": 0.6}, False)


def test_returned_value_does_not_raise_end_trial(make: Make) -> None:
    trial, link = make(end_after=1)
    trial.finish(0.5)
    assert len(link.reported) == 1


def test_returning_nan_fails(make: Make) -> None:
    trial, link = make()
    with pytest.raises(TrialFailed, match="loss is nan at step 1"):
        trial.finish(math.nan)
    assert len(link.reported) == 1


def test_returning_another_type_is_refused(make: Make) -> None:
    trial, _ = make()
    with pytest.raises(SettingError, match="loss: 'a model' is a text and not a number"):
        trial.finish("a model")


# --- metrics ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.25, np.float32(0.25), np.float64(0.25), np.array(0.25)])
def test_metrics_are_plain_floats(make: Make, value: Any) -> None:
    trial, link = make()
    trial.report(loss=value)
    (report,) = link.reports
    assert type(report.metrics["loss"]) is float
    assert report.metrics["loss"] == 0.25


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (None, r"report\(\) was given no metric; say for example report\(loss=0.3\)"),
        ({}, r"report\(\) was given no metric"),
        (0.3, r"report\(0.3\): name the metric, such as report\(loss=0.3\)"),
        ([0.3], r"report\(\[0.3\]\): name the metric"),
        ({"loss": None}, "loss: None is not a number"),
        ({"loss": "low"}, "loss: 'low' is a text and not a number"),
        ({"loss": "0.3"}, "loss: '0.3' is a text and not a number"),
        ({"loss": [1, 2]}, r"loss: \[1, 2\] is not a number"),
        ({"loss": 1j}, "loss: 1j is not a number"),
        ({"loss": 10**400}, "loss: 10* is not a number"),
        ({3: 0.5}, "a metric's name must be a string, not 3"),
        ({"": 0.5}, "a metric needs a name; say for example report"),
    ],
)
def test_invalid_metrics_are_refused(make: Make, metrics: Any, message: str) -> None:
    trial, link = make()
    with pytest.raises(SettingError, match=message):
        trial.report(metrics)
    assert not link.sent


# --- saving less often ------------------------------------------------------------------------------------


def test_saves_as_often_as_save_every_asks(make: Make, tmp_path: Path) -> None:
    trial, link = make(save_every=None)
    for step in trial.steps():
        trial.report(loss=1.0 / step, save=write(str(step)))
    assert [saved for _, _, saved in link.reported] == [False, False, False, False, True]  # the last one has to be
    often, link = make(save_every=1e-9)
    for _ in often.steps():
        often.report(loss=1.0, save=write("x"))
    assert all(saved for _, _, saved in link.reported)


def test_unsaved_last_step_is_saved_when_asked_to_end(make: Make) -> None:
    trial, link = make(end_after=2, save_every=1e6)
    for step in trial.steps():
        trial.report(loss=float(step), save=write(f"state {step}"))
    assert link.reported == [(1, {"loss": 1.0}, False), (2, {"loss": 2.0}, False), (2, {"loss": 2.0}, True)]
    later, _ = make(attempt=2, resume_step=2)
    found: list[str] = []
    assert later.restore(read(found)) == 2
    assert found == ["state 2"]


def test_unsaved_step_is_saved_before_end_trial(make: Make) -> None:
    trial, link = make(end_after=1, save_every=None)
    with pytest.raises(EndTrial):
        trial.report(loss=1.0, save=write("x"))
    assert [saved for _, _, saved in link.reported] == [False, True]


def test_step_is_saved_if_asked_to_end_within_it(make: Make) -> None:
    trial, link = make(save_every=None)
    for _ in trial.steps():
        link.end_after = 0
        trial.report(loss=1.0, save=write("x"))
    assert [saved for _, _, saved in link.reported] == [True]


def test_told_to_end_saves_nothing(make: Make) -> None:
    """Within a step, the state is no longer that of the last report."""
    trial, link = make(end_after=1, save_every=None)
    trial._loops = True
    trial.report(loss=1.0, save=write("x"))
    assert trial.told_to_end()
    assert [saved for _, _, saved in link.reported] == [False]


def test_full_disk_at_the_end_is_reported(make: Make) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    trial, link = make(end_after=1, save_every=None)
    for _ in trial.steps():
        trial.report(loss=1.0, save=full)
    assert [type(event) for event in link.sent] == [Reported, DiskFull]


# --- threads and signal handlers ----------------------------------------------------------------------------


def test_reports_of_threads_get_different_steps(make: Make) -> None:
    trial, link = make(max_steps=None)

    def report() -> None:
        for _ in range(200):
            trial.report(loss=1.0)

    threads = [threading.Thread(target=report) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trial.finish(2.0)
    assert sorted(step for step, _, _ in link.reported[:-1]) == list(range(1, 1601))
    assert link.reported[-1][0] == 1600


def test_threads_can_save(make: Make) -> None:
    trial, link = make(max_steps=None)

    def speak() -> None:
        for _ in range(10):
            trial.report(loss=1.0, save=write("state"))

    threads = [threading.Thread(target=speak) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(step, saved) for step, _, saved in link.reported] == [(step, True) for step in range(1, 41)]


def test_signal_handler_can_report_during_a_save(make: Make) -> None:
    trial, link = make(max_steps=None)
    before = signal.signal(signal.SIGUSR1, lambda *_: trial.report(loss=2.0, save=write("of the handler")))
    try:

        def save(folder: Path) -> None:
            signal.raise_signal(signal.SIGUSR1)
            write("of the report")(folder)

        trial.report(loss=1.0, save=save)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert link.reported == [(2, {"loss": 2.0}, False), (1, {"loss": 1.0}, True)]
    again, _ = make(attempt=2, resume_step=1, max_steps=None)
    states: list[str] = []
    assert again.restore(read(states)) == 1
    assert states == ["of the report"]


# --- saves in the middle of a step


def test_a_state_saved_in_the_middle_of_a_step_is_restored(make: Make) -> None:
    trial, link = make()
    for step in trial.steps():
        if step == 2:
            trial.save(write("batch 7"))
            break
        trial.report(loss=1.0, save=write("step 1"))
    (saved,) = [event for event in link.sent if isinstance(event, CheckpointSaved)]
    assert (saved.step, saved.partial, saved.size_bytes) == (1, True, 7)
    states: list[str] = []
    again, _ = make(attempt=2, resume_step=1, resume_partial=True)
    assert again.restore(read(states)) == 1
    assert again.partial
    assert states == ["batch 7"]
    assert next(again.steps()) == 2


def test_a_state_of_the_first_step_is_restored_if_the_log_has_it(make: Make) -> None:
    trial, _ = make()
    trial.save(write("batch 7"))
    states: list[str] = []
    assert make(attempt=2)[0].restore(read(states)) == 0
    assert states == []
    again, _ = make(attempt=2, resume_partial=True)
    assert again.restore(read(states)) == 0
    assert states == ["batch 7"]
    assert again.partial


def test_saves_need_a_function_with_a_folder(make: Make) -> None:
    trial, _ = make()
    with pytest.raises(SettingError, match="save: 3 is no function"):
        trial.save(3)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="takes no argument; it is called with one argument, a folder"):
        trial.save(lambda: None)  # type: ignore[arg-type, misc]


def test_only_worker_0_saves(make: Make) -> None:
    trial, link = make(rank=1)
    trial.save(write("x"))
    assert link.sent == []


def test_a_save_in_a_folder_answers_a_notice(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trial, link = make(save_every=None)
    assert not trial.should_save
    monkeypatch.setattr(link, "seconds_left", lambda: 100.0)
    assert trial.should_save
    trial.report(loss=1.0, save=write("x"))
    assert link.reports[-1].saved
    assert not trial.should_save
