"""How is a plan followed? Stage by stage: machines are rented and let go as it says, and trials get their workers.

A stage's trials start when all its machines are there, and the next stage begins when all of them have come to its
end: what the plan took for granted. Which stage it is follows from the history alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from thriftune.market.checkpoint_schedule import young_daly_hours
from thriftune.market.running_time import mean_hours
from thriftune.planning.job_progress import JobProgress, StageSpan, stage_spans
from thriftune.planning.placement import place
from thriftune.planning.plan import Plan
from thriftune.provisioning.protocol import Provisioner
from thriftune.state import events as ev
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

_SAVING_SHARE = 0.01
"""Of its time, at most, a trial saves on a machine that is not taken away: one may fail all the same."""

_LEAST_SECONDS_BETWEEN = 10.0

_AGAIN_SECONDS = 30.0
"""After it was refused, a machine is asked for again."""


class PlanFollower(Provisioner):
    """A provisioner that does what a plan says. `machines_fail`: as real ones do, so trials save now and then."""

    def __init__(self, plan: Plan, *, machines_fail: bool = False) -> None:
        self._choices = plan.choices
        self._saving_seconds = plan.model.profile.checkpoint
        self._machines_fail = machines_fail
        self._turns = stage_spans(plan.model.spec)
        self._under_way = JobProgress(plan.model.spec)

    def react(self, event: ev.Event, history: History) -> Sequence[ev.Decision]:
        if type(event) is ev.Reported:  # ends no stage: what is to end after it has yet to save
            return ()
        return list(self._adjusted(event.at, history))

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
        now = self._stage(history)
        if now is None or not self._is_in(trial, self._turns[now], history):
            return None
        choice = self._choices[now]
        machines = _usable(history, choice.cloud.name)
        if len(history.running) >= choice.allocation.at_a_time:
            return None
        if len(machines) < choice.machines and not _no_more_to_be_had(history, choice.cloud.name):
            return None
        number = len(history.trials) if trial is None else trial.id
        before = {i: history.trials[i].workers for i in history.running}
        wanted = {i: sum(workers.values()) for i, workers in before.items()}
        slots = {machine.id: machine.slots for machine in machines}
        wanted[number] = min(
            choice.allocation.workers, sum(slots.values()) or 1
        )  # there may be fewer than planned
        return place(wanted, slots, before, reserved=before).placement.get(number)

    def save_every(self, trial: TrialRecord, machine: str, history: History) -> float | None:  # noqa: ARG002
        if not self._machines_fail:
            return None
        between = max(_LEAST_SECONDS_BETWEEN, self._saving_seconds / _SAVING_SHARE)
        survivals = {choice.cloud.name: choice.cloud.survival for choice in self._choices}
        survival = survivals.get(history.machines[machine].offer)
        if survival is None:
            return between
        hours = young_daly_hours(self._saving_seconds / 3600.0, mean_hours(survival))
        return min(between, 3600.0 * hours)

    def _adjusted(self, at: float, history: History) -> Iterator[ev.Decision]:
        """What brings the machines that are there to those of the stage."""
        now = self._stage(history)
        if now is None:  # whatever the study still waits for, the plan has no machines for it
            for machine in history.machines.values():
                if not machine.running and not machine.is_leaving and machine.id in history.fleet.rented_ids:
                    yield ev.Release(at, machine.id)
            return
        choice = self._choices[now]
        kind = choice.cloud.name
        there = _present(history, kind)
        coming = sum(1 for rent in history.fleet.renting.values() if rent.offer == kind)
        for machine_id in history.fleet.empty_with_notice():
            yield ev.Release(at, machine_id)
        idle = [machine for machine in history.machines.values() if not machine.running and not machine.is_leaving]
        for machine in idle:
            if machine.offer != kind and machine.offer:
                yield ev.Release(at, machine.id)
        surplus = len(there) + coming - choice.machines
        for machine in [each for each in there if not each.running][: max(0, surplus)]:  # the oldest first
            yield ev.Release(at, machine.id)
        if at < history.fleet.last_refusal_at.get(kind, -_AGAIN_SECONDS) + _AGAIN_SECONDS:
            return
        for number in range(max(0, -surplus)):
            yield ev.Rent(at, f"{kind}-{history.fleet.rented_count + number + 1}", kind)

    def _stage(self, history: History) -> int | None:
        """None: all are over."""
        number = len(self._under_way.began(history)) - 1
        return number if number < len(self._turns) else None

    def _is_in(self, trial: TrialRecord | None, turn: StageSpan, history: History) -> bool:
        if trial is None:  # a new one
            return turn.begins == 0 and turn.first <= len(history.created_ids) < turn.last
        return turn.first <= history.created_before(trial.id) < turn.last and turn.begins <= trial.step < turn.ends


def _present(history: History, kind: str) -> list[Machine]:
    return [machine for machine in history.machines.values() if machine.offer == kind and not machine.is_leaving]


def _no_more_to_be_had(history: History, kind: str) -> bool:
    """Refused when asked for again, too: to wait on is to pay for those that are there, maybe to the deadline."""
    fleet = history.fleet
    refused_at, came_at = fleet.last_refusal_at.get(kind), fleet.last_arrival_at.get(kind)
    return refused_at is not None and came_at is not None and refused_at >= came_at + _AGAIN_SECONDS


def _usable(history: History, kind: str) -> list[Machine]:
    return [machine for machine in _present(history, kind) if machine.slots]
