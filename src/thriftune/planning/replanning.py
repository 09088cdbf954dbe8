"""What now, if it went otherwise than planned? The rest of the job is planned anew.

A plan is looked at when a stage begins, by what is known then of the stages before: when they ended, how many
trials are left, how long steps took on which kind of machine, what machines cost now. As long as that is what the
plan took for granted, it stays. All of it follows from the history as it was at that moment, and nothing from what
came later, so that a study that is resumed goes on with the plan it had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thriftune.errors import SettingError
from thriftune.planning.allocation import Allocation, StageAllocation
from thriftune.planning.choosing import best_effort
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.cost_model import CostModel
from thriftune.planning.job import JobSpec, Stage
from thriftune.planning.job_progress import JobProgress
from thriftune.planning.plan import Plan
from thriftune.planning.profile import Profile
from thriftune.planning.profile_correction import correct_profile
from thriftune.state.history import History

MOST_DEVIATION = 0.05
"""Of what a plan took for granted: so far it may be from what was seen, and stays."""


@dataclass(frozen=True, slots=True)
class CurrentStage:
    """What a stage runs on.

    - `began`: when it did. `left`: trials that have yet to come to its end; None: all stages are over.
    - `later`: what the next stage is to run on, as far as is known; None: there is none.
    """

    number: int
    began: float
    left: int | None
    choice: StageAllocation
    later: StageAllocation | None


@dataclass(frozen=True, slots=True)
class _Made:
    """A plan, what it took for granted, and when it was made: for which stage, after how many seconds driven."""

    plan: Plan
    profile: Profile
    clouds: Sequence[CloudProfile]
    stage: int
    driven: float


class Replanner:
    """Of one job. What it keeps is a cache.

    `clouds`: what can be rented, always the same kinds, at the prices of a moment. `deadline`: seconds of driving.
    `at_a_time`: trials that may run side by side.
    """

    def __init__(
        self,
        job: JobSpec,
        profile: Profile,
        clouds: Callable[[float], Sequence[CloudProfile]],
        deadline: float | None,
        at_a_time: int,
    ) -> None:
        self._job, self._profile, self._clouds = job, profile, clouds
        self._deadline, self._at_a_time = deadline, at_a_time
        self._under_way = JobProgress(job)
        self._of: History | None = None
        self._made: list[_Made] = []  # by stage: the plan that it follows
        self._told: tuple[int, CurrentStage] | None = None

    def now(self, history: History) -> CurrentStage:
        """The stage that it is, or when all are over, what was the last."""
        if self._of is not history:
            self._of, self._made, self._told = history, [], None
        if self._told is None or self._told[0] != history.entries:
            self._told = history.entries, self._tell(history)
        return self._told[1]

    def _tell(self, history: History) -> CurrentStage:
        began = self._under_way.began(history)
        last = len(self._job.stages) - 1
        number = min(len(began) - 1, last)
        for each in range(len(self._made), number + 1):
            self._made.append(self._followed(each, history))
        made = self._made[number]
        left = None if len(began) > last + 1 else self._under_way.left(history)
        choices = made.plan.choices[number - made.stage :]
        return CurrentStage(number, began[number], left, choices[0], choices[1] if len(choices) > 1 else None)

    def _followed(self, number: int, history: History) -> _Made:
        """The plan for this stage: that of the one before, unless reality has departed from it."""
        began = self._under_way.began(history)[number]
        driven = history.driven_seconds_until(began)
        profile, clouds = correct_profile(history, began, self._profile, self._clouds(began))
        before = self._made[-1] if self._made else None
        rest = self._rest(number, history)
        if before is not None and not _departs(before, number, rest, driven, profile, clouds):
            return before
        model = CostModel(rest, profile, self._at_a_time, _there(history, began, clouds))
        try:
            time_left = None if self._deadline is None else self._deadline - driven
            return _Made(best_effort(model, clouds, time_left), profile, clouds, number, driven)
        except SettingError:  # no machine lives long enough for trials that are so slow
            if before is None:
                raise
            return before

    def _rest(self, number: int, history: History) -> JobSpec:
        """From this stage on, with the trials that there really are."""
        stages: list[Stage] = []
        begins = self._job.begins[number:]
        most = self._under_way.trials(history)[number]
        for (trials, steps), first in zip(self._job.stages[number:], begins, strict=True):
            most = trials if stages and first == 0 else min(trials, most)
            stages.append(Stage(max(1, most), steps))
        return JobSpec(stages, begins)


def _departs(
    made: _Made,
    number: int,
    rest: JobSpec,
    driven: float,
    profile: Profile,
    clouds: Sequence[CloudProfile],
) -> bool:
    """Whether what is known when a stage begins is not what its plan took for granted."""
    planned = made.plan.stages[number - made.stage :]
    if any(stage.trials != each.trials for stage, each in zip(planned, rest.stages, strict=True)):
        return True
    pairs = [(driven - made.driven, planned[0].starts)]
    pairs += [(profile.seconds(workers), made.profile.seconds(workers)) for workers in profile.seconds_per_step]
    for cloud, before in zip(clouds, made.clouds, strict=True):
        pairs += [(cloud.speed, before.speed), (cloud.price_per_hour, before.price_per_hour)]
    spread = abs(profile.variation - made.profile.variation)
    return spread > MOST_DEVIATION or any(abs(now - then) > MOST_DEVIATION * then for now, then in pairs)


def _there(history: History, at: float, clouds: Sequence[CloudProfile]) -> StageAllocation | None:
    """The machines that a stage finds when it begins; of several kinds, those of which there are most."""
    lives = (*history.fleet.past, *history.machines.values())
    there = (life for life in lives if life.started_at < at and (life.ended_at is None or at <= life.ended_at))
    count = Counter(machine.offer for machine in there)
    best = max(clouds, key=lambda cloud: count[cloud.name] * cloud.slots)
    return StageAllocation(best, count[best.name], Allocation(1, 1)) if count[best.name] else None
