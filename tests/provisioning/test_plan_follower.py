"""Plans that are carried out: by the conductor, on machines that come, go and are lost."""

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
from thriftune.planning.plan import make
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
    """Machines, trials at a time and workers of each stage."""
    choices = [StageAllocation(CLOUD, machines, Allocation(at, workers)) for machines, at, workers in shape]
    return make(CostModel(spec, profile or Profile(SECONDS, startup=2.0, checkpoint=1.0)), choices, "test")


# --- against what was predicted


@pytest.mark.parametrize(
    "spec",
    [successive_halving(64, 4, 508, 2), successive_halving(32, 1, 50, 3), hyperband(1, 27, 3)],
    ids=["SHA(64, 4, 508)", "SHA(32, 1, 50, 3)", "hyperband"],
)
@pytest.mark.parametrize("billing", ["per_instance", "per_function"])
def test_where_nothing_is_random_it_takes_and_costs_what_was_said(spec: JobSpec, billing: BillingMode) -> None:
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
def test_any_plan_is_carried_out_as_predicted(data: st.DataObject) -> None:
    """Also those that no planner would make, which hold machines for nothing or send them away and back."""
    stages = [(8, data.draw(st.integers(1, 5)))]
    for _ in range(data.draw(st.integers(0, 3))):
        stages.append((max(1, stages[-1][0] // 2), data.draw(st.integers(1, 5))))
    shape = []
    for trials, _ in stages:
        at_a_time = data.draw(st.sampled_from([part for part in range(1, trials + 1) if trials % part == 0]))
        workers = data.draw(st.integers(1, 8)) if at_a_time == trials else 1
        need = CLOUD.machines_for(at_a_time, workers)
        shape.append((need + data.draw(st.integers(0, 2)), at_a_time, workers))
    plan = planned(JobSpec.of(stages), *shape)
    found = execute_plan(plan)
    assert found.seconds == pytest.approx(plan.duration)
    assert found.dollars == pytest.approx(plan.cost)


def test_on_average_it_is_what_was_predicted() -> None:
    profile = Profile(SECONDS, std=0.6, startup=2.0, checkpoint=1.0)
    cloud = CloudProfile(slots=4, price_per_hour=12.24, queue=Latency(10, 4), init=Latency(15, 6), minimum=60.0)
    for plan in frontier(successive_halving(16, 1, 31, 2), profile, cloud, points=3):
        found = [execute_plan(plan, seed) for seed in range(60)]
        for told, expected in (("seconds", plan.duration), ("dollars", plan.cost)):
            values = np.array([getattr(each, told) for each in found])
            assert abs(values.mean() - expected) < 4.0 * values.std() / np.sqrt(len(values))


def test_plan_with_spot_machines_cannot_be_executed() -> None:
    spot = CloudProfile(slots=4, price_per_hour=1.0, survival=Exponential(5.0))
    plan = make(
        CostModel(JobSpec.of([(2, 1)]), Profile({1: 1.0})), [StageAllocation(spot, 1, Allocation(2, 1))], "test"
    )
    with pytest.raises(SettingError, match="one kind of machine that is never preempted"):
        execute_plan(plan)


# --- event by event

SPEC = JobSpec.of([(4, 1), (2, 2)])


def table(plan: Plan) -> Table:
    brackets = [[BracketStage(4, 0, 1), BracketStage(2, 1, 3)]]
    return Table(slots=0, trials=4, max_steps=3, provisioner=PlanFollower(plan), stopper=_Stages(brackets))


def comes(where: Table, *machines: str) -> list[str]:
    """Machines of the plan are handed over and ready, one turn each."""
    told: list[str] = []
    for machine in machines:
        told += where(
            ev.MachineRented(where.now, machine, "machine", 12.24),
            ev.MachineReady(where.now, machine, "machine", 4, 12.24),
        )
    return told


def through(where: Table, trials: list[int], step: int) -> list[str]:
    """These trials come to a step, and end as they are told to."""
    told: list[str] = []
    for trial in trials:
        told += where.report(trial, step, loss=float(trial), saved=True)
        told += where.end(trial, cut=True)
    return told


def test_trials_start_when_all_machines_are_there_and_machines_go_when_all_are_through() -> None:
    where = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    assert where(ev.DriverStarted(where.now, 1, "host")) == ["rent machine-1", "rent machine-2"]
    assert comes(where, "machine-1") == []
    assert len(comes(where, "machine-2")) == 8  # four are created and placed
    assert [where.trial(i).workers for i in range(4)] == [{"machine-1": 2}] * 2 + [{"machine-2": 2}] * 2
    assert through(where, [0, 1, 2], 1) == ["pause 0/1", "pause 1/1", "pause 2/1"]
    told = through(where, [3], 1)
    assert told[:2] == ["pause 3/1", "release machine-1"]
    assert told[2:] == ["promote 0", "place 0/2 on machine-2 from 1", "promote 1", "place 1/2 on machine-2 from 1"]
    where(ev.MachineReleased(where.now, "machine-1"))
    for trial in (0, 1):
        where.report(trial, 3, loss=0.1, saved=True)
    where.end(0)
    assert where.end(1) == ["release machine-2", "finish: all 4 trials done"]


def test_a_machine_that_is_lost_is_replaced_and_its_trials_go_on_there() -> None:
    where = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    where(ev.DriverStarted(where.now, 1, "host"))
    comes(where, "machine-1", "machine-2")
    assert where(ev.MachineLost(where.now, "machine-1", "gone")) == ["rent machine-3"]
    assert [where.trial(i).state for i in range(4)] == [State.WAITING, State.WAITING, State.RUNNING, State.RUNNING]
    assert comes(where, "machine-3") == ["place 0/2 on machine-3", "place 1/2 on machine-3"]


def test_a_new_driver_goes_on_in_the_stage_it_was() -> None:
    where = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    where(ev.DriverStarted(where.now, 1, "host"))
    comes(where, "machine-1", "machine-2")
    through(where, [0, 1, 2, 3], 1)
    where(ev.MachineReleased(where.now, "machine-1"))
    where.report(0, 2, loss=0.1, saved=True)
    where.kill_driver()
    where._provisioner = PlanFollower(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    where.conductor = where._conductor()
    told = where(ev.DriverStarted(where.now, 2, "host"))
    assert told == ["place 0/3 on machine-2 from 2", "place 1/3 on machine-2 from 1"]


def test_a_trial_that_fails_keeps_nobody_waiting() -> None:
    where = table(planned(SPEC, (1, 4, 1), (1, 2, 2)))
    where(ev.DriverStarted(where.now, 1, "host"))
    comes(where, "machine-1")
    where.fail(0)
    where.fail(0)
    told = through(where, [1, 2, 3], 1)
    assert told[3:] == ["promote 1", "place 1/2 on machine-1 from 1", "promote 2", "place 2/2 on machine-1 from 1"]


# --- machines that fail, and that are refused


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
def test_on_machines_that_fail_trials_save_now_and_then(
    checkpoint: float, mean_hours: float | None, every: float
) -> None:
    """A hundredth of the time goes into saving at most; more where machines are taken away so often."""
    survival = None if mean_hours is None else Exponential(mean_hours)
    profile = Profile(SECONDS, startup=2.0, checkpoint=checkpoint)
    choices = [StageAllocation(replace(CLOUD, survival=survival), 1, Allocation(4, 1)) for _ in SPEC.stages]
    plan = make(CostModel(SPEC, profile), choices, "test")
    where = table(plan)
    where(ev.DriverStarted(where.now, 1, "host"))
    comes(where, "machine-1")
    asked = (where.trial(0), "machine-1", where.history)
    assert PlanFollower(plan, machines_fail=True).save_every(*asked) == pytest.approx(every, rel=0.01)
    assert PlanFollower(plan).save_every(*asked) is None, "where none fails, at the end of a stage is enough"


def test_what_is_refused_is_asked_for_again_after_a_while() -> None:
    where = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    assert where(ev.DriverStarted(where.now, 1, "host")) == ["rent machine-1", "rent machine-2"]
    comes(where, "machine-1")
    assert where(ev.MachineRefused(where.now, "machine-2", "machine", "none left")) == []
    assert where.later(10.0) == []
    assert not where.history.running, "a stage does not begin with half of its machines"
    assert where.later(21.0) == ["rent machine-3"]
    assert len(comes(where, "machine-3")) == 8


def test_a_stage_whose_machines_are_not_to_be_had_goes_on_with_those_that_are() -> None:
    """To wait for the others would be to pay for these until the deadline, for nothing."""
    where = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    where(ev.DriverStarted(where.now, 1, "host"))
    comes(where, "machine-1")
    where(ev.MachineRefused(where.now, "machine-2", "machine", "none left"))
    assert where.later(31.0) == ["rent machine-3"]
    told = where(ev.MachineRefused(where.now, "machine-3", "machine", "none left"))
    assert [line for line in told if line.startswith("place")] == [f"place {i}/1 on machine-1" for i in range(2)]
    assert through(where, [0, 1], 1)[-1] == "place 3/1 on machine-1"


def test_a_trial_has_no_more_workers_than_there_is_room_for() -> None:
    where = table(planned(SPEC, (2, 1, 8), (1, 2, 2)))
    where(ev.DriverStarted(where.now, 1, "host"))
    comes(where, "machine-1")
    where(ev.MachineRefused(where.now, "machine-2", "machine", "none left"))
    where.later(31.0)
    where(ev.MachineRefused(where.now, "machine-3", "machine", "none left"))
    assert where.trial(0).workers == {"machine-1": 4}


def test_a_machine_that_is_to_be_taken_away_is_let_go_when_all_have_left_it() -> None:
    """Whether it is taken away or not."""
    where = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    where(ev.DriverStarted(where.now, 1, "host"))
    comes(where, "machine-1", "machine-2")
    told = where(ev.MachineNotice(where.now, "machine-1", where.now + 30.0))
    assert told == ["move 0/1", "move 1/1", "rent machine-3"]
    assert where.end(0, cut=True) == []
    assert where.end(1, cut=True) == ["release machine-1"]
    assert where.later(60.0) == []


def test_when_the_plan_is_over_its_machines_go_though_the_study_may_have_more_trials() -> None:
    where = table(planned(SPEC, (1, 4, 1), (1, 2, 2)))
    where.kill_driver(trials=5)
    where(ev.DriverStarted(where.now, 1, "host"))
    comes(where, "machine-1")
    through(where, [0, 1, 2, 3], 1)
    told: list[str] = []
    for trial in (0, 1):
        where.report(trial, 3, loss=0.1, saved=True)
        told += where.end(trial)
    assert told == ["release machine-1"]
    assert where.history.finish_reason is None


def test_a_study_that_stops_rents_nothing_more() -> None:
    where = table(planned(SPEC, (2, 4, 2), (1, 2, 2)))
    where(ev.DriverStarted(where.now, 1, "host"))
    comes(where, "machine-1", "machine-2")
    where(ev.StopRequested(where.now, "Ctrl-C"))
    told: list[str] = []
    for trial in range(4):
        where.report(trial, 1, loss=float(trial), saved=True)
        told += where.end(trial, cut=True)
    assert sorted(told) == ["release machine-1", "release machine-2"]
    released = [ev.MachineReleased(where.now, f"machine-{number}") for number in (1, 2)]
    assert where(*released, ev.DriverStopped(where.now)) == []
    where.kill_driver()
    assert where(ev.DriverStarted(where.now, 2, "host")) == ["rent machine-3"], "and the next one goes on at once"
