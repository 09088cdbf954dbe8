"""The placement of workers on machines (RubberBand section 4.4, Algorithm 3).

The workers of a trial are placed together. A trial that fits on a machine is on a single machine, which it may
share with other such trials. A trial that is larger than every machine has whole machines of its own, as few as
possible.

Trials that can stay where they are stay. The others are placed from the largest to the smallest, each where it
leaves the fewest slots free. If a trial does not fit, smaller trials with as few workers as possible are
displaced, and are placed again later. A trial is displaced only by a larger one, so placing ends.

All trials that can be placed are placed under three conditions: all machines have the same number of slots,
nothing is reserved, and of any two trial sizes that fit a machine, one divides the other (such as powers of two).
Then the larger trials on a machine leave a multiple of each smaller size free, wherever they are. Without these
conditions, a trial may have to wait although a better packing has room for it.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from types import MappingProxyType
from typing import Any, NamedTuple

from thriftune.common.checks import check_whole
from thriftune.errors import SettingError

Placement = Mapping[int, Mapping[str, int]]
"""Trial -> machine -> workers of the trial on that machine."""

_EMPTY: Placement = MappingProxyType({})

_Trials = tuple[int, ...]


class PlacementResult(NamedTuple):
    """A placement of trials, and what it changes.

    - `moved`: trials that were placed before and now have other machines or another number of workers.
    - `unplaced`: trials that have to wait because they do not fit, whether they were placed before or not.
    """

    placement: Placement
    moved: _Trials
    unplaced: _Trials


def place(
    wanted: Mapping[int, int],
    machines: Mapping[str, int],
    before: Placement = _EMPTY,
    reserved: Collection[int] = (),
) -> PlacementResult:
    """Place every trial; trials that can stay where they are stay there.

    - `wanted`: trial -> workers. Of two trials of the same size, the first key is placed first.
    - `machines`: machine -> slots. Of two machines that are equally good, the first key is used.
    - `before`: where trials are now. Trials that are not in `wanted` are removed. A trial with the wanted number
      of workers stays if all its machines still exist, even if a new machine could hold it whole.
    - `reserved`: trials whose placement in `before` was decided but has not started yet. Their placement does not
      change, whatever `wanted` says, unless one of their machines no longer exists.
    """
    _check(wanted, machines, before, reserved)
    occupancy, to_place = _keep_in_place(wanted, machines, before, reserved)
    rank = {trial: position for position, trial in enumerate(wanted)}
    queue = [(-wanted[trial], rank[trial], trial) for trial in to_place]
    heapify(queue)
    unplaced = []
    while queue:
        trial = heappop(queue)[-1]
        displaced = occupancy.place(trial, wanted[trial])
        if displaced is None:
            unplaced.append(trial)
            continue
        for other in displaced:
            heappush(queue, (-wanted[other], rank[other], other))
    placed = occupancy.placed
    placement = {trial: placed[trial] for trial in (*wanted, *placed) if trial in placed}
    moved = (trial for trial, workers in placement.items() if before.get(trial) and before[trial] != workers)
    return PlacementResult(placement, tuple(moved), tuple(unplaced))


def choose_slots(workers: int, free: Mapping[str, int]) -> dict[str, int] | None:
    """Choose free slots for the workers of one trial; None if there are too few.

    If the workers fit on one machine, the one that is left with the fewest free slots is chosen. Otherwise as few
    machines as possible are used. `free` is machine -> free slots, and the result is machine -> workers.
    """
    fitting = [machine for machine, slots in free.items() if slots >= workers]
    if fitting:
        return {min(fitting, key=free.__getitem__): workers}
    chosen: dict[str, int] = {}
    for machine in sorted(free, key=free.__getitem__, reverse=True):
        chosen[machine] = min(free[machine], workers)
        workers -= chosen[machine]
        if not workers:
            return chosen
    return None


def place_on_fewer(
    wanted: Mapping[int, int],
    machines: Mapping[str, int],
    before: Placement,
    keep: int,
    reserved: Collection[int] = (),
) -> tuple[PlacementResult, tuple[str, ...]]:
    """Place every trial on `keep` of the machines.

    Also returns the other machines, to be released once they are empty. Machines are removed so that the fewest
    workers have to move. Workers that are displaced in turn are not counted, so sometimes more workers move than
    necessary. The results were compared with all choices on up to 5 machines. With 4 slots and sizes that are
    powers of two, no more workers moved than necessary. With 8 slots and any sizes, more moved in 1 of 100 cases,
    mostly one or two more, and once five more.

    If some trials would then have to wait, the smallest machines are removed instead, provided that fewer workers
    have to wait with that choice. Machines of reserved trials are never removed, even if more than `keep` machines
    stay. The caller must check `unplaced` before it releases a machine.
    """
    _check(wanted, machines, before, reserved)
    check_whole("keep", keep, 0)
    occupancy, _ = _keep_in_place(wanted, machines, before, reserved)
    choices = []
    for removed in map(set, occupancy.removal_choices(len(machines) - keep)):
        staying = {machine: slots for machine, slots in machines.items() if machine not in removed}
        result = place(wanted, staying, before, reserved)
        choices.append((result, tuple(machine for machine in machines if machine in removed)))
        if not result.unplaced:
            break
    return min(choices, key=lambda choice: sum(wanted[trial] for trial in choice[0].unplaced))


def _keep_in_place(
    wanted: Mapping[int, int], machines: Mapping[str, int], before: Placement, reserved: Collection[int]
) -> tuple[_Occupancy, list[int]]:
    """Return the occupancy by all trials that stay, and the trials to place."""
    occupancy = _Occupancy(machines)
    reserved_trials = set(reserved)
    for trial, workers in before.items():
        if trial not in reserved_trials or not machines.keys() >= workers.keys():
            continue
        if not occupancy.has_room(workers):
            raise SettingError(
                f"reserved: trial {trial} does not fit on {', '.join(workers)} beside the other reserved trials; "
                "reserve only trials that were placed together"
            )
        occupancy.assign(trial, workers, math.inf)
    to_place = []
    for trial in sorted(wanted, key=wanted.__getitem__, reverse=True):
        if trial in occupancy.placed:
            continue
        workers = before.get(trial, {})
        if sum(workers.values()) == wanted[trial] and occupancy.may_stay(workers):
            occupancy.assign(trial, workers, wanted[trial])
        else:
            to_place.append(trial)
    return occupancy, to_place


class _Occupancy:
    """The occupied slots of the machines while trials are being placed.

    `placed` holds all and only the trials that have machines now: trial -> machine -> workers.
    """

    def __init__(self, slots: Mapping[str, int]) -> None:
        self.placed: dict[int, dict[str, int]] = {}
        self._workers_of: dict[int, float] = {}  # by trial; inf if it is reserved, so that no trial is larger
        self._slots = slots
        self._machine_sizes = sorted(set(slots.values()))
        self._largest = max(self._machine_sizes, default=0)
        self._free = dict(slots)
        # Machine -> trial -> occupied slots: the trial's workers, or all slots if the trial has several machines.
        self._occupants: dict[str, dict[int, int]] = {machine: {} for machine in slots}
        self._empty_slots = sum(slots.values())  # slots of machines without occupants
        # Machines, keyed by their free slots and whether they are occupied, as heaps in the order of `slots`. A
        # heap may contain machines that have changed since; `_first` skips these.
        self._by_free_slots: defaultdict[tuple[int, bool], list[tuple[int, str]]] = defaultdict(list)
        self._rank = {machine: position for position, machine in enumerate(slots)}
        for machine in slots:
            self._index(machine)
        # A heap of machines by a lower bound of the workers that must leave for a trial of the size
        # `_bounds_size`. These workers never become fewer while trials of one size are placed, so only the top
        # must be recomputed.
        self._leaving_bounds: list[tuple[float, int, str]] = []
        self._bounds_size = 0
        # Sets of trials that occupy the same machines, and are all smaller than `_groups_size`. Either all trials
        # of a set leave, or none.
        self._groups: list[_Departure] = []
        self._groups_size = 0

    def has_room(self, workers: Mapping[str, int]) -> bool:
        """Return whether these workers of one trial (machine -> workers) fit now."""
        if len(workers) > 1:
            return all(not self._occupants[each] and count <= self._slots[each] for each, count in workers.items())
        return all(count <= self._free[each] for each, count in workers.items())

    def may_stay(self, workers: Mapping[str, int]) -> bool:
        """Return whether a trial may keep its machines.

        The machines must exist, have room for its workers, and be no more than needed.
        """
        if not self._slots.keys() >= workers.keys() or not self.has_room(workers):
            return False
        slots = [self._slots[machine] for machine in workers]
        return sum(workers.values()) > sum(slots) - min(slots)

    def assign(self, trial: int, workers: Mapping[str, int], size: float) -> None:
        """Place the trial on the machines of `workers`.

        `size` is the number of its workers, or inf if the trial is reserved.
        """
        for machine, count in workers.items():
            self._occupy(machine, trial, count if len(workers) == 1 else self._slots[machine])
        self.placed[trial] = dict(workers)
        self._workers_of[trial] = size

    def place(self, trial: int, size: int) -> list[int] | None:
        """Place a trial with `size` workers where it fits best.

        Returns the trials that it displaces, or None if it cannot be placed.
        """
        fits_one_machine = size <= self._largest
        displaced: list[int] | None = []
        if fits_one_machine and self._best_fit(size) is None:
            displaced = self._trials_to_displace(size)
        elif not fits_one_machine and size > self._empty_slots:
            displaced = self._groups_to_displace(size)
        if displaced is None:
            return None
        for other in displaced:
            self._remove(other)
        self.placed[trial] = (
            self._occupy_one(trial, size) if fits_one_machine else self._occupy_several(trial, size)
        )
        self._workers_of[trial] = size
        return displaced

    def removal_choices(self, count: int) -> Iterator[list[str]]:
        """Yield two choices of `count` machines to remove.

        Machines of reserved trials are never removed, so there may be fewer. The first choice displaces the fewest
        workers, the second has the fewest slots.
        """
        machines_of: defaultdict[_Trials, list[str]] = defaultdict(list)
        for machine in sorted(self._slots, key=self._slots.__getitem__):
            occupants = self._occupants[machine]
            if all(self._workers_of[trial] < math.inf for trial in occupants):
                machines_of[tuple(occupants)].append(machine)
        removable = [machine for machines in machines_of.values() for machine in machines]
        count = max(0, min(count, len(removable)))
        # At equal cost, prefer groups of smaller trials, which are easier to place again.
        groups = sorted(machines_of, key=lambda trials: max(map(self._workers_of.__getitem__, trials), default=0))
        options = [_Departure(len(machines_of[trials]), self._total_workers(trials), trials) for trials in groups]
        cheapest = _cheapest_departures(count, options) or []
        yield [machine for option in cheapest for machine in machines_of[option.trials]][:count]
        yield sorted(removable, key=self._slots.__getitem__)[:count]

    # --- the choice of trials to displace -----------------------------------------------------------------

    def _trials_to_displace(self, size: int) -> list[int] | None:
        """Return the trials to displace from one machine for a trial of this size.

        They are smaller than it, and together have the fewest workers. Returns None if that is impossible.
        """
        if self._bounds_size != size:
            self._bounds_size = size
            large = (machine for machine, slots in self._slots.items() if slots >= size)
            self._leaving_bounds = [
                (size - self._free[machine], self._rank[machine], machine) for machine in large
            ]
            heapify(self._leaving_bounds)
        while self._leaving_bounds:
            bound, rank, machine = self._leaving_bounds[0]
            options = [
                _Departure(slots, self._workers_of[trial], (trial,))
                for trial, slots in self._occupants[machine].items()
                if self._workers_of[trial] < size
            ]
            departures = _cheapest_departures(size - self._free[machine], options)
            if departures is None:
                heappop(self._leaving_bounds)
                continue
            cost = sum(option.workers for option in departures)
            if cost <= bound:
                return [trial for option in departures for trial in option.trials]
            heapreplace(self._leaving_bounds, (cost, rank, machine))
        return None

    def _groups_to_displace(self, size: int) -> list[int] | None:
        """Return the trials to displace so that machines with `size` slots are empty.

        They are smaller than `size`, and together have the fewest workers. Returns None if that is impossible.
        """
        if self._groups_size != size:
            self._groups_size = size
            gains: defaultdict[_Trials, int] = defaultdict(int)
            for machine, occupants in self._occupants.items():
                if occupants and all(self._workers_of[trial] < size for trial in occupants):
                    gains[tuple(occupants)] += self._slots[machine]
            self._groups = [
                _Departure(gain, self._total_workers(trials), trials) for trials, gain in gains.items()
            ]
        self._groups = [group for group in self._groups if group.trials[0] in self.placed]
        departures = _cheapest_departures(size - self._empty_slots, self._groups)
        return None if departures is None else [trial for group in departures for trial in group.trials]

    def _total_workers(self, trials: _Trials) -> float:
        return sum(self._workers_of[trial] for trial in trials)

    # --- the bookkeeping of slots -------------------------------------------------------------------------

    def _occupy_one(self, trial: int, size: int) -> dict[str, int]:
        machine = self._best_fit(size)
        assert machine is not None
        self._occupy(machine, trial, size)
        return {machine: size}

    def _occupy_several(self, trial: int, size: int) -> dict[str, int]:
        """Occupy the largest empty machines, and a small one for the last workers.

        Returns machine -> workers.
        """
        workers: dict[str, int] = {}
        while (left := size - sum(workers.values())) > 0:
            enough = bisect_left(self._machine_sizes, left)
            preferred = (*self._machine_sizes[enough:], *reversed(self._machine_sizes[:enough]))
            machine = next(each for slots in preferred if (each := self._first(slots, used=False)) is not None)
            self._occupy(machine, trial, self._slots[machine])
            workers[machine] = min(left, self._slots[machine])
        return workers

    def _best_fit(self, size: int) -> str | None:
        """Return the machine with the fewest free slots that has enough.

        Occupied machines are preferred to empty ones.
        """
        for free in range(size, self._largest + 1):
            for used in (True, False):
                if (machine := self._first(free, used)) is not None:
                    return machine
        return None

    def _first(self, free: int, used: bool) -> str | None:
        """Return the first machine with this number of free slots, or None.

        `used` tells whether the machine is occupied.
        """
        heap = self._by_free_slots[free, used]
        while heap:
            machine = heap[0][1]
            if self._free[machine] == free and bool(self._occupants[machine]) == used:
                return machine
            heappop(heap)
        return None

    def _occupy(self, machine: str, trial: int, slots: int) -> None:
        if not self._occupants[machine]:
            self._empty_slots -= self._slots[machine]
        self._occupants[machine][trial] = slots
        self._free[machine] -= slots
        self._index(machine)

    def _remove(self, trial: int) -> None:
        for machine in self.placed.pop(trial):
            self._free[machine] += self._occupants[machine].pop(trial)
            if not self._occupants[machine]:
                self._empty_slots += self._slots[machine]
            self._index(machine)

    def _index(self, machine: str) -> None:
        heap = self._by_free_slots[self._free[machine], bool(self._occupants[machine])]
        heappush(heap, (self._rank[machine], machine))


class _Departure(NamedTuple):
    """Trials that may leave together, and what that gains.

    `gain` is a number of slots or of machines. `workers` is the number of workers of all these trials.
    """

    gain: int
    workers: float
    trials: _Trials


def _cheapest_departures(needed: int, options: Sequence[_Departure]) -> list[_Departure] | None:
    """Return the options that gain at least `needed` with the fewest workers.

    Returns None if all options together gain too little. The search is dynamic programming. Of two equally good
    options, the one with fewer workers is preferred, and then the first one given.
    """
    by_gain: defaultdict[int, list[_Departure]] = defaultdict(list)
    for option in sorted(options, key=lambda option: option.workers):
        if len(by_gain[option.gain]) * option.gain < needed:  # more options of the same gain are never useful
            by_gain[option.gain].append(option)
    # By gain: the fewest workers, and the options as a linked list, the last one first.
    best: list[tuple[float, Any]] = [(0, None)] + [(math.inf, None)] * needed
    for option in itertools.chain.from_iterable(by_gain.values()):
        for gained in range(needed - 1, -1, -1):  # downwards, so that an option is used only once
            workers = best[gained][0] + option.workers
            total = min(needed, gained + option.gain)
            if workers < best[total][0]:
                best[total] = workers, (option, best[gained][1])
    workers, chain = best[needed]
    if workers == math.inf:
        return None
    departures = []
    while chain:
        option, chain = chain
        departures.append(option)
    return departures


def _check(
    wanted: Mapping[int, int], machines: Mapping[str, int], before: Placement, reserved: Collection[int]
) -> None:
    for trial, workers in wanted.items():
        check_whole(f"trial {trial}: workers", workers, 1)
    for machine, slots in machines.items():
        check_whole(f"machine {machine}: slots", slots, 1)
    for trial, placed in before.items():
        for machine, workers in placed.items():
            check_whole(f"before: trial {trial}: workers on {machine}", workers, 1)
    for trial in reserved:
        if not before.get(trial):
            raise SettingError(f"reserved: trial {trial} is not placed in before; reserve only placed trials")
