"""When is a study done before its limits are reached? By tables of events, and by real studies."""

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

# --- a target ---------------------------------------------------------------------------------------------


def test_the_trial_that_reaches_the_target_finishes_and_the_others_stop() -> None:
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


def test_a_target_is_a_lower_bound_where_the_metric_is_maximized() -> None:
    table = Table(maximize=True, trials=3, target_value=0.95)
    assert table.report(0, 1, 0.94) == []
    assert table.report(0, 2, 0.95) == ["stop 0/1"]
    assert table.end(0, cut=True) == ["finish: target 0.95 reached by trial 0"]


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_what_is_no_number_reaches_no_target(value: float) -> None:
    table = Table(trials=3, target_value=0.1)
    assert table.report(0, 1, value) == []


def test_where_the_last_value_counts_it_stays_the_one_that_reached_the_target() -> None:
    """The worker may have begun its next step before it heard."""
    table = Table(trials=3, target_value=0.1, value="last")
    table.report(0, 1, 0.05)
    assert table.dropped(table.a_report(0, 2, 0.7))
    assert table.end(0) == ["finish: target 0.1 reached by trial 0"]
    assert table.history.best.value == 0.05


def test_where_the_best_value_counts_what_comes_after_the_target_counts_too() -> None:
    table = Table(trials=3, target_value=0.1, value="best")
    table.report(0, 1, 0.05)
    assert table.report(0, 2, 0.01) == []
    assert table.end(0, cut=True) == ["finish: target 0.1 reached by trial 0"]
    assert table.history.best.value == 0.01


def test_a_trial_reaches_the_target_only_when_it_meets_the_constraints() -> None:
    limits = parse_constraints(["latency <= 10"])
    table = Table(trials=3, target_value=0.1, constraints=limits)
    assert table.report(0, 1, 0.05) == []  # its latency is not known yet
    assert table.report(0, 2, 0.05, latency=20.0) == []
    assert table.report(0, 3, 0.05, latency=9.0) == ["stop 0/1"]
    assert table.end(0, cut=True) == ["finish: target 0.1 reached by trial 0"]


def test_the_better_of_two_that_reach_the_target_is_named() -> None:
    table = Table(slots=2, trials=9, target_value=0.1)
    table.report(0, 1, 0.1)
    assert table.report(1, 1, 0.02) == ["stop 1/1"]  # was told to stop already, and now to finish
    table.end(0, cut=True)
    assert table.end(1, cut=True) == ["finish: target 0.1 reached by trial 1"]
    assert table.history.best.id == 1


def test_a_trial_that_a_rule_has_stopped_may_still_reach_the_target() -> None:
    table = Table(
        slots=2, trials=9, max_steps=9, stopping="asha", stopper=ASHA(eta=2, min_steps=1), target_value=0.1
    )
    table.report(0, 1, 0.5)
    assert table.report(1, 1, 0.6) == ["stop 1/1"]
    assert table.report(1, 2, 0.05) == ["stop 1/1", "stop 0/1"]
    table.end(1, cut=True)
    assert table.end(0, cut=True) == ["finish: target 0.1 reached by trial 1"]
    assert table.history.best.id == 1


def test_a_trial_that_reached_the_target_and_hangs_is_killed_and_counts() -> None:
    table = Table(slots=2, trials=9, target_value=0.1)
    table.report(0, 1, 0.1)
    assert table.conductor.wake_at(table.now) == table.now + GRACE_SECONDS
    assert table.later(GRACE_SECONDS) == ["kill 0/1", "kill 1/1"]
    table.killed(1)
    assert table.killed(0) == ["finish: target 0.1 reached by trial 0"]
    assert table.trial(0).state is State.COMPLETED


@pytest.mark.parametrize("how", ["fail", "lose", "end"])
def test_however_its_attempt_ends_the_trial_that_reached_the_target_finishes(how: str) -> None:
    table = Table(trials=3, target_value=0.1)
    table.report(0, 1, 0.1)
    assert getattr(table, how)(0) == ["finish: target 0.1 reached by trial 0"]
    assert table.trial(0).state is State.COMPLETED


def test_a_killed_driver_s_target_is_reached_in_the_next_drive() -> None:
    table = Table(slots=2, trials=3, target_value=0.1)
    table.report(0, 1, 0.1)
    table.kill_driver()
    assert not table.nothing_left()
    assert table.start(2) == ["finish: target 0.1 reached by trial 0"]
    assert table.trial(1).state is State.STOPPED  # it was told so


def test_what_a_killed_driver_did_not_hear_reaches_the_target_when_it_is_recovered() -> None:
    table = Table(trials=3, target_value=0.1)
    last_words = table.a_report(0, 1, 0.1)
    table.kill_driver()
    assert table(last_words) == ["stop 0/1"]
    assert table.start() == ["finish: target 0.1 reached by trial 0"]


def test_a_harder_target_goes_on_and_an_easier_one_ends_the_study_at_once() -> None:
    table = Table(trials=9, target_value=0.1)
    table.report(0, 1, 0.1)
    table.end(0, cut=True)
    table.stop()
    table.kill_driver(target_value=0.01)
    assert not table.nothing_left()
    assert table.start() == ["create 1", "place 1/1"]
    assert table.history.finish_reason is None
    table.report(1, 1, 0.05)


def test_an_easier_target_is_reached_by_a_trial_that_has_finished() -> None:
    table = Table(trials=9, target_value=0.01)
    table.report(0, 1, 0.1)
    table.end(0)
    table.kill_driver(target_value=0.2)
    assert table.nothing_left() is False  # a trial of the killed driver is to be recovered
    assert table.start() == ["finish: target 0.2 reached by trial 0"]
    table.stop()
    assert table.nothing_left()


# --- patience ---------------------------------------------------------------------------------------------


def values(table: Table, *losses: float) -> list[str]:
    """Report and end one trial after the other, and return what was decided last."""
    said: list[str] = []
    for loss in losses:
        (number,) = table.history.running
        table.report(number, 1, loss)
        said = table.end(number)
    return said


def test_no_more_trials_are_made_after_so_many_without_a_better_value() -> None:
    table = Table(trials=99, patience=3)
    assert values(table, 0.5, 0.6, 0.4, 0.5, 0.4)[0].startswith("create")
    assert values(table, 0.7) == ["finish: no better value in the last 3 trials (patience 3)"]
    assert table.nothing_left()


def test_patience_is_a_total_and_may_be_raised() -> None:
    table = Table(trials=99, patience=1)
    assert values(table, 0.5, 0.6) == ["finish: no better value in the last trial (patience 1)"]
    table.kill_driver(patience=2)
    assert not table.nothing_left()
    assert table.start() == ["create 2", "place 2/1"]
    assert values(table, 0.7) == ["finish: no better value in the last 2 trials (patience 2)"]


def test_those_that_run_when_patience_is_out_may_change_it() -> None:
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


def test_failed_trials_do_not_count_and_those_that_a_rule_stopped_do() -> None:
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


def test_patience_counts_from_the_first_trial_that_may_be_the_best() -> None:
    limits = parse_constraints(["latency <= 10"])
    table = Table(trials=99, patience=1, constraints=limits)
    for number in range(4):
        table.report(number, 1, 0.1, latency=11.0)
        assert table.end(number)[0].startswith("create")
    table.report(4, 1, 0.9, latency=9.0)
    assert table.end(4)[0].startswith("create")
    table.report(5, 1, 0.1, latency=11.0)
    assert table.end(5) == ["finish: no better value in the last trial (patience 1)"]


def test_trials_that_a_deadline_stopped_do_not_try_the_patience() -> None:
    table = Table(slots=2, trials=99, patience=1, deadline_seconds=10.0)
    table.report(0, 1, 0.5)
    table.end(0)
    table.report(1, 1, 0.6)
    table.later(10.0)
    table.end(1, cut=True)
    assert table.end(2, cut=True) == ["finish: deadline reached"]
    table.kill_driver(deadline_seconds=20.0)
    assert table.start()[0].startswith("create")


def test_what_is_enqueued_is_tried_when_patience_is_out() -> None:
    table = Table(trials=99, patience=1)
    values(table, 0.5)
    table(ev.Enqueued(table.now, {"lr": 0.01, "act": "relu"}))
    table.report(1, 1, 0.6)
    assert table.end(1) == ["create 2", "place 2/1"]
    assert values(table, 0.6) == ["finish: no better value in the last 2 trials (patience 1)"]


def test_the_limit_of_trials_comes_before_patience() -> None:
    table = Table(trials=2, patience=1)
    assert values(table, 0.5, 0.6) == ["finish: all 2 trials done"]


def test_decisions_by_patience_are_those_of_a_study_that_was_not_killed() -> None:
    straight, killed = Table(trials=99, patience=3), Table(trials=99, patience=3)
    for loss in (0.5, 0.6, 0.4, 0.5, 0.5, 0.5):
        for table in (straight, killed):
            (number,) = table.history.running
            table.report(number, 1, loss)
            table.end(number)
            if table is killed:
                table.kill_driver()
                table.start()
    assert straight.history.finish_reason == killed.history.finish_reason is not None
    assert len(straight.history.trials) == len(killed.history.trials)
    assert state(straight.history)["trials_since_best"] == state(killed.history)["trials_since_best"]


# --- convergence ------------------------------------------------------------------------------------------


class Expecting(Random):
    """Expects of each trial in turn what it is given, and then nothing."""

    def __init__(self, *gains: float | None) -> None:
        self.gains = list(gains)

    def expected_gain(self, past: Past) -> float | None:
        number = len(past.trials)
        return self.gains[number] if number < len(self.gains) else 0.0


WORTH = CONVERGED_SHARE * 0.5  # with the values of converging()


def converging(*gains: float | None, **settings: Any) -> Table:
    table = Table(searcher=Expecting(*gains), trials=99, stop_when_converged=True, **settings)
    for loss in (0.0, 0.5, 0.5):
        (number,) = table.history.running
        table.report(number, 1, loss)
        table.end(number)
    return table


def test_a_study_stops_when_its_searcher_expects_next_to_nothing_of_several_trials() -> None:
    table = converging(None, None, 1.0, 0.9 * WORTH)
    assert values(table, *[0.5] * (CONVERGED_TRIALS - 1))[0].startswith("create")
    assert values(table, 0.5) == ["finish: converged: the searcher expects no improvement worth another trial"]
    assert len(table.history.trials) == 3 + CONVERGED_TRIALS
    assert table.nothing_left()


@pytest.mark.parametrize("gain", [1.1 * WORTH, None])
def test_one_trial_of_which_more_is_expected_begins_the_count_anew(gain: float | None) -> None:
    table = converging(*[0.0] * 4, gain)
    assert values(table, *[0.5] * (CONVERGED_TRIALS + 1))[0].startswith("create")
    assert values(table, 0.5)[0].startswith("finish: converged")


def test_what_was_expected_is_in_the_log_and_counts_after_a_kill() -> None:
    table = converging(None, None, 1.0)
    values(table, *[0.5] * (CONVERGED_TRIALS - 1))
    assert [trial.expected_gain for trial in table.history.trials][2:] == [1.0, *[0.0] * CONVERGED_TRIALS]
    table.kill_driver()
    table.start()
    assert values(table, 0.5)[0].startswith("finish: converged")


def test_trials_that_run_do_not_count_for_convergence() -> None:
    table = Table(
        slots=CONVERGED_TRIALS + 2, searcher=Expecting(), trials=99, stop_when_converged=True
    )  # all are expected to gain nothing before any value is known
    for number, loss in enumerate([0.0, *[0.5] * (CONVERGED_TRIALS - 2)]):
        table.report(number, 1, loss)
        assert table.end(number)[0].startswith("create")
    table.report(CONVERGED_TRIALS - 1, 1, 0.5)
    assert table.end(CONVERGED_TRIALS - 1) == []


def test_without_the_setting_nothing_is_expected() -> None:
    table = Table(searcher=Expecting(), trials=99)
    assert values(table, *[0.5] * 9)[0].startswith("create")
    assert all(trial.expected_gain is None for trial in table.history.trials)


# --- the time of a trial ----------------------------------------------------------------------------------


def test_a_trial_whose_time_is_up_ends_and_keeps_its_value() -> None:
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


def test_one_that_does_not_end_in_time_is_killed_and_keeps_its_value() -> None:
    table = Table(trials=1, max_trial_seconds=100.0)
    table.report(0, 1, 0.5)
    table.later(100.0)
    assert table.conductor.wake_at(table.now) == table.now + 10.0  # a tenth of its time
    assert table.later(9.0) == []
    assert table.later(1.0) == ["kill 0/1"]
    assert table.conductor.wake_at(table.now) is None
    assert table.killed(0) == ["finish: all 1 trials done"]
    assert (table.trial(0).state, table.trial(0).value) == (State.COMPLETED, 0.5)


def test_the_grace_is_a_few_seconds_at_least() -> None:
    table = Table(trials=1, max_trial_seconds=1.0)
    table.later(1.0)
    assert table.conductor.wake_at(table.now) == table.now + 5.0


@pytest.mark.parametrize("how", ["killed", "lose", "cut"])
def test_one_without_a_value_fails_and_is_not_tried_again(how: str) -> None:
    table = Table(trials=1, retries=3, max_trial_seconds=60.0)
    table.later(60.0)
    table.later(6.0)
    said = table.end(0, cut=True) if how == "cut" else getattr(table, how)(0)
    assert said == ["give up 0", "finish: all 1 trials done"]
    trial = table.trial(0)
    assert (trial.state, trial.error_kind, trial.failures) == (State.FAILED, "max_trial_time", 0)
    assert trial.error == "no value of 'loss' within its time of 60 s (max_trial_time)"


def test_the_time_counts_over_all_attempts_of_a_trial() -> None:
    table = Table(trials=1, retries=1, max_trial_seconds=60.0)
    table.report(0, 1, 0.5)
    table.now += 40.0
    assert table.fail(0) + table.retry() == ["place 0/2"]
    assert table.conductor.wake_at(table.now) == table.now + 20.0
    assert table.later(20.0) == ["stop 0/2"]
    table.end(0, cut=True)
    assert table.trial(0).state is State.COMPLETED


def test_a_driver_that_is_killed_takes_none_of_a_trial_s_time() -> None:
    table = Table(trials=1, max_trial_seconds=60.0)
    table.now += 40.0
    table.report(0, 1, 0.5)
    table.now += 1000.0
    table.kill_driver()
    table.start()
    assert table.trial(0).seconds == 40.0
    assert table.conductor.wake_at(table.now) == table.now + 20.0


def test_a_driver_killed_after_the_time_was_up_has_told_the_trial_to_finish() -> None:
    table = Table(trials=1, max_trial_seconds=60.0)
    table.report(0, 1, 0.5)
    table.later(60.0)
    table.kill_driver()
    assert table.start() == ["finish: all 1 trials done"]
    assert table.trial(0).state is State.COMPLETED


def test_a_trial_whose_last_attempt_failed_as_its_time_was_up_gets_one_more_step() -> None:
    table = Table(trials=1, retries=1, max_trial_seconds=60.0)
    table.report(0, 1, 0.5)
    table.now += 70.0
    assert table.fail(0) + table.retry() == ["place 0/2", "stop 0/2"]
    table.end(0, cut=True)
    assert (table.trial(0).state, table.trial(0).value) == (State.COMPLETED, 0.5)


def test_a_trial_that_does_not_stop_when_a_rule_says_so_is_ended_by_the_time_limit() -> None:
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


def test_a_trial_of_the_user_s_own_code_may_take_its_time() -> None:
    table = Table(slots=0, trials=1, max_trial_seconds=60.0)
    table(ev.DriverStarted(table.now, 1, "host"))
    assert table(ev.TrialRequested(table.now)) == ["create 0", "place 0/1 on outside"]
    assert table.conductor.wake_at(table.now) is None
    assert table.later(100.0) == []


# --- settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"target_value": math.nan}, "target: nan must be finite"),
        ({"target_value": "0.9"}, "target: '0.9' must be a number, a value of 'loss'"),
        ({"target_value": True}, "target: True must be a number"),
        ({"patience": 0}, "patience: 0 must be a whole number, at least 1"),
        ({"stop_when_converged": "yes"}, "stop_when_converged: 'yes' must be True or False"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as caught:
        Table(**settings)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("setting", ["target", "patience", "stop_when_converged"])
def test_several_objectives_have_no_single_value_to_go_by(setting: str) -> None:
    value = True if setting == "stop_when_converged" else 1
    given: dict[str, Any] = {{"target": "target_value"}.get(setting, setting): value}
    both = (Objective("loss", False), Objective("size", False))
    with pytest.raises(
        SettingError, match=f"^{setting}: needs a single objective, and there are 2: loss and size"
    ):
        Table(objectives=both, **given)


# --- real studies -----------------------------------------------------------------------------------------


def descend(trial: tt.Trial) -> None:
    x = 8.0
    for _ in trial.steps():
        x *= 1 - trial["rate"]
        trial.report(loss=x)


def study(folder: Path, train: Any = descend, **settings: Any) -> tt.Result:
    given: dict[str, Any] = {
        "minimize": "loss", "trials": 50, "name": "s", "workers": 2, "searcher": "random", "stopping": "none",
        "progress": False, "seed": 0,
    }  # fmt: skip
    return tt.tune(train, {"rate": tt.Float(0.1, 0.5)}, store=folder / "s.db", **given | settings)


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


def test_a_study_ends_when_its_patience_is_out(tmp_path: Path) -> None:
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


class SearcherOfMine:
    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        return {"rate": float(rng.uniform(0.1, 0.5))}


@pytest.mark.parametrize("searcher", ["random", tt.search.Sobol(), SearcherOfMine()])
def test_convergence_needs_a_searcher_that_can_tell(searcher: Any, tmp_path: Path) -> None:
    with pytest.raises(
        SettingError, match="stop_when_converged: needs searcher='bayes', or one with expected_gain"
    ):
        study(tmp_path, stop_when_converged=True, searcher=searcher)
    assert tt.studies(store=tmp_path / "s.db") == []


@pytest.mark.parametrize("hangs", [False, True])
def test_a_trial_that_takes_too_long_ends_with_the_value_it_has(hangs: bool, tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            trial.report(loss=1 / step)
            time.sleep(3600 if hangs else 0.01)

    # Long enough for a worker to begin on a busy machine.
    result = study(tmp_path, train, trials=1, max_steps=1_000_000, max_trial_time="6s")
    assert result.finished == "all 1 trials done"
    (trial,) = result.trials
    assert (trial.state, trial.failures, trial.converged) == (State.COMPLETED, 0, False)
    assert result.best is trial
    shown = CliRunner().invoke(cli, ["show", "s", "--trial", "0", "--store", str(tmp_path / "s.db")]).output
    assert "completed" in shown
    assert "its time of 6 s" in shown


def test_a_trial_that_takes_too_long_for_a_value_fails_at_once(tmp_path: Path) -> None:
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
[space.rate]
type = "float"
low = 0.1
high = 0.5
"""


def test_a_study_file_has_the_same_settings_and_show_tells_them(tmp_path: Path) -> None:
    file, store = tmp_path / "s.toml", str(tmp_path / "s.db")
    file.write_text(FILE)
    ran = CliRunner().invoke(cli, ["run", str(file), "--store", store], catch_exceptions=False)
    assert "study s: target 0.4 reached by trial 0" in ran.output
    shown = CliRunner().invoke(cli, ["show", "s", "--store", store]).output
    assert "finished: target 0.4 reached by trial 0" in shown
    assert "by target 0.4, patience 15" in shown
    limits = json.loads(CliRunner().invoke(cli, ["show", "s", "--store", store, "--json"]).output)["limits"]
    assert (limits["target"], limits["patience"], limits["max_trial_time"]) == (0.4, 15, 3600.0)


def test_progress_tells_what_may_end_the_study_early() -> None:
    spec = Table(slots=0, trials=9, target_value=0.95, patience=20, stop_when_converged=True).spec
    assert goal_line(spec) == "minimize loss within 9 trials; ends early by target 0.95, patience 20, convergence"
