"""The machines of a study and what they cost.

The fleet is the part of a study's history that is about machines. Like the history, it changes only through the
entries of the log: each apply_...() method applies one kind of entry and returns False if it changes nothing.
A machine id is used once. The driver's own machine is the exception: it is added again for each driver.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from thriftune.state import events as ev

UNAVAILABLE_SECONDS = 60.0
"""A machine that is preempted before this age counts as a refusal, because the next one would be preempted,
too."""

SCARCE_SECONDS = 300.0
"""A machine that is preempted before this age counts as a refusal if no other machine of its offer stays."""


@dataclass(slots=True)
class Machine:
    """One machine, from its rental to its end."""

    id: str
    offer: str
    price_per_hour: float
    started_at: float  # when billing began
    on_demand_per_hour: float | None = None  # price of the same machine on demand; None: use price_per_hour
    slots: int = 0  # workers that fit at the same time; 0 until the machine is ready
    ended_at: float | None = None  # when the machine ended and billing stopped; None while it is present
    notice: float | None = None  # the time at which it will be preempted; None without a notice
    max_price: float | None = None  # dollars an hour; above this price the cloud may preempt it
    intended_trial: int | None = None  # id of the trial for which it was rented
    was_lost: bool = False  # it ended without a release by the driver
    bill: ev.MachineBilled | None = None  # the provider's bill; None until the machine has ended and was billed
    is_releasing: bool = False  # the current driver has decided to release it
    running: dict[int, int] = field(default_factory=dict)  # number of workers here, by trial id
    used_slots: int = 0  # sum of `running`
    slots_of_others: int = 0  # slots that other users of the machine occupy
    price_known: bool = True  # False: a spot machine without a known price, counted at the on-demand price

    @property
    def was_preempted(self) -> bool:
        """Return whether it was lost, or was released after a notice."""
        return self.was_lost or (self.ended_at is not None and self.notice is not None)

    @property
    def is_leaving(self) -> bool:
        """Return whether it has ended, has a notice, or is being released."""
        return self.ended_at is not None or self.notice is not None or self.is_releasing

    @property
    def free_slots(self) -> int:
        """Return the number of slots that may be given to a trial now."""
        return 0 if self.is_leaving else max(0, self.slots - self.used_slots - self.slots_of_others)

    def seconds(self, now: float) -> float:
        """Return how long it has been billed, in seconds."""
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.started_at)

    def dollars(self, now: float) -> float:
        """Return its cost in dollars.

        This is its bill, or an estimate from its price if it has no bill.
        """
        return self.seconds(now) * self.price_per_hour / 3600 if self.bill is None else self.bill.dollars


class Fleet:
    """All machines of a study: ordered, present, and ended ones."""

    def __init__(self) -> None:
        self.present: dict[str, Machine] = {}  # all and only machines that have not ended, by id
        self.past: list[Machine] = []  # all machines that have ended, in order of their end
        self.renting: dict[str, ev.Rent] = {}  # rentals that the cloud has not answered yet, by machine id
        # By offer, in unix seconds: when its last machine arrived, when the cloud last refused one, and when one
        # was last refused or preempted at a young age.
        self.last_arrival_at: dict[str, float] = {}
        self.last_refusal_at: dict[str, float] = {}
        self.last_unavailable_at: dict[str, float] = {}
        self.free_slots = 0  # sum of free_slots of `present`, stored because it is read after every report
        self.rented_ids: set[str] = set()  # ids of all machines whose rental was decided or confirmed
        self.uncertain: set[str] = (
            set()
        )  # ids of machines that an earlier driver was renting; they may still arrive
        self._past_dollars = 0.0  # sum of dollars of `past`
        self._unbilled: dict[str, Machine] = {}  # machines of `past` without a bill, by id
        self._cancelled: set[str] = set()  # ids of machines that were released before they arrived

    def dollars(self, now: float) -> float:
        """Return the cost of all machines until now, in dollars."""
        return self._past_dollars + sum(machine.dollars(now) for machine in self.present.values())

    @property
    def rented_count(self) -> int:
        """Return the number of machines that were ever rented."""
        return len(self.rented_ids)

    def empty_with_notice(self) -> list[str]:
        """Return the ids of rented machines that have a notice and run no trial.

        They should be released: a notice may be false, and an empty machine is billed.
        """
        return [
            machine.id
            for machine in self.present.values()
            if machine.notice is not None
            and not machine.running
            and not machine.is_releasing
            and machine.id in self.rented_ids
        ]

    @property
    def all_rented(self) -> bool:
        """Return whether this study rented every machine that it has used."""
        return all(machine.id in self.rented_ids for machine in (*self.past, *self.present.values()))

    @property
    def all_billed(self) -> bool:
        """Return whether the provider has billed every machine.

        If so, dollars() contains no estimate.
        """
        bills = (machine.bill for machine in (*self.past, *self.present.values()))
        return all(bill is not None and not bill.estimated for bill in bills)

    @property
    def prices_known(self) -> bool:
        """Return whether no spot machine is counted at an on-demand price."""
        return all(machine.price_known for machine in (*self.past, *self.present.values()))

    def offers(self) -> list[str]:
        """Return the offers of all machines, each once, in order of first use."""
        machines = [*self.past, *self.present.values()]
        return list(dict.fromkeys(machine.offer for machine in machines if machine.offer))

    # --- trials on machines -------------------------------------------------------------------------------

    def place_trial(self, workers: Mapping[str, int], trial_id: int) -> bool:
        """Assign slots to the workers of a trial.

        Returns False and changes nothing if some workers do not fit.

        `workers`: the number of workers, by machine id.
        """
        for machine_id, count in workers.items():
            machine = self.present.get(machine_id)
            if machine is None or not 0 < count <= machine.free_slots:
                return False
        for machine_id, count in workers.items():
            machine = self.present[machine_id]
            machine.running[trial_id] = count
            machine.used_slots += count
            self.free_slots -= count
        return bool(workers)

    def remove_trial(self, workers: Mapping[str, int], trial_id: int) -> None:
        """Free the slots of a trial whose attempt has ended."""
        for machine_id in workers:
            machine = self.present.get(machine_id)
            if machine is not None:
                before = machine.free_slots
                machine.used_slots -= machine.running.pop(trial_id, 0)
                self.free_slots += machine.free_slots - before

    def _count_free_slots(self) -> None:
        """Compute free_slots again.

        Called after each change of the machines, which is rare.
        """
        self.free_slots = sum(machine.free_slots for machine in self.present.values())

    # --- entries of the log -------------------------------------------------------------------------------

    def apply_rent(self, event: ev.Rent) -> bool:
        if event.machine in self.present or event.machine in self.rented_ids:
            return False
        self.rented_ids.add(event.machine)
        self.renting[event.machine] = event
        return True

    def apply_refused(self, event: ev.MachineRefused) -> bool:
        if self.renting.pop(event.machine, None) is None:
            return False
        self.last_unavailable_at[event.offer] = self.last_refusal_at[event.offer] = event.at
        return True

    def apply_rented(self, event: ev.MachineRented) -> bool:
        if not self._may_arrive(event.machine):
            return False
        self.rented_ids.add(event.machine)
        self._add_machine(event)
        return True

    def apply_ready(self, event: ev.MachineReady) -> bool:
        if self._may_arrive(event.machine):  # a machine that was not rented, or whose MachineRented is missing
            self._add_machine(event)
        machine = self.present.get(event.machine)
        if machine is None or machine.slots:
            return False
        machine.slots = event.slots
        self._count_free_slots()
        return True

    def apply_notice(self, event: ev.MachineNotice) -> bool:
        machine = self.present.get(event.machine)
        if machine is None or machine.notice == event.deadline:
            return False
        machine.notice = event.deadline
        self._note_if_unavailable(machine, event.at)
        self._count_free_slots()
        return True

    def apply_shared(self, event: ev.MachineShared) -> bool:
        machine = self.present.get(event.machine)
        if machine is None or machine.slots_of_others == event.slots:
            return False
        machine.slots_of_others = event.slots
        self._count_free_slots()
        return True

    def apply_release(self, event: ev.Release) -> bool:
        machine = self.present.get(event.machine)
        if machine is None:  # it may not have arrived yet
            is_expected = event.machine in self.renting or event.machine in self.uncertain
            is_new = is_expected and event.machine not in self._cancelled
            self._cancelled.add(event.machine)
            return is_new
        if machine.is_releasing:
            return False
        machine.is_releasing = True
        self._count_free_slots()
        return True

    def apply_end(self, machine_id: str, at: float, *, lost: bool = False) -> bool:
        """Apply the loss or the release of a machine.

        Its trials must have been removed before. `lost`: the driver did not release it.
        """
        machine = self.present.pop(machine_id, None)
        if machine is None:
            was_uncertain = machine_id in self.uncertain
            self.uncertain.discard(machine_id)
            return self.renting.pop(machine_id, None) is not None or was_uncertain
        machine.ended_at, machine.was_lost = max(machine.started_at, at), lost
        if lost:
            self._note_if_unavailable(machine, at)
        self.past.append(machine)
        self._unbilled[machine_id] = machine
        self._past_dollars += machine.dollars(at)
        self._count_free_slots()
        return True

    def apply_bill(self, event: ev.MachineBilled) -> bool:
        """Replace the estimated cost of an ended machine by its bill."""
        machine = self._unbilled.pop(event.machine, None)
        if machine is None:
            return False
        self._past_dollars += event.dollars - machine.dollars(event.at)
        machine.bill = event
        return True

    def apply_new_driver(self) -> None:
        """Discard decisions of an earlier driver that it may not have carried out.

        These are decisions to release and to rent machines.
        """
        for machine in self.present.values():
            machine.is_releasing = False
        self._cancelled.clear()
        self.uncertain |= self.renting.keys()
        self.renting.clear()
        self._count_free_slots()

    def _note_if_unavailable(self, machine: Machine, at: float) -> None:
        """Count the preemption of a young machine as a refusal of its offer."""
        age = at - machine.started_at
        others = (each for each in self.present.values() if each.offer == machine.offer and each is not machine)
        if age < UNAVAILABLE_SECONDS or (age < SCARCE_SECONDS and all(each.is_leaving for each in others)):
            self.last_unavailable_at[machine.offer] = at

    def _add_machine(self, event: ev.MachineRented | ev.MachineReady) -> None:
        rent = self.renting.pop(event.machine, None)
        machine = Machine(event.machine, event.offer, event.price_per_hour, event.at)
        machine.price_known = event.price_known
        if rent is not None:
            machine.max_price, machine.intended_trial = rent.max_price, rent.trial
        machine.on_demand_per_hour = getattr(event, "on_demand_per_hour", None)
        self._cancelled.discard(event.machine)
        self.uncertain.discard(event.machine)
        self.present[event.machine] = machine
        self.last_arrival_at[event.offer] = event.at

    def _may_arrive(self, machine_id: str) -> bool:
        """Return whether a machine of this id can still arrive.

        Each rented machine arrives only once.
        """
        if machine_id in self.present:
            return False
        return machine_id in self.renting or machine_id in self.uncertain or machine_id not in self.rented_ids

    def validate(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        for machine_id, machine in self.present.items():
            assert machine.id == machine_id
            assert machine.ended_at is None
            assert machine.used_slots == sum(machine.running.values()) <= machine.slots
            assert machine_id not in self.renting
        assert self.free_slots == sum(machine.free_slots for machine in self.present.values())
        assert all(machine.ended_at is not None and not machine.running for machine in self.past)
        past = math.fsum(machine.dollars(0.0) for machine in self.past)
        assert math.isclose(self._past_dollars, past, rel_tol=1e-9, abs_tol=1e-9)
