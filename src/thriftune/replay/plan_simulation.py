"""Executes a plan in simulation: the conductor, a provisioner that follows the plan, and a virtual clock.

The conductor also runs real studies. A difference from the plan's own estimate therefore shows what the model in
planning/ leaves out or gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from thriftune.errors import SettingError
from thriftune.loop.conductor import Conductor
from thriftune.planning.machine_types import MachineType
from thriftune.planning.plan import Plan
from thriftune.planning.profile import slowness_factors
from thriftune.provisioning.plan_follower import PlanFollower
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulated_engine import Curve, SimulatedEngine, VirtualClock
from thriftune.replay.simulation_loop import drive
from thriftune.search.random import Random
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import TrialRecord
from thriftune.stopping.brackets import Brackets, BracketStage, reaches_stage_end
from thriftune.stopping.protocol import Verdict
from thriftune.study.result import Result


@dataclass(frozen=True, slots=True)
class ExecutedPlan:
    """The outcome of a simulated plan. `dollars`: the charge of the simulated cloud."""

    seconds: float
    dollars: float
    result: Result


def execute_plan(plan: Plan, seed: int = 0) -> ExecutedPlan:
    """Simulate the plan once; `seed` draws the latencies and the values of the trials.

    Raises SettingError for a plan with several kinds of machines, or with machines that may be preempted.
    """
    profile, kinds = plan.model.profile, list({id(choice.cloud): choice.cloud for choice in plan.choices}.values())
    if len(kinds) > 1 or kinds[0].survival is not None:
        raise SettingError(
            "execute_plan: the plan must use one kind of machine that is never preempted; "
            "plan.simulate() simulates any plan"
        )
    brackets = _brackets(plan)
    rng = np.random.default_rng(seed)
    clock = VirtualClock()
    cloud = SimulatedCloud([MachineType.of(kind) for kind in kinds], seed=seed)
    engine = SimulatedEngine(
        _curves(plan, brackets, profile.seconds(1) / kinds[0].speed, rng),
        clock,
        profile.startup,
        start_seconds=profile.startup,
        save_seconds=profile.checkpoint,
        pace=lambda run, _: profile.seconds(run.workers) / profile.seconds(1),
    )
    space, trials = Space({"x": Float(0.0, 1.0)}), sum(stages[0].trials for stages in brackets)
    last = max(stages[-1].end for stages in brackets)
    spec = Spec("plan", space, (Objective("loss", False),), seed, stopping="stages", trials=trials, max_steps=last)
    conductor = Conductor(spec, spec.new_history(), Random(), PlanFollower(plan), _Stages(brackets))
    drive(conductor, engine, clock, cloud=cloud)
    dollars = cloud.bill.dollars
    if kinds[0].billing == "per_function":
        dollars += engine.worker_seconds / kinds[0].slots * kinds[0].dollars_per_second
    return ExecutedPlan(clock.time, dollars, Result(spec, conductor.history))


class _Stages:
    """A stopping rule that follows the plan's stages: all trials of a stage wait for each other at its end."""

    name = "stages"

    def __init__(self, stages: Sequence[Sequence[BracketStage]]) -> None:
        self._stages = stages
        self._brackets: Brackets | None = None

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        stages = self._brackets_of(history).stages_of(trial.id)
        if trial.step >= stages[-1].end:
            return Verdict.STOP
        return Verdict.PAUSE if reaches_stage_end(trial, stages) else Verdict.GO_ON

    def promote(self, history: History, more: bool) -> int | None:
        return self._brackets_of(history).trial_to_promote(more)

    def _brackets_of(self, history: History) -> Brackets:
        if self._brackets is None or self._brackets.history is not history:
            self._brackets = Brackets(history, self._stages)
        return self._brackets


def _brackets(plan: Plan) -> list[list[BracketStage]]:
    """Return the stages of each bracket of the plan; a stage that begins at step 0 begins a bracket."""
    brackets: list[list[BracketStage]] = []
    for stage in plan.stages:
        if stage.begins == 0:
            brackets.append([])
        brackets[-1].append(BracketStage(stage.trials, stage.begins, stage.begins + stage.steps))
    return brackets


def _curves(
    plan: Plan, brackets: Sequence[Sequence[BracketStage]], seconds_per_step: float, rng: np.random.Generator
) -> Callable[[ev.Config], Curve]:
    """Return a function that draws the curve of a trial: random slowness by stage, a value by configuration.

    The function is called once for each trial, in the order of their numbers.
    """
    stages_by_trial = chain.from_iterable([stages] * stages[0].trials for stages in brackets)

    def curve(config: ev.Config) -> Curve:
        stages = next(stages_by_trial)
        slowness = slowness_factors(plan.model.profile.variation, rng.standard_normal(len(stages)))
        seconds = np.repeat(slowness * seconds_per_step, [stage.end - stage.start for stage in stages]).tolist()
        return Curve(range(1, len(seconds) + 1), [{"loss": config["x"]}] * len(seconds), seconds)

    return curve
