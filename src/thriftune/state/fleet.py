"""Which machines are there, and what have they cost? The part of a study's history that is about machines.

Like all of the history it is a fold of the log: each method takes one entry in, and answers False where it tells
nothing new. A machine's id is used once, but for this machine's, which comes and goes with its driver.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from thriftune.state import events as ev

AT_ONCE_SECONDS, SOON_SECONDS = 60.0, 300.0


@dataclass(slots=True)
class Machine:
    """One life of one machine, from rented to gone."""

    id: str
    offer: str
    price_per_hour: float
    started_at: float  # billed from
    on_demand_per_hour: float | None = None  # of a like one that is not taken away; None: its own price
    slots: int = 0  # workers at a time; 0 until it is ready
    ended_at: float | None = None  # gone, and billed no more
    notice: float | None = None  # it will be taken away at this time
    max_price: float | None = None  # above which it may be taken away
    intended_trial: int | None = None  # the trial for which it was rented
    was_lost: bool = False  # its provider did, and not its user
    bill: ev.MachineBilled | None = None  # of one that is gone, by its provider's rules
    is_releasing: bool = False  # it is to be given back
    running: dict[int, int] = field(default_factory=dict)  # trial -> its workers here
    used_slots: int = 0  # slots: the workers of all of them
    slots_of_others: int = 0  # slots that are in use by somebody else
    price_known: bool = True  # False: a spot machine, counted at an on-demand price

    @property
    def was_preempted(self) -> bool:
        """Its provider took it away, or was about to when it was given back."""
        return self.was_lost or (self.ended_at is not None and self.notice is not None)

    @property
    def is_leaving(self) -> bool:
        return self.ended_at is not None or self.notice is not None or self.is_releasing

    @property
    def free_slots(self) -> int:
        """Slots that may be given to a trial now."""
        return 0 if self.is_leaving else max(0, self.slots - self.used_slots - self.slots_of_others)

    def seconds(self, now: float) -> float:
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.started_at)

    def dollars(self, now: float) -> float:
        """Return its bill; until there is one, an estimate from the price that it had when it came."""
        return self.seconds(now) * self.price_per_hour / 3600 if self.bill is None else self.bill.dollars


class Fleet:
    def __init__(self) -> None:
        self.present: dict[str, Machine] = {}  # by id
        self.past: list[Machine] = []
        self.renting: dict[str, ev.Rent] = {}  # by machine: decided, and not known what has come of it
        # Keyed by offer, in unix seconds: when a machine of it last arrived, when the cloud last refused one, and
        # when there was last none to be had, either refused or preempted at once.
        self.last_arrival_at: dict[str, float] = {}
        self.last_refusal_at: dict[str, float] = {}
        self.last_unavailable_at: dict[str, float] = {}
        self.free_slots = 0  # slots of all machines that may be given to a trial now; asked after every report
        self.rented_ids: set[str] = set()  # of all machines ever rented
        self._dollars_before = 0.0  # of past machines
        self._unbilled: dict[str, Machine] = {}  # past machines whose bill may come
        self._cancelled: set[str] = set()  # of those that are being rented
        self.uncertain: set[str] = set()  # of those that an earlier driver was about to rent

    def dollars(self, now: float) -> float:
        """What the machines cost so far, at the price of their offers."""
        return self._dollars_before + sum(machine.dollars(now) for machine in self.present.values())

    @property
    def rented_count(self) -> int:
        """Machines, whatever has become of them."""
        return len(self.rented_ids)

    def empty_with_notice(self) -> list[str]:
        """Rented machines that will be taken away, and that all have left: notices may be false, bills are not."""
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
        """Whether every machine that was ever there was rented by this study."""
        return all(machine.id in self.rented_ids for machine in (*self.past, *self.present.values()))

    @property
    def all_billed(self) -> bool:
        """Whether the dollars of every machine are its provider's bill; else they are an estimate."""
        bills = (machine.bill for machine in (*self.past, *self.present.values()))
        return all(bill is not None and not bill.estimated for bill in bills)

    @property
    def prices_known(self) -> bool:
        """Whether no spot machine had to be counted at an on-demand price."""
        return all(machine.price_known for machine in (*self.past, *self.present.values()))

    def offers(self) -> list[str]:
        lives = [*self.past, *self.present.values()]
        return list(dict.fromkeys(machine.offer for machine in lives if machine.offer))

    # --- trials come and go -------------------------------------------------------------------------------

    def place_trial(self, workers: Mapping[str, int], trial_id: int) -> bool:
        """Gives a trial's workers slots of these machines, all or none. False: there are not so many free."""
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

    def shared(self, event: ev.MachineShared) -> bool:
        machine = self.present.get(event.machine)
        if machine is None or machine.slots_of_others == event.slots:
            return False
        machine.slots_of_others = event.slots
        self._count_free()
        return True

    def remove_trial(self, workers: Mapping[str, int], trial_id: int) -> None:
        for machine_id in workers:
            machine = self.present.get(machine_id)
            if machine is not None:
                before = machine.free_slots
                machine.used_slots -= machine.running.pop(trial_id, 0)
                self.free_slots += machine.free_slots - before

    def _count_free(self) -> None:
        """After machines have changed, which is seldom."""
        self.free_slots = sum(machine.free_slots for machine in self.present.values())

    # --- taking entries in ------------------------------------------------------------------------------

    def rent(self, event: ev.Rent) -> bool:
        if event.machine in self.present or event.machine in self.rented_ids:
            return False
        self.rented_ids.add(event.machine)
        self.renting[event.machine] = event
        return True

    def was_refused(self, event: ev.MachineRefused) -> bool:
        if self.renting.pop(event.machine, None) is None:
            return False
        self.last_unavailable_at[event.offer] = self.last_refusal_at[event.offer] = event.at
        return True

    def rented(self, event: ev.MachineRented) -> bool:
        if not self._may_come(event.machine):
            return False
        self.rented_ids.add(event.machine)
        self._comes(event)
        return True

    def ready(self, event: ev.MachineReady) -> bool:
        if self._may_come(event.machine):  # it was there already, or nobody said that it was rented
            self._comes(event)
        machine = self.present.get(event.machine)
        if machine is None or machine.slots:
            return False
        machine.slots = event.slots
        self._count_free()
        return True

    def notice(self, event: ev.MachineNotice) -> bool:
        machine = self.present.get(event.machine)
        if machine is None or machine.notice == event.deadline:
            return False
        machine.notice = event.deadline
        self._never_really_there(machine, event.at)
        self._count_free()
        return True

    def release(self, event: ev.Release) -> bool:
        machine = self.present.get(event.machine)
        if machine is None:  # perhaps one that has not come yet
            asked_for = event.machine in self.renting or event.machine in self.uncertain
            new = asked_for and event.machine not in self._cancelled
            self._cancelled.add(event.machine)
            return new
        if machine.is_releasing:
            return False
        machine.is_releasing = True
        self._count_free()
        return True

    def gone(self, machine_id: str, at: float, *, taken_away: bool = False) -> bool:
        """Lost or given back. Whatever ran there must have left it."""
        machine = self.present.pop(machine_id, None)
        if machine is None:
            known = machine_id in self.uncertain
            self.uncertain.discard(machine_id)
            return self.renting.pop(machine_id, None) is not None or known
        machine.ended_at, machine.was_lost = max(machine.started_at, at), taken_away
        if taken_away:
            self._never_really_there(machine, at)
        self.past.append(machine)
        self._unbilled[machine_id] = machine
        self._dollars_before += machine.dollars(at)
        self._count_free()
        return True

    def _never_really_there(self, machine: Machine, at: float) -> None:
        """One that is taken back so soon is as good as refused: the next would fare no better. Unless others of
        its offer are left alone: then it just had a short life."""
        age = at - machine.started_at
        others = (each for each in self.present.values() if each.offer == machine.offer and each is not machine)
        if age < AT_ONCE_SECONDS or (age < SOON_SECONDS and all(each.is_leaving for each in others)):
            self.last_unavailable_at[machine.offer] = at

    def billed(self, event: ev.MachineBilled) -> bool:
        """Takes the place of the estimate."""
        machine = self._unbilled.pop(event.machine, None)
        if machine is None:
            return False
        self._dollars_before += event.dollars - machine.dollars(event.at)
        machine.bill = event
        return True

    def new_driver(self) -> None:
        """What an earlier driver was about to give back, it may not have come to."""
        for machine in self.present.values():
            machine.is_releasing = False
        self._cancelled.clear()
        self.uncertain |= self.renting.keys()  # nobody knows whether these were asked for: they may yet come
        self.renting.clear()
        self._count_free()

    def _comes(self, event: ev.MachineRented | ev.MachineReady) -> None:
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

    def _may_come(self, machine_id: str) -> bool:
        """Whether a machine of this id is not there and can be: one that was rented comes once."""
        if machine_id in self.present:
            return False
        return machine_id in self.renting or machine_id in self.uncertain or machine_id not in self.rented_ids

    def validate(self) -> None:
        for machine_id, machine in self.present.items():
            assert machine.id == machine_id
            assert machine.ended_at is None
            assert machine.used_slots == sum(machine.running.values()) <= machine.slots
            assert machine_id not in self.renting
        assert self.free_slots == sum(machine.free_slots for machine in self.present.values())
        assert all(machine.ended_at is not None and not machine.running for machine in self.past)
        past = math.fsum(machine.dollars(0.0) for machine in self.past)
        assert math.isclose(self._dollars_before, past, rel_tol=1e-9, abs_tol=1e-9)
