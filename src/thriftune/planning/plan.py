"""How many machines, of which kind, when? The answer, and what can be asked of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from thriftune.common.checks import check_whole
from thriftune.planning.allocation import StageAllocation
from thriftune.planning.cost_model import CostModel
from thriftune.planning.executions import Executions, executions


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """What is held for a stage, and what is to be expected of it.

    - `begins`: the step at which its trials take up; `steps`: that each of them does.
    - `workers`: of each trial; `at_a_time`: trials, the others wait for their turn.
    - `starts`: seconds since the job's start; `seconds` with the wait for new machines.
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
    """A plan, before any money is spent.

    - `cost`, `duration`: expected dollars and seconds.
    - `lower_bound`: no fair plan that is in time on average costs less (or, of a budget, takes less time); None
      from a planner that does not know.
    - `on_time`: the probability of making the deadline, from simulation where anything is random.
    - `fall_back_at`: for each stage on machines that may be taken away, the latest second at which the rest of the
      job, on machines that are not, would still be done by the deadline; below 0 if it never would, None if there
      are no such machines.
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
        """How far it may be from the optimum at most, as a part of the lower bound."""
        if self.lower_bound is None:
            return None
        reached = self.cost if self.budget is None or self.deadline is not None else self.duration
        return max(0.0, reached / self.lower_bound - 1.0) if self.lower_bound else 0.0

    def simulate(self, n: int = 1000, seed: int = 0) -> Executions:
        """The plan, carried out so many times with latencies that are drawn."""
        check_whole("n", n, 1)
        rng = np.random.default_rng(seed)
        return executions(self.model.spec, self.model.profile, self.choices, n, rng)

    def to_json(self) -> dict[str, Any]:
        names = ("planner", "cost", "duration", "deadline", "budget", "lower_bound", "gap", "on_time")
        found = {name: getattr(self, name) for name in names}
        return {**found, "stages": [asdict(s) for s in self.stages], "fall_back_at": self.fall_back_at}


def make(model: CostModel, choices: Sequence[StageAllocation], planner: str, **others: Any) -> Plan:
    """With what the model expects of these choices."""
    stages, starts = [], 0.0
    expected = model.predict(choices)
    for stage, begins, choice, told in zip(model.spec.stages, model.spec.begins, choices, expected, strict=True):
        allocation = choice.allocation
        shape = (stage.trials, begins, stage.steps, allocation.at_a_time, allocation.workers)
        stages.append(PlannedStage(*shape, choice.machines, choice.cloud.name, starts, told.seconds, told.dollars))
        starts += told.seconds
    return Plan(model, list(choices), planner, stages, **others)
