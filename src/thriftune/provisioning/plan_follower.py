"""The provisioner that follows a plan, stage by stage.

It rents and releases machines as the plan says, and gives trials their workers. The trials of a stage start when
all its machines are ready. The next stage begins when all trials have reached the end of this one, as the plan
assumes. The current stage follows from the history alone.
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

_MAX_SAVING_SHARE = 0.01
"""The largest share of its time that a trial spends on saves on an on-demand machine. It saves there, too, because
such a machine can fail."""

_MIN_SECONDS_BETWEEN_SAVES = 10.0

_RETRY_SECONDS = 30.0
"""The time after a refusal until a machine of the same type is requested again."""


class PlanFollower(Provisioner):
    """A provisioner that follows a plan.

    With `machines_fail`, on-demand machines may fail, as real ones do, so trials save there, too.
    """

    def __init__(self, plan: Plan, *, machines_fail: bool = False) -> None:
        self._choices = plan.choices
        self._save_seconds = plan.model.profile.checkpoint
        self._machines_fail = machines_fail
        self._spans = stage_spans(plan.model.spec)
        self._progress = JobProgress(plan.model.spec)

    def react(self, event: ev.Event, history: History) -> Sequence[ev.Decision]:
        if type(event) is ev.Reported:  # a report ends no stage: a trial that ends after it has yet to save
            return ()
        return list(self._adjust(event.at, history))

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
        stage = self._stage(history)
        if stage is None or not self._is_in(trial, self._spans[stage], history):
            return None
        choice = self._choices[stage]
        machines = [each for each in _present(history, choice.cloud.name) if each.slots]
        if len(history.running) >= choice.allocation.at_a_time:
            return None
        if len(machines) < choice.machines and not _is_unavailable(history, choice.cloud.name):
            return None
        number = len(history.trials) if trial is None else trial.id
        before = {i: history.trials[i].workers for i in history.running}
        wanted = {i: sum(workers.values()) for i, workers in before.items()}
        slots = {machine.id: machine.slots for machine in machines}
        all_slots = sum(slots.values()) or 1  # may be fewer than planned
        wanted[number] = min(choice.allocation.workers, all_slots)
        return place(wanted, slots, before, reserved=before).placement.get(number)

    def save_every(self, trial: TrialRecord, machine: str, history: History) -> float | None:  # noqa: ARG002
        if not self._machines_fail:
            return None
        seconds = max(_MIN_SECONDS_BETWEEN_SAVES, self._save_seconds / _MAX_SAVING_SHARE)
        survivals = {choice.cloud.name: choice.cloud.survival for choice in self._choices}
        survival = survivals.get(history.machines[machine].offer)
        if survival is None:
            return seconds
        hours = young_daly_hours(self._save_seconds / 3600.0, mean_hours(survival))
        return min(seconds, 3600.0 * hours)

    def _adjust(self, at: float, history: History) -> Iterator[ev.Decision]:
        """Yield decisions to rent and release machines as the current stage needs."""
        stage = self._stage(history)
        if stage is None:  # the plan is over, and has no machines for trials that may still wait
            for machine in history.machines.values():
                if not machine.running and not machine.is_leaving and machine.id in history.fleet.rented_ids:
                    yield ev.Release(at, machine.id)
            return
        choice = self._choices[stage]
        offer = choice.cloud.name
        present = _present(history, offer)
        coming = sum(1 for rent in history.fleet.renting.values() if rent.offer == offer)
        for machine_id in history.fleet.empty_with_notice():
            yield ev.Release(at, machine_id)
        idle = [machine for machine in history.machines.values() if not machine.running and not machine.is_leaving]
        for machine in idle:
            if machine.offer != offer and machine.offer:
                yield ev.Release(at, machine.id)
        surplus = len(present) + coming - choice.machines
        for machine in [each for each in present if not each.running][: max(0, surplus)]:  # the oldest first
            yield ev.Release(at, machine.id)
        if at < history.fleet.last_refusal_at.get(offer, -_RETRY_SECONDS) + _RETRY_SECONDS:
            return
        for i in range(max(0, -surplus)):
            yield ev.Rent(at, f"{offer}-{history.fleet.rented_count + i + 1}", offer)

    def _stage(self, history: History) -> int | None:
        """Return the number of the current stage from 0; None if all are over."""
        number = len(self._progress.stage_starts(history)) - 1
        return number if number < len(self._spans) else None

    def _is_in(self, trial: TrialRecord | None, span: StageSpan, history: History) -> bool:
        """Return whether the trial has to train in this stage.

        None stands for a new trial.
        """
        if trial is None:
            return span.begins == 0 and span.first <= len(history.created_ids) < span.last
        return span.first <= history.created_before(trial.id) < span.last and span.begins <= trial.step < span.ends


def _present(history: History, offer: str) -> list[Machine]:
    return [machine for machine in history.machines.values() if machine.offer == offer and not machine.is_leaving]


def _is_unavailable(history: History, offer: str) -> bool:
    """Return whether the type was refused again after its last arrival.

    Waiting longer would cost the price of the machines that are present, maybe until the deadline.
    """
    fleet = history.fleet
    refused_at, arrived_at = fleet.last_refusal_at.get(offer), fleet.last_arrival_at.get(offer)
    return refused_at is not None and arrived_at is not None and refused_at >= arrived_at + _RETRY_SECONDS
