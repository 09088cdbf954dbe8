"""What does a useful step cost on each kind of machine, with all that is lost and started again?

With what its provider lets off in the first hour, at the maximum price that makes it least, on a new machine or on
one that is there. That whole hours may be billed is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from thriftune.market.survival import alive
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HOUR, HazardEstimator
from thriftune.provisioning.step_time_estimator import StepTimeEstimator
from thriftune.provisioning.useful_hours import NEVER, CostPerUsefulHour, held, rotated, staying
from thriftune.provisioning.workload import Workload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

_MARGINS = (1e-3, 0.01, 0.05, 0.2, 0.5)  # of the price: what the maximum may be above it
_MOMENT_HOURS = 1.0 / 3600.0
_MOST_EXPONENT = 50.0
_SIZES = 20  # of steps, that are told apart: twenty to a factor of e
_MEAN_HOURS = 6.0
_FEW_LIVE = 1e-3


@dataclass(frozen=True, slots=True)
class Option:
    """A kind for a trial: dollars and hours of a useful step, all things considered."""

    kind: MachineType
    max_price: float | None
    dollars: float
    hours: float
    rotates: bool = False


@dataclass(frozen=True, slots=True)
class _Market:
    """A kind at a moment: its price; by maximum price, the losses an hour of a new machine, in the hours to come
    and in those in which a loss is let off; and the best ways to use it, by how long a step takes."""

    price: float
    dangers: list[tuple[float | None, float, float]]
    ways: dict[int, list[tuple[float | None, CostPerUsefulHour]]]
    going_on: dict[
        tuple[float | None, int], CostPerUsefulHour
    ]  # on a machine with that maximum price, if its age is nothing
    lived: float | None  # hours of those that are let off, for which a new machine is expected to be there


class OptionCosts:
    def __init__(self, terms: Workload, paces: StepTimeEstimator, lives: HazardEstimator) -> None:
        self._terms, self._paces, self._lives = terms, paces, lives
        self._known_at: tuple[History | None, float, int] = (None, -math.inf, -1)
        self._known: dict[str, _Market] = {}

    def options(
        self, kinds: Iterable[MachineType], trial: TrialRecord | None, history: History, now: float
    ) -> Iterator[Option]:
        """New machines of these kinds: until they are lost, and where losses are let off, in turns. None: for a
        usual trial."""
        for kind in kinds:
            market = self._market(kind, history, now)
            step = self._paces.seconds(trial, kind.name, history) / HOUR
            size = _size(step)
            if size not in market.ways:
                market.ways[size] = self._best_ways(kind, market, _of_size(size))
            for max_price, worth in market.ways[size]:
                yield _made(kind, max_price, worth, step)

    def here(
        self, trial: TrialRecord, machine: Machine, history: History, now: float, kind: MachineType
    ) -> Option:
        """To go on on this machine, which is there."""
        market = self._market(kind, history, now)
        step = self._paces.seconds(trial, kind.name, history) / HOUR
        age, free = machine.seconds(now) / HOUR, kind.billing.refunded_first_seconds / HOUR
        rest = free - age
        if rest > 0.5 * step + _MOMENT_HOURS:
            hazard = self._lives.hazard(kind, history, now, machine.max_price, age, rest)
            redo, overhead = self._losing(kind, hazard, step)
            lived = self._lives.lived(kind, history, now, age, rest)
            worth = staying(market.price, hazard, age, redo, free, overhead, lived)
        elif kind.survival is not None:
            hazard = self._lives.hazard(kind, history, now, None, age)
            worth = self._held(kind, market.price, hazard, step, age)
        else:
            key = machine.max_price, _size(step)
            if key not in market.going_on:
                hazard = self._lives.hazard(kind, history, now, machine.max_price)
                market.going_on[key] = self._held(kind, market.price, hazard, _of_size(key[1]))
            worth = market.going_on[key]
        return _made(kind, machine.max_price, worth, step)

    def _held(
        self, kind: MachineType, price: float, hazard: float, step: float, age: float = 0.0
    ) -> CostPerUsefulHour:
        if not _outlives(kind, step, age):
            return NEVER
        redo, overhead = self._losing(kind, hazard, step)
        return held(price, hazard, self.start_hours(kind), kind.queue_latency.mean / HOUR, redo, overhead)

    def start_hours(self, kind: MachineType, *, billed: bool = False) -> float:
        """Until a trial is at work there, from the request on, or from the moment it is billed."""
        wait = kind.init_latency.mean if billed else kind.ready_seconds
        return (wait + self._terms.restart_seconds) / HOUR

    def least_lost_hours(self, kind: MachineType, trial: TrialRecord, history: History, now: float) -> float:
        """For an hour of work, those that losses take."""
        step = self._paces.seconds(trial, kind.name, history) / HOUR
        least = math.inf
        for _, hazard, _ in self._market(kind, history, now).dangers:
            redo, _ = self._losing(kind, hazard, step)
            least = min(least, hazard * (self.start_hours(kind) + redo))
        return least

    def _best_ways(
        self, kind: MachineType, market: _Market, step: float
    ) -> list[tuple[float | None, CostPerUsefulHour]]:
        start, unbilled = self.start_hours(kind), kind.queue_latency.mean / HOUR
        free = kind.billing.refunded_first_seconds / HOUR
        stays, turns = NEVER, NEVER
        stays_max = turns_max = None
        for max_price, hazard, first_hazard in market.dangers:
            worth = self._held(kind, market.price, hazard, step)
            if worth.dollars < stays.dollars:
                stays, stays_max = worth, max_price
            if free and first_hazard:
                redo, overhead = self._losing(kind, hazard, step)
                worth = rotated(market.price, first_hazard, start, unbilled, redo, free, overhead, market.lived)
                if worth.dollars < turns.dollars:
                    turns, turns_max = worth, max_price
        if not _outlives(kind, step, 0.0):
            return []
        found: list[tuple[float | None, CostPerUsefulHour]] = [(stays_max, stays)]
        return [*found, (turns_max, turns)] if turns.dollars < stays.dollars else found

    def _market(self, kind: MachineType, history: History, now: float) -> _Market:
        """What is known of a kind now, asked for once."""
        known_at = history, now, len(history.fleet.past)
        if self._known_at != known_at:
            self._known_at, self._known = known_at, {}
        if kind.name not in self._known:
            free = kind.billing.refunded_first_seconds / HOUR
            dangers = [
                (
                    limit,
                    self._lives.hazard(kind, history, now, limit),
                    self._lives.hazard(kind, history, now, limit, hours=free) if free else 0.0,
                )
                for limit in _max_prices(kind, now)
            ]
            price = 0.5 * (kind.price_at(now) + kind.mean_price(now, _MEAN_HOURS * HOUR))
            lived = self._lives.lived(kind, history, now, 0.0, free) if free else None
            self._known[kind.name] = _Market(price, dangers, {}, {}, lived)
        return self._known[kind.name]

    def _losing(self, kind: MachineType, hazard: float, step: float) -> tuple[float, float]:
        """The hours of work that a loss costs, and what saving takes of the work. `step`: hours of one."""
        if not hazard or self._terms.saves_within(kind.notice_seconds, step * HOUR):
            return 0.0, 0.0
        every = max(self._terms.save_interval_hours(hazard), step)  # it is saved at the end of a step only
        # Until that many hours have gone without a loss, (exp(hazard every) - 1) / hazard are expected to pass.
        expected = math.expm1(min(hazard * every, _MOST_EXPONENT)) / hazard
        return (expected / every - 1.0) / hazard, self._terms.save_seconds / HOUR / every


def _outlives(kind: MachineType, step: float, age: float) -> bool:
    """Whether some machines of this age live for another step: else nothing would ever be done there."""
    return kind.survival is None or float(alive(kind.survival, step, age)) > _FEW_LIVE


def _size(step: float) -> int:
    return round(math.log(step) * _SIZES)


def _of_size(size: int) -> float:
    return math.exp(size / _SIZES)


def _made(kind: MachineType, max_price: float | None, worth: CostPerUsefulHour, step: float) -> Option:
    useful = max(worth.useful, 1e-12)
    return Option(kind, max_price, worth.dollars * step / kind.slots, step / useful, worth.rotates)


def _max_prices(kind: MachineType, now: float) -> Iterator[float | None]:
    if kind.revocation is None:
        yield None
        return
    price = kind.price_at(now)
    if kind.billing.refunded_first_seconds:
        yield from (price * (1.0 + margin) for margin in _MARGINS)
    yield max(2.0 * price, kind.on_demand_price or 0.0)
