"""SciSpot's policies for bags of jobs: keep the machine for the next trial or take a new one, by its age; choose
the kind by trying each; keep stable machines for an hour though nobody needs them.

A trial of T hours goes to a machine of age s if it is expected to be done as soon as on a new one (section 4.2, by
renewal as market/reuse.py has it). The first trials explore: one on each kind; after that the kind with the fewest
expected dollars, n c E[T] (Eq. 11), has them all.
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
from thriftune.provisioning.renting_policy import PATIENCE_SECONDS, MachineRequest, RentingPolicy, age_hours
from thriftune.provisioning.workload import Workload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

_SPARE_SECONDS = 3600.0
_LONGEST_HOURS = 48.0


class Reuse(RentingPolicy):
    def __init__(self, kinds: Sequence[MachineType], terms: Workload) -> None:
        super().__init__(kinds, terms)
        self._pool = [kind for kind in kinds if kind.survival is not None]
        if not self._pool:
            raise SettingError("reuse: goes by how long machines live; give a kind with survival=")
        self._tables: dict[str, ReuseTable] = {}
        self._of: History | None = None
        self._ended = 0
        self._used: dict[str, float] = {}

    def choose(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        there = [kind for kind in self._pool if self.to_be_had(kind, history, now)]
        if not there:
            return None
        untried = self._untried(there, history)
        if untried is not None:
            return MachineRequest(untried.name)
        return MachineRequest(self._cheapest(there, trial, history, now).name)

    def _cheapest(
        self, kinds: Sequence[MachineType], trial: TrialRecord | None, history: History, now: float
    ) -> MachineType:
        return min(kinds, key=lambda kind: self._dollars(kind, trial, history, now))

    def takes(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:
        if trial is not None and machine.intended_trial == trial.id and not machine.running:
            return True  # it was rented for this trial, which need not be shorter than machines live
        own = self.kinds[machine.offer]
        there = [kind for kind in self._pool if kind is own or self.to_be_had(kind, history, now)]
        if self._untried(there, history) is not None or self._cheapest(there, trial, history, now) is not own:
            return False
        table = self._table(own)
        hours = min(self._hours(own, trial, history), float(table.hours[-1]))
        return bool(table.reuse(hours, min(age_hours(machine, now), float(table.ages[-1]))))

    def keeps(self, machine: Machine, history: History, now: float) -> bool:
        """A hot spare, for an hour after its last trial."""
        last = max(machine.started_at, self._last_use(history).get(machine.id, 0.0))
        more = self.terms.trials is None or len(history.created_ids) < self.terms.trials or bool(history.waiting)
        return more and now - last < _SPARE_SECONDS

    def look_at(self, history: History, now: float) -> float:
        return now + PATIENCE_SECONDS if any(not m.running for m in history.machines.values()) else math.inf

    def _untried(self, kinds: Sequence[MachineType], history: History) -> MachineType | None:
        tried = set(history.fleet.offers()) | {rent.offer for rent in history.fleet.renting.values()}
        return next((kind for kind in kinds if kind.name not in tried), None)

    def _hours(self, kind: MachineType, trial: TrialRecord | None, history: History) -> float:
        steps = history.max_steps or 1 if trial is None else self.steps_left(trial, history)
        return max(1e-3, steps * self.paces.seconds(trial, kind.name, history) / HOUR)

    def _last_use(self, history: History) -> dict[str, float]:
        """By machine, when a trial last left it; a cache."""
        if self._of is not history:
            self._of, self._ended, self._used = history, 0, {}
        unsettled = (history.trials[i] for i in (*history.waiting, *history.running))
        for trial in (*history.ended[self._ended :], *unsettled):
            for stay in trial.past_attempts:
                for machine in stay.workers:
                    self._used[machine] = max(stay.ended_at, self._used.get(machine, 0.0))
        self._ended = len(history.ended)
        return self._used

    def _dollars(self, kind: MachineType, trial: TrialRecord | None, history: History, now: float) -> float:
        assert kind.survival is not None
        hours = self._hours(kind, trial, history)
        expected = float(
            np.asarray(expected_hours(kind.survival, hours, restart_hours=self.terms.restart_seconds / HOUR))
        )
        return expected * kind.price_at(now) / kind.slots

    def _table(self, kind: MachineType) -> ReuseTable:
        if kind.name not in self._tables:
            assert kind.survival is not None
            end = kind.survival.end
            longest = None if math.isfinite(end) else _LONGEST_HOURS
            restart = (kind.ready_seconds + self.terms.restart_seconds) / HOUR
            self._tables[kind.name] = ReuseTable(kind.survival, restart_hours=restart, longest_hours=longest)
        return self._tables[kind.name]
