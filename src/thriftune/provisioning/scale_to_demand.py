"""The policy that rents cluster nodes for parallel trials without a plan.

It rents the cheapest type first. When fewer nodes are needed, it packs trials together and releases empty nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.placement import place_on_fewer
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.state import events as ev
from thriftune.state.fleet import Machine
from thriftune.state.history import History

_RETRY_SECONDS = 60.0
"""The time after a refusal until a machine of the same type is requested again."""


class ScaleToDemand(PresentMachines):
    """A policy that rents machines for `at_a_time` trials.

    Without `at_a_time`, it uses the present machines, or rents one.
    """

    backs_off = False

    def __init__(self, clouds: Sequence[CloudProfile], gang: int = 1, at_a_time: int | None = None) -> None:
        super().__init__(gang, at_a_time)
        self._clouds = sorted(clouds, key=lambda cloud: cloud.price_per_hour / cloud.slots)

    def trials_wanted(self, history: History) -> int:
        if self.at_a_time is not None:
            return self.at_a_time
        slots = sum(machine.slots for machine in history.machines.values() if not machine.is_leaving)
        return max(1, slots // self.gang)

    def react(self, event: ev.Event, history: History) -> Iterable[ev.Decision]:
        yield from super().react(event, history)
        if type(event) is ev.Tick:
            yield from self._adjust(event.at, history)

    def _adjust(self, at: float, history: History) -> Iterator[ev.Decision]:
        """Yield decisions to rent machines for missing slots, or to release spare ones."""
        for machine_id in history.fleet.empty_with_notice():
            yield ev.Release(at, machine_id)
        staying = [machine for machine in history.machines.values() if not machine.is_leaving]
        slots_of = {cloud.name: cloud.slots for cloud in self._clouds}
        coming = sum(slots_of.get(rent.offer, 0) for rent in history.fleet.renting.values())
        slots = sum(machine.slots or slots_of.get(machine.offer, 0) for machine in staying) + coming
        missing = self.gang * (len(history.running) + len(history.waiting)) - slots
        if missing > 0:
            yield from self._rent(at, missing, history)
        elif not coming and not history.waiting:
            yield from self._release_spare(at, staying, -missing, history)

    def _rent(self, at: float, missing: int, history: History) -> Iterator[ev.Decision]:
        """Rent machines for `missing` slots, the cheapest type first."""
        for cloud in self._clouds:
            if at < history.fleet.last_unavailable_at.get(cloud.name, -_RETRY_SECONDS) + _RETRY_SECONDS:
                continue
            held = [machine.offer for machine in history.machines.values()]
            held += [rent.offer for rent in history.fleet.renting.values()]
            allowed = math.inf if cloud.max_machines is None else cloud.max_machines - held.count(cloud.name)
            while missing > 0 and allowed > 0:
                yield ev.Rent(at, f"{cloud.name}-{history.fleet.rented_count + 1}", cloud.name)
                missing -= cloud.slots
                allowed -= 1

    def _release_spare(
        self, at: float, staying: Sequence[Machine], spare: int, history: History
    ) -> Iterator[ev.Decision]:
        """Release empty rented machines that have at most `spare` slots together.

        Then move the trials of one more machine to other machines if these have room for them.
        """
        rented = [machine for machine in staying if machine.id in history.fleet.rented_ids and machine.slots]
        for machine in rented:
            if not machine.running and machine.slots <= spare:
                spare -= machine.slots
                yield ev.Release(at, machine.id)
        used = [machine for machine in staying if machine.slots and (machine.running or machine not in rented)]
        if not any(machine in rented and machine.slots <= spare for machine in used):
            return
        before = {i: history.trials[i].workers for i in history.running}
        wanted = {i: sum(workers.values()) for i, workers in before.items()}
        # Machines that are not rented are never released, so their trials need not move.
        fixed = {i for i, workers in before.items() if not any(m.id in workers for m in rented)}
        placed, empty = place_on_fewer(
            wanted, {m.id: m.slots for m in used}, before, len(used) - 1, reserved=fixed
        )
        if placed.unplaced or not any(machine.id in empty for machine in rented):
            return
        for trial_id in placed.moved:
            trial = history.trials[trial_id]
            if trial.end_request is None:
                yield ev.Move(at, trial_id, trial.attempts, "its machine is to be released")
