"""The uniform progress policy ("Can't Be Late", NSDI 2024).

It uses spot machines if available, and on-demand machines when a trial is behind. A trial has C0 of work at the
start, a deadline D, and a changeover time of d. At time t, it should have done C0 t / D.

1. A trial without a machine that has done less than that uses an on-demand machine.
2. A spot machine is used whenever one is available, even if the trial is behind, until it is preempted. Of several
   types, the cheapest of those that are fast enough is used. The paper has a single type and needs no such rule.
3. A trial leaves its on-demand machine when its progress is what it should be at t + 2 d.
4. A trial without a machine uses on-demand machines to the end if its time left is less than its remaining work
   plus 2 d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from thriftune.errors import SettingError
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.baselines import cheapest_in_time
from thriftune.provisioning.hazard_estimator import HOUR
from thriftune.provisioning.renting_policy import MachineRequest, RentingPolicy
from thriftune.provisioning.workload import StudyWorkload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

_CHECK_SECONDS = 300.0  # between two checks of every trial's progress


class UniformProgress(RentingPolicy):
    """The uniform progress policy."""

    def __init__(self, machine_types: Sequence[MachineType], workload: StudyWorkload) -> None:
        super().__init__(machine_types, workload)
        self._spot = [each for each in machine_types if not each.is_on_demand]
        self._on_demand = [each for each in machine_types if each.is_on_demand]
        if workload.deadline_seconds is None:
            raise SettingError("uniform_progress: needs a deadline; give deadline=")
        if not self._on_demand or not self._spot:
            raise SettingError("uniform_progress: needs a spot type and an on-demand type; give both")

    def choose_machine(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        spot = self._cheapest_spot(trial, history, now)
        must_finish = self._must_use_on_demand(trial, history, now)
        if spot is not None and not must_finish:
            return spot
        if must_finish or self._progress(trial, history) < self._expected_progress(history, now):
            return MachineRequest(cheapest_in_time(self, self._on_demand, trial, history, now).name)
        return None

    def should_leave(self, trial: TrialRecord, machine: Machine, history: History, now: float) -> bool:
        if not self.machine_types[machine.offer].is_on_demand or self._must_use_on_demand(trial, history, now):
            return False
        return self._progress(trial, history) >= self._expected_progress(history, now + 2.0 * self._changeover)

    def accepts(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:
        if trial is None or not self.machine_types[machine.offer].is_on_demand:
            return trial is None or not self._must_use_on_demand(trial, history, now)
        return not self.should_leave(trial, machine, history, now)  # otherwise it would leave again at once

    def next_check_at(self, history: History, now: float) -> float:
        return now + _CHECK_SECONDS if history.running or history.waiting else math.inf

    @property
    def _changeover(self) -> float:
        """Return the seconds to continue a trial on a new machine of any type."""
        return max(each.ready_seconds for each in self.machine_types.values()) + self.workload.restart_seconds

    def _cheapest_spot(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        """Return a request for the cheapest available spot type, or None.

        Types that are fast enough for the deadline are preferred.
        """
        available = [each for each in self._spot if self.may_request(each, history, now)]

        def dollars(machine_type: MachineType) -> float:
            seconds = self.step_times.seconds(trial, machine_type.name, history)
            return machine_type.price_at(now) * seconds / HOUR / machine_type.slots

        left, steps = self.workload.time_left(history, now), self.lane_steps(trial, history)
        assert left is not None
        in_time = [
            each for each in available if steps * self.step_times.seconds(trial, each.name, history) <= left
        ]
        best = min(in_time or available, key=dollars, default=None)
        if best is None:
            return None
        max_price = None
        if best.revocation is not None:
            max_price = max(2.0 * best.price_at(now), best.on_demand_price or 0.0)
        return MachineRequest(best.name, max_price)

    def _progress(self, trial: TrialRecord, history: History) -> float:
        """Return the share of the work of the trial's lane that is done."""
        rounds = 1 if self.workload.trials is None else -(-self.workload.trials // self.workload.at_a_time)
        all_steps = rounds * (history.max_steps or 0)
        return 1.0 - self.lane_steps(trial, history) / all_steps if all_steps else 0.0

    def _expected_progress(self, history: History, now: float) -> float:
        """Return the share of the time until the deadline that has passed."""
        left = self.workload.time_left(history, now)
        assert left is not None
        assert self.workload.deadline_seconds is not None
        return 1.0 - left / self.workload.deadline_seconds

    def _must_use_on_demand(self, trial: TrialRecord, history: History, now: float) -> bool:
        """Return whether only on-demand machines can still meet the deadline (rule 4)."""
        left = self.workload.time_left(history, now)
        assert left is not None
        fastest = min(self.step_times.seconds(trial, each.name, history) for each in self._on_demand)
        work = self.lane_steps(trial, history) * fastest
        return left < work + 2.0 * self._changeover + _CHECK_SECONDS
