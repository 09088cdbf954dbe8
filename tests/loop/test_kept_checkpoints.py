"""Tests of which checkpoints are kept and given to attempts, with a line for each event of a trial."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tests.support.tables import Table
from thriftune.loop.kept_checkpoints import checkpoint_of, kept_checkpoints, resumable
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.state import events as ev
from thriftune.state.trial_record import StoredCheckpoint, TrialRecord


class Saves:
    """A study with one trial, whose attempts save after each report."""

    def __init__(self, **settings: Any) -> None:
        self.table = Table(trials=1, **settings)
        self._number = 0

    def __call__(self, step: int, loss: float | None, *, partial: bool = False, **more: float) -> None:
        if not partial:
            self.table.report(0, step, loss, **more)
        self._number += 1
        self.table(self.table.a_checkpoint(0, step, self._number, partial=partial))

    @property
    def trial(self) -> TrialRecord:
        return self.table.trial(0)

    def kept(self, keep: int = 2) -> set[str]:
        spec = self.table.spec
        return texts(kept_checkpoints(self.trial, keep, spec.objectives, spec.constraints))

    def given(self, keep: int = 2) -> list[str]:
        return [text(each) for each in resumable(self.trial, keep)]


def text(checkpoint: StoredCheckpoint) -> str:
    """Return "attempt:step", with a + for a partial checkpoint."""
    _, attempt, step, partial, *_ = checkpoint
    return f"{attempt}:{step}{'+' if partial else ''}"


def texts(checkpoints: Iterable[StoredCheckpoint]) -> set[str]:
    return set(map(text, checkpoints))


def test_the_newest_and_the_best_are_kept() -> None:
    save = Saves()
    for step, loss in enumerate([0.5, 0.1, 0.4, 0.3, 0.6], 1):
        save(step, loss)
    assert save.kept() == {"1:5", "1:4", "1:2"}
    assert save.given() == ["1:5", "1:4"]
    assert save.given(keep=3) == ["1:5", "1:4", "1:3"]


def test_a_partial_one_counts_only_while_it_is_the_newest() -> None:
    save = Saves()
    save(1, 0.5)
    save(1, None, partial=True)
    save(1, None, partial=True)
    assert save.given() == ["1:1+", "1:1"]
    assert len(save.trial.checkpoints) == 3
    assert resumable(save.trial, 2)[0] == save.trial.checkpoints[-1]
    save(2, 0.4)
    assert save.given() == ["1:2", "1:1"]
    assert save.kept() == {"1:2", "1:1"}


def test_a_trial_may_have_nothing_but_a_partial_one_of_its_first_step() -> None:
    save = Saves()
    save(0, None, partial=True)
    assert save.given() == ["1:0+"]
    assert save.kept() == {"1:0+"}


def test_the_best_one_meets_the_constraints_and_has_a_finite_value() -> None:
    save = Saves(constraints=parse_constraints("latency <= 1"))
    save(1, 0.1, latency=2.0)
    save(2, 0.3, latency=0.5)
    save(3, float("inf"), latency=0.5)
    for step in (4, 5):
        save(step, 0.9, latency=0.5)
    assert save.kept() == {"1:5", "1:4", "1:2"}


def test_with_several_objectives_the_newest_are_kept() -> None:
    save = Saves(objectives=(Objective("loss", False), Objective("speed", True)))
    for step, loss in enumerate([0.1, 0.5, 0.4], 1):
        save(step, loss, speed=1.0)
    assert save.kept() == {"1:3", "1:2"}


def test_an_attempt_that_found_the_newest_damaged_goes_on_from_what_it_saves() -> None:
    save = Saves()
    for step in (1, 2, 3):
        save(step, 1.0 / step)
    save.table.lose(0)
    assert save.given() == ["1:3", "1:2"]
    save.table.report(0, 2, 0.5)  # it has restored step 1
    save(2, 0.5)
    assert save.given() == ["2:2", "1:1"]
    assert "1:3" in save.kept()  # the best in the log, until step 3 is reported again
    save(3, 0.4)
    assert save.kept() == {"2:3", "2:2"}


def test_a_completed_trial_keeps_the_model_of_its_value() -> None:
    """Reports of later steps that a lost attempt made do not count."""
    save = Saves(value="last")
    for step in (1, 2, 3):
        save(step, 0.5)
    save.table.lose(0)
    save.table.report(0, 2, 0.6)
    save(2, 0.6)
    save.table.end(0)
    assert save.trial.value == 0.6
    assert "2:2" in save.kept()


def test_the_checkpoint_of_a_report_is_of_its_attempt_or_an_earlier_one() -> None:
    save = Saves()
    save(1, 0.5)
    save(2, 0.4)
    save.table.lose(0)
    save(2, 0.3)
    found = checkpoint_of(save.trial, 2, 2)
    assert found is not None
    assert found.attempt == 2
    earlier = checkpoint_of(save.trial, 2, 1)
    assert earlier is not None
    assert earlier.attempt == 1
    assert checkpoint_of(save.trial, 1, 2) == save.trial.checkpoints[0]
    assert checkpoint_of(save.trial, 7, 2) is None


@pytest.mark.parametrize("seed", range(5))
def test_an_attempt_is_given_only_what_is_kept(seed: int) -> None:
    rng = np.random.default_rng(seed)
    save = Saves()
    step = 0
    for _ in range(60):
        if rng.random() < 0.1:
            save.table(ev.MachineReady(save.table.now, f"m{rng.integers(1 << 30)}", "desk", 1, 0.0))
            save.table(ev.Move(save.table.now, 0, save.trial.attempts, "test"))
            save.table.end(0, cut=True)
            step = save.trial.resume_step
        partial = bool(rng.random() < 0.3)
        if partial:
            save(step, None, partial=True)
        else:
            step += 1
            save(step, float(rng.random()))
        assert set(save.given()) <= save.kept()
        assert save.given()[0].rstrip("+") == f"{save.trial.attempts}:{save.trial.resume_step}"
        assert save.given()[0].endswith("+") == save.trial.resume_partial
