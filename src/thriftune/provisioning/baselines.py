"""The policies that use on-demand machines only, or one spot type.

The latter are SpotTune's baselines.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from thriftune.errors import SettingError
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HOUR
from thriftune.provisioning.renting_policy import MachineRequest, RentingPolicy, spot_types
from thriftune.provisioning.workload import StudyWorkload
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord


class OnDemand(RentingPolicy):
    """A policy that rents the cheapest on-demand type that meets the deadline."""

    uses_spot = False

    def __init__(self, machine_types: Sequence[MachineType], workload: StudyWorkload) -> None:
        super().__init__(machine_types, workload)
        self._on_demand = [each for each in machine_types if each.is_on_demand]
        if not self._on_demand:
            raise SettingError("on_demand: all machine types can be preempted; give an on-demand type")

    def choose_machine(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        return MachineRequest(cheapest_in_time(self, self._on_demand, trial, history, now).name)


class _SingleSpot(RentingPolicy):
    """A policy that rents one spot type for all trials, without a maximum price."""

    _name: ClassVar[str]
    """The name of the policy in error messages."""

    def __init__(self, machine_types: Sequence[MachineType], workload: StudyWorkload) -> None:
        super().__init__(machine_types, workload)
        self._spot = spot_types(self._name, machine_types)

    def choose_machine(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:  # noqa: ARG002
        start = now if history.started_at is None else history.started_at
        return MachineRequest(min(self._spot, key=lambda each: self._rank(each, start)).name)

    @abstractmethod
    def _rank(self, machine_type: MachineType, start: float) -> tuple[float, float]:
        """Return the sort key of a type; the type with the lowest key is rented."""


class CheapestSpot(_SingleSpot):
    """A policy that rents the spot type that is cheapest when the study starts."""

    _name = "cheapest_spot"

    def _rank(self, machine_type: MachineType, start: float) -> tuple[float, float]:
        return machine_type.price_at(start), -machine_type.speed


class FastestSpot(_SingleSpot):
    """A policy that rents the fastest spot type.

    Of several equally fast types, it rents the one that is cheapest when the study starts.
    """

    _name = "fastest_spot"

    def _rank(self, machine_type: MachineType, start: float) -> tuple[float, float]:
        return -machine_type.speed, machine_type.price_at(start)


def cheapest_in_time(
    policy: RentingPolicy,
    machine_types: Sequence[MachineType],
    trial: TrialRecord,
    history: History,
    now: float,
) -> MachineType:
    """Return the cheapest type that meets the deadline, or else the fastest.

    The deadline is for all steps of the trial's lane.
    """
    left, steps = policy.workload.time_left(history, now), policy.lane_steps(trial, history)

    def seconds(machine_type: MachineType) -> float:
        overhead = machine_type.ready_seconds + policy.workload.restart_seconds
        return overhead + steps * policy.step_times.seconds(trial, machine_type.name, history)

    def dollars(machine_type: MachineType) -> float:
        return seconds(machine_type) / HOUR * machine_type.price_at(now) / machine_type.slots

    in_time = [each for each in machine_types if left is None or seconds(each) <= left]
    return min(in_time, key=dollars) if in_time else min(machine_types, key=seconds)
