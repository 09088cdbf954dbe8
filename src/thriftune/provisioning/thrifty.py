"""The default policy: the fewest expected dollars per useful step.

It reserves time to meet the deadline. For each available type, machine_options.py gives the cost of a useful step:
with preemptions and restarts, by the provider's billing rules, and at the maximum price that makes it lowest. A
trial uses the cheapest type. Of several types that cost nearly the same, it uses the one that the study has fewest
machines of. It moves when the move saves more than it costs within a few hours.

With a deadline, it must be possible at any moment to finish on an on-demand machine. A trial that finds no spot
machine waits while there is time to spare, and only then uses an on-demand machine. The cost of on-demand work is
the same early or late, and the longer a trial waits, the more work spot machines may do. Some time is kept in
reserve for preemptions, so that spot machines can be used to the end. If the cheap machines are too slow, a
mixture of two types costs least. Of two spot types the faster one is used first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HORIZON_HOURS, HOUR
from thriftune.provisioning.machine_options import MachineOption, OptionCosts
from thriftune.provisioning.renting_policy import MachineRequest, RentingPolicy
from thriftune.provisioning.workload import StudyWorkload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.reports import last_step_of_attempt
from thriftune.state.trial_record import TrialRecord

CHECK_SECONDS = 900.0
"""The time between two checks whether trials should move or machines are available again."""

_MIN_GAIN = 0.05  # a move must save its cost and this share of the new cost within the horizon
_NEARLY_EQUAL = 1.03  # costs within this factor count as equal; several types are safer than one
_MAX_WAIT_HOURS = 6.0  # for a spot machine, without a deadline
_STUCK_FACTOR = 10.0  # a trial is stuck if it has spent this many step times without finishing a step
_PACE_MARGIN = 1.03  # factor by which a new machine should exceed the needed pace
_TIME_MARGIN = 1.02  # factor on the expected time of the remaining on-demand work, because step times vary
_UNTIMED_MARGIN = 1.25  # the same factor before any step of the trial was timed


class _Comparison(NamedTuple):
    """A trial's present machine, and a better one to use instead, if any."""

    present: MachineOption
    better: MachineOption | None


class Thrifty(RentingPolicy):
    """A policy that rents the cheapest machines that meet the deadline.

    The cost is compared in expected dollars per useful step.
    """

    def __init__(self, machine_types: Sequence[MachineType], workload: StudyWorkload) -> None:
        super().__init__(machine_types, workload)
        self._costs = OptionCosts(workload, self.step_times, self.hazards)
        self._on_demand = [each for each in machine_types if each.is_on_demand]
        self._spot = [each for each in machine_types if not each.is_on_demand]
        self._slowest = min(machine_types, key=lambda each: each.speed)
        starts = [self._costs.start_hours(each) for each in self._on_demand]
        self._shortest_start, self._longest_start = min(starts, default=0.0), max(starts, default=0.0)
        # Caches with their keys.
        self._average_key: tuple[float, int] = (-math.inf, -1)
        self._cheapest_average = math.inf  # dollars per step of an average trial on the cheapest available type
        self._comparison_key: tuple[object, ...] = ()
        self._comparison: _Comparison | None = None

    # --- decisions of this policy

    def choose_machine(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        best = self._best_option(trial, history, now)
        return None if best is None else MachineRequest(best.machine_type.name, best.max_price)

    def should_leave(self, trial: TrialRecord, machine: Machine, history: History, now: float) -> bool:
        """Return whether the trial should leave for another machine of a rotation.

        With refunds, machines are used for a short time. The next machine is rented only after this one is left,
        because its refund period should not pass unused.
        """
        present, better = self._compare(trial, machine, history, now)
        if better is None or not self._is_rotation(present, better, history):
            return False
        if not self._move_pays(trial, history, now, present, better):
            return False
        left = self.workload.time_left(history, now)
        if left is None or not self._on_demand:
            return True
        slack = left / HOUR - self._on_demand_hours(trial, history, self.lane_steps(trial, history))
        # The next machine may not be available when the trial has left.
        return slack > 2.0 * self._changeover_hours(trial, history)

    def choose_replacement(
        self, trial: TrialRecord, machine: Machine, history: History, now: float
    ) -> MachineRequest | None:
        present, better = self._compare(trial, machine, history, now)
        if (
            better is None
            or self._is_rotation(present, better, history)
            or better.machine_type is present.machine_type
        ):
            return None
        must_move = better.machine_type.is_on_demand and not present.machine_type.is_on_demand
        if must_move or self._move_pays(trial, history, now, present, better):
            return MachineRequest(better.machine_type.name, better.max_price)
        return None

    def _is_rotation(self, present: MachineOption, better: MachineOption, history: History) -> bool:
        """Return whether this is a move between spot machines because of refunds.

        The result is false if the better type was unavailable at the last request, because a trial that leaves for
        a machine that it does not get loses time.
        """
        return (
            better.rotates
            and not present.machine_type.is_on_demand
            and self.was_last_available(better.machine_type, history)
        )

    def _compare(self, trial: TrialRecord, machine: Machine, history: History, now: float) -> _Comparison:
        """Compare the trial's present machine with the best option."""
        key = trial.id, machine.id, history.entries, now
        if self._comparison is None or self._comparison_key != key:
            present = self._costs.present_machine(trial, machine, history, now, self.machine_types[machine.offer])
            is_good = not self._types_rented_for(trial, history) and self._is_good(present, trial, history, now)
            best = present if is_good else self._best_option(trial, history, now, present)
            self._comparison_key = key
            self._comparison = _Comparison(present, None if best is present else best)
        return self._comparison

    def _is_good(self, present: MachineOption, trial: TrialRecord, history: History, now: float) -> bool:
        """Check quickly whether the present machine is good enough.

        The machine is good enough if it meets the deadline, and if no type is cheaper for an average trial by more
        than `_MIN_GAIN`. This is the usual case.
        """
        left = self.workload.time_left(history, now)
        if left is not None and self._on_demand:
            steps, changeover = self.lane_steps(trial, history), self._changeover_hours(trial, history)
            is_in_time = steps * present.hours + changeover <= left / HOUR
            slack = left / HOUR - self._on_demand_hours(trial, history, steps)
            if not is_in_time or slack < 2.0 * changeover:
                return False
        if self._average_key != (now, history.entries):
            self._average_key = now, history.entries
            available = [each for each in self.machine_types.values() if self.may_request(each, history, now)]
            options = self._costs.new_machines(available, None, history, now)
            self._cheapest_average = min((option.dollars for option in options), default=math.inf)
        name = present.machine_type.name
        own_seconds = self.step_times.seconds(trial, name, history)
        average_dollars = present.dollars * self.step_times.seconds(None, name, history) / own_seconds
        return average_dollars <= (1.0 + _MIN_GAIN) * self._cheapest_average

    def _move_pays(
        self,
        trial: TrialRecord,
        history: History,
        now: float,
        present: MachineOption,
        better: MachineOption,
    ) -> bool:
        """Return whether a move saves more than it costs within the horizon."""
        steps = min(self.steps_left(trial, history), HORIZON_HOURS / present.hours)
        start_hours = self._costs.start_hours(better.machine_type, billed=True)
        move_dollars = better.machine_type.price_at(now) / better.machine_type.slots * start_hours
        return better.dollars * steps * (1.0 + _MIN_GAIN) + move_dollars < present.dollars * steps

    def next_check_at(self, history: History, now: float) -> float:
        if not history.running and not history.waiting:
            return math.inf
        ends = (self._last_refund_at(machine, history) for machine in history.machines.values() if machine.running)
        return min([now + CHECK_SECONDS, *(end for end in ends if end > now)])

    def _last_refund_at(self, machine: Machine, history: History) -> float:
        """Return the time after which a trial should start no other step.

        A trial leaves only at the end of a step. A step that starts later would end more than half a step after
        the refund period. The result is -inf if the type has no refund period.
        """
        machine_type = self.machine_types.get(machine.offer)
        if machine_type is None or not machine_type.billing.refunded_first_seconds:
            return -math.inf
        trial = history.trials[next(iter(machine.running))]
        step = self.step_times.seconds(trial, machine_type.name, history)
        return machine.started_at + machine_type.billing.refunded_first_seconds - 0.5 * step

    # --- the choice among options

    def _best_option(
        self, trial: TrialRecord, history: History, now: float, present: MachineOption | None = None
    ) -> MachineOption | None:
        """Return the machine that the trial should use; None if it should wait.

        `present` is the option of the machine that the trial is on or could use now.
        """
        options = [*self._new_options(trial, history, now), *([present] if present is not None else [])]
        on_demand = [option for option in options if option.machine_type.is_on_demand]
        spot = [option for option in options if not option.machine_type.is_on_demand]
        left = self.workload.time_left(history, now)
        if on_demand and self._is_stuck(trial, history):
            if present is not None and present.machine_type.is_on_demand:
                return present
            return min(on_demand, key=lambda option: option.dollars)
        if left is None or not self._on_demand:
            return self._best_without_deadline(options, trial, history, now, present)
        steps = self.lane_steps(trial, history)
        slack = left / HOUR - self._on_demand_hours(trial, history, steps)
        changeover = self._changeover_hours(trial, history)
        if present is not None and self._is_done_before_move(trial, history, present, steps):
            return present
        if on_demand and slack < changeover:
            return self._on_demand_in_time(on_demand, trial, history, left)
        if on_demand:
            cheapest_on_demand = min(option.dollars for option in on_demand)
            spot = [option for option in spot if option.dollars <= cheapest_on_demand]
        if spot:
            pace = steps / max(left / HOUR - changeover, 1e-6)  # steps per hour, with time left for a changeover
            return self._prefer_rare_type(self._options_at_pace(spot, on_demand, pace, present), history, present)
        if not on_demand:
            return None
        may_wait = present is None and slack >= changeover + self._reserve_hours(trial, history, steps, now)
        best = self._on_demand_in_time(on_demand, trial, history, left)
        return None if may_wait and self._is_spot_cheaper(trial, history, now, best) else best

    def _best_without_deadline(
        self,
        options: list[MachineOption],
        trial: TrialRecord,
        history: History,
        now: float,
        present: MachineOption | None,
    ) -> MachineOption | None:
        """Return the cheapest option, or None to wait for a cheaper spot machine."""
        if not options:
            return None
        best = self._prefer_rare_type(options, history, present)
        may_wait = (
            best.machine_type.is_on_demand and present is None and _waited_hours(trial, now) < _MAX_WAIT_HOURS
        )
        return None if may_wait and self._is_spot_cheaper(trial, history, now, best) else best

    def _new_options(self, trial: TrialRecord, history: History, now: float) -> Iterator[MachineOption]:
        """Yield options of types that may be requested or are rented for the trial."""
        rented = self._types_rented_for(trial, history)
        available = (
            each
            for each in self.machine_types.values()
            if each.name in rented or self.may_request(each, history, now)
        )
        return self._costs.new_machines(available, trial, history, now)

    def _types_rented_for(self, trial: TrialRecord, history: History) -> set[str]:
        """Return the types of free machines that were rented for the trial."""
        return {
            each.offer for each in history.machines.values() if each.intended_trial == trial.id and each.free_slots
        }

    def _is_stuck(self, trial: TrialRecord, history: History) -> bool:
        """Return whether the trial has spent many step times without finishing a step.

        Its next step then seems to take longer than spot machines live.
        """
        seconds = 0.0
        for attempt in reversed(trial.past_attempts):
            if attempt.last_step > attempt.first_step:
                break
            seconds += attempt.ended_at - attempt.started_at
        fastest = min(self.step_times.seconds(trial, each.name, history) for each in self._on_demand)
        return seconds > _STUCK_FACTOR * fastest

    def _is_done_before_move(
        self, trial: TrialRecord, history: History, present: MachineOption, steps: float
    ) -> bool:
        """Return whether the trial ends on its machine before it could move to another.

        A trial that moves has to finish its current step first.
        """
        unsaved = self.steps_left(trial, history) - max(0, (history.max_steps or 0) - last_step_of_attempt(trial))
        return (steps - unsaved - 1.0) * present.hours <= self._shortest_start

    def _is_spot_cheaper(self, trial: TrialRecord, history: History, now: float, than: MachineOption) -> bool:
        """Return whether a spot machine would be cheaper than this option.

        Spot machines that are not available now count, too.
        """
        options = self._costs.new_machines(self._spot, trial, history, now)
        return min((option.dollars for option in options), default=math.inf) < than.dollars

    def _on_demand_hours(self, trial: TrialRecord, history: History, steps: float) -> float:
        """Return the hours for these steps on the fastest on-demand type, with a margin."""
        fastest = min(self.step_times.seconds(trial, each.name, history) for each in self._on_demand)
        margin = _TIME_MARGIN if self.step_times.is_timed(trial, history) else _UNTIMED_MARGIN
        return margin * steps * fastest / HOUR

    def _changeover_hours(self, trial: TrialRecord, history: History) -> float:
        """Return the most hours that a change to an on-demand machine may take.

        These are the time until the next check, a step that is lost, a save, and the start of the machine.
        """
        step = self.step_times.seconds(trial, self._slowest.name, history)
        return (CHECK_SECONDS + step + self.workload.save_seconds) / HOUR + self._longest_start

    def _reserve_hours(self, trial: TrialRecord, history: History, steps: float, now: float) -> float:
        """Return the hours to keep in reserve for the preemptions of the remaining steps.

        With more time to spare than this, waiting for a spot machine is better than using an on-demand machine.
        """
        return min(
            (
                steps
                * self.step_times.seconds(trial, each.name, history)
                / HOUR
                * self._costs.lost_hours_per_work_hour(each, trial, history, now)
                for each in self._spot
            ),
            default=0.0,
        )

    def _options_at_pace(
        self,
        spot: list[MachineOption],
        on_demand: list[MachineOption],
        pace: float,
        present: MachineOption | None,
    ) -> list[MachineOption]:
        """Return the options that keep the pace in steps per hour.

        If a mixture of two is cheaper, return the one that is used first. Of two spot types in a mixture the
        faster one is first, which leaves time to spare if it is preempted. An on-demand machine is last, because
        it may turn out not to be needed. If no option keeps the pace, the fastest one is returned.
        """
        alone: list[MachineOption] = []
        mixed: list[tuple[float, MachineOption]] = []  # dollars per step, and the option that is used first
        for option in spot:
            needed = pace if option is present else pace * _PACE_MARGIN
            slow_pace = 1.0 / option.hours
            if slow_pace >= needed:
                alone.append(option)
                continue
            for fast in (*spot, *on_demand):
                fast_pace = 1.0 / fast.hours
                if fast_pace > needed:
                    slow_share = (fast_pace - needed) / (fast_pace - slow_pace)  # of the time
                    slow_dollars = slow_share * slow_pace * option.dollars
                    fast_dollars = (1.0 - slow_share) * fast_pace * fast.dollars
                    dollars = (slow_dollars + fast_dollars) / needed
                    mixed.append((dollars, option if fast.machine_type.is_on_demand else fast))
        if not alone and not mixed:
            return [min((*spot, *on_demand), key=lambda option: option.hours)]
        cheapest = min((option.dollars for option in alone), default=math.inf)
        dollars, first = min(mixed, key=lambda mixture: mixture[0], default=(math.inf, None))
        return [first] if first is not None and dollars * _NEARLY_EQUAL < cheapest else alone

    def _prefer_rare_type(
        self, options: list[MachineOption], history: History, present: MachineOption | None
    ) -> MachineOption:
        """Return the cheapest option, with a preference for the present machine.

        For a trial without a machine, return the one of the cheapest options whose type has the fewest machines.
        """
        lowest = min(option.dollars for option in options)
        cheapest = [option for option in options if option.dollars <= lowest * _NEARLY_EQUAL]
        if present is not None:
            if any(option is present for option in cheapest):
                return present
            return min(cheapest, key=lambda option: option.dollars)
        counts = {option.machine_type.name: 0 for option in cheapest}
        for machine in history.machines.values():
            if machine.offer in counts:
                counts[machine.offer] += 1
        for rent in history.fleet.renting.values():
            if rent.offer in counts:
                counts[rent.offer] += 1
        return min(cheapest, key=lambda option: (counts[option.machine_type.name], option.dollars))

    def _on_demand_in_time(
        self, on_demand: list[MachineOption], trial: TrialRecord, history: History, left: float
    ) -> MachineOption:
        """Return the cheapest on-demand option in time, or else the fastest.

        The deadline is in `left` seconds.
        """
        steps = self.lane_steps(trial, history)
        in_time = [
            option
            for option in on_demand
            if _TIME_MARGIN * steps * option.hours + self._costs.start_hours(option.machine_type) <= left / HOUR
        ]
        if in_time:
            return min(in_time, key=lambda option: option.dollars)
        return min(on_demand, key=lambda option: option.hours)

    def accepts(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:
        """Return whether the trial may use this machine, which has a free slot.

        It may unless another option is clearly better. A small advantage of another option does not count, because
        the trial can start here at once.
        """
        if trial is None:
            return True
        present = self._costs.present_machine(trial, machine, history, now, self.machine_types[machine.offer])
        best = self._best_option(trial, history, now, present)
        if best is None or best is present:
            return best is present
        left = self.workload.time_left(history, now)
        if left is not None and best.machine_type.is_on_demand and not present.machine_type.is_on_demand:
            return False
        return present.dollars <= best.dollars * (1.0 + _MIN_GAIN)


def _waited_hours(trial: TrialRecord, now: float) -> float:
    """Return the hours since the trial was created, or was last on a machine."""
    return (now - (trial.past_attempts[-1].ended_at if trial.past_attempts else trial.created_at)) / HOUR
