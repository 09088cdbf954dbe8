"""The estimation of how soon machines are preempted.

It uses known lifetimes, and corrects them by the machines of the study. The known lifetimes may be those of other
machines, or of another time. The shape of their distribution is used, and its rate is corrected: n preemptions
where e were expected multiply the rate by (d + n) / (d + e), with a constant d. Machines that are preempted at the
same moment have a common cause. If preemptions come in groups of k at the same moment on average, n and e are
first divided by k.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from thriftune.market.running_time import lived_hours
from thriftune.market.survival import ScaledSurvival, alive
from thriftune.planning.machine_types import MachineType
from thriftune.state.fleet import Machine
from thriftune.state.history import History

HOUR = 3600.0
HORIZON_HOURS = 4.0
"""The time ahead over which hazards are averaged."""

_PRIOR_PREEMPTIONS = 4.0  # the weight of the known lifetimes, as a number of preemptions
_MAX_EXPECTED = (
    3.0  # expected preemptions of one machine; one that outlives all known lifetimes proves little more
)
_SAME_MOMENT_SECONDS = 60.0  # preemptions within this time have a common cause
_MIN_SURVIVAL = 1e-3  # over the horizon; below it the horizon is halved
_MIN_HORIZON_HOURS = 1e-3


@dataclass(slots=True)
class _EndedMachines:
    """The ended machines of one type."""

    preemptions: int = 0
    moments: int = 0  # distinct moments of preemption
    last_preemption: float = -math.inf
    expected: float = 0.0  # expected preemptions during the lives of these machines


class HazardEstimator:
    """A cache of hazards, updated as the history grows."""

    def __init__(self, machine_types: Iterable[MachineType]) -> None:
        self._survivals = {each.name: each.survival for each in machine_types if each.survival is not None}
        self._history: History | None = None
        self._reset()

    def _reset(self) -> None:
        self._counted = 0  # past machines of the history that are counted in `_ended`
        self._ended = {name: _EndedMachines() for name in self._survivals}
        self._computed_at = (-math.inf, -1)  # the time and the history's entries that `_corrections` are from
        self._corrections = dict.fromkeys(self._survivals, 1.0)

    def correction(self, machine_type: MachineType, history: History, now: float) -> float:
        """Return the observed rate of preemptions relative to the known one."""
        if machine_type.survival is None:
            return 1.0
        if self._history is not history:
            self._reset()
            self._history = history
        if self._computed_at != (now, history.entries):
            self._computed_at = now, history.entries
            self._update(history, now)
        return self._corrections[machine_type.name]

    def hazard(
        self,
        machine_type: MachineType,
        history: History,
        now: float,
        max_price: float | None,
        age: float = 0.0,
        hours: float | None = None,
    ) -> float:
        """Return the mean preemptions per hour of a machine over the next `hours`.

        `age` is the machine's age in hours. `hours` is HORIZON_HOURS by default, or the rest of the longest known
        lifetime if that is shorter.
        """
        survival = machine_type.survival
        if survival is not None:
            if hours is None:
                horizon = min(HORIZON_HOURS, max(survival.end - age, 0.25))
            else:
                horizon = max(hours, _MIN_HORIZON_HOURS)
            while (
                survives := float(alive(survival, horizon, age))
            ) < _MIN_SURVIVAL and horizon > _MIN_HORIZON_HOURS:
                horizon *= 0.5  # machines that live for minutes need a shorter horizon
            return -math.log(max(survives, 1e-6)) / horizon * self.correction(machine_type, history, now)
        if machine_type.revocation is None or max_price is None:
            return 0.0
        return -math.log1p(-min(machine_type.loss_probability(now, max_price), 1.0 - 1e-6))

    def expected_alive_hours(
        self, machine_type: MachineType, history: History, now: float, age: float, hours: float
    ) -> float | None:
        """Return how many of the next `hours` a machine is expected to live.

        `age` is the machine's age in hours. Returns None for a type without known lifetimes, whose hazard must be
        used instead.
        """
        if machine_type.survival is None:
            return None
        survival = ScaledSurvival(machine_type.survival, self.correction(machine_type, history, now))
        return float(lived_hours(survival, hours, age))

    def _update(self, history: History, now: float) -> None:
        past = history.fleet.past
        for machine in past[self._counted :]:
            if (ended := self._ended.get(machine.offer)) is not None:
                self._count(machine, ended)
        self._counted = len(past)
        present_ages: dict[str, list[float]] = {}
        for machine in history.machines.values():
            if machine.offer in self._ended:
                present_ages.setdefault(machine.offer, []).append(machine.seconds(now) / HOUR)
        for name, ended in self._ended.items():
            expected = ended.expected
            if name in present_ages:
                expected += self._expected_preemptions(name, present_ages[name])
            per_moment = ended.preemptions / ended.moments if ended.moments else 1.0
            self._corrections[name] = (_PRIOR_PREEMPTIONS + ended.moments) / (
                _PRIOR_PREEMPTIONS + expected / per_moment
            )

    def _count(self, machine: Machine, ended: _EndedMachines) -> None:
        assert machine.ended_at is not None
        ended.expected += self._expected_preemptions(machine.offer, [machine.seconds(machine.ended_at) / HOUR])
        if machine.was_preempted:
            ended.preemptions += 1
            ended.moments += machine.ended_at - ended.last_preemption > _SAME_MOMENT_SECONDS
            ended.last_preemption = machine.ended_at

    def _expected_preemptions(self, name: str, ages: list[float]) -> float:
        """Return the expected preemptions of machines up to these ages in hours."""
        survives = alive(self._survivals[name], ages)
        return float(np.minimum(-np.log(np.maximum(survives, 1e-12)), _MAX_EXPECTED).sum())
