"""Which worker on which machine? RubberBand's placement controller (section 4.4, Algorithm 3).

The workers of a trial are together. One that fits a machine is whole on one machine, beside others that do. One
that is larger than every machine has whole machines of its own, as few as can be, with nothing else there.

Trials that can stay where they are stay. The others are placed, from the largest to the smallest, each where it
leaves the fewest slots free. Where one finds no room, smaller trials make room, as few workers as can be, and are
placed again after it. None makes room for a trial that is not larger, so none has to twice.

All are placed that can be, if all machines have the same slots, nothing is reserved, and of any two sizes of
trials that fit a machine one divides the other, such as powers of two: the larger ones on a machine then take
whole multiples of a smaller one's size, so that it matters to none where they are. Otherwise a trial may have to
wait for which a cleverer packing would have found room.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from types import MappingProxyType
from typing import Any, NamedTuple

from thriftune.common.checks import check_whole
from thriftune.errors import SettingError

Placement = Mapping[int, Mapping[str, int]]
"""Trial -> machine -> workers of the trial there."""

_NOWHERE: Placement = MappingProxyType({})

_Trials = tuple[int, ...]


class PlacementResult(NamedTuple):
    """Where every trial is to be, and what has to happen for it.

    - `moved`: trials that were somewhere and are to be elsewhere, or to have another number of workers.
    - `unplaced`: trials that found no room and wait, whether they were somewhere or not.
    """

    placement: Placement
    moved: _Trials
    unplaced: _Trials


def place(
    wanted: Mapping[int, int],
    machines: Mapping[str, int],
    before: Placement = _NOWHERE,
    reserved: Collection[int] = (),
) -> PlacementResult:
    """A place for every trial: the one it has, where nothing has changed.

    - `wanted`: trial -> workers. Of two trials of the same size, the first named is placed first.
    - `machines`: machine -> slots. Of two that are as good, the first named is taken.
    - `before`: where trials are now. Those not in `wanted` leave. One that has its workers, on machines that are
      all still there, can stay, even if a machine has come since that could hold it whole.
    - `reserved`: trials whose place in `before` was decided and is not taken up yet. It stays theirs as it is,
      whatever is wanted now, unless one of its machines is gone.
    """
    _check(wanted, machines, before, reserved)
    rooms, homeless = _settled(wanted, machines, before, reserved)
    turns = {trial: turn for turn, trial in enumerate(wanted)}
    queue = [(-wanted[trial], turns[trial], trial) for trial in homeless]
    heapify(queue)
    unplaced = []
    while queue:
        trial = heappop(queue)[-1]
        displaced = rooms.take(trial, wanted[trial])
        if displaced is None:
            unplaced.append(trial)
            continue
        for other in displaced:
            heappush(queue, (-wanted[other], turns[other], other))
    placement = {trial: rooms.places[trial] for trial in (*wanted, *rooms.places) if trial in rooms.places}
    moved = (trial for trial, there in placement.items() if before.get(trial) and before[trial] != there)
    return PlacementResult(placement, tuple(moved), tuple(unplaced))


def choose_slots(workers: int, free: Mapping[str, int]) -> dict[str, int] | None:
    """Free slots for so many workers of one trial: of one machine, that where the fewest are left over, or else of
    as few as can be. None: there are not so many."""
    fit = [machine for machine, slots in free.items() if slots >= workers]
    if fit:
        return {min(fit, key=free.__getitem__): workers}
    found: dict[str, int] = {}
    for machine in sorted(free, key=free.__getitem__, reverse=True):
        found[machine] = min(free[machine], workers)
        workers -= found[machine]
        if not workers:
            return found
    return None


def place_on_fewer(
    wanted: Mapping[int, int],
    machines: Mapping[str, int],
    before: Placement,
    keep: int,
    reserved: Collection[int] = (),
) -> tuple[PlacementResult, tuple[str, ...]]:
    """A place for every trial on `keep` of the machines, and the others, which can go once they are left.

    Those go that the fewest workers must leave who could have stayed. Whom these displace in turn is not foreseen,
    so more are moved now and then than must be. On up to 5 machines, where all ways were tried: with 4 slots and
    powers of two, never; with 8 slots and any sizes, in 1 of 100 cases, mostly one or two workers more, once five.

    Only if trials have to wait then, and fewer of their workers if the smallest machines go, these go instead.
    Machines of reserved trials never go, even if more than `keep` stay. Look at `unplaced` before letting any go.
    """
    _check(wanted, machines, before, reserved)
    check_whole("keep", keep, 0)
    rooms, _ = _settled(wanted, machines, before, reserved)
    choices = []
    for goes in map(set, rooms.to_let_go(len(machines) - keep)):
        stay = {machine: slots for machine, slots in machines.items() if machine not in goes}
        placed = place(wanted, stay, before, reserved)
        choices.append((placed, tuple(machine for machine in machines if machine in goes)))
        if not placed.unplaced:
            break
    return min(choices, key=lambda choice: sum(wanted[trial] for trial in choice[0].unplaced))


def removable(machines: Iterable[str], placement: Placement) -> tuple[str, ...]:
    """Machines on which nobody is."""
    used = {machine for there in placement.values() for machine in there}
    return tuple(machine for machine in machines if machine not in used)


def _settled(
    wanted: Mapping[int, int], machines: Mapping[str, int], before: Placement, reserved: Collection[int]
) -> tuple[_Rooms, list[int]]:
    """The machines with all who stay there, and who is still to be placed."""
    rooms = _Rooms(machines)
    locked = set(reserved)
    for trial, there in before.items():
        if trial not in locked or not machines.keys() >= there.keys():
            continue
        if not rooms.has_room(there):
            raise SettingError(
                f"reserved: trial {trial} has no room on {', '.join(there)} beside the others that are reserved; "
                "reserve only what was placed together"
            )
        rooms.seat(trial, there, math.inf)
    homeless = []
    for trial in sorted(wanted, key=wanted.__getitem__, reverse=True):
        if trial in rooms.places:
            continue
        there = before.get(trial, {})
        if sum(there.values()) == wanted[trial] and rooms.may_stay(there):
            rooms.seat(trial, there, wanted[trial])
        else:
            homeless.append(trial)
    return rooms, homeless


class _Rooms:
    """The machines while trials take their places. `places`: of the trials that have one."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self.places: dict[int, dict[str, int]] = {}
        self._sizes: dict[int, float] = {}  # workers by trial; inf: it is reserved, and nobody is larger
        self._slots = slots
        self._kinds = sorted(set(slots.values()))
        self._largest = max(self._kinds, default=0)
        self._free = dict(slots)
        # Slots by machine and trial: its workers there; where it has several machines, all slots of each.
        self._guests: dict[str, dict[int, int]] = {machine: {} for machine in slots}
        self._empty_slots = sum(slots.values())  # of machines without guests
        # Machines by free slots and whether they are used, as heaps in their order. Some have changed since.
        self._alike: defaultdict[tuple[int, bool], list[tuple[int, str]]] = defaultdict(list)
        self._turns = {machine: turn for turn, machine in enumerate(slots)}
        for machine in slots:
            self._sort_in(machine)
        # Machines by the workers, or fewer, who must leave for a trial of that size, as a heap. While trials of
        # one size are placed, these never become fewer; so it is enough to look again at the first of the heap.
        self._costs: list[tuple[float, int, str]] = []
        self._costs_for = 0
        # Likewise, those who share a machine, or have several, and are all smaller: they all leave, or none.
        self._groups: list[_Option] = []
        self._groups_for = 0

    def has_room(self, there: Mapping[str, int]) -> bool:
        if len(there) > 1:
            return all(not self._guests[one] and workers <= self._slots[one] for one, workers in there.items())
        return all(workers <= self._free[one] for one, workers in there.items())

    def may_stay(self, there: Mapping[str, int]) -> bool:
        """Whether the machines are there, none of them too many, and have room."""
        if not self._slots.keys() >= there.keys() or not self.has_room(there):
            return False
        slots = [self._slots[machine] for machine in there]
        return sum(there.values()) > sum(slots) - min(slots)

    def seat(self, trial: int, there: Mapping[str, int], size: float) -> None:
        for machine, workers in there.items():
            self._give(machine, trial, workers if len(there) == 1 else self._slots[machine])
        self.places[trial] = dict(there)
        self._sizes[trial] = size

    def take(self, trial: int, size: int) -> list[int] | None:
        """Gives the trial a place. Returns those who had to make room for it; None: it cannot have one."""
        whole = size <= self._largest
        displaced: list[int] | None = []
        if whole and self._best_fit(size) is None:
            displaced = self._who_leave_one_machine(size)
        elif not whole and size > self._empty_slots:
            displaced = self._who_leave_machines(size)
        if displaced is None:
            return None
        for other in displaced:
            self._leave(other)
        self.places[trial] = self._take_one(trial, size) if whole else self._take_several(trial, size)
        self._sizes[trial] = size
        return displaced

    def to_let_go(self, count: int) -> Iterator[list[str]]:
        """So many machines, or all that are not reserved: those that the fewest workers leave; the smallest."""
        choose_slots: defaultdict[_Trials, list[str]] = defaultdict(list)
        for machine in sorted(self._slots, key=self._slots.__getitem__):
            guests = self._guests[machine]
            if all(self._sizes[trial] < math.inf for trial in guests):
                choose_slots[tuple(guests)].append(machine)
        spare = [machine for machines in choose_slots.values() for machine in machines]
        count = max(0, min(count, len(spare)))
        # Of two that cost as much, first the one with smaller trials: they find room sooner.
        groups = sorted(choose_slots, key=lambda trials: max(map(self._sizes.__getitem__, trials), default=0))
        options = [_Option(len(choose_slots[trials]), self._workers(trials), trials) for trials in groups]
        cheapest = _cheapest(count, options) or []
        yield [machine for option in cheapest for machine in choose_slots[option.trials]][:count]
        yield sorted(spare, key=self._slots.__getitem__)[:count]

    # --- who makes room -----------------------------------------------------------------------------------

    def _who_leave_one_machine(self, size: int) -> list[int] | None:
        """The fewest workers, of smaller trials on one machine, without whom a trial of this size fits there."""
        if self._costs_for != size:
            self._costs_for = size
            large = (machine for machine, slots in self._slots.items() if slots >= size)
            self._costs = [(size - self._free[machine], self._turns[machine], machine) for machine in large]
            heapify(self._costs)
        while self._costs:
            least, turn, machine = self._costs[0]
            guests = self._guests[machine].items()
            options = [_Option(slots, self._sizes[trial], (trial,)) for trial, slots in guests]
            leave = _cheapest(size - self._free[machine], [option for option in options if option.workers < size])
            if leave is None:
                heappop(self._costs)
                continue
            cost = sum(option.workers for option in leave)
            if cost <= least:
                return [trial for option in leave for trial in option.trials]
            heapreplace(self._costs, (cost, turn, machine))
        return None

    def _who_leave_machines(self, size: int) -> list[int] | None:
        """The fewest workers, of smaller trials, without whom there are empty machines enough for this size."""
        if self._groups_for != size:
            self._groups_for = size
            slots: defaultdict[_Trials, int] = defaultdict(int)
            for machine, guests in self._guests.items():
                if guests and all(self._sizes[trial] < size for trial in guests):
                    slots[tuple(guests)] += self._slots[machine]
            self._groups = [_Option(gain, self._workers(trials), trials) for trials, gain in slots.items()]
        self._groups = [group for group in self._groups if group.trials[0] in self.places]
        leave = _cheapest(size - self._empty_slots, self._groups)
        return None if leave is None else [trial for group in leave for trial in group.trials]

    def _workers(self, trials: _Trials) -> float:
        return sum(self._sizes[trial] for trial in trials)

    # --- slots are given and given back -------------------------------------------------------------------

    def _take_one(self, trial: int, size: int) -> dict[str, int]:
        machine = self._best_fit(size)
        assert machine is not None
        self._give(machine, trial, size)
        return {machine: size}

    def _take_several(self, trial: int, size: int) -> dict[str, int]:
        """Of the empty machines the largest, and for what is left at last the smallest that will do."""
        there: dict[str, int] = {}
        while (left := size - sum(there.values())) > 0:
            enough = bisect_left(self._kinds, left)
            kinds = (*self._kinds[enough:], *reversed(self._kinds[:enough]))
            machine = next(one for kind in kinds if (one := self._first(kind, used=False)) is not None)
            self._give(machine, trial, self._slots[machine])
            there[machine] = min(left, self._slots[machine])
        return there

    def _best_fit(self, size: int) -> str | None:
        """The machine with the fewest free slots of those that have enough; of two, one that is in use."""
        for free in range(size, self._largest + 1):
            for used in (True, False):
                if (machine := self._first(free, used)) is not None:
                    return machine
        return None

    def _first(self, free: int, used: bool) -> str | None:
        heap = self._alike[free, used]
        while heap:
            machine = heap[0][1]
            if self._free[machine] == free and bool(self._guests[machine]) == used:
                return machine
            heappop(heap)
        return None

    def _give(self, machine: str, trial: int, slots: int) -> None:
        if not self._guests[machine]:
            self._empty_slots -= self._slots[machine]
        self._guests[machine][trial] = slots
        self._free[machine] -= slots
        self._sort_in(machine)

    def _leave(self, trial: int) -> None:
        for machine in self.places.pop(trial):
            self._free[machine] += self._guests[machine].pop(trial)
            if not self._guests[machine]:
                self._empty_slots += self._slots[machine]
            self._sort_in(machine)

    def _sort_in(self, machine: str) -> None:
        alike = self._alike[self._free[machine], bool(self._guests[machine])]
        heappush(alike, (self._turns[machine], machine))


class _Option(NamedTuple):
    """What is gained if these trials leave, in slots or machines, and how many workers they are."""

    gain: int
    workers: float
    trials: _Trials


def _cheapest(need: int, options: Sequence[_Option]) -> list[_Option] | None:
    """Those that gain what is needed with the fewest workers, by dynamic programming; None: all together do not.

    Of two that do as well, the one of fewer workers, and then the first given, is preferred.
    """
    kinds: defaultdict[int, list[_Option]] = defaultdict(list)
    for option in sorted(options, key=lambda option: option.workers):
        if len(kinds[option.gain]) * option.gain < need:  # more of the same gain are never of use
            kinds[option.gain].append(option)
    # By what is gained so far: the workers, and the options as a chain, the last one first.
    best: list[tuple[float, Any]] = [(0, None)] + [(math.inf, None)] * need
    for option in itertools.chain.from_iterable(kinds.values()):
        for gained in range(need - 1, -1, -1):  # downwards, so that an option counts once
            workers = best[gained][0] + option.workers
            reached = min(need, gained + option.gain)
            if workers < best[reached][0]:
                best[reached] = workers, (option, best[gained][1])
    workers, chain = best[need]
    if workers == math.inf:
        return None
    found = []
    while chain:
        option, chain = chain
        found.append(option)
    return found


def _check(
    wanted: Mapping[int, int], machines: Mapping[str, int], before: Placement, reserved: Collection[int]
) -> None:
    for trial, workers in wanted.items():
        check_whole(f"trial {trial}: workers", workers, 1)
    for machine, slots in machines.items():
        check_whole(f"machine {machine}: slots", slots, 1)
    for trial, there in before.items():
        for machine, workers in there.items():
            check_whole(f"before: trial {trial}: workers on {machine}", workers, 1)
    for trial in reserved:
        if not before.get(trial):
            raise SettingError(
                f"reserved: trial {trial} has no place in before; reserve only what has been placed"
            )
