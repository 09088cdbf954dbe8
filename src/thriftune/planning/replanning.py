"""The plan that a job follows, made again when the job departs from it.

When a stage begins, the plan is compared with the study: when earlier stages ended, how many trials are left, how
long steps took on each machine type, and what machines cost now. The plan stays as long as its
assumptions hold. Every plan follows from the history up to that moment, and from nothing later, so that a resumed
study follows the same plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thriftune.errors import SettingError
from thriftune.planning.allocation import Allocation, StageAllocation
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.cost_model import CostModel
from thriftune.planning.job import JobSpec, Stage
from thriftune.planning.job_progress import JobProgress
from thriftune.planning.plan import Plan
from thriftune.planning.plan_finder import best_effort
from thriftune.planning.profile import Profile
from thriftune.planning.profile_correction import correct_profile
from thriftune.state.history import History

MAX_DEVIATION = 0.05
"""The plan stays if no observed value differs from the plan's assumption by more than this share."""


@dataclass(frozen=True, slots=True)
class CurrentStage:
    """The stage that a job is in, and the machines planned for it.

    - `started_at`: when the stage began.
    - `trials_left`: trials that have yet to end the stage; None if all stages are over.
    - `next_choice`: the machines planned for the next stage; None if this is the last one.
    """

    number: int
    started_at: float
    trials_left: int | None
    choice: StageAllocation
    next_choice: StageAllocation | None


@dataclass(frozen=True, slots=True)
class _StoredPlan:
    """A plan with the assumptions that it was made with."""

    plan: Plan
    profile: Profile
    clouds: Sequence[CloudProfile]
    stage: int  # the job's stage that the plan begins with
    running_seconds: float  # seconds for which the study was driven before the plan was made


class Replanner:
    """A cache of the plans of one job, which follow from its history.

    - `clouds`: returns the machine types that can be rented, at the prices of a given time. The types must always
      be the same, in the same order.
    - `deadline`: seconds that the study may be driven in all; None means no deadline.
    - `at_a_time`: the most trials that may train in parallel.
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
        self._progress = JobProgress(job)
        self._history: History | None = None
        self._plans: list[_StoredPlan] = []  # the plan that each stage follows, for the stages that have begun
        self._current: tuple[int, CurrentStage] | None = (
            None  # with the entries of the history that it follows from
        )

    def current_stage(self, history: History) -> CurrentStage:
        """Return the current stage, or the last one if all are over."""
        if self._history is not history:
            self._history, self._plans, self._current = history, [], None
        if self._current is None or self._current[0] != history.entries:
            self._current = history.entries, self._find_stage(history)
        return self._current[1]

    def _find_stage(self, history: History) -> CurrentStage:
        """Return the current stage, after planning the stages that have begun."""
        starts = self._progress.stage_starts(history)
        last = len(self._job.stages) - 1
        number = min(len(starts) - 1, last)
        for i in range(len(self._plans), number + 1):
            self._plans.append(self._plan_stage(i, history))
        stored = self._plans[number]
        trials_left = None if len(starts) > last + 1 else self._progress.trials_left(history)
        choices = stored.plan.choices[number - stored.stage :]
        next_choice = choices[1] if len(choices) > 1 else None
        return CurrentStage(number, starts[number], trials_left, choices[0], next_choice)

    def _plan_stage(self, number: int, history: History) -> _StoredPlan:
        """Return the plan for this stage.

        The plan of the stage before is returned unless the job has departed from it.
        """
        began = self._progress.stage_starts(history)[number]
        running_seconds = history.driven_seconds_until(began)
        profile, clouds = correct_profile(history, began, self._profile, self._clouds(began))
        before = self._plans[-1] if self._plans else None
        rest = self._remaining_job(number, history)
        if before is not None and not _departs(before, number, rest, running_seconds, profile, clouds):
            return before
        model = CostModel(rest, profile, self._at_a_time, _held_machines(history, began, clouds))
        try:
            time_left = None if self._deadline is None else self._deadline - running_seconds
            plan = best_effort(model, clouds, time_left)
        except SettingError:  # no machine lives long enough for trials that are this slow
            if before is None:
                raise
            return before
        return _StoredPlan(plan, profile, clouds, number, running_seconds)

    def _remaining_job(self, number: int, history: History) -> JobSpec:
        """Return the job from this stage on, with the actual number of trials."""
        stages: list[Stage] = []
        begins = self._job.begins[number:]
        trials_left = self._progress.stage_trials(history)[number]
        for (trials, steps), first_step in zip(self._job.stages[number:], begins, strict=True):
            trials_left = trials if stages and first_step == 0 else min(trials, trials_left)
            stages.append(Stage(max(1, trials_left), steps))
        return JobSpec(stages, begins)


def _departs(
    stored: _StoredPlan,
    number: int,
    rest: JobSpec,
    running_seconds: float,
    profile: Profile,
    clouds: Sequence[CloudProfile],
) -> bool:
    """Return whether an assumption of the plan is off by more than MAX_DEVIATION.

    The assumptions are compared with what is known when the stage begins.
    """
    planned = stored.plan.stages[number - stored.stage :]
    if any(stage.trials != actual.trials for stage, actual in zip(planned, rest.stages, strict=True)):
        return True
    pairs = [(running_seconds - stored.running_seconds, planned[0].starts)]
    pairs += [(profile.seconds(workers), stored.profile.seconds(workers)) for workers in profile.seconds_per_step]
    for cloud, assumed_cloud in zip(clouds, stored.clouds, strict=True):
        pairs += [(cloud.speed, assumed_cloud.speed), (cloud.price_per_hour, assumed_cloud.price_per_hour)]
    variation_change = abs(profile.variation - stored.profile.variation)
    return variation_change > MAX_DEVIATION or any(
        abs(actual - assumed) > MAX_DEVIATION * assumed for actual, assumed in pairs
    )


def _held_machines(history: History, at: float, clouds: Sequence[CloudProfile]) -> StageAllocation | None:
    """Return the machines that were held at this time.

    Of several types, only the one with the most slots is returned.
    """
    machines = (*history.fleet.past, *history.machines.values())
    held = (each for each in machines if each.started_at < at and (each.ended_at is None or at <= each.ended_at))
    count = Counter(machine.offer for machine in held)
    largest = max(clouds, key=lambda cloud: count[cloud.name] * cloud.slots)
    if not count[largest.name]:
        return None
    return StageAllocation(largest, count[largest.name], Allocation(1, 1))
