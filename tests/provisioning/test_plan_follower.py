"""Tests of plans executed by the conductor, on machines that arrive, fail and are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tables import Table
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.planning import (
    CloudProfile,
    JobSpec,
    Latency,
    Plan,
    Profile,
    frontier,
    hyperband,
    successive_halving,
)
from thriftune.planning.allocation import Allocation, StageAllocation
from thriftune.planning.cloud_profile import BillingMode
from thriftune.planning.cost_model import CostModel
from thriftune.planning.plan import make_plan
from thriftune.provisioning.plan_follower import PlanFollower
from thriftune.replay.plan_simulation import _Stages, execute_plan
from thriftune.state import events as ev
from thriftune.state.trial_record import State
from thriftune.stopping.brackets import BracketStage

SECONDS = {1: 4.0, 2: 2.2, 4: 1.3, 8: 0.9}
CLOUD = CloudProfile(
    slots=4, price_per_hour=12.24, queue=5.0, init=15.0, minimum=60.0, data_gb=1.0, data_price=0.1
)


def planned(spec: JobSpec, *shape: tuple[int, int, int], profile: Profile | None = None) -> Plan:
    """Return the plan with these (machines, trials at a time, workers) of each stage."""
    choices = [StageAllocation(CLOUD, machines, Allocation(at, workers)) for machines, at, workers in shape]
    return make_plan(CostModel(spec, profile or Profile(SECONDS, startup=2.0, checkpoint=1.0)), choices, "test")


# --- comparison with the prediction


@pytest.mark.parametrize(
    "spec",
    [successive_halving(64, 4, 508, 2), successive_halving(32, 1, 50, 3), hyperband(1, 27, 3)],
    ids=["SHA(64, 4, 508)", "SHA(32, 1, 50, 3)", "hyperband"],
)
@pytest.mark.parametrize("billing", ["per_instance", "per_function"])
def test_without_randomness_time_and_cost_are_as_predicted(spec: JobSpec, billing: BillingMode) -> None:
    cloud = replace(CLOUD, billing=billing)
    for plan in frontier(spec, Profile(SECONDS, startup=2.0, checkpoint=1.0), cloud, points=5):
        found = execute_plan(plan)
        assert found.seconds == pytest.approx(plan.duration)
        assert found.dollars == pytest.approx(plan.cost)
        trials = found.result.trials
        assert len(trials) == sum(stage.trials for stage in plan.stages if not stage.begins)
        assert sum(report.step for trial in trials for report in trial.reports[-1:]) == spec.total_steps


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_plan_is_executed_as_predicted(data: st.DataObject) -> None:
    """Includes plans that no planner would make, with unused machines or needless changes."""
    stages = [(8, data.draw(st.integers(1, 5)))]
    for _ in range(data.draw(st.integers(0, 3))):
        stages.append((max(1, stages[-1][0] // 2), data.draw(st.integers(1, 5))))
    shape = []
    for trials, _ in stages:
        at_a_time = data.draw(st.sampled_from([part for part in range(1, trials + 1) if trials % part == 0]))
        workers = data.draw(st.integers(1, 8)) if at_a_time == trials else 1
        need = CLOUD.machines_needed(at_a_time, workers)
        shape.append((need + data.draw(st.integers(0, 2)), at_a_time, workers))
    plan = planned(JobSpec.of(stages), *shape)
    found = execute_plan(plan)
    assert found.seconds == pytest.approx(plan.duration)
    assert found.dollars == pytest.approx(plan.cost)


def test_mean_time_and_cost_are_as_predicted() -> None:
    profile = Profile(SECONDS, std=0.6, startup=2.0, checkpoint=1.0)
    cloud = CloudProfile(slots=4, price_per_hour=12.24, queue=Latency(10, 4), init=Latency(15, 6), minimum=60.0)
    for plan in frontier(successive_halving(16, 1, 31, 2), profile, cloud, points=3):
        found = [execute_plan(plan, seed) for seed in range(60)]
        for result, expected in (("seconds", plan.duration), ("dollars", plan.cost)):
            values = np.array([getattr(each, result) for each in found])
            assert abs(values.mean() - expected) < 4.0 * values.std() / np.sqrt(len(values))


def test_plans_that_cannot_be_executed_are_rejected() -> None:
    spot = CloudProfile(slots=4, price_per_hour=1.0, survival=Exponential(5.0))
    plan = make_plan(
        CostModel(JobSpec.of([(2, 1)]), Profile({1: 1.0})), [StageAllocation(spot, 1, Allocation(2, 1))], "test"
    )
    with pytest.raises(SettingError, match="one kind of machine that is never preempted"):
        execute_plan(plan)


# --- event by event

SPEC = JobSpec.of([(4, 1), (2, 2)])


def table(plan: Plan) -> Table:
    brackets = [[BracketStage(4, 0, 1), BracketStage(2, 1, 3)]]
    return Table(slots=0, trials=4, max_steps=3, provisioner=PlanFollower(plan), stopper=_Stages(brackets))


def arrive(study: Table, *machines: str) -> list[str]:
    """Let these machines of the plan arrive one after the other."""
    result: list[str] = []
    for machine in machines:
        result += study(
            ev.MachineRented(study.now, machine, "machine", 12.24),
            ev.MachineReady(study.now, machine, "machine", 4, 12.24),
        )
    return result


def end_stage(study: Table, trials: list[int], step: int) -> list[str]:
    """Let these trials reach a step, save, and end as requested."""
    result: list[str] = []
    for trial in trials:
        result += study.report(trial, step, loss=float(trial), saved=True)
        result += study.end(trial, cut=True)
    return result


def test_trials_wait_for_all_machines_and_machines_are_released_after_the_stage() -> None:
    study = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    assert study(ev.DriverStarted(study.now, 1, "host")) == ["rent machine-1", "rent machine-2"]
    assert arrive(study, "machine-1") == []
    assert len(arrive(study, "machine-2")) == 8  # four are created and placed
    assert [study.trial(i).workers for i in range(4)] == [{"machine-1": 2}] * 2 + [{"machine-2": 2}] * 2
    assert end_stage(study, [0, 1, 2], 1) == ["pause 0/1", "pause 1/1", "pause 2/1"]
    result = end_stage(study, [3], 1)
    assert result[:2] == ["pause 3/1", "release machine-1"]
    assert result[2:] == [
        "promote 0",
        "place 0/2 on machine-2 from 1",
        "promote 1",
        "place 1/2 on machine-2 from 1",
    ]
    study(ev.MachineReleased(study.now, "machine-1"))
    for trial in (0, 1):
        study.report(trial, 3, loss=0.1, saved=True)
    study.end(0)
    assert study.end(1) == ["release machine-2", "finish: all 4 trials done"]


def test_a_preempted_machine_is_replaced_and_its_trials_continue_there() -> None:
    study = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    study(ev.DriverStarted(study.now, 1, "host"))
    arrive(study, "machine-1", "machine-2")
    assert study(ev.MachineLost(study.now, "machine-1", "gone")) == ["rent machine-3"]
    assert [study.trial(i).state for i in range(4)] == [State.WAITING, State.WAITING, State.RUNNING, State.RUNNING]
    assert arrive(study, "machine-3") == ["place 0/2 on machine-3", "place 1/2 on machine-3"]


def test_a_new_driver_continues_in_the_same_stage() -> None:
    study = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    study(ev.DriverStarted(study.now, 1, "host"))
    arrive(study, "machine-1", "machine-2")
    end_stage(study, [0, 1, 2, 3], 1)
    study(ev.MachineReleased(study.now, "machine-1"))
    study.report(0, 2, loss=0.1, saved=True)
    study.kill_driver()
    study._provisioner = PlanFollower(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    study.conductor = study._conductor()
    result = study(ev.DriverStarted(study.now, 2, "host"))
    assert result == ["place 0/3 on machine-2 from 2", "place 1/3 on machine-2 from 1"]


def test_a_failed_trial_does_not_delay_the_next_stage() -> None:
    study = table(planned(SPEC, (1, 4, 1), (1, 2, 2)))
    study(ev.DriverStarted(study.now, 1, "host"))
    arrive(study, "machine-1")
    study.fail(0)
    study.fail(0)
    result = end_stage(study, [1, 2, 3], 1)
    assert result[3:] == [
        "promote 1",
        "place 1/2 on machine-1 from 1",
        "promote 2",
        "place 2/2 on machine-1 from 1",
    ]


# --- failures and refusals


@pytest.mark.parametrize(
    ("checkpoint", "mean_hours", "every"),
    [
        (0.0, None, 10.0),
        (0.5, None, 50.0),
        (2.0, None, 200.0),
        (2.0, 1.0, (2 * 2.0 * 3600.0) ** 0.5),
        (2.0, 1000.0, 200.0),
    ],
)
def test_trials_save_regularly_if_machines_can_fail(
    checkpoint: float, mean_hours: float | None, every: float
) -> None:
    """Saves take at most a hundredth of the time, or more on machines with short lifetimes."""
    survival = None if mean_hours is None else Exponential(mean_hours)
    profile = Profile(SECONDS, startup=2.0, checkpoint=checkpoint)
    choices = [StageAllocation(replace(CLOUD, survival=survival), 1, Allocation(4, 1)) for _ in SPEC.stages]
    plan = make_plan(CostModel(SPEC, profile), choices, "test")
    study = table(plan)
    study(ev.DriverStarted(study.now, 1, "host"))
    arrive(study, "machine-1")
    request = (study.trial(0), "machine-1", study.history)
    assert PlanFollower(plan, machines_fail=True).save_every(*request) == pytest.approx(every, rel=0.01)
    assert PlanFollower(plan).save_every(*request) is None, "where none fails, at the end of a stage is enough"


def test_a_refused_machine_is_requested_again_later() -> None:
    study = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    assert study(ev.DriverStarted(study.now, 1, "host")) == ["rent machine-1", "rent machine-2"]
    arrive(study, "machine-1")
    assert study(ev.MachineRefused(study.now, "machine-2", "machine", "none left")) == []
    assert study.later(10.0) == []
    assert not study.history.running, "a stage does not begin with half of its machines"
    assert study.later(21.0) == ["rent machine-3"]
    assert len(arrive(study, "machine-3")) == 8


def test_a_stage_starts_with_fewer_machines_after_repeated_refusals() -> None:
    """Waiting for more machines would cost the price of the present ones until the deadline."""
    study = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    study(ev.DriverStarted(study.now, 1, "host"))
    arrive(study, "machine-1")
    study(ev.MachineRefused(study.now, "machine-2", "machine", "none left"))
    assert study.later(31.0) == ["rent machine-3"]
    result = study(ev.MachineRefused(study.now, "machine-3", "machine", "none left"))
    assert [line for line in result if line.startswith("place")] == [f"place {i}/1 on machine-1" for i in range(2)]
    assert end_stage(study, [0, 1], 1)[-1] == "place 3/1 on machine-1"


def test_a_trial_has_at_most_the_workers_that_fit() -> None:
    study = table(planned(SPEC, (2, 1, 8), (1, 2, 2)))
    study(ev.DriverStarted(study.now, 1, "host"))
    arrive(study, "machine-1")
    study(ev.MachineRefused(study.now, "machine-2", "machine", "none left"))
    study.later(31.0)
    study(ev.MachineRefused(study.now, "machine-3", "machine", "none left"))
    assert study.trial(0).workers == {"machine-1": 4}


def test_a_machine_with_a_notice_is_released_when_it_is_empty() -> None:
    """The machine is released even if it is not preempted in the end."""
    study = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    study(ev.DriverStarted(study.now, 1, "host"))
    arrive(study, "machine-1", "machine-2")
    result = study(ev.MachineNotice(study.now, "machine-1", study.now + 30.0))
    assert result == ["move 0/1", "move 1/1", "rent machine-3"]
    assert study.end(0, cut=True) == []
    assert study.end(1, cut=True) == ["release machine-1"]
    assert study.later(60.0) == []


def test_machines_are_released_after_the_last_stage() -> None:
    study = table(planned(SPEC, (1, 4, 1), (1, 2, 2)))
    study.kill_driver(trials=5)
    study(ev.DriverStarted(study.now, 1, "host"))
    arrive(study, "machine-1")
    end_stage(study, [0, 1, 2, 3], 1)
    result: list[str] = []
    for trial in (0, 1):
        study.report(trial, 3, loss=0.1, saved=True)
        result += study.end(trial)
    assert result == ["release machine-1"]
    assert study.history.finish_reason is None


def test_a_study_that_stops_rents_nothing_more() -> None:
    study = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    study(ev.DriverStarted(study.now, 1, "host"))
    arrive(study, "machine-1", "machine-2")
    study(ev.StopRequested(study.now, "Ctrl-C"))
    result: list[str] = []
    for trial in range(4):
        study.report(trial, 1, loss=float(trial), saved=True)
        result += study.end(trial, cut=True)
    assert sorted(result) == ["release machine-1", "release machine-2"]
    released = [ev.MachineReleased(study.now, f"machine-{number}") for number in (1, 2)]
    assert study(*released, ev.DriverStopped(study.now)) == []
    study.kill_driver()
    assert study(ev.DriverStarted(study.now, 2, "host")) == ["rent machine-3"], "and the next one goes on at once"
