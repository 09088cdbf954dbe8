"""A plan: the machines and workers of each stage, with time and cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from thriftune.common.checks import check_whole
from thriftune.planning.allocation import StageAllocation
from thriftune.planning.cost_model import CostModel
from thriftune.planning.executions import Executions, simulate_executions


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """The machines of a stage, with its expected time and cost.

    - `begins`: the step at which its trials start. `steps`: the steps that each trial trains in the stage.
    - `at_a_time`: trials that train in parallel, each with `workers` workers. The other trials wait.
    - `offer`: the name of the machine type.
    - `starts`: seconds from the job's start. `seconds`: its duration, with the wait for new machines.
    """

    trials: int
    begins: int
    steps: int
    at_a_time: int
    workers: int
    machines: int
    offer: str
    starts: float
    seconds: float
    dollars: float


@dataclass(frozen=True)
class Plan:
    """The machines of a job, stage by stage, decided before any money is spent.

    - `cost`, `duration`: expected dollars and seconds.
    - `lower_bound`: no fair plan that meets the deadline on average costs less. With a budget alone: no fair plan
      within the budget takes less time. None if the planner does not compute it.
    - `on_time`: the probability of meeting the deadline, from simulation where anything is random.
    - `fall_back_at`: for each stage on spot machines, the latest second at which the rest of the job could start
      on on-demand machines and still meet the deadline on average. Negative if even a start at 0 would be too
      late, None for a stage on on-demand machines or without on-demand machines to fall back on.
    """

    model: CostModel = field(repr=False)
    choices: Sequence[StageAllocation] = field(repr=False)
    planner: str
    stages: list[PlannedStage]
    deadline: float | None = None
    budget: float | None = None
    lower_bound: float | None = None
    on_time: float | None = None
    fall_back_at: list[float | None] | None = None

    @property
    def cost(self) -> float:
        return math.fsum(stage.dollars for stage in self.stages)

    @property
    def duration(self) -> float:
        return math.fsum(stage.seconds for stage in self.stages)

    @property
    def gap(self) -> float | None:
        """Return the largest possible distance of the plan from the optimum.

        The distance is a share of the lower bound. None if the plan has no lower bound.
        """
        if self.lower_bound is None:
            return None
        value = self.cost if self.budget is None or self.deadline is not None else self.duration
        return max(0.0, value / self.lower_bound - 1.0) if self.lower_bound else 0.0

    def simulate(self, n: int = 1000, seed: int = 0) -> Executions:
        """Execute the plan `n` times with random latencies and preemptions."""
        check_whole("n", n, 1)
        rng = np.random.default_rng(seed)
        return simulate_executions(self.model.spec, self.model.profile, self.choices, n, rng)

    def to_json(self) -> dict[str, Any]:
        names = ("planner", "cost", "duration", "deadline", "budget", "lower_bound", "gap", "on_time")
        fields = {name: getattr(self, name) for name in names}
        return {**fields, "stages": [asdict(s) for s in self.stages], "fall_back_at": self.fall_back_at}


def make_plan(model: CostModel, choices: Sequence[StageAllocation], planner: str, **others: Any) -> Plan:
    """Return the plan with these choices and the model's estimates.

    `others` sets further fields.
    """
    stages, starts = [], 0.0
    estimates = model.predict(choices)
    for stage, begins, choice, estimate in zip(
        model.spec.stages, model.spec.begins, choices, estimates, strict=True
    ):
        stages.append(
            PlannedStage(
                stage.trials,
                begins,
                stage.steps,
                choice.allocation.at_a_time,
                choice.allocation.workers,
                choice.machines,
                choice.cloud.name,
                starts,
                estimate.seconds,
                estimate.dollars,
            )
        )
        starts += estimate.seconds
    return Plan(model, list(choices), planner, stages, **others)
