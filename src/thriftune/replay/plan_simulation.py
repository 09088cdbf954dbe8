"""What comes of a plan when the conductor carries it out? Trials, machines and latencies on a virtual clock.

This is the loop that runs real studies, with a provisioner that follows the plan, an engine and a cloud that are
made up: what the model of planning/ left out or got wrong shows as a difference.
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
from thriftune.planning.profile import slownesses
from thriftune.provisioning.plan_follower import PlanFollower
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulated_engine import Curve, SimulatedEngine, VirtualClock
from thriftune.replay.simulation import drive
from thriftune.results.result import Result
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


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """`dollars`: the cloud's charge."""

    seconds: float
    dollars: float
    result: Result


def carry_out(plan: Plan, seed: int = 0) -> CarriedOut:
    """The plan, once, with latencies drawn by this seed. How good a trial is, is drawn as well."""
    profile, kinds = plan.model.profile, list({id(choice.cloud): choice.cloud for choice in plan.choices}.values())
    if len(kinds) > 1 or kinds[0].survival is not None:
        raise SettingError(
            "carry_out: takes a plan on one kind of machine that is not taken away; plan.simulate() draws any"
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
    return CarriedOut(clock.time, dollars, Result(spec, conductor.history))


class _Stages:
    """The plan's stages as a stopping rule: all of a stage's trials wait for each other."""

    name = "stages"

    def __init__(self, kinds: Sequence[Sequence[BracketStage]]) -> None:
        self._kinds = kinds
        self._brackets: Brackets | None = None

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        stages = self._of(history).stages_of(trial.id)
        if trial.step >= stages[-1].end:
            return Verdict.STOP
        return Verdict.PAUSE if reaches_stage_end(trial, stages) else Verdict.GO_ON

    def promote(self, history: History, more: bool) -> int | None:
        return self._of(history).trial_to_promote(more)

    def _of(self, history: History) -> Brackets:
        if self._brackets is None or self._brackets.history is not history:
            self._brackets = Brackets(history, self._kinds)
        return self._brackets


def _brackets(plan: Plan) -> list[list[BracketStage]]:
    found: list[list[BracketStage]] = []
    for stage in plan.stages:
        if stage.begins == 0:
            found.append([])
        found[-1].append(BracketStage(stage.trials, stage.begins, stage.begins + stage.steps))
    return found


def _curves(
    plan: Plan, brackets: Sequence[Sequence[BracketStage]], seconds_per_step: float, rng: np.random.Generator
) -> Callable[[ev.Config], Curve]:
    """Each trial is as slow in a stage as is drawn for it, and as good as its configuration says.

    A trial's curve is asked for when it first starts, which is in the order of their numbers.
    """
    kinds = chain.from_iterable([stages] * stages[0].trials for stages in brackets)

    def curve(config: ev.Config) -> Curve:
        stages = next(kinds)
        slow = slownesses(plan.model.profile.variation, rng.standard_normal(len(stages)))
        seconds = np.repeat(slow * seconds_per_step, [stage.end - stage.start for stage in stages]).tolist()
        return Curve(range(1, len(seconds) + 1), [{"loss": config["x"]}] * len(seconds), seconds)

    return curve
