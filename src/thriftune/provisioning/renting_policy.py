"""How are machines rented for trials, and given back? What all policies share; each says which, and when to leave.

A waiting trial gets a slot of a machine that is there and that its policy takes for it; else one is rented for it.
Machines that nobody needs go back, but for one whose provider takes it away for nothing anyway. All of it follows
from the history but for when it is looked at next, which a new driver begins with.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import ClassVar, NamedTuple

from thriftune.errors import SettingError
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HOUR, HazardEstimator
from thriftune.provisioning.protocol import Provisioner
from thriftune.provisioning.step_time_estimator import StepTimeEstimator
from thriftune.provisioning.workload import Workload
from thriftune.state import events as ev
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.reports import last_step_of_attempt
from thriftune.state.trial_record import TrialRecord

PATIENCE_SECONDS = 300.0
"""Where there was no machine to be had, it is asked for again after so long."""

_BREATH_SECONDS = 10.0  # until a look that a policy wished for before now

LEAVES = "it goes on elsewhere"
"""Why a trial is moved by its policy: the machine that it leaves is given back."""


class MachineRequest(NamedTuple):
    """A machine to rent."""

    kind: str
    max_price: float | None = None


class RentingPolicy(Provisioner):
    """`kinds`: what can be rented; `terms`: what for."""

    takes_spot: ClassVar[bool] = True  # machines that may be taken away

    def __init__(self, kinds: Sequence[MachineType], terms: Workload) -> None:
        if not kinds:
            raise SettingError("kinds: there is nothing to rent; give at least one kind of machine")
        self.kinds = {kind.name: kind for kind in kinds}
        if len(self.kinds) < len(kinds):
            raise SettingError(f"kinds: {', '.join(kind.name for kind in kinds)}: each needs a name of its own")
        if self.takes_spot and not terms.saves and (spot := [kind.name for kind in kinds if not kind.lasts]):
            raise SettingError(
                f"checkpoints: trials that write none would begin anew whenever {spot[0]} is taken away; have "
                "trials save, with report(..., save=...), or rent by on_demand"
            )
        self.terms = terms
        self.paces = StepTimeEstimator(kinds, terms.seconds_per_step)
        self.lives = HazardEstimator(kinds)
        self._loads_of = (-1, -1)
        self._loads: dict[int, float] = {}
        self._next_look = -math.inf

    # --- what a policy says

    @abstractmethod
    def choose(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        """The machine to rent for it; None: it waits."""

    def takes(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        """Whether it may run on this machine, which has a free slot."""
        return True

    def leaves(self, trial: TrialRecord, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        """Whether it shall leave this machine, which is given back, and wait for another one."""
        return False

    def moves_to(
        self,
        trial: TrialRecord,  # noqa: ARG002
        machine: Machine,  # noqa: ARG002
        history: History,  # noqa: ARG002
        now: float,  # noqa: ARG002
    ) -> MachineRequest | None:
        """The machine on which it shall go on instead; it stays until that is there."""
        return None

    def keeps(self, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        """Whether a machine that nobody needs now shall stay."""
        return False

    def look_at(self, history: History, now: float) -> float:  # noqa: ARG002
        """When to look again whether trials shall leave, though nothing has happened. Where one waits since there
        is no machine, that is soon anyway."""
        return math.inf

    def to_be_had(self, kind: MachineType, history: History, now: float) -> bool:
        """Tell whether this kind may be requested now."""
        return now >= self.asks_again_at(kind.name, history)

    def asks_again_at(self, kind: str, history: History) -> float:
        """Return the time from which this kind may be requested again.

        A machine that was preempted within minutes counts as refused here.
        """
        return history.fleet.last_unavailable_at.get(kind, -math.inf) + PATIENCE_SECONDS

    def last_seen_there(self, kind: MachineType, history: History) -> bool:
        """Whether one came when last one was asked for; of one that never was, it is taken for granted."""
        refused = history.fleet.last_unavailable_at.get(kind.name, -math.inf)
        return refused == -math.inf or history.fleet.last_arrival_at.get(kind.name, -math.inf) > refused

    def steps_left(self, trial: TrialRecord, history: History) -> int:
        """That it has to do whatever happens: on a machine that may be lost, from what is saved."""
        machine = history.machines.get(trial.machine or "")
        kind = None if machine is None else self.kinds.get(machine.offer)
        safe = last_step_of_attempt(trial) if kind is not None and kind.lasts else trial.resume_step
        return 0 if history.max_steps is None else max(0, history.max_steps - safe)

    def steps_of_place(self, trial: TrialRecord, history: History) -> float:
        """That are left to the place of this trial: its own, and those of trials that will come after it, if each
        of these takes the place that is free first."""
        own = self.steps_left(trial, history)
        if self.terms.trials is None or history.max_steps is None:
            return own
        if self._loads_of != (history.entries, len(history.trials)):
            self._loads_of = history.entries, len(history.trials)
            self._loads = self._lanes(history, history.max_steps)
        return max(own, self._loads.get(trial.id, own))

    def _lanes(self, history: History, whole: int) -> dict[int, float]:
        """The steps before each place, by the trial that has it now."""
        assert self.terms.trials is not None
        there = [*history.running, *history.waiting]
        lanes = [(float(self.steps_left(history.trials[i], history)), i) for i in there[: self.terms.at_a_time]]
        coming = [float(self.steps_left(history.trials[i], history)) for i in there[self.terms.at_a_time :]]
        coming += [float(whole)] * max(0, self.terms.trials - len(history.created_ids))
        heapify(lanes)
        for steps in coming if lanes else ():
            load, trial_id = lanes[0]
            heapreplace(lanes, (load + steps, trial_id))
        return {trial_id: load for load, trial_id in lanes}

    # --- the protocol

    def wants(self, history: History) -> int:  # noqa: ARG002
        return self.terms.at_a_time

    def wake_at(self, history: History, now: float) -> float | None:  # noqa: ARG002
        return self._next_look if self._next_look < math.inf else None

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
        now = history.last_at
        waits = trial is not None and trial.id in history.waiting
        if not waits and len(history.running) >= self.terms.at_a_time:
            return None  # what is free is for one that moves
        free = [
            each
            for each in history.machines.values()
            if each.free_slots and each.offer in self.kinds and not self._is_for_another(each, trial, history)
        ]
        if trial is not None:
            free.sort(key=lambda each: each.intended_trial != trial.id)
        return next(({each.id: 1} for each in free if self.takes(trial, each, history, now)), None)

    def _is_for_another(self, machine: Machine, trial: TrialRecord | None, history: History) -> bool:
        """Its only free slot is for a trial that will take it."""
        meant = machine.intended_trial
        if meant is None or machine.free_slots > 1 or (trial is not None and trial.id == meant):
            return False
        return meant in history.waiting or self._is_leaving(history.trials[meant])

    def _is_leaving(self, trial: TrialRecord) -> bool:
        return trial.end_request is not None and trial.end_reason == LEAVES

    def save_every(self, trial: TrialRecord, machine: str, history: History) -> float | None:
        """Young and Daly's interval, where machines are lost; where they are not, or a notice is long enough for a
        step and a save, only when a trial has to."""
        there = history.machines[machine]
        kind = self.kinds[there.offer]
        step = self.paces.seconds(trial, kind.name, history)
        if kind.lasts or self.terms.saves_within(kind.notice_seconds, step):
            return None
        now = history.last_at
        hazard = self.lives.hazard(kind, history, now, there.max_price, age_hours(there, now))
        seconds = self.terms.save_interval_hours(hazard) * HOUR
        return seconds if math.isfinite(seconds) else None

    def react(self, event: ev.Event, history: History) -> Iterable[ev.Decision]:
        match event:
            case ev.Tick():
                return self._settled(event.at, history)
            case ev.Ended(cut=True):
                return list(self._left(event, history))
            case _:
                return ()

    def _left(self, event: ev.Ended, history: History) -> Iterator[ev.Decision]:
        trial = history.trials[event.trial]
        if trial.end_reason != LEAVES or not trial.past_attempts:
            return
        for machine_id in trial.past_attempts[-1].workers:
            machine = history.machines.get(machine_id)
            if machine is not None and not machine.running and not machine.is_leaving:
                yield ev.Release(event.at, machine_id)

    def _settled(self, now: float, history: History) -> Iterator[ev.Decision]:
        coming = {rent.trial for rent in history.fleet.renting.values()}
        ready: dict[int, Machine] = {}  # whom a free machine is for
        idle = []
        for machine in history.machines.values():
            if machine.offer not in self.kinds or machine.is_releasing:
                continue
            if not machine.slots and not machine.is_leaving:
                coming.add(machine.intended_trial)
            elif machine.slots and not machine.running:
                idle.append(machine)
                if machine.free_slots and machine.intended_trial is not None:
                    ready[machine.intended_trial] = machine
        awaited = {trial_id for trial_id in history.running if self._is_leaving(history.trials[trial_id])}
        for decision in self._wished(now, history, coming, ready):
            if isinstance(decision, ev.Move):
                awaited.add(decision.trial)
            yield decision
        # Whoever waits now does not want them, or would have been placed there.
        for machine in idle:
            wanted = machine.intended_trial in awaited and not machine.is_leaving
            if not wanted and not self._goes_anyway(machine) and not self.keeps(machine, history, now):
                yield ev.Release(now, machine.id)
        again = self._to_be_had_again(history, now) if history.waiting else math.inf
        # One that is due later than this stays: else a study in which much happens would never be looked at.
        before = self._next_look if now < self._next_look else math.inf
        found = min(self.look_at(history, now), again, before)
        self._next_look = found if found > now else now + _BREATH_SECONDS

    def _coming_slots(self, history: History) -> int:
        """Of machines that were rented for one that waits, and are not there yet: those that others may have."""
        slots = 0
        for rent in history.fleet.renting.values():
            if rent.offer in self.kinds and rent.trial in history.waiting:
                slots += self.kinds[rent.offer].slots - 1
        for machine in history.machines.values():
            if machine.offer in self.kinds and not machine.slots and machine.intended_trial in history.waiting:
                slots += 0 if machine.is_leaving else self.kinds[machine.offer].slots - 1
        return slots

    def _to_be_had_again(self, history: History, now: float) -> float:
        times = (self.asks_again_at(kind, history) for kind in history.fleet.last_unavailable_at)
        return min((at for at in times if at > now), default=now + PATIENCE_SECONDS)

    def _wished(
        self, now: float, history: History, coming: set[int | None], ready: Mapping[int, Machine]
    ) -> Iterator[ev.Decision]:
        """Machines for those that wait and for whom none comes, and for those that move before they do."""
        number = history.fleet.rented_count
        looks = now >= self._next_look
        spare = self._coming_slots(history)
        for trial_id in [*history.waiting, *history.running]:
            trial, wish = history.trials[trial_id], None
            if trial_id in history.waiting:
                if trial_id in coming:
                    continue
                if spare > 0:
                    spare -= 1
                    continue
                wish = self.choose(trial, history, now)
            elif trial.end_request is None and (looks or trial_id in ready):
                machine = history.machines.get(trial.machine or "")
                if machine is None or machine.offer not in self.kinds:
                    continue
                if self.leaves(trial, machine, history, now):
                    yield ev.Move(now, trial_id, trial.attempts, LEAVES)
                    continue
                if trial_id in coming:
                    continue
                wish = self.moves_to(trial, machine, history, now)
                if wish is not None and trial_id in ready:
                    yield ev.Move(now, trial_id, trial.attempts, LEAVES)
                    continue
            if wish is not None and self.to_be_had(self.kinds[wish.kind], history, now):
                number += 1
                spare += self.kinds[wish.kind].slots - 1 if trial_id in history.waiting else 0
                yield ev.Rent(now, f"{wish.kind}-{number}", wish.kind, wish.max_price, trial_id)

    def _goes_anyway(self, machine: Machine) -> bool:
        """Its provider takes it away, and lets off what it cost, or what has just begun to cost."""
        billing = self.kinds[machine.offer].billing
        if machine.notice is None:
            return False
        return billing.unfinished_is_free or machine.notice - machine.started_at < billing.refunded_first_seconds


def age_hours(machine: Machine, now: float) -> float:
    return machine.seconds(now) / HOUR
