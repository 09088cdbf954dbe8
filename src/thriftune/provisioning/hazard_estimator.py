"""How soon is a machine lost? By what is known of its kind, and by what became of those that were rented.

What is known may be of other machines, or of another time. Its form is kept and its rate corrected: n losses
where e were to be expected make it (doubt + n) / (doubt + e) times as high. Machines that went at the same moment
had one cause, so that of k times as many losses as moments, each counts for 1 / k.
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
"""So far ahead it is looked."""

_DOUBT = 4.0  # losses: as sure what was known is
_MOST_EXPECTED = 3.0  # of one machine: one that outlives all that was known is no proof that it was all wrong
_SAME_SECONDS = 60.0
_FEW_LIVE = 1e-3


@dataclass(slots=True)
class _Seen:
    """Of one kind: machines that are gone."""

    losses: int = 0
    moments: int = 0  # at which there were any
    last: float = -math.inf
    expected: float = 0.0


class HazardEstimator:
    """A cache of what the history tells, brought up to date as it grows."""

    def __init__(self, kinds: Iterable[MachineType]) -> None:
        self._known = {kind.name: kind.survival for kind in kinds if kind.survival is not None}
        self._of: History | None = None
        self._forget()

    def _forget(self) -> None:
        self._past = 0  # how many of the machines that are gone are in
        self._seen = {name: _Seen() for name in self._known}
        self._at = (-math.inf, -1)
        self._rate = dict.fromkeys(self._known, 1.0)

    def rate(self, kind: MachineType, history: History, now: float) -> float:
        """Of losses, over what was known before."""
        if kind.survival is None:
            return 1.0
        if self._of is not history:
            self._forget()
            self._of = history
        if self._at != (now, history.entries):
            self._at = now, history.entries
            self._refresh(history, now)
        return self._rate[kind.name]

    def hazard(
        self,
        kind: MachineType,
        history: History,
        now: float,
        max_price: float | None,
        age: float = 0.0,
        hours: float | None = None,
    ) -> float:
        """Losses an hour in the hours to come, of a machine of this age in hours."""
        if kind.survival is not None:
            hours = min(HORIZON_HOURS, max(kind.survival.end - age, 0.25)) if hours is None else max(hours, 1e-3)
            while (lives := float(alive(kind.survival, hours, age))) < _FEW_LIVE and hours > 1e-3:
                hours *= 0.5  # what lives for minutes only is not judged by hours
            return -math.log(max(lives, 1e-6)) / hours * self.rate(kind, history, now)
        if kind.revocation is None or max_price is None:
            return 0.0
        return -math.log1p(-min(kind.loss_probability(now, max_price), 1.0 - 1e-6))

    def lived(self, kind: MachineType, history: History, now: float, age: float, hours: float) -> float | None:
        """Of these hours, for how many a machine of this age is expected to be there; None: its rate tells."""
        if kind.survival is None:
            return None
        return float(lived_hours(ScaledSurvival(kind.survival, self.rate(kind, history, now)), hours, age))

    def _refresh(self, history: History, now: float) -> None:
        past = history.fleet.past
        for machine in past[self._past :]:
            if (seen := self._seen.get(machine.offer)) is not None:
                self._take_in(machine, seen)
        self._past = len(past)
        present: dict[str, list[float]] = {}
        for machine in history.machines.values():
            if machine.offer in self._seen:
                present.setdefault(machine.offer, []).append(machine.seconds(now) / HOUR)
        for name, seen in self._seen.items():
            expected = seen.expected + self._expected(name, present[name]) if name in present else seen.expected
            together = seen.losses / seen.moments if seen.moments else 1.0
            self._rate[name] = (_DOUBT + seen.moments) / (_DOUBT + expected / together)

    def _take_in(self, machine: Machine, seen: _Seen) -> None:
        assert machine.ended_at is not None
        seen.expected += self._expected(machine.offer, [machine.seconds(machine.ended_at) / HOUR])
        if machine.was_preempted:
            seen.losses += 1
            seen.moments += machine.ended_at - seen.last > _SAME_SECONDS
            seen.last = machine.ended_at

    def _expected(self, name: str, ages: list[float]) -> float:
        """Losses of machines that have lived so long."""
        lives = alive(self._known[name], ages)
        return float(np.minimum(-np.log(np.maximum(lives, 1e-12)), _MOST_EXPECTED).sum())
