"""Tests of studies that end before their limits: by a target, patience, convergence or the time of a trial."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import thriftune as tt
from tests.support.tables import START, Table, state
from thriftune.cli import cli
from thriftune.errors import SettingError
from thriftune.loop.completion import CONVERGED_SHARE, CONVERGED_TRIALS
from thriftune.loop.conductor import GRACE_SECONDS
from thriftune.search.protocol import Past
from thriftune.search.random import Random
from thriftune.show.progress import goal_line
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.state import events as ev
from thriftune.state.trial_record import State
from thriftune.stopping import ASHA

# --- targets ----------------------------------------------------------------------------------------------


def test_the_trial_that_reaches_the_target_completes_and_the_others_stop() -> None:
    table = Table(slots=2, trials=9, target_value=0.1, value="best")
    assert table.report(0, 1, 0.5) + table.report(1, 1, 0.4) == []
    assert table.report(0, 2, 0.1) == ["stop 0/1", "stop 1/1"]
    assert table.end(0, cut=True) == []
    assert table.report(1, 2, 0.3) == []
    assert table.end(1, cut=True) == ["finish: target 0.1 reached by trial 0"]
    first, second = table.history.trials
    assert (first.state, first.value, first.converged, first.ended_early) == (State.COMPLETED, 0.1, False, True)
    assert (second.state, second.value) == (State.STOPPED, 0.3)
    assert table.history.best is first
    assert table.nothing_left()


def test_a_target_of_a_maximized_metric_is_reached_from_below() -> None:
    table = Table(maximize=True, trials=3, target_value=0.95)
    assert table.report(0, 1, 0.94) == []
    assert table.report(0, 2, 0.95) == ["stop 0/1"]
    assert table.end(0, cut=True) == ["finish: target 0.95 reached by trial 0"]


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_value_that_is_not_finite_does_not_reach_the_target(value: float) -> None:
    table = Table(trials=3, target_value=0.1)
    assert table.report(0, 1, value) == []


def test_with_value_last_later_reports_do_not_replace_the_value_that_reached_the_target() -> None:
    """The worker may have begun its next step before it received the request to stop."""
    table = Table(trials=3, target_value=0.1, value="last")
    table.report(0, 1, 0.05)
    assert table.dropped(table.a_report(0, 2, 0.7))
    assert table.end(0) == ["finish: target 0.1 reached by trial 0"]
    assert table.history.best.value == 0.05


def test_with_value_best_a_better_report_after_the_target_counts() -> None:
    table = Table(trials=3, target_value=0.1, value="best")
    table.report(0, 1, 0.05)
    assert table.report(0, 2, 0.01) == []
    assert table.end(0, cut=True) == ["finish: target 0.1 reached by trial 0"]
    assert table.history.best.value == 0.01


def test_only_a_trial_that_meets_the_constraints_reaches_the_target() -> None:
    constraints = parse_constraints(["latency <= 10"])
    table = Table(trials=3, target_value=0.1, constraints=constraints)
    assert table.report(0, 1, 0.05) == []  # it has not reported its latency
    assert table.report(0, 2, 0.05, latency=20.0) == []
    assert table.report(0, 3, 0.05, latency=9.0) == ["stop 0/1"]
    assert table.end(0, cut=True) == ["finish: target 0.1 reached by trial 0"]


def test_of_two_trials_that_reach_the_target_the_better_one_is_named() -> None:
    table = Table(slots=2, trials=9, target_value=0.1)
    table.report(0, 1, 0.1)
    assert table.report(1, 1, 0.02) == ["stop 1/1"]  # a second stop, as this trial reaches the target too
    table.end(0, cut=True)
    assert table.end(1, cut=True) == ["finish: target 0.1 reached by trial 1"]
    assert table.history.best.id == 1


def test_a_trial_with_a_stop_request_can_still_reach_the_target() -> None:
    table = Table(
        slots=2, trials=9, max_steps=9, stopping="asha", stopper=ASHA(eta=2, min_steps=1), target_value=0.1
    )
    table.report(0, 1, 0.5)
    assert table.report(1, 1, 0.6) == ["stop 1/1"]
    assert table.report(1, 2, 0.05) == ["stop 1/1", "stop 0/1"]
    table.end(1, cut=True)
    assert table.end(0, cut=True) == ["finish: target 0.1 reached by trial 1"]
    assert table.history.best.id == 1


def test_a_trial_that_hangs_after_the_target_is_killed_and_completes() -> None:
    table = Table(slots=2, trials=9, target_value=0.1)
    table.report(0, 1, 0.1)
    assert table.conductor.wake_at(table.now) == table.now + GRACE_SECONDS
    assert table.later(GRACE_SECONDS) == ["kill 0/1", "kill 1/1"]
    table.killed(1)
    assert table.killed(0) == ["finish: target 0.1 reached by trial 0"]
    assert table.trial(0).state is State.COMPLETED


@pytest.mark.parametrize("how", ["fail", "lose", "end"])
def test_a_trial_that_reached_the_target_completes_however_its_attempt_ends(how: str) -> None:
    table = Table(trials=3, target_value=0.1)
    table.report(0, 1, 0.1)
    assert getattr(table, how)(0) == ["finish: target 0.1 reached by trial 0"]
    assert table.trial(0).state is State.COMPLETED


def test_after_a_kill_the_next_driver_finishes_a_study_whose_target_is_reached() -> None:
    table = Table(slots=2, trials=3, target_value=0.1)
    table.report(0, 1, 0.1)
    table.kill_driver()
    assert not table.nothing_left()
    assert table.start(2) == ["finish: target 0.1 reached by trial 0"]
    assert table.trial(1).state is State.STOPPED  # it had a request to stop


def test_a_recovered_report_can_reach_the_target() -> None:
    table = Table(trials=3, target_value=0.1)
    report = table.a_report(0, 1, 0.1)
    table.kill_driver()
    assert table(report) == ["stop 0/1"]
    assert table.start() == ["finish: target 0.1 reached by trial 0"]


def test_a_resume_with_a_harder_target_continues_the_study() -> None:
    table = Table(trials=9, target_value=0.1)
    table.report(0, 1, 0.1)
    table.end(0, cut=True)
    table.stop()
    table.kill_driver(target_value=0.01)
    assert not table.nothing_left()
    assert table.start() == ["create 1", "place 1/1"]
    assert table.history.finish_reason is None
    table.report(1, 1, 0.05)


def test_a_resume_with_a_target_that_a_finished_trial_meets_ends_the_study() -> None:
    table = Table(trials=9, target_value=0.01)
    table.report(0, 1, 0.1)
    table.end(0)
    table.kill_driver(target_value=0.2)
    assert table.nothing_left() is False  # reports of the killed driver's trial may have to be recovered
    assert table.start() == ["finish: target 0.2 reached by trial 0"]
    table.stop()
    assert table.nothing_left()


# --- patience ---------------------------------------------------------------------------------------------


def end_trials(table: Table, *losses: float) -> list[str]:
    """Report and end one trial after the other, and return the last decisions."""
    decisions: list[str] = []
    for loss in losses:
        (number,) = table.history.running
        table.report(number, 1, loss)
        decisions = table.end(number)
    return decisions


def test_no_trial_is_created_when_patience_is_exhausted() -> None:
    table = Table(trials=99, patience=3)
    assert end_trials(table, 0.5, 0.6, 0.4, 0.5, 0.4)[0].startswith("create")
    assert end_trials(table, 0.7) == ["finish: no better value in the last 3 trials (patience 3)"]
    assert table.nothing_left()


def test_a_resume_with_more_patience_continues_the_study() -> None:
    table = Table(trials=99, patience=1)
    assert end_trials(table, 0.5, 0.6) == ["finish: no better value in the last trial (patience 1)"]
    table.kill_driver(patience=2)
    assert not table.nothing_left()
    assert table.start() == ["create 2", "place 2/1"]
    assert end_trials(table, 0.7) == ["finish: no better value in the last 2 trials (patience 2)"]


def test_a_running_trial_can_still_find_a_better_value_when_patience_is_exhausted() -> None:
    table = Table(slots=3, trials=99, patience=1)
    table.report(0, 1, 0.5)
    assert table.end(0) == ["create 3", "place 3/1"]
    table.report(1, 1, 0.6)
    assert table.end(1) == []
    table.report(2, 1, 0.4)
    assert table.end(2) == ["create 4", "place 4/1", "create 5", "place 5/1"]
    table.report(3, 1, 0.4)
    table.report(4, 1, 0.5)
    assert table.end(3) + table.end(4) == []
    table.report(5, 1, 0.5)
    assert table.end(5) == ["finish: no better value in the last 3 trials (patience 1)"]


def test_stopped_trials_count_for_patience_and_failed_trials_do_not() -> None:
    table = Table(
        slots=1, trials=99, retries=0, patience=2, max_steps=9, stopping="asha", stopper=ASHA(eta=2, min_steps=1)
    )
    table.report(0, 1, 0.5)
    table.report(0, 9, 0.5)
    table.end(0)
    assert table.fail(1)[0] == "give up 1"
    assert list(table.history.trials_since_best.trials) == []
    table.report(2, 1, 0.6)
    assert table.end(2, cut=True) == ["create 3", "place 3/1"]
    table.report(3, 1, 0.7)
    assert table.end(3, cut=True) == ["finish: no better value in the last 2 trials (patience 2)"]
    assert table.trial(3).state is State.STOPPED


def test_patience_counts_from_the_first_trial_that_meets_the_constraints() -> None:
    constraints = parse_constraints(["latency <= 10"])
    table = Table(trials=99, patience=1, constraints=constraints)
    for number in range(4):
        table.report(number, 1, 0.1, latency=11.0)
        assert table.end(number)[0].startswith("create")
    table.report(4, 1, 0.9, latency=9.0)
    assert table.end(4)[0].startswith("create")
    table.report(5, 1, 0.1, latency=11.0)
    assert table.end(5) == ["finish: no better value in the last trial (patience 1)"]


def test_trials_that_the_deadline_stopped_do_not_count_for_patience() -> None:
    table = Table(slots=2, trials=99, patience=1, deadline_seconds=10.0)
    table.report(0, 1, 0.5)
    table.end(0)
    table.report(1, 1, 0.6)
    table.later(10.0)
    table.end(1, cut=True)
    assert table.end(2, cut=True) == ["finish: deadline reached"]
    table.kill_driver(deadline_seconds=20.0)
    assert table.start()[0].startswith("create")


def test_an_enqueued_configuration_is_tried_when_patience_is_exhausted() -> None:
    table = Table(trials=99, patience=1)
    end_trials(table, 0.5)
    table(ev.Enqueued(table.now, {"lr": 0.01, "act": "relu"}))
    table.report(1, 1, 0.6)
    assert table.end(1) == ["create 2", "place 2/1"]
    assert end_trials(table, 0.6) == ["finish: no better value in the last 2 trials (patience 1)"]


def test_the_limit_of_trials_is_named_before_patience() -> None:
    table = Table(trials=2, patience=1)
    assert end_trials(table, 0.5, 0.6) == ["finish: all 2 trials done"]


def test_patience_decides_the_same_after_kills_of_the_driver() -> None:
    unkilled, killed = Table(trials=99, patience=3), Table(trials=99, patience=3)
    for loss in (0.5, 0.6, 0.4, 0.5, 0.5, 0.5):
        for table in (unkilled, killed):
            (number,) = table.history.running
            table.report(number, 1, loss)
            table.end(number)
            if table is killed:
                table.kill_driver()
                table.start()
    assert unkilled.history.finish_reason == killed.history.finish_reason is not None
    assert len(unkilled.history.trials) == len(killed.history.trials)
    assert state(unkilled.history)["trials_since_best"] == state(killed.history)["trials_since_best"]


# --- convergence ------------------------------------------------------------------------------------------


class SearcherWithGains(Random):
    """Random search that expects the given gains of its trials, in order, and then no gain."""

    def __init__(self, *gains: float | None) -> None:
        self.gains = list(gains)

    def expected_gain(self, past: Past) -> float | None:
        number = len(past.trials)
        return self.gains[number] if number < len(self.gains) else 0.0


MINIMUM_GAIN = CONVERGED_SHARE * 0.5  # that is worth a trial, with the values of table_with_gains()


def table_with_gains(*gains: float | None, **settings: Any) -> Table:
    table = Table(searcher=SearcherWithGains(*gains), trials=99, stop_when_converged=True, **settings)
    for loss in (0.0, 0.5, 0.5):
        (number,) = table.history.running
        table.report(number, 1, loss)
        table.end(number)
    return table


def test_a_study_finishes_when_its_searcher_expects_too_little_gain_from_several_trials() -> None:
    table = table_with_gains(None, None, 1.0, 0.9 * MINIMUM_GAIN)
    assert end_trials(table, *[0.5] * (CONVERGED_TRIALS - 1))[0].startswith("create")
    assert end_trials(table, 0.5) == ["finish: converged: the searcher expects no improvement worth another trial"]
    assert len(table.history.trials) == 3 + CONVERGED_TRIALS
    assert table.nothing_left()


@pytest.mark.parametrize("gain", [1.1 * MINIMUM_GAIN, None])
def test_a_trial_with_enough_or_unknown_expected_gain_restarts_the_count(gain: float | None) -> None:
    table = table_with_gains(*[0.0] * 4, gain)
    assert end_trials(table, *[0.5] * (CONVERGED_TRIALS + 1))[0].startswith("create")
    assert end_trials(table, 0.5)[0].startswith("finish: converged")


def test_expected_gains_are_logged_and_count_after_a_kill() -> None:
    table = table_with_gains(None, None, 1.0)
    end_trials(table, *[0.5] * (CONVERGED_TRIALS - 1))
    assert [trial.expected_gain for trial in table.history.trials][2:] == [1.0, *[0.0] * CONVERGED_TRIALS]
    table.kill_driver()
    table.start()
    assert end_trials(table, 0.5)[0].startswith("finish: converged")


def test_running_trials_do_not_count_for_convergence() -> None:
    table = Table(
        slots=CONVERGED_TRIALS + 2, searcher=SearcherWithGains(), trials=99, stop_when_converged=True
    )  # the searcher expects no gain from any of these trials
    for number, loss in enumerate([0.0, *[0.5] * (CONVERGED_TRIALS - 2)]):
        table.report(number, 1, loss)
        assert table.end(number)[0].startswith("create")
    table.report(CONVERGED_TRIALS - 1, 1, 0.5)
    assert table.end(CONVERGED_TRIALS - 1) == []


def test_without_stop_when_converged_no_expected_gain_is_recorded() -> None:
    table = Table(searcher=SearcherWithGains(), trials=99)
    assert end_trials(table, *[0.5] * 9)[0].startswith("create")
    assert all(trial.expected_gain is None for trial in table.history.trials)


# --- max_trial_time ---------------------------------------------------------------------------------------


def test_a_trial_that_reaches_max_trial_time_completes_with_its_value() -> None:
    table = Table(trials=2, max_trial_seconds=60.0)
    assert table.conductor.wake_at(table.now) == START + 60.0
    table.report(0, 1, 0.5)
    assert table.later(59.0) == []
    assert table.later(1.0) == ["stop 0/1"]
    assert table.report(0, 2, 0.4) == []
    assert table.end(0, cut=True) == ["create 1", "place 1/1"]
    trial = table.trial(0)
    assert (trial.state, trial.value, trial.ended_early, trial.converged) == (State.COMPLETED, 0.4, True, False)
    assert trial.end_reason == "its time of 60 s"
    assert table.history.best is trial
    assert trial.failures == 0


def test_a_trial_that_does_not_stop_in_its_grace_period_is_killed_and_keeps_its_value() -> None:
    table = Table(trials=1, max_trial_seconds=100.0)
    table.report(0, 1, 0.5)
    table.later(100.0)
    assert table.conductor.wake_at(table.now) == table.now + 10.0  # the grace period is a tenth of max_trial_time
    assert table.later(9.0) == []
    assert table.later(1.0) == ["kill 0/1"]
    assert table.conductor.wake_at(table.now) is None
    assert table.killed(0) == ["finish: all 1 trials done"]
    assert (table.trial(0).state, table.trial(0).value) == (State.COMPLETED, 0.5)


def test_the_grace_period_has_a_minimum() -> None:
    table = Table(trials=1, max_trial_seconds=1.0)
    table.later(1.0)
    assert table.conductor.wake_at(table.now) == table.now + 5.0


@pytest.mark.parametrize("how", ["killed", "lose", "cut"])
def test_a_trial_without_a_value_at_max_trial_time_fails_and_is_not_retried(how: str) -> None:
    table = Table(trials=1, retries=3, max_trial_seconds=60.0)
    table.later(60.0)
    table.later(6.0)
    decisions = table.end(0, cut=True) if how == "cut" else getattr(table, how)(0)
    assert decisions == ["give up 0", "finish: all 1 trials done"]
    trial = table.trial(0)
    assert (trial.state, trial.error_kind, trial.failures) == (State.FAILED, "max_trial_time", 0)
    assert trial.error == "no value of 'loss' within its time of 60 s (max_trial_time)"


def test_max_trial_time_covers_all_attempts_of_a_trial() -> None:
    table = Table(trials=1, retries=1, max_trial_seconds=60.0)
    table.report(0, 1, 0.5)
    table.now += 40.0
    assert table.fail(0) + table.retry() == ["place 0/2"]
    assert table.conductor.wake_at(table.now) == table.now + 20.0
    assert table.later(20.0) == ["stop 0/2"]
    table.end(0, cut=True)
    assert table.trial(0).state is State.COMPLETED


def test_time_without_a_driver_does_not_count_for_max_trial_time() -> None:
    table = Table(trials=1, max_trial_seconds=60.0)
    table.now += 40.0
    table.report(0, 1, 0.5)
    table.now += 1000.0
    table.kill_driver()
    table.start()
    assert table.trial(0).seconds == 40.0
    assert table.conductor.wake_at(table.now) == table.now + 20.0


def test_a_trial_at_max_trial_time_completes_after_a_kill_of_the_driver() -> None:
    table = Table(trials=1, max_trial_seconds=60.0)
    table.report(0, 1, 0.5)
    table.later(60.0)
    table.kill_driver()
    assert table.start() == ["finish: all 1 trials done"]
    assert table.trial(0).state is State.COMPLETED


def test_a_trial_that_fails_after_max_trial_time_is_retried_for_one_step() -> None:
    table = Table(trials=1, retries=1, max_trial_seconds=60.0)
    table.report(0, 1, 0.5)
    table.now += 70.0
    assert table.fail(0) + table.retry() == ["place 0/2", "stop 0/2"]
    table.end(0, cut=True)
    assert (table.trial(0).state, table.trial(0).value) == (State.COMPLETED, 0.5)


def test_a_trial_that_ignores_a_stop_request_is_killed_after_max_trial_time() -> None:
    table = Table(
        slots=2, trials=2, max_steps=9, stopping="asha", stopper=ASHA(eta=2, min_steps=1), max_trial_seconds=60.0
    )
    table.report(0, 1, 0.5)
    table.now += 58.0
    assert table.report(1, 1, 0.6) == ["stop 1/1"]
    assert table.later(2.0) == ["stop 0/1"]
    assert table.later(6.0) == ["kill 0/1", "kill 1/1"]
    table.killed(1)
    assert table.trial(1).state is State.STOPPED


def test_max_trial_time_does_not_limit_trials_of_ask_and_tell() -> None:
    table = Table(slots=0, trials=1, max_trial_seconds=60.0)
    table(ev.DriverStarted(table.now, 1, "host"))
    assert table(ev.TrialRequested(table.now)) == ["create 0", "place 0/1 on outside"]
    assert table.conductor.wake_at(table.now) is None
    assert table.later(100.0) == []


# --- settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_value": math.nan}, "target: nan must be finite"),
        ({"target_value": "0.9"}, "target: '0.9' must be a number, a value of 'loss'"),
        ({"target_value": True}, "target: True must be a number"),
        ({"patience": 0}, "patience: 0 is too small; use 1 or more"),
        ({"stop_when_converged": "yes"}, "stop_when_converged: 'yes' must be True or False"),
    ],
)
def test_an_invalid_setting_is_an_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        Table(**settings)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("setting", ["target", "patience", "stop_when_converged"])
def test_a_setting_that_ends_a_study_early_needs_a_single_objective(setting: str) -> None:
    value = True if setting == "stop_when_converged" else 1
    stored: dict[str, Any] = {{"target": "target_value"}.get(setting, setting): value}
    both = (Objective("loss", False), Objective("size", False))
    with pytest.raises(
        SettingError, match=f"^{setting}: needs a single objective, and there are 2: loss and size"
    ):
        Table(objectives=both, **stored)


# --- real studies -----------------------------------------------------------------------------------------


def descend(trial: tt.Trial) -> None:
    x = 8.0
    for _ in trial.steps():
        x *= 1 - trial["rate"]
        trial.report(loss=x)


def study(folder: Path, train: Any = descend, **settings: Any) -> tt.Result:
    defaults: dict[str, Any] = {
        "minimize": "loss", "trials": 50, "name": "s", "workers": 2, "searcher": "random", "stopping": "none",
        "progress": False, "seed": 0,
    }  # fmt: skip
    return tt.tune(train, {"rate": tt.Float(0.1, 0.5)}, store=folder / "s.db", **defaults | settings)


@pytest.mark.parametrize("value", ["best", "last"])
def test_a_study_ends_when_its_target_is_reached(value: str, tmp_path: Path) -> None:
    result = study(tmp_path, max_steps=100_000, target=0.5, value=value)
    assert result.finished == f"target 0.5 reached by trial {result.best.id}"
    assert result.best.finished
    assert result.best.step < 100_000
    assert result.best.value is not None
    assert 0.0 <= result.best.value <= 0.5
    again = study(tmp_path, max_steps=100_000, target=0.5, value=value)
    assert len(again.trials) == len(result.trials)
    assert tt.studies(store=tmp_path / "s.db")[0].finished == result.finished


def test_a_study_ends_when_its_patience_is_exhausted(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        return 0.0

    result = study(tmp_path, train, patience=4, workers=1)
    assert result.finished == "no better value in the last 4 trials (patience 4)"
    assert len(result.trials) == 5


def test_a_study_ends_when_its_search_has_converged(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> float:
        return float((trial["rate"] - 0.3) ** 2)

    result = study(tmp_path, train, stop_when_converged=True, workers=1, searcher="bayes")
    assert result.finished == "converged: the searcher expects no improvement worth another trial"
    assert result.best["rate"] == pytest.approx(0.3, abs=0.01)
    again = study(tmp_path, train, stop_when_converged=True, workers=1, searcher="bayes")
    assert len(again.trials) == len(result.trials) < 50
    further = study(tmp_path, train, workers=1, searcher="bayes", trials=len(result.trials) + 1)
    assert len(further.trials) == len(result.trials) + 1


class SearcherWithoutGains:
    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        return {"rate": float(rng.uniform(0.1, 0.5))}


@pytest.mark.parametrize("searcher", ["random", tt.search.Sobol(), SearcherWithoutGains()])
def test_convergence_needs_a_searcher_with_expected_gains(searcher: Any, tmp_path: Path) -> None:
    with pytest.raises(
        SettingError, match="stop_when_converged: needs searcher='bayes', or one with expected_gain"
    ):
        study(tmp_path, stop_when_converged=True, searcher=searcher)
    assert tt.studies(store=tmp_path / "s.db") == []


@pytest.mark.parametrize("hangs", [False, True])
def test_a_trial_that_takes_too_long_completes_with_its_value(hangs: bool, tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            trial.report(loss=1 / step)
            time.sleep(3600 if hangs else 0.01)

    # Six seconds suffice for a worker to start on a busy machine.
    result = study(tmp_path, train, trials=1, max_steps=1_000_000, max_trial_time="6s")
    assert result.finished == "all 1 trials done"
    (trial,) = result.trials
    assert (trial.state, trial.failures, trial.converged) == (State.COMPLETED, 0, False)
    assert result.best is trial
    shown = CliRunner().invoke(cli, ["show", "s", "--trial", "0", "--store", str(tmp_path / "s.db")]).output
    assert "completed" in shown
    assert "its time of 6 s" in shown


def test_a_trial_without_a_value_in_max_trial_time_fails_without_retries(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        time.sleep(3600)

    result = study(tmp_path, train, trials=1, max_trial_time=0.5, retries=5)
    (trial,) = result.trials
    assert (trial.state, trial.attempts) == (State.FAILED, 1)
    assert trial.error == "no value of 'loss' within its time of 0.5 s (max_trial_time)"


FILE = """
command = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo loss=0.$((10 - i)); sleep 0.05; done; # {rate}"]
minimize = "loss"
trials = 20
workers = 1
searcher = "random"
target = 0.4
patience = 15
max_trial_time = "1h"
[metrics]
loss = "loss=(.*)"
[space]
rate = { type = "float", low = 0.1, high = 0.5 }
"""


def test_a_study_file_sets_target_patience_and_max_trial_time_and_show_prints_them(tmp_path: Path) -> None:
    file, store = tmp_path / "s.toml", str(tmp_path / "s.db")
    file.write_text(FILE)
    ran = CliRunner().invoke(cli, ["run", str(file), "--store", store], catch_exceptions=False)
    assert "study s: target 0.4 reached by trial 0" in ran.output
    shown = CliRunner().invoke(cli, ["show", "s", "--store", store]).output
    assert "finished: target 0.4 reached by trial 0" in shown
    assert "by target 0.4, patience 15" in shown
    limits = json.loads(CliRunner().invoke(cli, ["show", "s", "--store", store, "--json"]).output)["limits"]
    assert (limits["target"], limits["patience"], limits["max_trial_time"]) == (0.4, 15, 3600.0)


def test_progress_names_what_may_end_the_study_early() -> None:
    spec = Table(slots=0, trials=9, target_value=0.95, patience=20, stop_when_converged=True).spec
    assert goal_line(spec) == "minimize loss within 9 trials; ends early by target 0.95, patience 20, convergence"
