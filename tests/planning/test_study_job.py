"""Tests of the job of a study: it has the trials and steps that the stopping rule would train."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thriftune as tt
from thriftune.errors import SettingError
from thriftune.planning import JobSpec, asha, hyperband, successive_halving
from thriftune.planning.study_job import job_of_study
from thriftune.replay.simulated_engine import Curve
from thriftune.space.objectives import parse_objectives
from thriftune.space.space import Space
from thriftune.state.spec import Spec
from thriftune.stopping import STOPPERS

SPACE = Space({"x": tt.Float(0.0, 1.0)})


def make_spec(stopping: str, trials: int | None = None, max_steps: int | None = 81, **options: Any) -> Spec:
    objectives = parse_objectives("loss", None)
    settings: Any = {"stopping": stopping, "stopping_options": options, "trials": trials, "max_steps": max_steps}
    return Spec(name="study", space=SPACE, objectives=objectives, seed=0, **settings)


def make_job(stopping: str, trials: int | None = None, **options: Any) -> JobSpec:
    return job_of_study(make_spec(stopping, trials, **options))[0]


def test_halving_runs_one_bracket_after_the_other_until_all_trials_are_used() -> None:
    bracket = successive_halving(27, 1, 81, 3)
    assert make_job("halving") == make_job("halving", 27) == bracket
    assert make_job("halving", 54) == bracket + bracket
    assert make_job("halving", 8, n=8, min_steps=2, eta=2) == successive_halving(8, 2, 81, 2)


def test_the_last_bracket_of_halving_has_the_remaining_trials() -> None:
    small_bracket = JobSpec.of([(9, 1), (3, 3), (1, 9), (1, 68)])
    assert make_job("halving", 27 + 9) == successive_halving(27, 1, 81, 3) + small_bracket
    assert [stage.trials for stage in make_job("halving", 2).stages] == [2, 1, 1, 1]


def test_hyperband_runs_its_kinds_of_brackets_in_turn() -> None:
    all_brackets = hyperband(1, 81, 3)
    stages = zip(all_brackets.stages, all_brackets.begins, strict=True)
    trials = sum(stage.trials for stage, begins in stages if begins == 0)
    assert make_job("hyperband") == make_job("hyperband", trials) == all_brackets
    assert make_job("hyperband", 2 * trials) == all_brackets + all_brackets
    first = successive_halving(81, 1, 81, 3)
    assert make_job("hyperband", 81) == first
    assert make_job("hyperband", 82).stages[len(first.stages) :][0].trials == 1


@given(
    rule=st.sampled_from(["halving", "hyperband"]),
    trials=st.integers(1, 60),
    eta=st.integers(2, 4),
    min_steps=st.integers(1, 4),
    n=st.integers(1, 30),
)
@settings(max_examples=25, deadline=None)
def test_the_stopping_rule_trains_as_many_trials_for_as_many_steps_as_the_job_has(
    rule: str, trials: int, eta: int, min_steps: int, n: int
) -> None:
    options = {"min_steps": min_steps, "eta": eta} | ({"n": n} if rule == "halving" else {})

    def curve(config: Any) -> Curve:
        return Curve(range(1, 13), [{"loss": config["x"]} for _ in range(12)], [1.0] * 12)

    result = tt.simulate(
        curve,
        space=SPACE,
        minimize="loss",
        stopping=STOPPERS.make(rule, options),
        searcher="random",
        trials=trials,
        max_steps=12,
    )
    job = job_of_study(make_spec(rule, trials, 12, **options))[0]
    assert sum(trial.step for trial in result.trials) == job.total_steps
    trials_by_last_step: Counter[int] = Counter()
    for stage, begins in zip(job.stages, job.begins, strict=True):
        trials_by_last_step[begins + stage.steps] += stage.trials
        if begins:
            trials_by_last_step[begins] -= stage.trials
    assert Counter(trial.step for trial in result.trials) == +trials_by_last_step


def test_asha_is_planned_with_the_expected_number_of_trials_at_each_rung() -> None:
    job, notes = job_of_study(make_spec("asha", 50, 200, eta=4))
    assert job == asha(50, 8, 200, 4), "the first rung is at a 25th of the steps"
    assert notes[0].startswith("asha: the plan assumes that an average number of trials continues from each rung")
    assert make_job("asha", 50, min_steps=2) == asha(50, 2, 81, 3)


@pytest.mark.parametrize("rule", ["median", "auto", "early_curve"])
def test_a_rule_whose_stops_cannot_be_predicted_is_planned_with_full_trials(rule: str) -> None:
    job, notes = job_of_study(make_spec(rule, 10))
    assert job == JobSpec.of([(10, 81)])
    assert notes == [
        f"{rule}: may stop trials early, which cannot be predicted; the plan assumes that every trial "
        "continues to step 81"
    ]


def test_a_study_without_a_stopping_rule_has_no_notes() -> None:
    assert job_of_study(make_spec("none", 10)) == (JobSpec.of([(10, 81)]), [])


def test_a_job_needs_max_steps_and_trials() -> None:
    with pytest.raises(SettingError, match="max_steps: is missing; a plan needs the number of steps of a trial"):
        job_of_study(make_spec("halving", 10, None))
    with pytest.raises(
        SettingError, match="trials: is missing; with stopping 'auto' a plan needs a number of tri"
    ):
        job_of_study(make_spec("auto"))
