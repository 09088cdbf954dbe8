"""Which machines does the plan say? A RubberBand plan is followed, and made anew when reality departs from it.

When a stage of the study begins, the rest is planned (planning/replanning.py): so many machines of a kind, and so
many trials at a time. A machine that is lost is rented again; where there is none to be had, another kind is,
after some patience. One that neither this stage nor the next has a use for is given back.

A trial has one worker, as with all policies. Steps take what the terms say until some were seen, and restarts and
saves all along. Prices are taken to stay as they are when a stage begins. A kind that is taken away by its price
is not used: a plan knows how long machines live, and no maximum prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thriftune.errors import SettingError
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.job import JobSpec
from thriftune.planning.machine_types import MachineType
from thriftune.planning.profile import Profile
from thriftune.planning.replanning import CurrentStage, Replanner
from thriftune.provisioning.renting_policy import PATIENCE_SECONDS, MachineRequest, RentingPolicy
from thriftune.provisioning.workload import Workload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord


class Elastic(RentingPolicy):
    """What there is to do is the terms' job, or else all trials to the last step. Without a deadline the cheapest
    plan is followed; where none makes it, the quickest."""

    def __init__(self, kinds: Sequence[MachineType], terms: Workload) -> None:
        super().__init__(kinds, terms)
        self._planned = [kind for kind in kinds if kind.revocation is None]
        if not self._planned:
            raise SettingError(
                "elastic: all kinds of machines are taken away by their price, which no plan foresees; give one "
                "that stays, or of which it is known how long it lives"
            )
        if terms.job is None and terms.trials is None:
            raise SettingError("elastic: a plan must know how many trials there are; give trials=")
        self._replanner: Replanner | None = None

    def now(self, history: History) -> CurrentStage:
        """The stage that it is, and what it runs on."""
        return self._plans(history).now(history)

    def wants(self, history: History) -> int:
        now = self.now(history)
        return self.terms.at_a_time if now.left is None else min(now.choice.allocation.at_a_time, now.left)

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
        waits = trial is not None and trial.id in history.waiting
        if not waits and len(history.running) + len(history.waiting) >= self.wants(history):
            return None
        return super().workers_for(trial, history)

    def choose(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        """The planned kind. Where it was refused, and the trial has waited for some time, of those that are as
        fast the one with the fewest dollars a step, or else the fastest."""
        stage = self.now(history)
        planned = self.kinds[stage.choice.cloud.name]
        if self.to_be_had(planned, history, now):
            return MachineRequest(planned.name)
        waits_since = max(
            stage.began, trial.past_attempts[-1].ended_at if trial.past_attempts else trial.created_at
        )
        others = [kind for kind in self._planned if self.to_be_had(kind, history, now)]
        if now - waits_since < PATIENCE_SECONDS or not others:
            return None
        seconds = {kind.name: self.paces.seconds(trial, kind.name, history) for kind in self._planned}
        as_fast = [kind for kind in others if seconds[kind.name] <= seconds[planned.name]]
        if as_fast:
            return MachineRequest(
                min(as_fast, key=lambda kind: seconds[kind.name] * kind.price_at(now) / kind.slots).name
            )
        return MachineRequest(min(others, key=lambda kind: seconds[kind.name]).name)

    def takes(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:
        """One of the planned kind; or another, if it was rented for this trial in this stage, or is there while
        there is none of the planned to be had."""
        stage = self.now(history)
        if machine.offer == stage.choice.cloud.name:
            return True
        if trial is not None and machine.intended_trial == trial.id and machine.started_at >= stage.began:
            return True
        return not self.to_be_had(self.kinds[stage.choice.cloud.name], history, now)

    def keeps(self, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        """The next stage has a use for it."""
        later = self.now(history).later
        if later is None or machine.offer != later.cloud.name or machine.is_leaving:
            return False
        there = sum(each.offer == machine.offer and not each.is_leaving for each in history.machines.values())
        return there <= later.machines

    def _plans(self, history: History) -> Replanner:
        if self._replanner is None:
            terms = self.terms
            job = terms.job or JobSpec.of([(terms.trials or 1, _last_step(history))])
            profile = Profile(
                {1: terms.seconds_per_step}, startup=terms.restart_seconds, checkpoint=terms.save_seconds
            )
            self._replanner = Replanner(job, profile, self._clouds, terms.deadline_seconds, terms.at_a_time)
        return self._replanner

    def _clouds(self, at: float) -> list[CloudProfile]:
        return [kind.cloud_at(at) for kind in self._planned]


def _last_step(history: History) -> int:
    if history.max_steps is None:
        raise SettingError("elastic: a plan must know how many steps a trial has; give max_steps=")
    return history.max_steps
