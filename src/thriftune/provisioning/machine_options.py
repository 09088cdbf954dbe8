"""The cost of a useful step on each machine type.

The cost includes preemptions, restarts and refunds. For a new machine, the maximum price is chosen that makes the
cost lowest. The cost ignores that a provider may bill whole hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from thriftune.market.survival import alive
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HOUR, HazardEstimator
from thriftune.provisioning.step_time_estimator import StepTimeEstimator
from thriftune.provisioning.useful_hour_cost import (
    UNUSABLE,
    UsefulHourCost,
    cost_of_rotation,
    cost_until_preempted,
    cost_until_refund_ends,
)
from thriftune.provisioning.workload import StudyWorkload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

_MAX_PRICE_MARGINS = (1e-3, 0.01, 0.05, 0.2, 0.5)  # maximum prices to try, as a share above the current price
_ROUNDING_HOURS = 1.0 / 3600.0
_MAX_EXPONENT = 50.0  # avoids an overflow of exp
_BUCKETS_PER_E = 20  # step times within 5 % share a bucket: this many buckets per factor of e
_MEAN_PRICE_HOURS = 6.0  # the price used is halfway between the current one and the mean of these last hours
_MIN_SURVIVAL = 1e-3  # if fewer machines than this share live for a step, a machine type is unusable


@dataclass(frozen=True, slots=True)
class MachineOption:
    """A machine that a trial could use, with the cost and time of a useful step."""

    machine_type: MachineType
    max_price: float | None  # None where the type has no maximum price
    dollars: float
    hours: float
    rotates: bool = False  # the trial leaves the machine when its refund period ends


@dataclass(frozen=True, slots=True)
class _Hazards:
    """The preemptions per hour of a new machine with this maximum price."""

    max_price: float | None
    soon: float  # over the next HORIZON_HOURS, or the rest of the longest lifetime if that is shorter
    refund_period: float  # over the refund period; 0 without one


@dataclass(frozen=True, slots=True)
class _TypeCosts:
    """The price and hazards of a machine type at one moment, with cached costs."""

    price: float  # dollars per hour
    hazards: list[_Hazards]
    refunded_alive_hours: float | None  # expected life of a new machine within its refund period
    # The best uses of a new machine with their maximum prices, by step time bucket.
    best_uses: dict[int, list[tuple[float | None, UsefulHourCost]]] = field(default_factory=dict)
    # The cost of continuing on a machine whose age does not matter, by maximum price and step time bucket.
    continuing: dict[tuple[float | None, int], UsefulHourCost] = field(default_factory=dict)


class OptionCosts:
    """The costs of the machines that trials could use."""

    def __init__(self, workload: StudyWorkload, step_times: StepTimeEstimator, hazards: HazardEstimator) -> None:
        self._workload, self._step_times, self._hazards = workload, step_times, hazards
        self._computed_at: tuple[History | None, float, int] = (None, -math.inf, -1)
        self._type_costs: dict[str, _TypeCosts] = {}  # by type, valid at `_computed_at`

    def new_machines(
        self, machine_types: Iterable[MachineType], trial: TrialRecord | None, history: History, now: float
    ) -> Iterator[MachineOption]:
        """Yield options of new machines of these types.

        Such a machine is used until it is preempted, or with rotation. A trial of None stands for an average
        trial. Types whose machines hardly ever live for a step are left out.
        """
        for machine_type in machine_types:
            costs = self._costs_of(machine_type, history, now)
            step = self._step_times.seconds(trial, machine_type.name, history) / HOUR
            bucket = _step_bucket(step)
            if bucket not in costs.best_uses:
                costs.best_uses[bucket] = self._best_uses(machine_type, costs, _bucket_step(bucket))
            for max_price, cost in costs.best_uses[bucket]:
                yield _make_option(machine_type, max_price, cost, step)

    def present_machine(
        self, trial: TrialRecord, machine: Machine, history: History, now: float, machine_type: MachineType
    ) -> MachineOption:
        """Return the option of using this machine, which the study already has."""
        costs = self._costs_of(machine_type, history, now)
        step = self._step_times.seconds(trial, machine_type.name, history) / HOUR
        age, refunded = machine.seconds(now) / HOUR, machine_type.billing.refunded_first_seconds / HOUR
        rest = refunded - age
        if rest > 0.5 * step + _ROUNDING_HOURS:
            hazard = self._hazards.hazard(machine_type, history, now, machine.max_price, age, rest)
            redo, overhead = self._preemption_costs(machine_type, hazard, step)
            alive_hours = self._hazards.expected_alive_hours(machine_type, history, now, age, rest)
            cost = cost_until_refund_ends(costs.price, hazard, age, redo, refunded, overhead, alive_hours)
        elif machine_type.survival is not None:
            hazard = self._hazards.hazard(machine_type, history, now, None, age)
            cost = self._cost_until_preempted(machine_type, costs.price, hazard, step, age)
        else:
            key = machine.max_price, _step_bucket(step)
            if key not in costs.continuing:
                hazard = self._hazards.hazard(machine_type, history, now, machine.max_price)
                costs.continuing[key] = self._cost_until_preempted(
                    machine_type, costs.price, hazard, _bucket_step(key[1])
                )
            cost = costs.continuing[key]
        return _make_option(machine_type, machine.max_price, cost, step)

    def _cost_until_preempted(
        self, machine_type: MachineType, price: float, hazard: float, step: float, age: float = 0.0
    ) -> UsefulHourCost:
        if not _may_finish_step(machine_type, step, age):
            return UNUSABLE
        redo, overhead = self._preemption_costs(machine_type, hazard, step)
        unbilled = machine_type.queue_latency.mean / HOUR
        return cost_until_preempted(price, hazard, self.start_hours(machine_type), unbilled, redo, overhead)

    def start_hours(self, machine_type: MachineType, *, billed: bool = False) -> float:
        """Return the hours from the request for a machine until a trial trains on it.

        With `billed`, only the billed hours count.
        """
        wait = machine_type.init_latency.mean if billed else machine_type.ready_seconds
        return (wait + self._workload.restart_seconds) / HOUR

    def lost_hours_per_work_hour(
        self, machine_type: MachineType, trial: TrialRecord, history: History, now: float
    ) -> float:
        """Return the hours that preemptions cost per hour of work.

        The maximum price is the one that makes them fewest.
        """
        step = self._step_times.seconds(trial, machine_type.name, history) / HOUR
        lowest = math.inf
        for hazards in self._costs_of(machine_type, history, now).hazards:
            redo, _ = self._preemption_costs(machine_type, hazards.soon, step)
            lowest = min(lowest, hazards.soon * (self.start_hours(machine_type) + redo))
        return lowest

    def _best_uses(
        self, machine_type: MachineType, costs: _TypeCosts, step: float
    ) -> list[tuple[float | None, UsefulHourCost]]:
        """Return the best use until preemption, and the best rotation if cheaper.

        Each is a pair of the maximum price that makes the cost lowest, and that cost. The list is empty if too few
        machines live for a step of `step` hours.
        """
        start, unbilled = self.start_hours(machine_type), machine_type.queue_latency.mean / HOUR
        refunded = machine_type.billing.refunded_first_seconds / HOUR
        staying, rotating = UNUSABLE, UNUSABLE
        staying_max_price = rotating_max_price = None
        for hazards in costs.hazards:
            cost = self._cost_until_preempted(machine_type, costs.price, hazards.soon, step)
            if cost.dollars < staying.dollars:
                staying, staying_max_price = cost, hazards.max_price
            if refunded and hazards.refund_period:
                redo, overhead = self._preemption_costs(machine_type, hazards.soon, step)
                cost = cost_of_rotation(
                    costs.price,
                    hazards.refund_period,
                    start,
                    unbilled,
                    redo,
                    refunded,
                    overhead,
                    costs.refunded_alive_hours,
                )
                if cost.dollars < rotating.dollars:
                    rotating, rotating_max_price = cost, hazards.max_price
        if not _may_finish_step(machine_type, step, 0.0):
            return []
        uses: list[tuple[float | None, UsefulHourCost]] = [(staying_max_price, staying)]
        return [*uses, (rotating_max_price, rotating)] if rotating.dollars < staying.dollars else uses

    def _costs_of(self, machine_type: MachineType, history: History, now: float) -> _TypeCosts:
        """Return the present price and hazards of a type, computed once per moment."""
        computed_at = history, now, len(history.fleet.past)
        if self._computed_at != computed_at:
            self._computed_at, self._type_costs = computed_at, {}
        if machine_type.name not in self._type_costs:
            refunded = machine_type.billing.refunded_first_seconds / HOUR
            hazards = [
                _Hazards(
                    max_price,
                    self._hazards.hazard(machine_type, history, now, max_price),
                    self._hazards.hazard(machine_type, history, now, max_price, hours=refunded)
                    if refunded
                    else 0.0,
                )
                for max_price in _max_prices(machine_type, now)
            ]
            mean_price = machine_type.mean_price(now, _MEAN_PRICE_HOURS * HOUR)
            price = 0.5 * (machine_type.price_at(now) + mean_price)
            alive_hours = (
                self._hazards.expected_alive_hours(machine_type, history, now, 0.0, refunded) if refunded else None
            )
            self._type_costs[machine_type.name] = _TypeCosts(price, hazards, alive_hours)
        return self._type_costs[machine_type.name]

    def _preemption_costs(self, machine_type: MachineType, hazard: float, step: float) -> tuple[float, float]:
        """Return the hours of work that a preemption loses, and the overhead of saves.

        The overhead is the time of saves as a share of the work. `step` is the duration of a step in hours.
        """
        if not hazard or self._workload.can_save_within(machine_type.notice_seconds, step * HOUR):
            return 0.0, 0.0
        interval = max(self._workload.save_interval_hours(hazard), step)  # a trial saves only at the end of a step
        # (exp(hazard interval) - 1) / hazard hours pass on average until an interval without a preemption is over.
        expected = math.expm1(min(hazard * interval, _MAX_EXPONENT)) / hazard
        return (expected / interval - 1.0) / hazard, self._workload.save_seconds / HOUR / interval


def _may_finish_step(machine_type: MachineType, step: float, age: float) -> bool:
    """Return whether a machine of this age is likely enough to survive another step."""
    return machine_type.survival is None or float(alive(machine_type.survival, step, age)) > _MIN_SURVIVAL


def _step_bucket(step: float) -> int:
    return round(math.log(step) * _BUCKETS_PER_E)


def _bucket_step(bucket: int) -> float:
    return math.exp(bucket / _BUCKETS_PER_E)


def _make_option(
    machine_type: MachineType, max_price: float | None, cost: UsefulHourCost, step: float
) -> MachineOption:
    useful_share = max(cost.useful_share, 1e-12)
    dollars = cost.dollars * step / machine_type.slots
    return MachineOption(machine_type, max_price, dollars, step / useful_share, cost.rotates)


def _max_prices(machine_type: MachineType, now: float) -> Iterator[float | None]:
    """Yield the maximum prices to try.

    Low ones are useful only if preempted machines are refunded.
    """
    if machine_type.revocation is None:
        yield None
        return
    price = machine_type.price_at(now)
    if machine_type.billing.refunded_first_seconds:
        yield from (price * (1.0 + margin) for margin in _MAX_PRICE_MARGINS)
    yield max(2.0 * price, machine_type.on_demand_price or 0.0)
