"""One kind of machine for all trials: on demand, or a spot machine that is never outbid (SpotTune's baselines)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from thriftune.errors import SettingError
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HOUR
from thriftune.provisioning.renting_policy import MachineRequest, RentingPolicy
from thriftune.provisioning.workload import Workload
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord


class OnDemand(RentingPolicy):
    """Machines that are not taken away: those with the fewest dollars a step, of which a deadline can be made."""

    takes_spot = False

    def __init__(self, kinds: Sequence[MachineType], terms: Workload) -> None:
        super().__init__(kinds, terms)
        self._lasting = [kind for kind in kinds if kind.lasts]
        if not self._lasting:
            raise SettingError("on_demand: all kinds of machines may be taken away; give one that is not")

    def choose(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        return MachineRequest(cheapest_in_time(self, self._lasting, trial, history, now).name)


class _SingleSpot(RentingPolicy):
    """One spot machine for every trial; it is never outbid."""

    def __init__(self, kinds: Sequence[MachineType], terms: Workload) -> None:
        super().__init__(kinds, terms)
        self._spot = [kind for kind in kinds if not kind.lasts]
        if not self._spot:
            raise SettingError("no kind of machine may be taken away; give a spot machine")

    def choose(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:  # noqa: ARG002
        start = now if history.started_at is None else history.started_at
        return MachineRequest(min(self._spot, key=lambda kind: self._rank(kind, start)).name)

    @abstractmethod
    def _rank(self, kind: MachineType, start: float) -> tuple[float, float]:
        """The lowest is taken."""


class CheapestSpot(_SingleSpot):
    """That with the lowest price at the start."""

    def _rank(self, kind: MachineType, start: float) -> tuple[float, float]:
        return kind.price_at(start), -kind.speed


class FastestSpot(_SingleSpot):
    """The fastest; of several, that with the lowest price at the start."""

    def _rank(self, kind: MachineType, start: float) -> tuple[float, float]:
        return -kind.speed, kind.price_at(start)


def cheapest_in_time(
    policy: RentingPolicy, kinds: Sequence[MachineType], trial: TrialRecord, history: History, now: float
) -> MachineType:
    """Of those on which the trial would be done in time, the one with the fewest dollars; else the fastest."""
    left, steps = policy.terms.time_left(history, now), policy.steps_of_place(trial, history)

    def seconds(kind: MachineType) -> float:
        overhead = kind.ready_seconds + policy.terms.restart_seconds
        return overhead + steps * policy.paces.seconds(trial, kind.name, history)

    def dollars(kind: MachineType) -> float:
        return seconds(kind) / HOUR * kind.price_at(now) / kind.slots

    in_time = [kind for kind in kinds if left is None or seconds(kind) <= left]
    return min(in_time, key=dollars) if in_time else min(kinds, key=seconds)
