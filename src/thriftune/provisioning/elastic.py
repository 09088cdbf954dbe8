"""The policy that follows a RubberBand plan, and plans again if needed.

When a stage of the study begins, the rest of the study is planned (planning/replanning.py): the machines of one
type to hold, and the trials to run in parallel. A machine that is preempted is replaced. If the planned type is
refused for some time, another type is rented. A machine that neither this stage nor the next one needs is
released.

Each trial has one worker, as with all policies. The plan uses the step times of the workload until steps were
timed, and its restart and save times throughout. Prices are assumed to stay as they are when a stage begins. A
type whose preemptions depend on its price is not used, because plans know lifetimes but no maximum prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thriftune.errors import SettingError
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.job import JobSpec
from thriftune.planning.machine_types import MachineType
from thriftune.planning.profile import Profile
from thriftune.planning.replanning import CurrentStage, Replanner
from thriftune.provisioning.renting_policy import RETRY_SECONDS, MachineRequest, RentingPolicy
from thriftune.provisioning.workload import StudyWorkload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord


class Elastic(RentingPolicy):
    """A policy that follows the cheapest plan that meets the deadline.

    If no plan does, it follows the fastest one. Without a deadline, it follows the cheapest plan of all. The
    planned job is that of the workload, or else all trials to the last step.
    """

    def __init__(self, machine_types: Sequence[MachineType], workload: StudyWorkload) -> None:
        super().__init__(machine_types, workload)
        self._plannable = [each for each in machine_types if each.revocation is None]
        if not self._plannable:
            raise SettingError(
                "elastic: all machine types are preempted by price, which plans cannot predict; give an on-demand "
                "type, or one with known lifetimes"
            )
        if workload.job is None and workload.trials is None:
            raise SettingError("elastic: a plan needs the number of trials; give trials=")
        self._replanner: Replanner | None = None

    def current_stage(self, history: History) -> CurrentStage:
        """Return the stage that the study is in, with the machines planned for it."""
        return self._replanner_for(history).current_stage(history)

    def trials_wanted(self, history: History) -> int:
        stage = self.current_stage(history)
        if stage.trials_left is None:
            return self.workload.at_a_time
        return min(stage.choice.allocation.at_a_time, stage.trials_left)

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
        waits = trial is not None and trial.id in history.waiting
        if not waits and len(history.running) + len(history.waiting) >= self.trials_wanted(history):
            return None
        return super().workers_for(trial, history)

    def choose_machine(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        """Request the planned type, or another one after RETRY_SECONDS of waiting.

        Of the other types that are at least as fast, the one with the fewest dollars per step is requested. If
        none is as fast, the fastest one is.
        """
        stage = self.current_stage(history)
        planned = self.machine_types[stage.choice.cloud.name]
        if self.may_request(planned, history, now):
            return MachineRequest(planned.name)
        waits_since = max(
            stage.started_at, trial.past_attempts[-1].ended_at if trial.past_attempts else trial.created_at
        )
        others = [each for each in self._plannable if self.may_request(each, history, now)]
        if now - waits_since < RETRY_SECONDS or not others:
            return None
        seconds = {each.name: self.step_times.seconds(trial, each.name, history) for each in self._plannable}
        as_fast = [each for each in others if seconds[each.name] <= seconds[planned.name]]
        if as_fast:
            cheapest = min(as_fast, key=lambda each: seconds[each.name] * each.price_at(now) / each.slots)
            return MachineRequest(cheapest.name)
        return MachineRequest(min(others, key=lambda each: seconds[each.name]).name)

    def accepts(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:
        """Return whether the trial may run on this machine.

        It may if the machine is of the planned type, or was rented for the trial in this stage. Any machine is
        accepted while the planned type may not be requested.
        """
        stage = self.current_stage(history)
        if machine.offer == stage.choice.cloud.name:
            return True
        if trial is not None and machine.intended_trial == trial.id and machine.started_at >= stage.started_at:
            return True
        return not self.may_request(self.machine_types[stage.choice.cloud.name], history, now)

    def keeps_idle(self, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        """Return whether the next stage needs this machine."""
        next_choice = self.current_stage(history).next_choice
        if next_choice is None or machine.offer != next_choice.cloud.name or machine.is_leaving:
            return False
        held = sum(each.offer == machine.offer and not each.is_leaving for each in history.machines.values())
        return held <= next_choice.machines

    def _replanner_for(self, history: History) -> Replanner:
        if self._replanner is None:
            workload = self.workload
            job = workload.job or JobSpec.of([(workload.trials or 1, _last_step(history))])
            profile = Profile(
                {1: workload.seconds_per_step},
                startup=workload.restart_seconds,
                checkpoint=workload.save_seconds,
            )
            self._replanner = Replanner(
                job, profile, self._cloud_profiles, workload.deadline_seconds, workload.at_a_time
            )
        return self._replanner

    def _cloud_profiles(self, at: float) -> list[CloudProfile]:
        return [each.cloud_profile_at(at) for each in self._plannable]


def _last_step(history: History) -> int:
    if history.max_steps is None:
        raise SettingError("elastic: a plan needs the number of steps of a trial; give max_steps=")
    return history.max_steps
