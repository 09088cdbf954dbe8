"""The base class of all policies that rent machines for trials.

A waiting trial gets a free slot of a present machine if its policy accepts the machine for it. Otherwise a machine
is rented for it. Machines that no trial needs are released, except those that their provider is about to take back
at no cost. Each policy decides which machine to rent, and when a trial leaves one.

All decisions follow from the history, except the time of the next check, which a new driver starts without.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import ClassVar, NamedTuple

from thriftune.errors import SettingError
from thriftune.market.survival import ScaledSurvival
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HOUR, HazardEstimator
from thriftune.provisioning.protocol import Provisioner
from thriftune.provisioning.save_interval import UploadTimes, seconds_until_save
from thriftune.provisioning.step_time_estimator import StepTimeEstimator
from thriftune.provisioning.workload import StudyWorkload
from thriftune.state import events as ev
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.reports import last_step_of_attempt
from thriftune.state.trial_record import TrialRecord

RETRY_SECONDS = 300.0
"""The time after a refusal until a machine of the same type is requested again."""

_MIN_CHECK_SECONDS = 10.0  # until the next check, if a policy wants one at a time that is already over

MOVE_REASON = "continues on another machine"
"""The reason of a Move by a renting policy; the machine that the trial leaves is released."""


def spot_types(policy: str, machine_types: Sequence[MachineType]) -> list[MachineType]:
    """Return the spot types, for a policy that needs one. Raises SettingError if there is none."""
    spot = [each for each in machine_types if not each.is_on_demand]
    if not spot:
        raise SettingError(f"{policy}: all machine types are on-demand; give a spot machine")
    return spot


class MachineRequest(NamedTuple):
    """A machine to rent: its type, and the maximum price if the type has one."""

    machine_type: str
    max_price: float | None = None


class RentingPolicy(Provisioner):
    """A policy that rents machines of given types for the trials of one study."""

    uses_spot: ClassVar[bool] = True
    """Whether the policy may rent machines that can be preempted."""

    def __init__(self, machine_types: Sequence[MachineType], workload: StudyWorkload) -> None:
        if not machine_types:
            raise SettingError("machine types: none are given; give at least one to rent")
        self.machine_types = {each.name: each for each in machine_types}
        if len(self.machine_types) < len(machine_types):
            names = ", ".join(each.name for each in machine_types)
            raise SettingError(f"machine types: {names}: each needs a name of its own")
        spot = [each.name for each in machine_types if not each.is_on_demand]
        if self.uses_spot and not workload.saves and spot:
            raise SettingError(
                f"checkpoints: trials that write none would restart from step 1 whenever {spot[0]} is preempted; "
                "let trials save, with report(..., save=...), or use the policy on_demand"
            )
        self.workload = workload
        self.step_times = StepTimeEstimator(machine_types, workload.seconds_per_step)
        self.hazards = HazardEstimator(machine_types)
        self.upload_times = UploadTimes()
        self._lanes_key = (-1, -1)  # entries and trials of the history that `_lanes` is from
        self._lanes: dict[int, float] = {}  # a cache: trial -> steps of its lane
        self._next_check = -math.inf

    # --- decisions of each policy

    @abstractmethod
    def choose_machine(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        """Return the machine to rent for a waiting trial; None if it should wait."""

    def accepts(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        """Return whether the trial may run on this machine, which has a free slot.

        None stands for a new trial.
        """
        return True

    def should_leave(self, trial: TrialRecord, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        """Return whether the trial should leave this machine and wait for another one.

        The machine is then released.
        """
        return False

    def choose_replacement(
        self,
        trial: TrialRecord,  # noqa: ARG002
        machine: Machine,  # noqa: ARG002
        history: History,  # noqa: ARG002
        now: float,  # noqa: ARG002
    ) -> MachineRequest | None:
        """Return a better machine to rent for a running trial, or None.

        The trial stays on its present machine until the new one is ready.
        """
        return None

    def keeps_idle(self, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        """Return whether to keep a machine that no trial needs now."""
        return False

    def next_check_at(self, history: History, now: float) -> float:  # noqa: ARG002
        """Return when to check again whether running trials should leave.

        The check takes place even if nothing happens. While a trial waits because no machine is available, checks
        are frequent anyway.
        """
        return math.inf

    def may_request(self, machine_type: MachineType, history: History, now: float) -> bool:
        """Return whether this type may be requested now."""
        return now >= self.next_request_at(machine_type.name, history)

    def next_request_at(self, type_name: str, history: History) -> float:
        """Return the time from which this type may be requested again.

        A preemption within minutes of the machine's start counts as a refusal.
        """
        return history.fleet.last_unavailable_at.get(type_name, -math.inf) + RETRY_SECONDS

    def was_last_available(self, machine_type: MachineType, history: History) -> bool:
        """Return whether the last request for this type was granted.

        The result is True if there was none.
        """
        unavailable_at = history.fleet.last_unavailable_at.get(machine_type.name, -math.inf)
        arrived_at = history.fleet.last_arrival_at.get(machine_type.name, -math.inf)
        return unavailable_at == -math.inf or arrived_at > unavailable_at

    def steps_left(self, trial: TrialRecord, history: History) -> int:
        """Return the number of steps that the trial still has to do.

        On a machine that can be preempted, steps after the last checkpoint count as not done.
        """
        machine = history.machines.get(trial.machine or "")
        machine_type = None if machine is None else self.machine_types.get(machine.offer)
        on_demand = machine_type is not None and machine_type.is_on_demand
        done = last_step_of_attempt(trial) if on_demand else trial.resume_step
        return 0 if history.max_steps is None else max(0, history.max_steps - done)

    def lane_steps(self, trial: TrialRecord, history: History) -> float:
        """Return the steps left in the trial's lane.

        These are the trial's own steps, and those of the trials that will run after it. A study has `at_a_time`
        lanes, in each of which trials run one after the other. Every trial to come is assigned to the lane that is
        free first.
        """
        own = self.steps_left(trial, history)
        if self.workload.trials is None or history.max_steps is None:
            return own
        if self._lanes_key != (history.entries, len(history.trials)):
            self._lanes_key = history.entries, len(history.trials)
            self._lanes = self._assign_lanes(history, history.max_steps)
        return max(own, self._lanes.get(trial.id, own))

    def _assign_lanes(self, history: History, max_steps: int) -> dict[int, float]:
        """Return the steps left in each lane, keyed by the trial that is in it now."""
        assert self.workload.trials is not None
        unfinished = [*history.running, *history.waiting]
        steps = [float(self.steps_left(history.trials[i], history)) for i in unfinished]
        lanes = list(zip(steps, unfinished, strict=True))[: self.workload.at_a_time]
        to_come = steps[self.workload.at_a_time :]
        to_come += [float(max_steps)] * max(0, self.workload.trials - len(history.created_ids))
        heapify(lanes)
        for trial_steps in to_come if lanes else ():
            lane_steps, trial_id = lanes[0]
            heapreplace(lanes, (lane_steps + trial_steps, trial_id))
        return {trial_id: lane_steps for lane_steps, trial_id in lanes}

    # --- the provisioner protocol

    def trials_wanted(self, history: History) -> int:  # noqa: ARG002
        return self.workload.at_a_time

    def wake_at(self, history: History, now: float) -> float | None:  # noqa: ARG002
        return self._next_check if self._next_check < math.inf else None

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
        now = history.last_at
        waits = trial is not None and trial.id in history.waiting
        if not waits and len(history.running) >= self.workload.at_a_time:
            return None  # free slots are for trials that move
        free = [
            each
            for each in history.machines.values()
            if each.free_slots
            and each.offer in self.machine_types
            and not self._is_for_another(each, trial, history)
        ]
        if trial is not None:
            free.sort(key=lambda each: each.intended_trial != trial.id)
        return next(({each.id: 1} for each in free if self.accepts(trial, each, history, now)), None)

    def _is_for_another(self, machine: Machine, trial: TrialRecord | None, history: History) -> bool:
        """Return whether the machine's only free slot is reserved for another trial."""
        intended = machine.intended_trial
        if intended is None or machine.free_slots > 1 or (trial is not None and trial.id == intended):
            return False
        return intended in history.waiting or self._is_moving(history.trials[intended])

    def _is_moving(self, trial: TrialRecord) -> bool:
        return trial.end_request is not None and trial.end_reason == MOVE_REASON

    def save_every(self, trial: TrialRecord, machine: str, history: History) -> float | None:
        """Return the time between saves in seconds, or None.

        The result is None on an on-demand machine, and if an interruption notice leaves time for a step and a
        save. Otherwise it is Young and Daly's time for the stated `save_seconds`. If uploads to an object store
        were measured, it is the time until the first save of the best schedule for them.
        """
        present = history.machines[machine]
        machine_type = self.machine_types[present.offer]
        step = self.step_times.seconds(trial, machine_type.name, history)
        upload = self.upload_times.seconds(trial, machine_type.name, history)
        save_seconds = max(self.workload.save_seconds, upload or 0.0)
        if machine_type.is_on_demand or self.workload.can_save_within(
            machine_type.notice_seconds, step, save_seconds
        ):
            return None
        now = history.last_at
        if upload is not None and machine_type.survival is not None:
            correction = self.hazards.correction(machine_type, history, now)
            every = seconds_until_save(
                step * self.steps_left(trial, history) if history.max_steps is not None else math.inf,
                save_seconds,
                self.workload.restart_seconds,
                present.seconds(now),
                ScaledSurvival(machine_type.survival, correction),
            )
            if every is not None:
                return every
        hazard = self.hazards.hazard(machine_type, history, now, present.max_price, age_hours(present, now))
        seconds = self.workload.save_interval_hours(hazard, save_seconds) * HOUR
        return seconds if math.isfinite(seconds) else None

    def react(self, event: ev.Event, history: History) -> Iterable[ev.Decision]:
        match event:
            case ev.Tick():
                return self._adjust(event.at, history)
            case ev.Ended(cut=True):
                return list(self._release_left_machines(event, history))
            case _:
                return ()

    def _release_left_machines(self, event: ev.Ended, history: History) -> Iterator[ev.Decision]:
        """Yield releases of the machines that a trial has left for another one."""
        trial = history.trials[event.trial]
        if trial.end_reason != MOVE_REASON or not trial.past_attempts:
            return
        for machine_id in trial.past_attempts[-1].workers:
            machine = history.machines.get(machine_id)
            if machine is not None and not machine.running and not machine.is_leaving:
                yield ev.Release(event.at, machine_id)

    def _adjust(self, now: float, history: History) -> Iterator[ev.Decision]:
        """Yield decisions to rent machines, move trials and release idle machines.

        Also set the time of the next check.
        """
        coming = {rent.trial for rent in history.fleet.renting.values()}  # trials whose machines are not ready yet
        ready: dict[int, Machine] = {}  # trial -> the free machine that was rented for it
        idle = []
        for machine in history.machines.values():
            if machine.offer not in self.machine_types or machine.is_releasing:
                continue
            if not machine.slots and not machine.is_leaving:
                coming.add(machine.intended_trial)
            elif machine.slots and not machine.running:
                idle.append(machine)
                if machine.free_slots and machine.intended_trial is not None:
                    ready[machine.intended_trial] = machine
        moving = {trial_id for trial_id in history.running if self._is_moving(history.trials[trial_id])}
        for decision in self._rent_and_move(now, history, coming, ready):
            if isinstance(decision, ev.Move):
                moving.add(decision.trial)
            yield decision
        # Trials that wait do not want these machines: they would have been placed there before this Tick.
        for machine in idle:
            needed = machine.intended_trial in moving and not machine.is_leaving
            if not needed and not self._ends_for_free(machine) and not self.keeps_idle(machine, history, now):
                yield ev.Release(now, machine.id)
        next_request = self._next_request(history, now) if history.waiting else math.inf
        # An earlier check that is still to come stays, or frequent events would postpone all checks.
        pending_check = self._next_check if now < self._next_check else math.inf
        next_check = min(self.next_check_at(history, now), next_request, pending_check)
        self._next_check = next_check if next_check > now else now + _MIN_CHECK_SECONDS

    def _spare_coming_slots(self, history: History) -> int:
        """Return the number of spare slots of machines that are not ready yet.

        One slot of each machine is for the waiting trial that it was rented for, and is not spare.
        """
        slots = 0
        for rent in history.fleet.renting.values():
            if rent.offer in self.machine_types and rent.trial in history.waiting:
                slots += self.machine_types[rent.offer].slots - 1
        for machine in history.machines.values():
            is_coming = machine.offer in self.machine_types and not machine.slots and not machine.is_leaving
            if is_coming and machine.intended_trial in history.waiting:
                slots += self.machine_types[machine.offer].slots - 1
        return slots

    def _next_request(self, history: History, now: float) -> float:
        """Return when the next of the refused types may be requested again."""
        times = (self.next_request_at(name, history) for name in history.fleet.last_unavailable_at)
        return min((at for at in times if at > now), default=now + RETRY_SECONDS)

    def _rent_and_move(
        self, now: float, history: History, coming: set[int | None], ready: Mapping[int, Machine]
    ) -> Iterator[ev.Decision]:
        """Yield decisions to rent machines for waiting trials and to move running ones.

        `coming` are the trials whose machines are not ready yet. `ready` is trial -> the free machine rented for
        it.
        """
        number = history.fleet.rented_count
        is_check = now >= self._next_check
        spare_slots = self._spare_coming_slots(history)
        for trial_id in [*history.waiting, *history.running]:
            trial, request = history.trials[trial_id], None
            if trial_id in history.waiting:
                if trial_id in coming:
                    continue
                if spare_slots > 0:
                    spare_slots -= 1
                    continue
                request = self.choose_machine(trial, history, now)
            elif trial.end_request is None and (is_check or trial_id in ready):
                machine = history.machines.get(trial.machine or "")
                if machine is None or machine.offer not in self.machine_types:
                    continue
                if self.should_leave(trial, machine, history, now):
                    yield ev.Move(now, trial_id, trial.attempts, MOVE_REASON)
                    continue
                if trial_id in coming:
                    continue
                request = self.choose_replacement(trial, machine, history, now)
                if request is not None and trial_id in ready:
                    yield ev.Move(now, trial_id, trial.attempts, MOVE_REASON)
                    continue
            if request is not None and self.may_request(self.machine_types[request.machine_type], history, now):
                number += 1
                if trial_id in history.waiting:
                    spare_slots += self.machine_types[request.machine_type].slots - 1
                machine_id = f"{request.machine_type}-{number}"
                yield ev.Rent(now, machine_id, request.machine_type, request.max_price, trial_id)

    def _ends_for_free(self, machine: Machine) -> bool:
        """Return whether the machine will be preempted with a refund.

        The refund covers its whole cost, or the billing unit in progress.
        """
        billing = self.machine_types[machine.offer].billing
        if machine.notice is None:
            return False
        return billing.unfinished_is_free or machine.notice - machine.started_at < billing.refunded_first_seconds


def age_hours(machine: Machine, now: float) -> float:
    return machine.seconds(now) / HOUR
