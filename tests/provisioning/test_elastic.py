"""Tests of the elastic policy, which follows a plan and plans again when the study departs from it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provisioning.conformance import check, check_machines, check_rents
from tests.provisioning.renting_study import RentingStudy
from tests.provisioning.studies import (
    FOREVER,
    CloudSetup,
    StudyOutcome,
    curve,
    limited_availability,
    make_spec,
    on_demand,
    preempted_by_price,
    random_lifetimes,
    run,
)
from tests.support.tables import replayed
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.market.price_history import PriceSeries
from thriftune.planning import JobSpec, replanning, successive_halving
from thriftune.planning.allocation import StageAllocation
from thriftune.planning.machine_types import MachineType
from thriftune.planning.replanning import CurrentStage
from thriftune.provisioning.elastic import Elastic
from thriftune.provisioning.policies import make_policy
from thriftune.provisioning.renting_policy import RETRY_SECONDS
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import State
from thriftune.stopping.successive_halving import SuccessiveHalving

TRIALS, STEPS = 8, 14
JOB = successive_halving(TRIALS, 2, STEPS, 2)  # 8 trials to step 2, 4 to step 6, 2 to step 14
SLOW, QUICK = on_demand("slow"), on_demand("quick", 3.0, 2.0)
STEP_SECONDS = 100.0


def rule() -> SuccessiveHalving:
    return SuccessiveHalving(TRIALS, min_steps=2, eta=2)


def terms(deadline: float | None = 3000.0, **others: Any) -> StudyWorkload:
    given: dict[str, Any] = {"at_a_time": TRIALS, "trials": TRIALS, "job": JOB, "seconds_per_step": STEP_SECONDS}
    return StudyWorkload(
        **{**given, "deadline_seconds": deadline, "restart_seconds": 5.0, "save_seconds": 2.0, **others}
    )


def even(config: ev.Config) -> Curve:
    """Return a curve whose steps take the stated time."""
    result = [{"loss": config["x"] + 1.0 / step} for step in range(1, STEPS + 1)]
    return Curve(range(1, STEPS + 1), result, [STEP_SECONDS] * STEPS)


def halved(
    machine_types: Sequence[MachineType] = (SLOW, QUICK),
    workload: StudyWorkload | None = None,
    slower: float = 1.0,
    **others: Any,
) -> StudyOutcome:
    given = {"curves": even, "pace": lambda machine_type: slower / machine_type.speed, "rule": rule, **others}
    return run(Elastic, CloudSetup(machine_types), workload or terms(), make_spec(TRIALS, steps=STEPS), **given)


def seconds(outcome: StudyOutcome) -> float:
    return outcome.history.driven_seconds(outcome.now)


def most_at_a_time(outcome: StudyOutcome) -> int:
    running: set[int] = set()
    most = 0
    for entry in outcome.log:
        if isinstance(entry, ev.Place):
            running.add(entry.trial)
        elif isinstance(entry, (ev.Ended, ev.Lost, ev.Failed)):
            running.discard(entry.trial)
        most = max(most, len(running))
    return most


def is_whole(outcome: StudyOutcome) -> bool:
    """Tell whether the right number of trials reached the end of each stage."""
    last = sorted(trial.step for trial in outcome.history.trials)
    return last == [2, 2, 2, 2, 6, 6, 14, 14]


# --- following the plan


@pytest.mark.parametrize("deadline", [1700.0, 2400.0, 3000.0, 5000.0, 9000.0])
def test_without_deviations_the_study_takes_and_costs_what_was_planned(deadline: float) -> None:
    outcome = halved(workload=terms(deadline))
    assert is_whole(outcome)
    assert seconds(outcome) <= deadline
    check(outcome)
    first = Elastic([SLOW, QUICK], terms(deadline))
    history = replayed(outcome.spec, outcome.log[:1])
    planned = first._replanner_for(history)
    first.current_stage(history)
    plan = planned._plans[0].plan
    assert outcome.ledger.dollars == pytest.approx(
        plan.cost, rel=0.05
    )  # the plan counts a restart for new trials, too
    assert seconds(outcome) == pytest.approx(plan.duration, rel=0.05)


def test_a_longer_deadline_costs_less() -> None:
    costs = [halved(workload=terms(deadline)).ledger.dollars for deadline in (700.0, 1000.0, 1700.0, 5000.0)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.65 * costs[0]


def test_without_a_deadline_the_cheapest_plan_is_followed() -> None:
    outcome = halved(workload=terms(None))
    assert outcome.offers() == {"slow": 1}  # a second machine would cost its start
    assert most_at_a_time(outcome) == 1
    assert outcome.ledger.dollars <= halved(workload=terms(9000.0)).ledger.dollars


def test_an_impossible_deadline_gives_the_fastest_plan() -> None:
    late, quickest = halved(workload=terms(300.0)), halved(workload=terms(760.0))
    assert set(late.offers()) == {"quick"}
    assert late.offers()["quick"] == TRIALS
    assert seconds(late) == seconds(quickest) > 300.0


@pytest.mark.parametrize(
    ("at_a_time", "are"), [(1, 1), (3, 3), (5, 4), (8, 8)]
)  # with 5 at a time, 8 trials need two rounds; 4 at a time are enough for that
def test_at_a_time_limits_parallel_trials(at_a_time: int, are: int) -> None:
    outcome = halved(workload=terms(300.0, at_a_time=at_a_time))
    assert most_at_a_time(outcome) == are
    assert is_whole(outcome)
    check(outcome)


def test_brackets_run_one_after_the_other() -> None:
    job = JOB + JOB
    workload = terms(6000.0, job=job, trials=2 * TRIALS)
    outcome = run(
        Elastic, CloudSetup([SLOW]), workload, make_spec(2 * TRIALS, steps=STEPS), curves=even, rule=rule
    )  # fmt: skip
    assert seconds(outcome) <= 6000.0
    first_end = max(trial.past_attempts[-1].ended_at for trial in outcome.history.trials[:TRIALS])
    assert all(trial.past_attempts[0].started_at >= first_end for trial in outcome.history.trials[TRIALS:])


# --- planning again


def without_replanning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replanning, "MAX_DEVIATION", math.inf)


def test_slower_machines_lead_to_a_new_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    anew = halved(slower=1.5)
    without_replanning(monkeypatch)
    stubborn = halved(slower=1.5)
    assert seconds(stubborn) > 3000.0 >= seconds(anew)
    assert is_whole(anew)
    assert is_whole(stubborn)


def test_faster_machines_lead_to_a_cheaper_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = terms(1200.0)
    anew = halved(workload=workload, slower=0.6)
    without_replanning(monkeypatch)
    stubborn = halved(workload=workload, slower=0.6)
    assert anew.ledger.dollars < 0.95 * stubborn.ledger.dollars
    assert seconds(anew) <= 1200.0


def test_small_deviations_keep_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    anew = halved(slower=1.03)
    without_replanning(monkeypatch)
    assert anew.log == halved(slower=1.03).log


def test_a_changed_price_leads_to_a_new_plan_at_the_next_stage() -> None:
    falls = PriceSeries("quick", "a", [-10.0, 100.0], [3.0, 1.0], end=FOREVER)
    outcome = halved([SLOW, replace(QUICK, price=falls)], workload=terms(2400.0))
    machine_types = {
        step: {
            outcome.cloud.kind_of(each.machine).name for each in outcome.of(ev.Place) if each.resume_step == step
        }
        for step in (0, 2, 6)
    }
    assert machine_types == {0: {"slow"}, 2: {"quick"}, 6: {"quick"}}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cloud", [random_lifetimes, preempted_by_price, limited_availability])
def test_different_trials_on_preempted_machines(cloud: Any, seed: int) -> None:
    workload = terms(20_000.0, seconds_per_step=320.0, seed=seed)
    spec = make_spec(TRIALS, steps=STEPS)
    outcome = run(Elastic, cloud(seed), workload, spec, curves=lambda config: curve(config, STEPS), rule=rule)
    assert is_whole(outcome)
    assert seconds(outcome) <= 20_000.0
    check(outcome)


# --- trials that fail or end early


def fails(config: ev.Config) -> Curve:
    found = even(config)
    if config["x"] < 0.4:
        return Curve([1], [{"loss": 1.0}], [STEP_SECONDS], "it broke")
    return found


def ends_early(config: ev.Config) -> Curve:
    found = even(config)
    if 0.1 < config["x"] < 0.35:
        return Curve(found.steps[:3], found.metrics[:3], found.seconds[:3])
    return found


@pytest.mark.parametrize("curves", [fails, ends_early])
def test_fewer_trials_than_planned_continue(curves: Any) -> None:
    outcome = halved(curves=curves)
    counts = outcome.history.counts
    assert counts[State.FAILED if curves is fails else State.COMPLETED] > 2
    assert any(trial.step == STEPS for trial in outcome.history.trials)
    assert seconds(outcome) <= 3000.0
    check(outcome)


def test_nothing_is_rented_after_all_trials_failed() -> None:
    broken = Curve([1], [{"loss": 1.0}], [STEP_SECONDS], "it broke")
    outcome = halved(curves=lambda _: broken)
    assert outcome.history.counts[State.FAILED] == TRIALS
    check(outcome)


# --- a driver that is killed


class Watched(Elastic):
    """An Elastic that records which choices all drivers followed in each stage."""

    followed: defaultdict[int, list[StageAllocation]] = defaultdict(list)

    def current_stage(self, history: History) -> CurrentStage:
        found = super().current_stage(history)
        known = self.followed[found.number]
        if found.choice not in known:
            known.append(found.choice)
        return found


@settings(max_examples=8, deadline=None)
@given(kills=st.lists(st.integers(1, 120), max_size=4), slower=st.sampled_from([0.6, 1.0, 1.5]), data=st.data())
def test_a_stage_keeps_its_plan_across_drivers(kills: list[int], slower: float, data: st.DataObject) -> None:
    """A replay of any part of the log gives the same plan."""
    Watched.followed.clear()
    setup = data.draw(st.sampled_from([CloudSetup([SLOW, QUICK]), random_lifetimes(1)]))
    workload = terms(4000.0)
    spec = make_spec(TRIALS, steps=STEPS)
    outcome = run(
        Watched,
        setup,
        workload,
        spec,
        kill_after=kills,
        curves=even,
        pace=lambda machine_type: slower / machine_type.speed,
        rule=rule,
    )
    assert is_whole(outcome)
    check_machines(outcome)
    check_rents(outcome)
    assert sorted(Watched.followed) == [0, 1, 2]
    assert all(len(choices) == 1 for choices in Watched.followed.values())
    for length in data.draw(st.lists(st.integers(1, len(outcome.log)), min_size=4, max_size=4)):
        found = Elastic(setup.kinds, workload).current_stage(replayed(spec, outcome.log[:length]))
        assert [found.choice] == Watched.followed[found.number]


@settings(max_examples=10, deadline=None)
@given(cycle=st.integers(1, 100))
def test_a_resumed_study_loses_only_unsaved_steps_and_starts(cycle: int) -> None:
    """A killed driver costs only the unsaved steps and a start."""
    resumed = halved(slower=1.5, kill_after=[cycle])
    assert is_whole(resumed)
    assert seconds(resumed) <= 3000.0 + 8.0 * 1.5 * STEP_SECONDS


# --- event by event


def make_study(*machine_types: MachineType, **workload: Any) -> RentingStudy:
    return RentingStudy(Elastic(machine_types, terms(**workload)), trials=TRIALS, max_steps=STEPS, stopper=rule())


def end_stage(study: RentingStudy, trials: Sequence[int], last: int) -> list[str]:
    """Let these trials reach the end of their stage."""
    result: list[str] = []
    for trial in trials:
        result += study.report(trial, last, loss=0.1 * trial, saved=True)
        result += study.end(trial, cut=last < STEPS)
    return result


def started(study: RentingStudy, count: int, machine_type: str = "slow") -> None:
    result = study.begin()
    assert result == [f"rent {machine_type}-{number}" for number in range(1, count + 1)]
    for number in range(1, count + 1):
        study.machine_arrives(f"{machine_type}-{number}")


def test_machines_that_no_stage_needs_are_released() -> None:
    study = make_study(SLOW, deadline=1560.0)  # all trials run in parallel
    started(study, TRIALS)
    study.now += 200.0
    result = [end_stage(study, [trial], 2) for trial in range(TRIALS)]
    kept = [each for each in result if each == [f"pause {result.index(each)}/1"]]
    assert len(kept) == 3, "the last four machines stay for the next stage"
    assert [line for each in result for line in each if line.startswith("release")] == [
        f"release slow-{number}" for number in (1, 2, 3, 4)
    ]
    assert [line for line in result[-1] if line.startswith("place")] == [
        f"place {trial}/2 on slow-{machine} from 2" for trial, machine in zip(range(4), (5, 6, 7, 8), strict=True)
    ]


def test_a_preempted_machine_is_rented_again() -> None:
    study = make_study(SLOW, deadline=1560.0)
    started(study, TRIALS)
    study.pass_time(400.0)
    assert study.machine_preempted("slow-3") == ["rent slow-9"]
    assert study.machine_arrives("slow-9") == ["place 2/2 on slow-9"]


def test_after_repeated_refusals_another_type_is_rented() -> None:
    study = make_study(SLOW, QUICK, deadline=None)
    assert study.begin() == ["rent slow-1"]
    assert study.refuse_machines("slow-1") == []
    assert study.pass_time(RETRY_SECONDS - 1.0) == []
    assert study.pass_time(1.0) == ["rent slow-2"]
    assert study.refuse_machines("slow-2") == ["rent quick-3"]
    assert study.machine_arrives("quick-3") == ["place 0/1 on quick-3"]


def test_the_cheapest_other_type_that_is_as_fast_is_rented() -> None:
    others = [on_demand("snail", 0.99, 0.5), on_demand("same", 1.5), on_demand("dear", 4.0), QUICK]
    study = make_study(on_demand("best", 0.5), *others, deadline=None)
    study.begin()
    study.refuse_machines("best-1")
    study.pass_time(RETRY_SECONDS)
    assert study.refuse_machines("best-2") == ["rent same-3"]
    # "quick" costs as many dollars per step as "same", and fewer than "dear".
    assert study.refuse_machines("same-3") == ["rent quick-4"]
    assert study.refuse_machines("quick-4") == ["rent dear-5"]
    assert study.refuse_machines("dear-5") == ["rent snail-6"]
    assert study.refuse_machines("snail-6") == []


def test_a_substitute_machine_is_used_only_until_the_planned_type_is_available() -> None:
    study = make_study(SLOW, QUICK, deadline=None)
    study.begin()
    study.refuse_machines("slow-1")
    study.pass_time(RETRY_SECONDS)
    study.refuse_machines("slow-2")
    study.pass_time(RETRY_SECONDS)
    study.machine_arrives("quick-3")
    study.now += 100.0
    result = end_stage(study, [0], 2)
    assert result == ["pause 0/1", "create 1", "rent slow-4", "release quick-3"]


def test_a_machine_preempted_at_once_counts_as_refused() -> None:
    study = make_study(SLOW, deadline=None)
    started(study, 1)
    study.pass_time(60.0)
    assert study.machine_preempted("slow-1") == []
    assert study.pass_time(RETRY_SECONDS - 1.0) == []
    assert study.pass_time(2.0) == ["rent slow-2"]


# --- the workload


def test_a_study_without_stages_has_one_stage() -> None:
    workload = StudyWorkload(2, 6, deadline_seconds=6200.0, seconds_per_step=STEP_SECONDS)
    outcome = run(
        Elastic,
        CloudSetup([SLOW, QUICK]),
        workload,
        make_spec(6, steps=20),
        curves=lambda config: curve(config, 20),
    )
    assert outcome.history.counts[State.COMPLETED] == 6
    assert most_at_a_time(outcome) == 2


def test_types_preempted_by_price_are_not_used() -> None:
    study = preempted_by_price(0)
    outcome = run(Elastic, study, terms(20_000.0), make_spec(TRIALS, steps=STEPS), curves=even, rule=rule)
    assert set(outcome.offers()) == {"stays"}
    with pytest.raises(SettingError, match="elastic: all machine types are preempted by price"):
        Elastic(study.kinds[:2], terms())


def test_lifetimes_of_spot_machines_are_part_of_the_plan() -> None:
    short, long = (
        MachineType("short", 0.7, survival=Exponential(0.01)),
        MachineType("long", 0.7, survival=Exponential(9.0)),
    )
    assert make_study(short, long, SLOW, deadline=None).begin() == ["rent long-1"]
    assert make_study(short, SLOW, deadline=None).begin() == ["rent slow-1"]


def test_the_number_of_trials_and_steps_is_required() -> None:
    with pytest.raises(SettingError, match="elastic: a plan needs the number of trials"):
        make_policy("elastic", [SLOW], StudyWorkload())
    study = RentingStudy(make_policy("elastic", [SLOW], StudyWorkload(trials=4)), max_steps=None)
    with pytest.raises(SettingError, match="elastic: a plan needs the number of steps of a trial"):
        study.begin()
    assert RentingStudy(make_policy("elastic", [SLOW], StudyWorkload(job=JobSpec.of([(2, 3)])))).begin() == [
        "rent slow-1"
    ]
