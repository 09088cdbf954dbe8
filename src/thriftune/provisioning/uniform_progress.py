"""Spot when there is any, and on demand when behind: the uniform progress policy ("Can't Be Late", NSDI 2024).

For each trial, with C0 of work at first, a deadline D and a changeover of d, C0 t / D is expected at time t.

1. Without a machine and behind what is expected: on demand.
2. Spot whenever it is to be had, also when behind, until it is taken away. Of several kinds, the cheapest of those
   that are quick enough, which the paper, with one kind, need not choose.
3. On demand: until the progress is what is expected at t + 2 d.
4. Without a machine, and less time left than the work left and 2 d: on demand to the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from thriftune.errors import SettingError
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.fixed import cheapest_in_time
from thriftune.provisioning.hazard_estimator import HOUR
from thriftune.provisioning.renting_policy import MachineRequest, RentingPolicy
from thriftune.provisioning.workload import Workload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

_LOOK_SECONDS = 300.0


class UniformProgress(RentingPolicy):
    def __init__(self, kinds: Sequence[MachineType], terms: Workload) -> None:
        super().__init__(kinds, terms)
        self._spot = [kind for kind in kinds if not kind.lasts]
        self._lasting = [kind for kind in kinds if kind.lasts]
        if terms.deadline_seconds is None:
            raise SettingError("uniform_progress: goes by a deadline; give one")
        if not self._lasting or not self._spot:
            raise SettingError("uniform_progress: needs a spot machine and one that is not taken away")

    def choose(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        spot = self._cheapest_spot(trial, history, now)
        if spot is not None and not self._last_chance(trial, history, now):
            return spot
        if self._last_chance(trial, history, now) or self._progress(trial, history) < self._expected(history, now):
            return MachineRequest(cheapest_in_time(self, self._lasting, trial, history, now).name)
        return None

    def leaves(self, trial: TrialRecord, machine: Machine, history: History, now: float) -> bool:
        if not self.kinds[machine.offer].lasts or self._last_chance(trial, history, now):
            return False
        return self._progress(trial, history) >= self._expected(history, now + 2.0 * self._changeover)

    def takes(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:
        if trial is None or not self.kinds[machine.offer].lasts:
            return trial is None or not self._last_chance(trial, history, now)
        return not self.leaves(trial, machine, history, now)  # or it would come and go

    def look_at(self, history: History, now: float) -> float:
        return now + _LOOK_SECONDS if history.running or history.waiting else math.inf

    @property
    def _changeover(self) -> float:
        return max(kind.ready_seconds for kind in self.kinds.values()) + self.terms.restart_seconds

    def _cheapest_spot(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        there = [kind for kind in self._spot if self.to_be_had(kind, history, now)]

        def dollars(kind: MachineType) -> float:
            return kind.price_at(now) * self.paces.seconds(trial, kind.name, history) / HOUR / kind.slots

        left, steps = self.terms.time_left(history, now), self.steps_of_place(trial, history)
        assert left is not None
        quick = [kind for kind in there if steps * self.paces.seconds(trial, kind.name, history) <= left]
        best = min(quick or there, key=dollars, default=None)
        if best is None:
            return None
        limit = max(2.0 * best.price_at(now), best.on_demand_price or 0.0) if best.revocation is not None else None
        return MachineRequest(best.name, limit)

    def _progress(self, trial: TrialRecord, history: History) -> float:
        """Of the work of its place, the part that is done."""
        rounds = 1 if self.terms.trials is None else -(-self.terms.trials // self.terms.at_a_time)
        whole = rounds * (history.max_steps or 0)
        return 1.0 - self.steps_of_place(trial, history) / whole if whole else 0.0

    def _expected(self, history: History, now: float) -> float:
        left = self.terms.time_left(history, now)
        assert left is not None
        assert self.terms.deadline_seconds is not None
        return 1.0 - left / self.terms.deadline_seconds

    def _last_chance(self, trial: TrialRecord, history: History, now: float) -> bool:
        left = self.terms.time_left(history, now)
        assert left is not None
        fastest = min(self.paces.seconds(trial, kind.name, history) for kind in self._lasting)
        work = self.steps_of_place(trial, history) * fastest
        return left < work + 2.0 * self._changeover + _LOOK_SECONDS
