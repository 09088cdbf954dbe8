"""SciSpot's policy for bags of jobs.

It decides by a machine's age whether the next trial uses it or a new machine, chooses the machine type by trying
each, and keeps idle machines for an hour.

A trial of T hours uses a machine of age s if its expected time there is no longer than on a new machine (section
4.2, computed by renewal in market/reuse.py). The first trials explore, one on each type. After that, all trials
use the type with the fewest expected dollars, n c E[T] (Eq. 11).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from thriftune.errors import SettingError
from thriftune.market.reuse import ReuseTable
from thriftune.market.running_time import expected_hours
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HOUR
from thriftune.provisioning.renting_policy import RETRY_SECONDS, MachineRequest, RentingPolicy, age_hours
from thriftune.provisioning.workload import StudyWorkload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

_MAX_IDLE_SECONDS = 3600.0  # SciSpot keeps idle "hot spares" for an hour
_MAX_TABLE_HOURS = 48.0  # the longest trial in the tables of types whose lifetimes have no end
_MIN_HOURS = 1e-3


class Reuse(RentingPolicy):
    """A policy that rents the cheapest type, and reuses machines by their age."""

    def __init__(self, machine_types: Sequence[MachineType], workload: StudyWorkload) -> None:
        super().__init__(machine_types, workload)
        self._usable = [each for each in machine_types if each.survival is not None]
        if not self._usable:
            raise SettingError("reuse: needs a machine type with known lifetimes; give one with survival=")
        self._tables: dict[str, ReuseTable] = {}
        self._history: History | None = None
        self._counted_ended = 0  # ended trials that are counted in `_last_used_at`
        self._last_used_at: dict[str, float] = {}  # a cache: machine -> when a trial last left it

    def choose_machine(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        available = [each for each in self._usable if self.may_request(each, history, now)]
        if not available:
            return None
        untried = self._untried(available, history)
        if untried is not None:
            return MachineRequest(untried.name)
        return MachineRequest(self._cheapest(available, trial, history, now).name)

    def _cheapest(
        self, machine_types: Sequence[MachineType], trial: TrialRecord | None, history: History, now: float
    ) -> MachineType:
        return min(machine_types, key=lambda each: self._expected_dollars(each, trial, history, now))

    def accepts(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:
        """Return whether the trial may run on this machine.

        It may if the machine was rented for it. It may also if the machine is of the cheapest type, and the trial
        is expected to end there no later than on a new machine.
        """
        if trial is not None and machine.intended_trial == trial.id and not machine.running:
            return True
        own = self.machine_types[machine.offer]
        available = [each for each in self._usable if each is own or self.may_request(each, history, now)]
        if (
            self._untried(available, history) is not None
            or self._cheapest(available, trial, history, now) is not own
        ):
            return False
        table = self._table(own)
        hours = min(self._hours(own, trial, history), float(table.hours[-1]))
        return bool(table.reuse(hours, min(age_hours(machine, now), float(table.ages[-1]))))

    def keeps_idle(self, machine: Machine, history: History, now: float) -> bool:
        """Return whether to keep an idle machine: for an hour, if more trials follow."""
        last_used_at = max(machine.started_at, self._update_last_used(history).get(machine.id, 0.0))
        trials = self.workload.trials
        more_to_come = trials is None or len(history.created_ids) < trials or bool(history.waiting)
        return more_to_come and now - last_used_at < _MAX_IDLE_SECONDS

    def next_check_at(self, history: History, now: float) -> float:
        return now + RETRY_SECONDS if any(not m.running for m in history.machines.values()) else math.inf

    def _untried(self, machine_types: Sequence[MachineType], history: History) -> MachineType | None:
        """Return the first of these types that the study has not rented yet, or None."""
        tried = set(history.fleet.offers()) | {rent.offer for rent in history.fleet.renting.values()}
        return next((each for each in machine_types if each.name not in tried), None)

    def _hours(self, machine_type: MachineType, trial: TrialRecord | None, history: History) -> float:
        """Return the hours of work that the trial has left on this type.

        A trial of None stands for a new one.
        """
        steps = history.max_steps or 1 if trial is None else self.steps_left(trial, history)
        return max(_MIN_HOURS, steps * self.step_times.seconds(trial, machine_type.name, history) / HOUR)

    def _update_last_used(self, history: History) -> dict[str, float]:
        if self._history is not history:
            self._history, self._counted_ended, self._last_used_at = history, 0, {}
        unfinished = (history.trials[i] for i in (*history.waiting, *history.running))
        for trial in (*history.ended[self._counted_ended :], *unfinished):
            for attempt in trial.past_attempts:
                for machine in attempt.workers:
                    self._last_used_at[machine] = max(attempt.ended_at, self._last_used_at.get(machine, 0.0))
        self._counted_ended = len(history.ended)
        return self._last_used_at

    def _expected_dollars(
        self, machine_type: MachineType, trial: TrialRecord | None, history: History, now: float
    ) -> float:
        """Return the expected dollars of the trial's remaining work on this type.

        They include work that is repeated after preemptions.
        """
        assert machine_type.survival is not None
        hours = self._hours(machine_type, trial, history)
        restart_hours = self.workload.restart_seconds / HOUR
        expected = float(np.asarray(expected_hours(machine_type.survival, hours, restart_hours=restart_hours)))
        return expected * machine_type.price_at(now) / machine_type.slots

    def _table(self, machine_type: MachineType) -> ReuseTable:
        if machine_type.name not in self._tables:
            survival = machine_type.survival
            assert survival is not None
            longest = None if math.isfinite(survival.end) else _MAX_TABLE_HOURS
            restart = (machine_type.ready_seconds + self.workload.restart_seconds) / HOUR
            self._tables[machine_type.name] = ReuseTable(survival, restart_hours=restart, longest_hours=longest)
        return self._tables[machine_type.name]
