"""Tests of the leaders after random changes of trials, against a comparison of all trials with all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import Table
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.state.leaders import Leaders
from thriftune.state.reports import latest_metrics
from thriftune.state.trial_record import Report, State, TrialRecord

OBJECTIVES = (Objective("loss", False), Objective("accuracy", True), Objective("size", False))
VALUES = st.sampled_from([0.0, 1.0, 2.0, 3.0, math.nan, math.inf, -math.inf])


def trials(count: int) -> list[TrialRecord]:
    return [TrialRecord(number, {}, created_at=0.0, state=State.RUNNING) for number in range(count)]


def add_report(
    trial: TrialRecord, leaders: Leaders, objectives: tuple[Objective, ...], step: int = 1, **metrics: float
) -> None:
    reports = {report.step: report.metrics for report in trial.reports}
    reports[step] = {**reports.get(step, {}), **metrics}
    trial.reports = [
        Report(step, metrics_of_step, 0.0, 1, False) for step, metrics_of_step in sorted(reports.items())
    ]
    trial.metrics = latest_metrics(trial.reports)
    names = [objective.metric for objective in objectives]
    if all(name in trial.metrics for name in names):
        trial.values = tuple(trial.metrics[name] for name in names)
        trial.value = trial.values[0]
    leaders.note_change(trial)


THEN = {"fail": State.FAILED, "end": State.COMPLETED, "stop": State.STOPPED, "pause": State.PAUSED}


@given(
    st.integers(1, 3),
    st.sampled_from([(), ("size <= 2",), ("size <= 2", "accuracy >= 1")]),
    st.lists(
        st.tuples(
            st.integers(0, 7),
            st.dictionaries(st.sampled_from(["loss", "accuracy", "size"]), VALUES),
            st.integers(1, 3),
            st.sampled_from(["go on", "go on", "look", *THEN]),
        ),
        max_size=60,
    ),
)
def test_leaders_match_a_comparison_of_all_trials_with_all(
    width: int, constraints: tuple[str, ...], story: list[tuple[int, dict[str, float], int, str]]
) -> None:
    known, objectives = trials(8), OBJECTIVES[:width]
    leaders = Leaders(known, objectives, parse_constraints(constraints))
    for number, metrics, step, then in story:
        if known[number].state.ended:  # an ended trial does not change
            continue
        if then in THEN:
            known[number].state = THEN[then]
        add_report(known[number], leaders, objectives, step, **metrics)
        if then == "look":
            leaders.validate()
    leaders.validate()


@pytest.mark.parametrize("unfinished", ["RUNNING", "WAITING", "PAUSED", "STOPPED"])
def test_while_a_trial_has_finished_only_finished_trials_compete(unfinished: str) -> None:
    """A loss that rises during training is lower at an early step, which must not count."""
    known, objectives = trials(3), OBJECTIVES[:1]
    leaders = Leaders(known, objectives, ())
    for trial, loss in zip(known, (1.0, 2.0, 3.0), strict=True):
        add_report(trial, leaders, objectives, loss=loss)
    assert leaders.current() == [known[0]]
    known[0].state, known[2].state = State(unfinished), State.COMPLETED
    leaders.note_change(known[0])
    leaders.note_change(known[2])
    assert leaders.current() == [known[2]]
    assert [leaders.may_lead(trial) for trial in known] == [False, False, True]
    known[1].state = State.COMPLETED
    leaders.note_change(known[1])
    assert leaders.current() == [known[1]]
    leaders.validate()


def test_without_a_finished_trial_those_with_the_most_steps_compete() -> None:
    known, objectives = trials(3), OBJECTIVES[:1]
    leaders = Leaders(known, objectives, ())
    for trial, loss in zip(known, (1.0, 2.0, 3.0), strict=True):
        add_report(trial, leaders, objectives, loss=loss)
    add_report(known[2], leaders, objectives, step=2, loss=3.5)
    assert leaders.current() == [known[2]]
    add_report(known[1], leaders, objectives, step=2, loss=2.5)
    assert leaders.current() == [known[1]]
    known[1].state = State.FAILED
    leaders.note_change(known[1])
    assert leaders.current() == [known[2]]


def test_a_step_without_the_objective_does_not_change_the_leaders() -> None:
    known, objectives = trials(2), OBJECTIVES[:1]
    leaders = Leaders(known, objectives, ())
    add_report(known[0], leaders, objectives, loss=2.0)
    add_report(known[0], leaders, objectives, step=2, size=1.0)
    add_report(known[1], leaders, objectives, loss=1.0)
    assert leaders.current() == [known[1]]


def test_a_finished_infeasible_trial_does_not_exclude_unfinished_ones() -> None:
    known, objectives = trials(2), OBJECTIVES[:1]
    leaders = Leaders(known, objectives, parse_constraints("size <= 2"))
    add_report(known[0], leaders, objectives, loss=1.0, size=9.0)
    add_report(known[1], leaders, objectives, loss=2.0, size=1.0)
    known[0].state = State.COMPLETED
    leaders.note_change(known[0])
    assert leaders.current() == [known[1]]


def test_a_later_trial_is_compared() -> None:
    known, objectives = trials(1), OBJECTIVES[:2]
    leaders = Leaders(known, objectives, ())
    add_report(known[0], leaders, objectives, loss=1.0, accuracy=1.0)
    assert leaders.current() == [known[0]]
    known.append(TrialRecord(1, {}, 0.0))
    add_report(known[1], leaders, objectives, loss=0.5, accuracy=0.5)
    assert leaders.current() == [known[1], known[0]]


def test_an_improving_leader_stays_ahead_and_is_compared_again() -> None:
    known, objectives = trials(3), OBJECTIVES[:2]
    leaders = Leaders(known, objectives, ())
    for trial, loss, accuracy in zip(known, (1.0, 2.0, 3.0), (1.0, 2.0, 1.0), strict=True):
        add_report(trial, leaders, objectives, loss=loss, accuracy=accuracy)
    assert leaders.current() == [known[0], known[1]]
    add_report(known[0], leaders, objectives, accuracy=2.0)
    assert leaders.current() == [known[0]]
    add_report(
        known[0], leaders, objectives, accuracy=1.5
    )  # it gets worse again, and the trial it dominated returns
    assert leaders.current() == [known[0], known[1]]


@pytest.mark.parametrize(
    ("reported", "why"),
    [
        ([], "no trial has reported 'loss' and 'size' yet"),
        ([{"loss": 1.0}], "no trial has reported 'loss' and 'size' yet"),
        ([{"loss": math.nan, "size": 9.0}], "no trial has reported 'loss' and 'size' yet"),
        ([{"loss": 1.0, "size": 9.5}], "none of 1 trial meets size <= 2; the nearest is trial 0 with 9.5"),
        (
            [{"loss": 1.0, "size": 9.5}, {"loss": 1.0}, {"loss": 1.0, "size": 2.5}],
            "none of 2 trials meets size <= 2; the nearest is trial 2 with 2.5",
        ),
    ],
)
def test_reasons_for_having_no_leader(reported: list[dict[str, float]], why: str) -> None:
    known = trials(3)
    leaders = Leaders(known, OBJECTIVES[:1], parse_constraints("size <= 2"))
    for trial, metrics in zip(known, reported, strict=False):
        add_report(trial, leaders, OBJECTIVES[:1], 1, **metrics)
    assert leaders.current() == []
    assert leaders.why_none() == why


def test_failed_trials_are_named_if_no_trial_leads() -> None:
    known = trials(2)
    known[1].state, known[1].error = State.FAILED, "ValueError: bad"
    leaders = Leaders(known, OBJECTIVES[:1], ())
    assert leaders.why_none() == "no trial has reported 'loss' yet; 1 failed, the first with: ValueError: bad"
    assert leaders.why_infeasible() == ""


def test_values_of_failed_trials_are_mentioned() -> None:
    known = trials(2)
    known[0].state, known[0].error, known[0].metrics = State.FAILED, "ValueError: bad", {"loss": 1.0}
    why = Leaders(known, OBJECTIVES[:1], ()).why_none()
    assert why == "all trials that reported 'loss' have failed; 1 failed, the first with: ValueError: bad"


def test_a_study_whose_trials_all_failed_says_so() -> None:
    known = trials(2)
    for trial in known:
        trial.state, trial.error, trial.metrics = State.FAILED, "ValueError: bad", {"loss": 1.0}
    assert Leaders(known, OBJECTIVES[:1], ()).why_none() == "all 2 trials failed, the first with: ValueError: bad"
    assert Leaders(known[:1], OBJECTIVES[:1], ()).why_none() == "the only trial failed with: ValueError: bad"


def test_values_of_later_steps_do_not_count_against_trials_with_fewer_steps() -> None:
    """One of two objectives is reported only at every fifth step."""
    known, objectives = trials(2), OBJECTIVES[:2]
    leaders = Leaders(known, objectives, ())
    for trial, pace in zip(known, (1.2, 1.0), strict=True):
        for step in range(1, 6):
            add_report(trial, leaders, objectives, step=step, loss=pace / step)
        add_report(trial, leaders, objectives, step=5, accuracy=0.5)
    add_report(known[0], leaders, objectives, step=9, loss=0.1)
    assert leaders.current() == [known[1]]
    known[0].state = State.COMPLETED
    leaders.note_change(known[0])
    assert leaders.current() == [known[0]]


def test_a_trial_with_nan_at_the_common_step_does_not_lead() -> None:
    table = Table(slots=2, trials=2, objectives=[Objective("loss", False), Objective("accuracy", True)])
    table.report(0, 1, math.nan, accuracy=0.5)
    table.report(0, 2, 0.4)  # its values are of step 1, the last step with an accuracy
    assert table.history.front == []
    table.report(1, 1, 0.3, accuracy=0.2)
    assert [trial.id for trial in table.history.front] == [1]
    table.report(0, 2, 0.4, accuracy=0.6)
    assert [trial.id for trial in table.history.front] == [0]
