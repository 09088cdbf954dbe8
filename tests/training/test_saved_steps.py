"""Tests of the best saved step: workers keep its checkpoint despite kills, and the log agrees."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.loop.driver import make_run
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.spec import Spec
from thriftune.training.checkpoint_files import Checkpoints
from thriftune.training.run import EndTrial, TrialFailed
from thriftune.training.saved_steps import best_saved, known_saves, saved_steps
from thriftune.training.trial import Trial

HERE = ev.THIS_MACHINE


class Killed(Exception):
    """Stands for a kill of the worker."""


class Stage:
    """One trial with several attempts, each killed at a point that the test chooses."""

    def __init__(self, folder: Path, constraints: list[str] | None = None, **given: Any) -> None:
        objectives = given.pop("objectives", (Objective("loss", False),))
        self.spec = Spec(
            "s",
            Space({"x": Float(0.0, 1.0)}),
            objectives,
            0,
            parse_constraints(constraints),
            storage=str(folder),
            **{"max_steps": 100, "value": "auto", **given},
        )
        self.history = self.spec.new_history(str(folder))
        self.kill_next_report = False
        self.tell(ev.DriverStarted(0.0, 1, "here"), ev.MachineReady(0.0, HERE, "this", 1, 0.0))
        self.tell(ev.Create(0.0, 0, {"x": 0.5}))
        self.checkpoints = Checkpoints(folder / "trials" / "0" / "checkpoints")

    def tell(self, *events: ev.Event) -> None:
        for event in events:
            assert self.history.apply(event), event
            self.history.validate()

    def attempt(self) -> Trial:
        """Begin the next attempt with what the log has of the earlier ones."""
        record = self.history.trials[0]
        if record.machine is not None:
            self.tell(ev.Lost(0.0, 0, record.attempts, "killed"))
        self.tell(ev.Place(0.0, 0, record.attempts + 1, HERE, record.resume_step))
        self.sent = 0
        return Trial(make_run(self.spec, self.history, 0), self)

    # As a link:

    def send(self, event: ev.Event) -> int:
        if self.kill_next_report:
            self.kill_next_report = False
            raise Killed
        if isinstance(event, ev.Reported):
            self.sent += 1
            event = ev.Reported(0.0, 0, event.attempt, self.sent, event.step, event.metrics, event.saved)
        self.tell(event)
        return self.sent

    def seconds_left(self) -> float | None:
        return None

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:
        return False

    # What is left:

    def best(self, *, any_left: bool = False) -> tuple[int, str]:
        """Return the best saved step by the log, and its checkpoint; `any_left`: only steps with checkpoints."""
        record, spec = self.history.trials[0], self.spec
        steps = saved_steps(record.reports, spec.metric, spec.constraints)
        for each in sorted(steps, key=lambda each: each.rank(maximize=spec.maximize)):
            folder, flaw = self.checkpoints.find(each.step, each.attempt)
            assert flaw is None
            if folder is not None:
                return each.step, (folder / "state").read_text()
            assert any_left, f"the checkpoint of {each} is gone; there are {self.checkpoints.steps()}"
        raise AssertionError(f"no checkpoint is left of {steps}")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def write(text: object) -> Callable[[Path], object]:
    return lambda folder: (folder / "state").write_text(str(text))


def test_the_best_step_is_kept_besides_the_newest(stage: Stage) -> None:
    trial = stage.attempt()
    for step, loss in enumerate([5, 2, 4, 3, 6, 7], start=1):
        trial.report(loss=loss, save=write(f"{step}: {loss}"))
    assert stage.checkpoints.steps() == [2, 5, 6]
    assert stage.best() == (2, "2: 2")


def test_a_later_attempt_knows_the_best_of_those_before(stage: Stage) -> None:
    for losses in ([5, 1, 4], [3, 3, 3]):
        trial = stage.attempt()
        trial.restore(lambda folder: None)
        for loss in losses:
            trial.report(loss=loss, save=write(loss))
    assert stage.checkpoints.steps() == [2, 5, 6]
    assert stage.best() == (2, "1")


def test_earliest_of_equal_values_is_the_best(stage: Stage) -> None:
    trial = stage.attempt()
    for step in range(1, 6):
        trial.report(loss=1, save=write(step))
    assert stage.best() == (1, "1")


def test_a_kill_between_save_and_report_costs_no_best_checkpoint(stage: Stage) -> None:
    trial = stage.attempt()
    for step, loss in enumerate([5, 1, 4, 3], start=1):
        trial.report(loss=loss, save=write(f"{step}: {loss}"))
    stage.kill_next_report = True
    with pytest.raises(Killed):
        trial.report(loss=0.5, save=write("unreported"))
    assert stage.best() == (2, "2: 1")
    trial = stage.attempt()
    assert trial.restore(lambda folder: None) == 4
    trial.report(loss=2, save=write("5: 2"))
    trial.report(loss=2, save=write("6: 2"))
    assert stage.best() == (2, "2: 1")


def test_a_step_repeated_by_a_killed_attempt_leaves_the_reported_state(stage: Stage) -> None:
    trial = stage.attempt()
    for loss in (5, 1, 4):
        trial.report(loss=loss, save=write(f"first {loss}"))
    trial = stage.attempt()  # begins anew
    trial.report(loss=6, save=write("second 6"))
    assert stage.best() == (2, "first 1")
    stage.kill_next_report = True
    with pytest.raises(Killed):
        trial.report(loss=9, save=write("second 9"))
    assert stage.best() == (2, "first 1"), "its value in the log is of the first attempt's state"
    trial = stage.attempt()
    trial.report(loss=7, save=write("third 7"))
    assert stage.best() == (2, "first 1")
    trial.report(loss=8, save=write("third 8"))  # a repeated step has a new value and a new state
    trial.report(loss=8.5, save=write("third 8.5"))
    assert stage.best() == (1, "third 7")


def test_restarted_attempt_also_keeps_its_own_best(stage: Stage) -> None:
    trial = stage.attempt()
    for loss in (9, 9, 9, 9, 9, 9, 9, 1):
        trial.report(loss=loss, save=write(f"first {loss}"))
    trial = stage.attempt()
    for loss in (5, 2, 4, 3, 6):
        trial.report(loss=loss, save=write(f"second {loss}"))
    assert stage.best() == (8, "first 1")
    stage.tell(ev.Ended(0.0, 0, 2, 1.0))
    folder, _ = stage.checkpoints.find(2, 2)
    assert folder is not None, "the best of the attempt that ended"
    assert (folder / "state").read_text() == "second 2"


def test_value_reported_after_the_save_counts(stage: Stage) -> None:
    trial = stage.attempt()
    for step, loss in zip(trial.steps(), [5, 1, 4, 3, 6], strict=False):
        trial.report(train_loss=1, save=write(f"{step}: {loss}"))
        trial.report(loss=loss)
    assert stage.best() == (2, "2: 1")


def test_value_reported_before_the_save_counts(stage: Stage) -> None:
    trial = stage.attempt()
    for step, loss in zip(trial.steps(), [5, 1, 4, 3, 6], strict=False):
        trial.report(loss=loss)
        trial.report(train_loss=1, save=write(f"{step}: {loss}"))
    assert stage.best() == (2, "2: 1")


def test_nan_is_never_the_best(stage: Stage) -> None:
    trial = stage.attempt()
    trial.report(loss=2, save=write("2"))
    with pytest.raises(TrialFailed):
        trial.report(loss=-math.inf, save=write("-inf"))
    trial = stage.attempt()
    trial.restore(lambda folder: None)
    for _ in range(3):
        trial.report(loss=3, save=write("3"))
    assert stage.best() == (1, "2")


def test_best_feasible_step_is_kept(tmp_path: Path) -> None:
    stage = Stage(tmp_path, ["size <= 10"])
    trial = stage.attempt()
    trial.report(loss=9, size=20, save=write("too large, 9"))
    trial.report(loss=1, save=write("too large, 1"))
    trial.report(loss=5, save=write("too large, 5"))
    trial.report(loss=6, save=write("too large, 6"))
    assert stage.best() == (2, "too large, 1"), "while none meets them, the best of all"
    trial.report(loss=7, size=3, save=write("small, 7"))
    assert stage.best() == (5, "small, 7")
    trial = stage.attempt()
    trial.restore(lambda folder: None)
    trial.report(loss=6, save=write("small, 6"))  # its size is known from the attempt before
    for _ in range(3):
        trial.report(loss=8, save=write("small, 8"))
    assert stage.best() == (6, "small, 6")


def test_with_several_objectives_only_the_newest_are_kept(tmp_path: Path) -> None:
    stage = Stage(tmp_path, objectives=(Objective("loss", False), Objective("size", True)))
    trial = stage.attempt()
    for loss in (1, 2, 3, 4):
        trial.report(loss=loss, size=1, save=write(loss))
    assert stage.checkpoints.steps() == [3, 4]
    record = stage.history.trials[0]
    assert known_saves(record, stage.spec.objectives, ()) is None


def test_the_state_saved_as_a_trial_ends_counts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    record = stage.history.trials[0]
    stage.tell(ev.Place(0.0, 0, 1, HERE, 0, save_every=None))
    assert record.save_every is None
    stage.sent = 0
    trial = Trial(make_run(stage.spec, stage.history, 0), stage)
    trial.report(loss=2, save=write("not saved"))
    monkeypatch.setattr(stage, "end_requested", lambda *_: stage.sent == 2)  # once the second report is made
    with pytest.raises(EndTrial):
        trial.report(loss=1, save=write("late"))
    assert stage.best() == (2, "late")
    monkeypatch.undo()
    trial = stage.attempt()
    trial.restore(lambda folder: None)
    for _ in range(3):
        trial.report(loss=3, save=write("3"))
    assert stage.best() == (2, "late")


moves = st.one_of(
    st.tuples(st.just("save"), st.integers(0, 3)),
    st.tuples(st.just("tell"), st.integers(0, 3)),
    st.tuples(st.just("die"), st.integers(0, 3)),  # between the save and the report
    st.tuples(st.just("go on"), st.just(0)),
    st.tuples(st.just("begin anew"), st.just(0)),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(moves, max_size=25), st.booleans(), st.sampled_from(["auto", "last"]))
def test_best_checkpoint_exists_after_any_history(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[str, int]], maximize: bool, value: str
) -> None:
    objectives = (Objective("loss", maximize),)
    stage = Stage(tmp_path_factory.mktemp("study"), objectives=objectives, value=value)
    record = stage.history.trials[0]
    trial = stage.attempt()
    began_anew = anew = False
    for number, (what, loss) in enumerate(story):
        text = f"{number}: {loss}"
        if what == "save" or (what == "tell" and anew and trial.last_step < record.resumed_from):
            trial.report(loss=loss, save=write(text))
        elif what == "tell":
            trial.report(loss=loss)
        elif what == "die":
            stage.kill_next_report = True
            with pytest.raises(Killed):
                trial.report(loss=loss, save=write(text))
        if what in ("die", "go on", "begin anew"):
            trial = stage.attempt()
            anew = what == "begin anew"
            began_anew = began_anew or anew
            if not anew:
                trial.restore(lambda folder: None)
        if any(report.saved for report in record.reports):
            # Where the best step of a lost attempt is repeated, the next best one may be gone already.
            step, found = stage.best(any_left=began_anew)
            (value_told,) = (report.metrics["loss"] for report in record.reports if report.step == step)
            assert float(found.split(": ")[1]) == value_told, "the state is the one that had this value"
        # When this attempt ends, steps after its last one no longer count.
        reached = [each for each in saved_steps(record.reports, "loss") if each.step <= trial.last_step]
        own = [each for each in reached if each.attempt == record.attempts]
        if own and (best := best_saved(reached, maximize=maximize)) is not None:
            assert stage.checkpoints.find(best.step, best.attempt)[0] is not None


def test_workers_killed_before_their_reports_leave_the_resume_checkpoint(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    stage = Stage(tmp_path_factory.mktemp("study"), objectives=(Objective("loss", False),))
    trial = stage.attempt()
    for step in (1, 2):
        trial.report(loss=float(step), save=write(str(step)))
    for _ in range(2):
        stage.kill_next_report = True
        with pytest.raises(Killed):
            trial.report(loss=9.0, save=write("never reported"))
        trial = stage.attempt()
        assert trial.restore(lambda folder: None) == 2
        trial.report(loss=9.0)  # without a checkpoint, so that the next save is of another step
