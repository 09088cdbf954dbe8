"""The default policy: the fewest expected dollars per useful step, with a reserve of time for the deadline.

For every kind that can be had: what a step costs there, with all that is lost and started again, under its
provider's billing and at the maximum price that makes it least (worth.py). A trial takes the cheapest of them; of
those that cost nearly as much, one that the study has fewest of. It moves when that pays within some hours.

With a deadline, it must be possible at any moment to do the rest on a machine that stays. A trial that finds no
spot machine waits as long as there is time to spare, and only then takes one that stays: what is done on that
costs the same early or late, and the longer it waits, the more can be done on spot machines. Some time is kept
back for their losses, so that they can be used to the end. Where cheap machines are slower than needed, a mixture
of two kinds is what costs least; of two spot machines the quicker one comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HORIZON_HOURS, HOUR
from thriftune.provisioning.machine_options import Option, OptionCosts
from thriftune.provisioning.renting_policy import MachineRequest, RentingPolicy
from thriftune.provisioning.workload import Workload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.reports import last_step_of_attempt
from thriftune.state.trial_record import TrialRecord

LOOK_SECONDS = 900.0
"""So often it is looked whether to move, or whether there are machines again."""

_GAIN = 0.05  # what it costs to move must come in within the hours to come, and this much more
_NEARLY = 1.03  # kinds that cost so little more are as good, and it is safer to have several
_PATIENT_HOURS = 6.0  # without a deadline: so long a trial waits for a spot machine
_HANGS = 10.0  # times as long as a step should take: without one, it is no bad luck any more
_AHEAD = 1.03  # of the pace that is needed: what a kind should keep to be taken
_CAUTION = 1.02  # of the time that the rest takes on a machine that stays: steps are not all alike
_CAUTION_UNTIMED = 1.25  # the same, before any step of the trial was timed


class Thrifty(RentingPolicy):
    def __init__(self, kinds: Sequence[MachineType], terms: Workload) -> None:
        super().__init__(kinds, terms)
        self._costs = OptionCosts(terms, self.paces, self.lives)
        self._lasting = [kind for kind in kinds if kind.lasts]
        self._spot = [kind for kind in kinds if not kind.lasts]
        self._slowest = min(kinds, key=lambda kind: kind.speed)
        starts = [self._costs.start_hours(kind) for kind in self._lasting]
        self._shortest_start, self._longest_start = min(starts, default=0.0), max(starts, default=0.0)
        self._usual_at: tuple[float, int] = (-math.inf, -1)
        self._cheapest_usual = math.inf  # dollars of a step of a usual trial
        self._asked: tuple[object, ...] = ()
        self._answer: Any = None

    # --- what the policy says

    def choose(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        found = self._best(trial, history, now)
        return None if found is None else MachineRequest(found.kind.name, found.max_price)

    def leaves(self, trial: TrialRecord, machine: Machine, history: History, now: float) -> bool:
        """Where losses are let off, turns are short: the next machine is taken when this one is free, or time of
        its own would be paid in vain."""
        here, there = self._two(trial, machine, history, now)
        if there is None or not self._turns(here, there, history):
            return False
        if not self._pays(trial, history, now, here, there):
            return False
        left = self.terms.time_left(history, now)
        if left is None or not self._lasting:
            return True
        slack = left / HOUR - self._hours_on_lasting(trial, history, self.steps_of_place(trial, history))
        return slack > 2.0 * self._changeover_hours(trial, history)  # there may be none when it has left

    def moves_to(
        self, trial: TrialRecord, machine: Machine, history: History, now: float
    ) -> MachineRequest | None:
        here, there = self._two(trial, machine, history, now)
        if there is None or self._turns(here, there, history) or there.kind is here.kind:
            return None
        must = there.kind.lasts and not here.kind.lasts
        return (
            MachineRequest(there.kind.name, there.max_price)
            if must or self._pays(trial, history, now, here, there)
            else None
        )

    def _turns(self, here: Option, there: Option, history: History) -> bool:
        """From one spot machine to the next, where losses are let off, and where there are any: a trial that
        leaves for one that it does not get has lost its place."""
        return there.rotates and not here.kind.lasts and self.last_seen_there(there.kind, history)

    def _two(
        self, trial: TrialRecord, machine: Machine, history: History, now: float
    ) -> tuple[Option, Option | None]:
        """Where it is, and where it should be instead."""
        key = trial.id, machine.id, history.entries, now
        if self._asked != key:
            here = self._costs.here(trial, machine, history, now, self.kinds[machine.offer])
            good = not self._rented_for(trial, history) and self._is_good(here, trial, history, now)
            there = here if good else self._best(trial, history, now, here)
            self._asked, self._answer = key, (here, None if there is here else there)
        answer: tuple[Option, Option | None] = self._answer
        return answer

    def _is_good(self, here: Option, trial: TrialRecord, history: History, now: float) -> bool:
        """At a glance, as nearly always: it is in time, and no kind is so much cheaper for a usual trial that to
        move could pay."""
        left = self.terms.time_left(history, now)
        if left is not None and self._lasting:
            steps, needed = self.steps_of_place(trial, history), self._changeover_hours(trial, history)
            in_time = steps * here.hours + needed <= left / HOUR
            if not in_time or left / HOUR - self._hours_on_lasting(trial, history, steps) < 2.0 * needed:
                return False
        if self._usual_at != (now, history.entries):
            self._usual_at = now, history.entries
            there = [kind for kind in self.kinds.values() if self.to_be_had(kind, history, now)]
            options = self._costs.options(there, None, history, now)
            self._cheapest_usual = min((option.dollars for option in options), default=math.inf)
        own = self.paces.seconds(trial, here.kind.name, history) / HOUR
        usual = here.dollars * self._usual_step(here.kind, history) / own
        return usual <= (1.0 + _GAIN) * self._cheapest_usual

    def _usual_step(self, kind: MachineType, history: History) -> float:
        return self.paces.seconds(None, kind.name, history) / HOUR

    def _pays(self, trial: TrialRecord, history: History, now: float, here: Option, there: Option) -> bool:
        """Whether to move costs less, in the hours to come, than it saves."""
        steps = min(self.steps_left(trial, history), HORIZON_HOURS / here.hours)
        move = there.kind.price_at(now) / there.kind.slots * self._costs.start_hours(there.kind, billed=True)
        return there.dollars * steps * (1.0 + _GAIN) + move < here.dollars * steps

    def look_at(self, history: History, now: float) -> float:
        if not history.running and not history.waiting:
            return math.inf
        ends = (self._free_until(machine, history) for machine in history.machines.values() if machine.running)
        return min([now + LOOK_SECONDS, *(end for end in ends if end > now)])

    def _free_until(self, machine: Machine, history: History) -> float:
        """When it is too late for its trial's next step to be let off: a trial leaves at the end of a step."""
        kind = self.kinds.get(machine.offer)
        if kind is None or not kind.billing.refunded_first_seconds:
            return -math.inf
        trial = history.trials[next(iter(machine.running))]
        step = self.paces.seconds(trial, kind.name, history)
        return machine.started_at + kind.billing.refunded_first_seconds - 0.5 * step

    # --- which one

    def _best(self, trial: TrialRecord, history: History, now: float, here: Option | None = None) -> Option | None:
        """Where the trial should be; None: nowhere for now, it waits. `here`: where it is."""
        options = [*self._options(trial, history, now), *([here] if here is not None else [])]
        lasting = [option for option in options if option.kind.lasts]
        spot = [option for option in options if not option.kind.lasts]
        left = self.terms.time_left(history, now)
        if lasting and self._hangs(trial, history):
            return here if here is not None and here.kind.lasts else min(lasting, key=lambda o: o.dollars)
        if left is None or not self._lasting:
            found = self._spread(options, history, here) if options else None
            waits = (
                found is not None and found.kind.lasts and here is None and _waited(trial, now) < _PATIENT_HOURS
            )
            return None if waits and self._is_cheaper_spot(trial, history, now, found) else found
        steps = self.steps_of_place(trial, history)
        slack = left / HOUR - self._hours_on_lasting(trial, history, steps)
        needed = self._changeover_hours(trial, history)
        if here is not None and self._ends_here(trial, history, here, steps):
            return here
        if lasting and slack < needed:
            return self._in_time(lasting, trial, history, left)
        if lasting:
            dearest = min(option.dollars for option in lasting)
            spot = [option for option in spot if option.dollars <= dearest]
        if spot:
            pace = steps / max(left / HOUR - needed, 1e-6)  # steps an hour that it takes, with some time to spare
            return self._spread(self._keeping(spot, lasting, pace, here), history, here)
        if not lasting:
            return None
        waits = here is None and slack >= needed + self._reserve_hours(trial, history, steps, now)
        found = self._in_time(lasting, trial, history, left)
        return None if waits and self._is_cheaper_spot(trial, history, now, found) else found

    def _options(self, trial: TrialRecord, history: History, now: float) -> Iterator[Option]:
        mine = self._rented_for(trial, history)
        there = (k for k in self.kinds.values() if k.name in mine or self.to_be_had(k, history, now))
        return self._costs.options(there, trial, history, now)

    def _rented_for(self, trial: TrialRecord, history: History) -> set[str]:
        """Kinds of machines that wait for it."""
        return {
            each.offer for each in history.machines.values() if each.intended_trial == trial.id and each.free_slots
        }

    def _hangs(self, trial: TrialRecord, history: History) -> bool:
        """It was on machines for many times as long as a step should take, and none was done: its next step seems
        to take longer than spot machines live."""
        seconds = 0.0
        for stay in reversed(trial.past_attempts):
            if stay.last_step > stay.first_step:
                break
            seconds += stay.ended_at - stay.started_at
        fastest = min(self.paces.seconds(trial, kind.name, history) for kind in self._lasting)
        return seconds > _HANGS * fastest

    def _ends_here(self, trial: TrialRecord, history: History, here: Option, steps: float) -> bool:
        """It is done before it could go on elsewhere: the step that it is in it has to do here anyway."""
        unsaved = self.steps_left(trial, history) - max(0, (history.max_steps or 0) - last_step_of_attempt(trial))
        return (steps - unsaved - 1.0) * here.hours <= self._shortest_start

    def _is_cheaper_spot(self, trial: TrialRecord, history: History, now: float, than: Option | None) -> bool:
        """Whether it is worth waiting for: there is none just now."""
        cheapest = min((o.dollars for o in self._costs.options(self._spot, trial, history, now)), default=math.inf)
        return than is not None and cheapest < than.dollars

    def _hours_on_lasting(self, trial: TrialRecord, history: History, steps: float) -> float:
        """For the rest, on the fastest machine that stays; with some caution."""
        fastest = min(self.paces.seconds(trial, kind.name, history) for kind in self._lasting)
        caution = _CAUTION if self.paces.known(trial, history) else _CAUTION_UNTIMED
        return caution * steps * fastest / HOUR

    def _changeover_hours(self, trial: TrialRecord, history: History) -> float:
        """Until a machine that stays is at work, whatever happens before: a look, a step that is lost, and its
        start."""
        step = self.paces.seconds(trial, self._slowest.name, history)
        return (LOOK_SECONDS + step + self.terms.save_seconds) / HOUR + self._longest_start

    def _reserve_hours(self, trial: TrialRecord, history: History, steps: float, now: float) -> float:
        """For the losses to come, so that spot machines can still be used when one that stays has become
        necessary: as long as there is more time to spare than this, it is better to wait for them."""
        return min(
            (
                steps
                * self.paces.seconds(trial, kind.name, history)
                / HOUR
                * self._costs.least_lost_hours(kind, trial, history, now)
                for kind in self._spot
            ),
            default=0.0,
        )

    def _keeping(
        self, spot: list[Option], lasting: list[Option], pace: float, here: Option | None
    ) -> list[Option]:
        """Those that keep the pace for the fewest dollars: alone, or the first of a mixture of two.

        Of two spot machines the quicker one goes first, so that there is time to spare if it is lost; one that
        stays can wait to the end, which may not come to that.
        """
        alone: list[Option] = []
        mixed: list[tuple[float, Option]] = []
        for option in spot:
            needed = pace if option is here else pace * _AHEAD
            v = 1.0 / option.hours
            if v >= needed:
                alone.append(option)
                continue
            for quick in (*spot, *lasting):
                w = 1.0 / quick.hours
                if w > needed:
                    share = (w - needed) / (w - v)  # of the time on the slow one
                    dollars = (share * v * option.dollars + (1.0 - share) * w * quick.dollars) / needed
                    mixed.append((dollars, option if quick.kind.lasts else quick))
        if not alone and not mixed:
            return [min((*spot, *lasting), key=lambda option: option.hours)]
        cheapest = min((option.dollars for option in alone), default=math.inf)
        dollars, first = min(mixed, key=lambda way: way[0], default=(math.inf, None))
        return [first] if first is not None and dollars * _NEARLY < cheapest else alone

    def _spread(self, options: list[Option], history: History, here: Option | None) -> Option:
        """Of the cheapest, the one with the fewest machines; where the trial is already, that."""
        least = min(option.dollars for option in options)
        near = [option for option in options if option.dollars <= least * _NEARLY]
        if here is not None:
            return here if any(option is here for option in near) else min(near, key=lambda option: option.dollars)
        counts = {option.kind.name: 0 for option in near}
        for machine in history.machines.values():
            if machine.offer in counts:
                counts[machine.offer] += 1
        for rent in history.fleet.renting.values():
            if rent.offer in counts:
                counts[rent.offer] += 1
        return min(near, key=lambda option: (counts[option.kind.name], option.dollars))

    def _in_time(
        self,
        lasting: list[Option],
        trial: TrialRecord,
        history: History,
        left: float,
    ) -> Option:
        steps = self.steps_of_place(trial, history)
        in_time = [
            option
            for option in lasting
            if _CAUTION * steps * option.hours + self._costs.start_hours(option.kind) <= left / HOUR
        ]
        if in_time:
            return min(in_time, key=lambda option: option.dollars)
        return min(lasting, key=lambda option: option.hours)

    def takes(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:
        """One that is there and free costs nothing to start; unless it is not the kind for it."""
        if trial is None:
            return True
        here = self._costs.here(trial, machine, history, now, self.kinds[machine.offer])
        best = self._best(trial, history, now, here)
        if best is None or best is here:
            return best is here
        left = self.terms.time_left(history, now)
        if left is not None and best.kind.lasts and not here.kind.lasts:
            return False
        return here.dollars <= best.dollars * (1.0 + _GAIN)


def _waited(trial: TrialRecord, now: float) -> float:
    """Hours since it was made, or last on a machine."""
    return (now - (trial.past_attempts[-1].ended_at if trial.past_attempts else trial.created_at)) / HOUR
