"""Tests of the conductor: sequences of events and the decisions after each. Table also checks the state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.support.tables import START, Table, replayed, state
from thriftune.errors import ThriftuneError
from thriftune.loop.conductor import GRACE_SECONDS
from thriftune.loop.failures import STALLED_LOSSES_LIMIT
from thriftune.loop.trial_time import UPLOAD_SHARE
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.search.grid import Grid
from thriftune.search.protocol import Past
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.space.parameters import Choice, Float
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping.protocol import Verdict

# --- trials and slots -------------------------------------------------------------------------------------


def test_every_slot_is_filled_until_the_limit_of_trials() -> None:
    table = Table(slots=0, trials=3)
    assert table.start(slots=2) == ["create 0", "place 0/1", "create 1", "place 1/1"]
    assert table.report(0, 1, 0.5) == []
    assert table.end(0) == ["create 2", "place 2/1"]
    assert table.report(1, 1, 0.4) == []
    assert table.end(1) == []
    assert table.report(2, 1, 0.6) == []
    assert table.end(2) == ["finish: all 3 trials done"]
    assert [trial.state for trial in table.history.trials] == [State.COMPLETED] * 3
    assert table.history.best.id == 1
    assert table.nothing_left()


def test_no_trial_starts_without_a_driver_and_a_machine() -> None:
    table = Table(slots=0, trials=1)
    assert table() == []
    assert table(ev.DriverStarted(table.now, 1, "host")) == []
    ready = ev.MachineReady(table.now, ev.THIS_MACHINE, "desk", 1, 1.0)
    assert table(ready) == ["create 0", "place 0/1"]


def test_waiting_trials_are_placed_before_new_ones() -> None:
    table = Table(slots=2, trials=5, retries=2)
    assert table(
        *(ev.Failed(table.now, trial, 1, "raised", "boom") for trial in (0, 1)), ready(table, "b", 0)
    ) == ["create 2", "place 2/1", "create 3", "place 3/1"]
    table.later(1.0)
    assert table.report(2, 1, 0.1) + table.end(2) == ["place 0/2"]
    assert table.report(3, 1, 0.1) + table.end(3) == ["place 1/2"]


def test_a_resume_with_more_trials_continues_a_finished_study() -> None:
    table = Table(trials=1)
    table.report(0, 1, 0.5)
    assert table.end(0) == ["finish: all 1 trials done"]
    assert table.stop() == []
    table.kill_driver(trials=2)
    assert table.history.finish_reason
    assert not table.nothing_left()
    assert table.start() == ["create 1", "place 1/1"]
    assert table.history.finish_reason is None
    table.report(1, 1, 0.5)
    assert table.end(1) == ["finish: all 2 trials done"]


def test_a_resume_with_fewer_trials_still_finishes_the_existing_ones() -> None:
    table = Table(slots=2, trials=5)
    table.kill_driver(trials=1)
    assert table.start(2) == ["place 0/2", "place 1/2"]


def test_a_study_finishes_when_the_searcher_has_no_more_suggestions() -> None:
    space = Space({"act": Choice(["relu", "tanh"])})
    table = Table(slots=0, space=space, searcher=Grid(), trials=9)
    assert table.start(slots=3) == ["create 0", "place 0/1", "create 1", "place 1/1"]
    table.report(0, 1, 0.5)
    assert table.end(0) == []
    table.report(1, 1, 0.4)
    assert table.end(1) == ["finish: the searcher has nothing left to suggest"]


def test_suggestions_are_the_same_after_kills_of_the_driver() -> None:
    unkilled, killed = Table(trials=6), Table(trials=6)
    for number in range(6):
        for table in (unkilled, killed):
            if table is killed:
                table.now += 100
                table.kill_driver()
                table.start()
            table.report(number, 1, 0.5)
            table.end(number)
    assert [t.config for t in unkilled.history.trials] == [t.config for t in killed.history.trials]


# --- how attempts end -------------------------------------------------------------------------------------


def test_a_trial_that_never_reports_the_metric_fails() -> None:
    table = Table(trials=1, retries=1)
    table.report(0, 1, accuracy=0.5)
    assert table.end(0) + table.retry() == ["place 0/2"]
    assert table.end(0) == ["give up 0", "finish: all 1 trials done"]
    trial = table.trial(0)
    assert (trial.state, trial.error_kind, trial.failures) == (State.FAILED, "no_value", 2)
    assert trial.error == "the trial ended without a value of 'loss'; it reported accuracy"


def test_a_trial_without_reports_fails() -> None:
    table = Table(trials=1, retries=0)
    assert table.end(0)[0] == "give up 0"
    assert table.trial(0).error == "the trial ended without a value of 'loss'; it reported nothing"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_trial_that_ends_with_a_value_that_is_not_finite_fails(value: float) -> None:
    table = Table(trials=1, retries=0)
    table.report(0, 1, value)
    assert table.end(0)[0] == "give up 0"
    assert table.trial(0).error_kind == "nan"
    assert table.trial(0).error == f"loss ended as {value}"


@pytest.mark.parametrize(
    ("metrics", "kind", "error"),
    [
        ({"accuracy": 1.0}, "no_value", "ended without a value of 'loss' and 'latency'; it reported accuracy"),
        ({"loss": 1.0}, "no_value", "ended without a value of 'accuracy' and 'latency'; it reported loss"),
        (
            {"loss": math.nan, "accuracy": 1.0},
            "no_value",
            "without a value of 'latency'; it reported loss, accuracy",
        ),
        ({"loss": 1.0, "accuracy": math.nan, "latency": 1.0}, "nan", "accuracy ended as nan"),
        ({"loss": 1.0, "accuracy": 1.0, "latency": math.inf}, "nan", "latency ended as inf"),
        (
            {"loss": 1.0, "accuracy": -math.inf, "latency": math.nan},
            "nan",
            "accuracy ended as -inf and latency ended",
        ),
    ],
)
def test_every_objective_and_constrained_metric_must_end_with_a_finite_value(
    metrics: dict[str, float], kind: str, error: str
) -> None:
    objectives = [Objective("loss", False), Objective("accuracy", True)]
    table = Table(trials=1, retries=0, objectives=objectives, constraints=parse_constraints("latency <= 10"))
    table.report(0, 1, **metrics)
    assert table.end(0)[0] == "give up 0"
    assert (table.trial(0).state, table.trial(0).error_kind) == (State.FAILED, kind)
    assert error in str(table.trial(0).error)


def test_a_trial_that_violates_a_constraint_completes() -> None:
    table = Table(trials=1, constraints=parse_constraints("latency <= 10"))
    table.report(0, 1, 0.5, latency=11.0)
    assert table.end(0) == ["finish: all 1 trials done"]
    assert table.trial(0).state is State.COMPLETED


def test_each_metric_is_from_the_last_step_that_reported_it() -> None:
    table = Table(trials=1, retries=9)
    table.report(0, 1, 0.5, saved=True, accuracy=0.1)
    table.report(0, 2, 0.4, accuracy=0.2)
    table.report(0, 3, 0.3)
    assert table.trial(0).metrics == {"loss": 0.3, "accuracy": 0.2}
    table.lose(0)
    table.report(0, 2, 0.45)  # replaces the lost attempt's report of step 2, with its accuracy
    assert table.trial(0).metrics == {"loss": 0.3, "accuracy": 0.1}
    table.report(0, 2, speed=7.0)
    table.end(0)  # before step 3, so the lost attempt's report of step 3 does not count
    assert table.trial(0).metrics == {"loss": 0.45, "accuracy": 0.1, "speed": 7.0}


def test_reports_of_a_lost_attempt_do_not_give_a_later_attempt_its_value() -> None:
    table = Table(trials=1, retries=9)
    table.report(0, 1, accuracy=0.1, saved=True)
    table.report(0, 2, 0.4)
    table.lose(0)
    table.report(0, 1, accuracy=0.2)
    assert table.end(0) + table.retry() == ["place 0/3 from 1"], "the lost attempt's loss does not count"
    assert table.trial(0).error_kind == "no_value"
    table.report(0, 3, accuracy=0.3)
    assert table.end(0) == ["finish: all 1 trials done"]
    assert table.trial(0).metrics == {"accuracy": 0.3, "loss": 0.4}


def test_a_failure_is_retried_from_the_checkpoint_up_to_the_limit() -> None:
    table = Table(trials=1, retries=2)
    table.report(0, 1, 0.5, saved=True)
    table.report(0, 2, 0.4)
    assert table.fail(0, "signal", "segfault", "earlier output") + table.retry() == ["place 0/2 from 1"]
    assert table.fail(0) + table.retry(2) == ["place 0/3 from 1"]
    assert table.fail(0, "memory", "out of memory", "output") == ["give up 0", "finish: all 1 trials done"]
    trial = table.trial(0)
    assert (trial.error_kind, trial.error, trial.output) == ("memory", "out of memory", "output")
    assert (trial.attempts, trial.failures, trial.losses) == (3, 3, 0)


def test_a_failure_without_a_message_gets_one() -> None:
    table = Table(trials=1, retries=0)
    table.fail(0, error="")
    assert table.trial(0).error == "failed 1 times"


def test_a_lost_worker_uses_no_retry() -> None:
    table = Table(trials=1, retries=0)
    for attempt in range(2, 2 + STALLED_LOSSES_LIMIT - 1):
        assert table.lose(0) == [f"place 0/{attempt}"]
    table.report(0, 1, 0.5)
    assert table.end(0) == ["finish: all 1 trials done"]
    assert table.trial(0).state is State.COMPLETED


def test_a_trial_that_is_lost_too_often_without_progress_fails() -> None:
    table = Table(trials=1, retries=3)
    table.fail(0, error="the first error")
    table.retry()
    for _ in range(STALLED_LOSSES_LIMIT - 1):
        assert table.lose(0)[0].startswith("place")
    assert table.lose(0) == ["give up 0", "finish: all 1 trials done"]
    trial = table.trial(0)
    assert (trial.state, trial.error_kind, trial.failures) == (State.FAILED, "lost", 1)
    assert trial.error is not None
    assert trial.error.startswith(f"its worker vanished {STALLED_LOSSES_LIMIT} times in a row")
    assert trial.error.endswith("before that: the first error")


def test_only_new_steps_reset_the_count_of_losses() -> None:
    table = Table(trials=1)
    for step in range(1, 2 * STALLED_LOSSES_LIMIT):
        table.report(0, step, 0.5)
        assert table.lose(0)[0].startswith("place")
    for _ in range(STALLED_LOSSES_LIMIT - 2):
        table.report(0, 1, 0.5)  # step 1 again, as the trial has no checkpoint
        assert table.lose(0)[0].startswith("place")
    table.report(0, 1, 0.5)
    assert table.lose(0)[0] == "give up 0"


def test_an_attempt_that_exceeds_the_timeout_is_killed_and_retried() -> None:
    table = Table(trials=1, retries=1, timeout_seconds=60)
    assert table.conductor.wake_at(table.now) == START + 60
    assert table.later(59) == []
    assert table.later(1) == ["kill 0/1"]
    assert table.later(100) == []
    assert table.conductor.wake_at(table.now) is None
    assert table.killed(0, "zzz") + table.retry() == ["place 0/2"]
    assert table.trial(0).error_kind == "timeout"
    assert table.trial(0).error == "still running after its limit of 60 s"
    assert table.trial(0).output == "zzz"
    assert table.later(60) == ["kill 0/2"]
    assert table.killed(0) == ["give up 0", "finish: all 1 trials done"]


def test_the_timeout_is_per_attempt_and_the_driver_wakes_for_the_earliest() -> None:
    table = Table(slots=2, trials=3, timeout_seconds=60)
    table.now += 30
    table.report(0, 1, 0.5)
    assert table.end(0) == ["create 2", "place 2/1"]
    assert table.conductor.wake_at(table.now) == START + 60
    assert table.later(30) == ["kill 1/1"]
    assert table.conductor.wake_at(table.now) == START + 90


def test_a_trial_that_ends_before_its_kill_completes() -> None:
    table = Table(trials=1, timeout_seconds=60)
    table.report(0, 1, 0.5)
    assert table.later(60) == ["kill 0/1"]
    assert table.end(0) == ["finish: all 1 trials done"]
    assert table.dropped(ev.Killed(table.now, 0, 1))
    assert table.trial(0).state is State.COMPLETED


# --- events that come late, twice or out of order ---------------------------------------------------------


def test_events_that_come_late_or_twice_are_dropped() -> None:
    table = Table(trials=2)
    first = table.a_report(0, 1, 0.5)
    assert table(first) == []
    assert table.dropped(first)
    assert table.lose(0) == ["place 0/2"]
    assert table.dropped(table.a_report(0, 2, 0.1, attempt=1))
    assert table.dropped(table.an_end(0, attempt=1))
    assert table.dropped(ev.Failed(table.now, 0, 1, "raised", "late"))
    assert table.dropped(ev.Lost(table.now, 0, 1, "late"))
    assert table.dropped(ev.Killed(table.now, 0, 1))
    assert table.dropped(ev.Warned(table.now, 0, 1, "late"))
    assert table.dropped(ev.DiskFull(table.now, 0, 1, "late"))
    assert table.dropped(table.a_report(0, 1, 0.5, attempt=3))
    table.report(0, 1, 0.4)
    end = table.an_end(0)
    assert table(end) == ["create 1", "place 1/1"]
    assert table.dropped(end)
    assert table.dropped(table.a_report(0, 2, 0.1))
    assert table.dropped(table.a_report(7, 1, 0.1, attempt=1))
    assert table.dropped(table.a_report(-1, 1, 0.1, attempt=1))
    assert table.dropped(ev.Tick(table.now))
    assert table.trial(0).value == 0.4


def test_two_reports_of_a_step_by_one_attempt_are_merged() -> None:
    table = Table(trials=1)
    table.report(0, 1, 0.5, saved=True)
    table.report(0, 1, accuracy=0.9)
    (report,) = table.trial(0).reports
    assert (report.metrics, report.saved) == ({"loss": 0.5, "accuracy": 0.9}, True)


def test_a_repeated_step_replaces_the_report_of_the_lost_attempt() -> None:
    table = Table(trials=1)
    table.report(0, 1, 0.5, saved=True)
    table.report(0, 2, 0.4, accuracy=0.9)
    table.report(0, 3, 0.3)
    table.lose(0)
    table.report(0, 2, 0.45)
    assert [dict(r.metrics) for r in table.trial(0).reports] == [{"loss": 0.5}, {"loss": 0.45}, {"loss": 0.3}]
    assert table.trial(0).value == 0.3  # the value at the last known step


def test_the_value_is_the_last_one_of_the_attempt_that_ended() -> None:
    table = Table(trials=1)
    for step, loss in enumerate([0.5, 0.4, 0.3], 1):
        table.report(0, step, loss)
    table.lose(0)
    table.report(0, 1, 0.6)
    table.report(0, 2, 0.7)
    table.end(0)
    assert table.trial(0).value == 0.7
    assert len(table.trial(0).reports) == 3


def test_a_report_of_the_restored_step_is_merged_with_it() -> None:
    """A function that was killed between its last step and its end only reports that step again."""
    table = Table(trials=1)
    table.report(0, 1, 0.5, saved=True, accuracy=0.9)
    table.kill_driver()
    assert table.start() == ["place 0/2 from 1"]
    table.report(0, 1, 0.5)
    assert table.end(0) == ["finish: all 1 trials done"]
    (report,) = table.trial(0).reports
    assert (report.metrics, report.saved) == ({"loss": 0.5, "accuracy": 0.9}, True)


def test_an_attempt_that_has_no_step_left_keeps_the_value() -> None:
    table = Table(trials=1)
    table.report(0, 1, 0.5, saved=True)
    table.kill_driver()
    table.start()
    table.end(0)
    assert (table.trial(0).state, table.trial(0).value) == (State.COMPLETED, 0.5)


def test_reports_may_come_in_any_order_of_steps() -> None:
    table = Table(trials=1)
    table.report(0, 5, 0.5)
    table.report(0, 2, 0.2)
    assert [r.step for r in table.trial(0).reports] == [2, 5]
    assert table.trial(0).value == 0.5


def test_a_worker_whose_clock_is_ahead_does_not_use_up_the_deadline() -> None:
    table = Table(trials=1, deadline_seconds=3600)
    table.now += 10
    table(ev.Reported(table.now + 86_400, 0, 1, 1, 1, {"loss": 0.5}))
    assert table.history.last_at == table.now
    table.kill_driver()
    assert table.history.driven_seconds(table.now) == 10
    assert table.start() == ["place 0/2"]


def test_time_and_money_are_counted_once_when_the_clock_is_set_back() -> None:
    table = Table(trials=1)
    table.later(100)
    table.report(0, 1, 0.5)
    table.now -= 86_400
    table.kill_driver()
    table.start()
    table.now += 5
    table.report(0, 2, 0.5)
    table.kill_driver()
    table.start()
    assert table.history.driven_seconds(table.now) == 105
    assert table.history.dollars(table.now) == pytest.approx(0.105)


# --- limits on time and money -----------------------------------------------------------------------------


def test_at_the_deadline_trials_stop_after_their_next_step_and_keep_their_value() -> None:
    table = Table(slots=2, deadline_seconds=100)
    table.report(0, 1, 0.5)
    table.report(1, 1, 0.4)
    assert table.conductor.wake_at(table.now) == START + 100
    assert table.later(100) == ["stop 0/1", "stop 1/1"]
    assert table.conductor.wake_at(table.now) == START + 100 + GRACE_SECONDS
    table.report(0, 2, 0.3)
    assert table.end(0, cut=True) == []
    assert table.later(GRACE_SECONDS) == ["kill 1/1"]
    assert table.conductor.wake_at(table.now) is None
    assert table.killed(1) == ["finish: deadline reached"]
    assert [(t.state, t.value, t.failures) for t in table.history.trials] == [
        (State.STOPPED, 0.3, 0),
        (State.STOPPED, 0.4, 0),
    ]
    assert table.conductor.wake_at(table.now) is None


def test_at_the_deadline_a_trial_has_time_to_upload_its_last_state() -> None:
    table = Table(deadline_seconds=100)
    table.report(0, 1, 0.5)
    uploaded = table.a_checkpoint(0, 1, 1)
    table(uploaded)
    assert table.later(100) == ["stop 0/1"]
    due = GRACE_SECONDS + UPLOAD_SHARE * uploaded.upload_seconds
    assert table.conductor.wake_at(table.now) == START + 100 + due
    assert table.later(GRACE_SECONDS) == []
    assert table.later(due - GRACE_SECONDS) == ["kill 0/1"]


@pytest.mark.parametrize("how", ["lose", "fail"])
def test_a_trial_with_a_stop_request_is_stopped_however_its_attempt_ends(how: str) -> None:
    table = Table(deadline_seconds=100)
    table.report(0, 1, 0.5)
    assert table.later(100) == ["stop 0/1"]
    assert getattr(table, how)(0) == ["finish: deadline reached"]
    assert (table.trial(0).state, table.trial(0).value) == (State.STOPPED, 0.5)


def test_a_trial_that_fails_at_the_deadline_waits_for_a_resume() -> None:
    table = Table(deadline_seconds=100)
    table.later(100)
    assert table.fail(0) == ["finish: deadline reached"]
    assert table.trial(0).state is State.WAITING
    assert table.nothing_left()  # so the same script returns at once when it is run again
    table.stop()
    table.kill_driver(deadline_seconds=200)
    assert not table.nothing_left()
    table.now += 1.0
    assert table.start() == ["place 0/2"]


def test_a_deadline_as_a_duration_passes_only_while_a_driver_runs() -> None:
    table = Table(deadline_seconds=100)
    table.later(60)
    table.report(0, 1, 0.5)
    table.kill_driver()
    table.now += 1_000_000
    assert not table.nothing_left()
    assert table.start() == ["place 0/2"]
    assert table.conductor.wake_at(table.now) == table.now + 40
    assert table.later(40) == ["stop 0/2"]


@pytest.mark.parametrize("limit", [{"deadline_seconds": 100}, {"budget_dollars": 0.1}])
def test_time_after_a_kill_of_the_driver_uses_no_deadline_and_no_budget(limit: Any) -> None:
    table = Table(slots=0, trials=9, **limit)
    no_slots = ev.MachineReady(table.now, ev.THIS_MACHINE, "desk", 0, 3.6)
    table(ev.DriverStarted(table.now, 1, "host"), no_slots)
    table.kill_driver()
    table.now += 1_000_000
    assert not table.nothing_left()


def test_at_the_budget_trials_stop() -> None:
    table = Table(budget_dollars=0.5)  # 500 s
    table.report(0, 1, 0.5)
    assert table.conductor.wake_at(table.now) == pytest.approx(START + 500)
    assert table.later(501) == ["stop 0/1"]
    assert table.end(0, cut=True) == ["finish: budget reached"]


@pytest.mark.parametrize("limit", [{"deadline_seconds": 0.3}, {"budget_dollars": 0.0003}])
@pytest.mark.parametrize("begin", [0.0, 0.1, 1e-7, 12345.678])
def test_a_clock_that_jumps_from_wake_to_wake_reaches_every_limit(limit: Any, begin: float) -> None:
    table = Table(slots=0, **limit)
    table.now += begin
    table.start()
    for _ in range(20):
        wake_at = table.conductor.wake_at(table.now)
        assert wake_at is not None
        assert wake_at > table.now
        table.now = wake_at
        if table():
            break
    assert table.trial(0).end_request == "stop"


def test_a_limit_that_has_just_passed_wakes_the_driver_at_once() -> None:
    table = Table(deadline_seconds=100)
    assert table.conductor.wake_at(START + 101) == START + 101


def test_without_a_limit_or_a_driver_nothing_wakes_the_driver() -> None:
    assert Table(trials=1).conductor.wake_at(START) is None
    assert Table(slots=0, deadline_seconds=1).conductor.wake_at(START) is None


# --- stopping and resuming --------------------------------------------------------------------------------


def test_a_stop_request_makes_trials_wait_and_a_resume_continues_them() -> None:
    table = Table(slots=2, trials=3)
    assert table(ev.StopRequested(table.now, "Ctrl-C")) == ["move 0/1", "move 1/1"]
    assert table.dropped(ev.StopRequested(table.now, "Ctrl-C"))
    assert table.conductor.halted == "Ctrl-C"
    table.report(0, 1, 0.5, saved=True)
    assert table.end(0, cut=True) == []
    assert table.fail(1) == []
    assert not table.history.running
    assert table.history.finish_reason is None
    assert table.stop() == []
    table.kill_driver()
    assert table.conductor.halted is None or table.history.driver is None
    assert table.start(2) == ["place 0/2 from 1", "create 2", "place 2/1"]
    table.retry()
    assert table.report(0, 2, 0.5) + table.end(0) == ["place 1/2"]
    assert table.conductor.halted is None


def test_a_trial_that_ends_despite_a_request_to_move_completes() -> None:
    table = Table(trials=1)
    table.report(0, 1, 0.5)
    table(ev.StopRequested(table.now, "Ctrl-C"))
    assert table.end(0) == ["finish: all 1 trials done"]
    assert table.trial(0).state is State.COMPLETED
    table.stop()
    table.kill_driver()
    assert table.nothing_left()


def test_a_trial_that_exceeds_the_timeout_during_a_stop_is_killed() -> None:
    table = Table(trials=1, timeout_seconds=60)
    table(ev.StopRequested(table.now, "Ctrl-C"))
    assert table.later(60) == ["kill 0/1"]
    assert table.killed(0) == []
    assert (table.trial(0).state, table.trial(0).failures) == (State.WAITING, 0)


def test_a_killed_driver_uses_no_retry_and_is_billed_until_its_last_event() -> None:
    table = Table(slots=2, trials=2, retries=0)
    table.later(10)
    table.report(0, 1, 0.5, saved=True)
    table.now += 1000
    table.kill_driver()
    assert table.start(2) == ["place 0/2 from 1", "place 1/2"]
    trial = table.trial(0)
    assert (trial.failures, trial.losses, trial.stalled_losses, trial.seconds) == (0, 1, 0, 10)
    (machine,) = table.history.fleet.past
    assert (machine.id, machine.ended_at) == (ev.THIS_MACHINE, START + 10)
    assert table.history.dollars(table.now) == pytest.approx(0.01)


def test_kills_of_the_driver_are_not_limited() -> None:
    table = Table(trials=1)
    for attempt in range(2, 4 * STALLED_LOSSES_LIMIT):
        table.kill_driver()
        assert table.start() == [f"place 0/{attempt}"]


def test_recovered_events_of_a_killed_drivers_workers_start_no_trial() -> None:
    """They are handled before the new driver has a machine, with the new driver's time."""
    table = Table(slots=1, trials=2, deadline_seconds=100, timeout_seconds=50)
    report, end = table.a_report(0, 1, 0.5, saved=True), table.an_end(0)
    table.kill_driver()
    table.now += 1000
    assert table(report, end) == []
    assert table.trial(0).state is State.COMPLETED
    assert table.conductor.wake_at(table.now) is None
    assert table.start() == ["create 1", "place 1/1"]


def test_recovered_warnings_and_full_disks_are_recorded_once() -> None:
    table = Table(trials=1, disk_full="stop")
    warning, full = ev.Warned(table.now, 0, 1, "corrupt"), ev.DiskFull(table.now, 0, 1, "no room")
    table(warning, full)
    table.kill_driver()
    assert table.dropped(warning, full)
    assert table.trial(0).warnings == ["corrupt", "no room"]


def test_a_recovered_failure_counts_towards_the_limit_of_retries() -> None:
    table = Table(trials=1, retries=0)
    failed = ev.Failed(table.now, 0, 1, "raised", "boom")
    table.kill_driver()
    assert table(failed) == ["give up 0"]
    assert table.start() == ["finish: all 1 trials done"]


# --- a full disk ------------------------------------------------------------------------------------------


def test_a_full_disk_stops_the_study_with_disk_full_stop() -> None:
    table = Table(slots=2, trials=2, disk_full="stop")
    assert table(ev.DiskFull(table.now, 0, 1, "no room")) == ["move 0/1", "move 1/1"]
    assert table.conductor.halted == "disk full"
    assert table.report(0, 1, 0.5) == []
    assert table.end(0, cut=True) + table.lose(1) == []
    assert table.history.finish_reason is None
    table.stop()
    table.kill_driver()
    assert table.start(2) == ["place 0/2", "place 1/2"]


def test_a_full_disk_is_a_warning_with_disk_full_go_on() -> None:
    table = Table(trials=1, disk_full="go_on")
    assert table(ev.DiskFull(table.now, 0, 1, "no room")) == []
    table.report(0, 1, 0.5)
    assert table.end(0) == ["finish: all 1 trials done"]
    assert table.trial(0).warnings == ["no room"]


# --- ask and tell -----------------------------------------------------------------------------------------


def test_ask_needs_no_driver() -> None:
    table = Table(slots=0, retries=0)
    assert table(ev.TrialRequested(table.now)) == ["create 0", "place 0/1 on outside"]
    assert table(ev.TrialRequested(table.now), ev.TrialRequested(table.now)) == [
        "create 1",
        "place 1/1 on outside",
        "create 2",
        "place 2/1 on outside",
    ]
    assert table.report(0, 1, 0.5) == []
    assert table.end(0) == []
    assert table.fail(1, "told", "why") == ["give up 1"]
    assert [t.state for t in table.history.trials] == [State.COMPLETED, State.FAILED, State.RUNNING]
    table.kill_driver()
    assert table.trial(2).state is State.RUNNING


def test_an_ask_without_a_suggestion_is_not_answered_later() -> None:
    answers = [None, {"act": "relu"}, {"act": "tanh"}]

    class SearcherWithAnswers:
        def suggest(self, past: Past, rng: np.random.Generator) -> Any:
            return answers.pop(0)

    table = Table(slots=0, space=Space({"act": Choice(["relu", "tanh"])}), searcher=SearcherWithAnswers())
    assert table(ev.TrialRequested(table.now)) == []
    table.kill_driver()
    assert table(ev.TrialRequested(table.now)) == ["create 0", "place 0/1 on outside"]


def test_limits_do_not_end_trials_of_ask_and_tell() -> None:
    table = Table(trials=1, timeout_seconds=10, deadline_seconds=20)
    assert table(ev.TrialRequested(table.now)) == ["create 1", "place 1/1 on outside"]
    table.report(0, 1, 0.5)
    table.end(0)
    assert table.later(10) == []
    assert table.conductor.wake_at(table.now) == START + 20
    assert table.later(10) == []
    table.kill_driver()
    table.start()
    assert (table.trial(1).state, table.trial(1).attempts) == (State.RUNNING, 1)


# --- machines ---------------------------------------------------------------------------------------------


def rented(table: Table, name: str, price: float = 1.0) -> ev.MachineRented:
    return ev.MachineRented(table.now, name, "spot", price)


def ready(table: Table, name: str, slots: int = 1, price: float = 1.0) -> ev.MachineReady:
    return ev.MachineReady(table.now, name, "spot", slots, price)


def test_trials_are_placed_on_each_machine_that_becomes_ready() -> None:
    table = Table(slots=0, trials=5)
    table(ev.DriverStarted(table.now, 1, "host"))
    assert table(rented(table, "a"), rented(table, "b")) == []
    assert table(ready(table, "a", 2)) == ["create 0", "place 0/1 on a", "create 1", "place 1/1 on a"]
    assert table(ready(table, "b", 2)) == ["create 2", "place 2/1 on b", "create 3", "place 3/1 on b"]
    assert table.dropped(ready(table, "a", 2), rented(table, "a"))
    assert table.later(3600) == []
    assert table.history.dollars(table.now) == pytest.approx(2.0)


def test_a_notice_moves_trials_away_and_no_trial_is_placed_there() -> None:
    table = Table(slots=0, trials=3)
    table(ev.DriverStarted(table.now, 1, "host"), ready(table, "a", 2), ready(table, "b", 1))
    assert table.history.machines["a"].running == {1: 1, 2: 1}
    notice = ev.MachineNotice(table.now, "a", table.now + 120)
    assert table(notice) == ["move 1/1", "move 2/1"]
    assert table.dropped(notice)
    table.report(1, 1, 0.5, saved=True)
    assert table.end(1, cut=True) == []
    table.report(0, 1, 0.5)
    assert table.end(0) == ["place 1/2 on b from 1"]
    assert table(ev.MachineLost(table.now, "a", "revoked")) == []
    assert table.trial(2).state is State.WAITING
    assert table.trial(2).stalled_losses == 0  # the loss was announced, so it is not the trial's fault
    assert table.dropped(ev.MachineLost(table.now, "a", "revoked"))
    assert table.dropped(ev.MachineNotice(table.now, "a", table.now))
    assert table.dropped(ev.MachineReleased(table.now, "a"))


def test_trials_of_a_lost_machine_wait_and_resume_elsewhere() -> None:
    table = Table(slots=0, trials=2, retries=0)
    table(ev.DriverStarted(table.now, 1, "host"), ready(table, "a", 2))
    table.report(0, 1, 0.5, saved=True)
    assert table(ev.MachineLost(table.now, "a", "lost")) == []
    assert [(t.state, t.failures, t.losses) for t in table.history.trials] == [(State.WAITING, 0, 1)] * 2
    assert table(ready(table, "b", 2)) == ["place 0/2 on b from 1", "place 1/2 on b"]


def test_a_trial_whose_machines_are_lost_too_often_is_given_up() -> None:
    table = Table(slots=0, trials=1)
    table(ev.DriverStarted(table.now, 1, "host"))
    for number in range(STALLED_LOSSES_LIMIT):
        assert table(ready(table, f"m{number}"))[-1] == f"place 0/{number + 1} on m{number}"
        decisions = table(ev.MachineLost(table.now, f"m{number}", "kernel panic"))
    assert decisions == ["give up 0", "finish: all 1 trials done"]


def test_a_study_without_machines_finishes_when_all_trials_have_ended() -> None:
    table = Table(slots=0, trials=1)
    table(ev.DriverStarted(table.now, 1, "host"), ready(table, "a"))
    table(ev.MachineNotice(table.now, "a", table.now + 120))
    table.report(0, 1, 0.5)
    assert table.end(0) == ["finish: all 1 trials done"]


def test_a_released_machine_is_billed_no_longer_and_never_returns() -> None:
    table = Table(slots=0, trials=1)
    table(ev.DriverStarted(table.now, 1, "host"), rented(table, "a"), ready(table, "a"))
    table.now += 3600
    assert table(ev.MachineReleased(table.now, "a")) == []
    assert table.trial(0).state is State.WAITING
    assert table.trial(0).stalled_losses == 0
    table.now += 3600
    assert table.dropped(ready(table, "a"), rented(table, "a"))  # late
    assert table.history.dollars(table.now) == pytest.approx(1.0)


def test_a_rented_machine_stays_after_a_kill_of_the_driver() -> None:
    table = Table(slots=0, trials=1)
    table(ev.DriverStarted(table.now, 1, "host"), rented(table, "a"), ready(table, "a"))
    table.now += 3600
    table.kill_driver()
    assert table(ev.DriverStarted(table.now, 2, "host")) == ["place 0/2 on a"]
    assert table.history.dollars(table.now) == pytest.approx(1.0)


class RentForAnHour(PresentMachines):
    """A policy that rents one machine at the start and releases it after an hour."""

    def react(self, event: ev.Event, history: History) -> Sequence[ev.Decision]:
        match event:
            case ev.DriverStarted() if not history.machines:
                return [ev.Rent(event.at, "a", "spot"), ev.Rent(event.at, "a", "spot")]
            case ev.Tick() if any(machine.seconds(event.at) >= 3600 for machine in history.machines.values()):
                return [ev.Release(event.at, "a")]
        return []


def test_a_policy_rents_a_machine_and_it_is_released_at_the_end() -> None:
    table = Table(slots=0, trials=1, provisioner=RentForAnHour())
    assert table(ev.DriverStarted(table.now, 1, "host")) == ["rent a"]
    assert table(rented(table, "a"), ready(table, "a")) == ["create 0", "place 0/1 on a"]
    table.report(0, 1, 0.5)
    assert table.end(0) == ["finish: all 1 trials done", "release a"]
    assert table(ev.MachineReleased(table.now, "a")) == []
    assert not table.history.machines


def test_a_policy_gets_ticks_and_no_trial_is_placed_on_a_machine_to_be_released() -> None:
    table = Table(slots=0, trials=2, provisioner=RentForAnHour())
    table(ev.DriverStarted(table.now, 1, "host"))
    table(rented(table, "a"), ready(table, "a"))
    table.now += 3600
    assert table(ev.Tick(table.now)) == ["release a"]
    assert table.dropped(ev.Tick(table.now))
    table.report(0, 1, 0.5)
    assert table.end(0) == []  # no trial is placed on the machine
    table.kill_driver()
    # The driver may have been killed before it released the machine, so the policy decides again.
    assert table(ev.DriverStarted(table.now, 2, "host")) == ["create 1", "place 1/1 on a", "release a"]


def test_after_a_kill_a_possibly_rented_machine_is_used_or_released() -> None:
    """The driver was killed after it recorded the decision, so the log does not tell whether it rented."""
    for exists in (False, True):
        table = Table(slots=0, trials=1, provisioner=RentForAnHour())
        assert table(ev.DriverStarted(table.now, 1, "host")) == ["rent a"]
        table.kill_driver()
        if exists:
            decisions = table(ev.DriverStarted(table.now, 2, "host"), rented(table, "a"), ready(table, "a"))
            assert decisions == ["create 0", "place 0/1 on a"]
        else:
            assert table(ev.DriverStarted(table.now, 2, "host")) == ["release a"]
            assert table(ev.Tick(table.now)) == []  # the release is decided once
            assert table(ev.MachineReleased(table.now, "a")) == []
        assert not table.history.fleet.uncertain


def test_a_policy_that_places_a_trial_without_free_slots_is_named_in_the_error() -> None:
    class Wrong(PresentMachines):
        def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
            return {"nowhere": 1}

    with pytest.raises(ThriftuneError, match="Wrong placed trial 0 on nowhere, which has no room for it"):
        Table(provisioner=Wrong(), trials=1)


def test_a_policy_is_called_for_a_placement_only_while_slots_are_free() -> None:
    class FreeSlotRecorder(PresentMachines):
        free_slots: ClassVar[list[int]] = []

        def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
            self.free_slots.append(sum(machine.free_slots for machine in history.machines.values()))
            return super().workers_for(trial, history)

    table = Table(slots=2, trials=3, provisioner=FreeSlotRecorder())
    assert FreeSlotRecorder.free_slots == [2, 1]
    assert table.report(0, 1, 0.5) + table(ev.Tick(table.now)) + table.later(1.0) == []
    assert FreeSlotRecorder.free_slots == [2, 1]
    assert table.end(0) == ["create 2", "place 2/1"]
    assert table.report(1, 1, 0.5) + table.end(1) == []
    assert FreeSlotRecorder.free_slots == [2, 1, 1]  # no trial is left to place


# --- stopping rules ---------------------------------------------------------------------------------------


class TwoStepRule:
    """A rule that pauses trials at step 2, promotes the best when two are there, and stops values above 1."""

    def __init__(self) -> None:
        self.judged: list[tuple[int, int]] = []  # (trial id, step)

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        self.judged.append((trial.id, trial.reports[-1].step))
        if trial.value is not None and trial.value > 1:
            return Verdict.STOP
        return Verdict.PAUSE if trial.reports[-1].step == 2 else Verdict.GO_ON

    def promote(self, history: History, more: bool) -> int | None:
        paused = [trial for trial in history.trials if trial.state is State.PAUSED]
        if history.counts[State.PAUSED] + sum(trial.step > 2 for trial in history.trials) < 2:
            return None
        best = min(paused, key=lambda trial: (trial.value or 0.0, trial.id), default=None)
        return best.id if best is not None and all(trial.step <= 2 for trial in history.trials) else None


def test_a_rule_pauses_promotes_and_stops_trials() -> None:
    table = Table(trials=3, stopper=TwoStepRule())
    assert table.report(0, 1, 0.5) == []
    assert table.report(0, 2, 0.4, saved=True) == ["pause 0/1"]
    assert table.end(0, cut=True) == ["create 1", "place 1/1"]
    assert table.report(1, 2, 0.3, saved=True) == ["pause 1/1"]
    assert table.end(1, cut=True) == ["promote 1", "place 1/2 from 2"]
    assert table.report(1, 3, 0.2) == []
    assert table.end(1) == ["create 2", "place 2/1"]
    assert table.report(2, 1, 9.0) == ["stop 2/1"]
    assert table.report(2, 2, 0.1) == []  # the stop was requested before
    assert table.end(2, cut=True) == ["finish: all 3 trials done"]
    assert [t.state for t in table.history.trials] == [State.PAUSED, State.COMPLETED, State.STOPPED]
    assert table.nothing_left()


def test_a_promoted_trial_without_a_checkpoint_is_not_paused_again_at_its_rung() -> None:
    """It may report repeated steps any number of times."""
    rule = TwoStepRule()
    table = Table(trials=2, stopper=rule)
    for trial in (0, 1):
        for _ in range(3):  # several reports a step
            table.report(trial, 1, 0.5)
        table.report(trial, 2, 0.4)
        table.end(trial, cut=True)
    assert table.trial(0).attempts == 2
    for step in (1, 1, 1, 2, 2, 2):
        assert table.report(0, step, 0.5) == []
    assert rule.judged[-1] == (1, 2)  # repeated steps are not judged
    assert table.report(0, 3, 0.3) == []
    assert rule.judged[-2:] == [(1, 2), (0, 3)]
    table.report(0, 3, 0.2)
    assert rule.judged[-2:] == [(1, 2), (0, 3)]  # each new step is judged once
    assert table.end(0) == ["finish: all 2 trials done"]


def test_a_step_with_several_reports_is_judged_once_with_its_value() -> None:
    rule = TwoStepRule()
    table = Table(trials=1, stopper=rule)
    table.report(0, 1, accuracy=0.5)
    table.report(0, 1, 0.4)
    assert rule.judged == [(0, 1), (0, 1)]  # when it was new, and when its value came
    for more in ({"accuracy": 0.6}, {"loss": 0.4}, {"loss": 0.3}):
        table.report(0, 1, **more)
    assert rule.judged == [(0, 1), (0, 1)]
    assert table.history.rewritten_values == 1  # only the last report changed the value


def test_a_report_can_promote_another_trial_into_a_free_slot() -> None:
    class PromoteIfOtherIsWorse(TwoStepRule):
        def promote(self, history: History, more: bool) -> int | None:
            worse = any(trial.step == 1 and (trial.value or 0.0) > 0.5 for trial in history.trials)
            return 0 if history.trials and history.trials[0].state is State.PAUSED and worse else None

    table = Table(slots=2, trials=2, stopper=PromoteIfOtherIsWorse())
    assert table.report(0, 2, 0.5, saved=True) == ["pause 0/1"]
    assert table.end(0, cut=True) == []
    assert table.report(1, 1, 0.6) == ["promote 0", "place 0/2 from 2"]


def test_limits_on_time_are_checked_at_reports() -> None:
    table = Table(slots=2, trials=2, deadline_seconds=10)
    table.now += 10
    assert table.report(0, 1, 0.5) == ["stop 0/1", "stop 1/1"]
    with_timeout = Table(slots=1, trials=1, timeout_seconds=10)
    with_timeout.now += 10
    assert with_timeout.report(0, 1, 0.5) == ["kill 0/1"]


@pytest.mark.parametrize("how", ["lose", "fail", "driver", "machine"])
@pytest.mark.parametrize(("loss", "final_state"), [(0.5, State.PAUSED), (9.0, State.STOPPED)])
def test_a_verdict_stays_after_the_loss_of_the_worker_driver_or_machine(
    how: str, loss: float, final_state: State
) -> None:
    table = Table(trials=1, stopper=TwoStepRule(), retries=3)
    table.report(0, 2, loss, saved=True)
    if how == "driver":
        table.kill_driver()
        table.start()
    elif how == "machine":
        table(ev.MachineLost(table.now, ev.THIS_MACHINE, "lost"))
    else:
        getattr(table, how)(0)
    assert table.trial(0).state is final_state
    assert table.history.finish_reason


@pytest.mark.parametrize(("loss", "final_state"), [(0.5, State.PAUSED), (9.0, State.STOPPED)])
def test_a_trial_with_a_request_to_move_is_judged(loss: float, final_state: State) -> None:
    """A step is judged only once, so a pending move must not prevent it."""
    table = Table(trials=1, stopper=TwoStepRule())
    table(ev.MachineNotice(table.now, ev.THIS_MACHINE, table.now + 120.0))
    assert table.trial(0).end_request == "move"
    assert table.report(0, 2, loss, saved=True) == [f"{'stop' if loss > 1 else 'pause'} 0/1"]
    table.end(0, cut=True)
    assert table.trial(0).state is final_state


def test_repeated_steps_are_not_judged_again() -> None:
    """Otherwise a promoted trial that repeats its rung would be paused for ever."""
    rule = TwoStepRule()
    table = Table(trials=2, stopper=rule)
    table.report(0, 1, 0.1, saved=True)
    assert table.report(0, 2, 0.1) == ["pause 0/1"]
    table.end(0, cut=True)
    table.report(1, 2, 0.2)
    assert table.end(1, cut=True) == ["promote 0", "place 0/2 from 1"]
    assert table.report(0, 2, 0.1) == []
    assert table.report(0, 3, 0.1) == []
    assert rule.judged == [(0, 1), (0, 2), (1, 2), (0, 3)]


def test_a_trial_that_fails_too_often_after_a_pause_request_is_given_up() -> None:
    table = Table(trials=1, stopper=TwoStepRule(), retries=0)
    table.report(0, 2, 0.5)
    assert table.fail(0) == ["give up 0", "finish: all 1 trials done"]


def test_the_first_pause_without_a_checkpoint_gives_a_warning() -> None:
    table = Table(slots=2, trials=2, stopper=TwoStepRule())
    assert table.report(0, 2, 0.5) == ["pause 0/1"]
    assert table.trial(0).warnings == []  # it may save before it ends
    table.end(0, cut=True)
    assert "paused without a checkpoint" in table.trial(0).warnings[0]
    assert table.report(1, 2, 0.4) == ["pause 1/1"]
    table.end(1, cut=True)
    assert table.trial(1).warnings == []
    saved = Table(slots=1, trials=1, stopper=TwoStepRule())
    saved.report(0, 2, 0.5, saved=True)
    saved.end(0, cut=True)
    assert saved.trial(0).warnings == []


def test_a_checkpoint_whose_upload_ends_after_the_pause_request_gives_no_warning() -> None:
    table = Table(trials=1, stopper=TwoStepRule())
    assert table.report(0, 2, 0.5) == ["pause 0/1"]
    table(table.a_checkpoint(0, 2, 1))
    table.end(0, cut=True)
    assert table.trial(0).warnings == []


def test_a_trial_with_a_kill_request_is_not_judged() -> None:
    table = Table(trials=1, stopper=TwoStepRule(), timeout_seconds=10)
    assert table.later(10) == ["kill 0/1"]
    assert table.report(0, 2, 0.5) == []
    assert table.killed(0) + table.retry() == ["place 0/2"]


def test_a_rule_that_promotes_a_trial_that_is_not_paused_is_named_in_the_error() -> None:
    class Wrong(TwoStepRule):
        def promote(self, history: History, more: bool) -> int | None:
            return 0 if history.trials else None

    with pytest.raises(ThriftuneError, match="Wrong promoted trial 0, which is RUNNING and not PAUSED"):
        Table(slots=2, trials=2, stopper=Wrong())


def test_a_move_does_not_replace_a_request_to_stop() -> None:
    class MoveAtReport(PresentMachines):
        def react(self, event: ev.Event, history: History) -> Sequence[ev.Decision]:
            return [ev.Move(event.at, 0, 1, "elsewhere is cheaper")] if isinstance(event, ev.Reported) else []

    table = Table(trials=1, stopper=TwoStepRule(), provisioner=MoveAtReport())
    assert table.report(0, 1, 9.0) == ["stop 0/1"]
    assert table.end(0, cut=True) == ["finish: all 1 trials done"]
    assert table.trial(0).state is State.STOPPED


# --- trials of several workers ----------------------------------------------------------------------------


class ThreeWorkers(PresentMachines):
    """A policy with three workers per trial, placed on the first machines with free slots."""

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
        remaining, workers = 3, {}
        for machine in history.machines.values():
            if machine.free_slots and remaining:
                workers[machine.id] = min(remaining, machine.free_slots)
                remaining -= workers[machine.id]
        return None if remaining else workers


def test_a_trial_starts_when_slots_for_all_its_workers_are_free() -> None:
    table = Table(slots=0, trials=2, provisioner=ThreeWorkers())
    table(ev.DriverStarted(table.now, 1, "host"))
    assert table(ready(table, "a", 2)) == []
    assert table(ready(table, "b", 2)) == ["create 0", "place 0/1 on a"]
    assert table.trial(0).workers == {"a": 2, "b": 1}
    assert (
        table.history.machines["a"].free_slots,
        table.history.machines["b"].free_slots,
        table.history.fleet.free_slots,
    ) == (
        0,
        1,
        1,
    )
    assert table(ready(table, "c", 2)) == ["create 1", "place 1/1 on b"]
    table.report(0, 1, 0.5)
    assert table.end(0) == []
    assert table.history.machines["b"].running == {1: 1}


def test_the_loss_of_a_machine_ends_every_trial_with_a_worker_there() -> None:
    table = Table(slots=0, trials=2, provisioner=ThreeWorkers())
    table(ev.DriverStarted(table.now, 1, "host"), ready(table, "a", 2), ready(table, "b", 2), ready(table, "c", 2))
    table.report(1, 1, 0.5, saved=True)
    assert table(ev.MachineLost(table.now, "b", "revoked")) == ["place 0/2 on a"]
    assert table.trial(0).workers == {"a": 2, "c": 1}
    assert table.trial(1).state is State.WAITING
    assert table(ready(table, "d", 2)) == ["place 1/2 on c from 1"]
    assert (table.trial(1).losses, table.trial(1).resumed_from) == (1, 1)


def test_a_notice_moves_every_trial_with_a_worker_there() -> None:
    table = Table(slots=0, trials=1, provisioner=ThreeWorkers())
    table(ev.DriverStarted(table.now, 1, "host"), ready(table, "a", 2), ready(table, "b", 2))
    assert table(ev.MachineNotice(table.now, "b", table.now + 120)) == ["move 0/1"]
    table.report(0, 1, 0.5, saved=True)
    assert table.end(0, cut=True) == []
    assert table.history.fleet.free_slots == 2


def test_a_policy_may_leave_a_slot_free_instead_of_placing_a_new_trial() -> None:
    class EvenTrialsOnly(PresentMachines):
        def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
            number = len(history.trials) if trial is None else trial.id
            return super().workers_for(trial, history) if number % 2 == 0 else None

    table = Table(slots=1, trials=3, provisioner=EvenTrialsOnly())
    assert table.fail(0) + table.retry() == ["place 0/2"]
    assert table.fail(0) == ["give up 0"]
    assert table.history.fleet.free_slots == 1
    assert len(table.history.trials) == 1


# --- the log ----------------------------------------------------------------------------------------------


def test_every_prefix_of_a_log_replays_to_a_valid_history() -> None:
    space = Space({"x": Float(0, 1)})
    table = Table(
        slots=2, space=space, trials=4, stopper=TwoStepRule(), deadline_seconds=1000, timeout_seconds=100
    )
    table.report(0, 1, math.nan, saved=True)
    table.fail(0, "nan")
    table.report(1, 2, 0.2, saved=True)
    table.end(1, cut=True)
    table(ev.Warned(table.now, 0, 2, "corrupt"), ready(table, "b", 2))
    table(ev.MachineNotice(table.now, "b", table.now + 30))
    table.later(100)
    table.killed(0)
    table(ev.MachineLost(table.now, "b", "revoked"))
    table.kill_driver()
    table.start(2)
    table(ev.StopRequested(table.now, "SIGTERM"))
    for trial in list(table.history.running):
        table.end(trial, cut=True)
    table.stop()
    for length in range(len(table.log) + 1):
        history = replayed(table.spec, table.log[:length])
        history.validate()
        assert history.entries == length
        history.apply_log(table.log[length:])
        assert state(history) == state(table.history)
