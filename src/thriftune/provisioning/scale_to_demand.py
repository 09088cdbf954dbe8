"""How many nodes shall a cluster have while no plan says so? As many as trials at a time want, the cheapest kind
first; and when fewer are wanted, trials are packed together, and nodes that are left empty go."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.placement import place_on_fewer
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.state import events as ev
from thriftune.state.fleet import Machine
from thriftune.state.history import History

_AGAIN_SECONDS = 60.0
"""After it was refused, a kind is asked for again."""


class ScaleToDemand(PresentMachines):
    """Without a number of trials at a time, it makes do with the machines that are there, or with one."""

    backs_off = False

    def __init__(self, kinds: Sequence[CloudProfile], gang: int = 1, at_a_time: int | None = None) -> None:
        super().__init__(gang, at_a_time)
        self._kinds = sorted(kinds, key=lambda kind: kind.price_per_hour / kind.slots)

    def wants(self, history: History) -> int:
        if self.at_a_time is not None:
            return self.at_a_time
        there = sum(machine.slots for machine in history.machines.values() if not machine.is_leaving)
        return max(1, there // self.gang)

    def react(self, event: ev.Event, history: History) -> Iterable[ev.Decision]:
        yield from super().react(event, history)
        if type(event) is ev.Tick:
            yield from self._adjusted(event.at, history)

    def _adjusted(self, at: float, history: History) -> Iterator[ev.Decision]:
        for machine_id in history.fleet.empty_with_notice():
            yield ev.Release(at, machine_id)
        staying = [machine for machine in history.machines.values() if not machine.is_leaving]
        slots = {kind.name: kind.slots for kind in self._kinds}
        coming = sum(slots.get(rent.offer, 0) for rent in history.fleet.renting.values())
        there = sum(machine.slots or slots.get(machine.offer, 0) for machine in staying) + coming
        missing = self.gang * (len(history.running) + len(history.waiting)) - there
        if missing > 0:
            yield from self._more(at, missing, history)
        elif not coming and not history.waiting:
            yield from self._fewer(at, staying, -missing, history)

    def _more(self, at: float, missing: int, history: History) -> Iterator[ev.Decision]:
        for kind in self._kinds:
            if at < history.fleet.last_unavailable_at.get(kind.name, -_AGAIN_SECONDS) + _AGAIN_SECONDS:
                continue
            held = [machine.offer for machine in history.machines.values()]
            held += [rent.offer for rent in history.fleet.renting.values()]
            room = math.inf if kind.max_machines is None else kind.max_machines - held.count(kind.name)
            while missing > 0 and room > 0:
                yield ev.Rent(at, f"{kind.name}-{history.fleet.rented_count + 1}", kind.name)
                missing -= kind.slots
                room -= 1

    def _fewer(self, at: float, staying: Sequence[Machine], spare: int, history: History) -> Iterator[ev.Decision]:
        """Of the rented ones: those that are empty and spare; and one more if its trials find room elsewhere."""
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
        # What is not rented stays, so nobody has to leave it.
        stays = {i for i, workers in before.items() if not any(m.id in workers for m in rented)}
        placed, empty = place_on_fewer(
            wanted, {m.id: m.slots for m in used}, before, len(used) - 1, reserved=stays
        )
        if placed.unplaced or not any(machine.id in empty for machine in rented):
            return
        for trial_id in placed.moved:
            trial = history.trials[trial_id]
            if trial.end_request is None:
                yield ev.Move(at, trial_id, trial.attempts, "its machine is to be let go")
