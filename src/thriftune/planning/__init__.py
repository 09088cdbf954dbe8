"""How many machines, of which kind, when? Plans, the provisioner protocol, and the one for this machine only.

What makes plans is loaded when it is first used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from thriftune.planning.placement import together
from thriftune.state.events import Decision, Event, Move, ShareChanged
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

if TYPE_CHECKING:
    from thriftune.planning.choosing import frontier as frontier
    from thriftune.planning.cloud import CloudProfile as CloudProfile
    from thriftune.planning.job import JobSpec as JobSpec
    from thriftune.planning.job import asha as asha
    from thriftune.planning.job import hyperband as hyperband
    from thriftune.planning.job import successive_halving as successive_halving
    from thriftune.planning.latency import Latency as Latency
    from thriftune.planning.plan import Plan as Plan
    from thriftune.planning.profile import Profile as Profile

_HOMES = {
    "choosing": ["frontier"],
    "cloud": ["CloudProfile"],
    "latency": ["Latency"],
    "plan": ["Plan"],
    "profile": ["Profile"],
    "spec": ["JobSpec", "asha", "hyperband", "successive_halving"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["PresentMachines", "Provisioner", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


class Provisioner(Protocol):
    """Policy over machines: asked by the conductor; engines and clouds carry out what it says.

    What it says follows from the history, so that a study that is resumed goes on as it would have. A class that
    inherits from this one rents nothing and saves as often as trials like, unless it says otherwise.
    """

    backs_off: bool = False
    """Whether a failed trial waits before its retry. Not on rented machines, which would be paid meanwhile."""

    def react(self, event: Event, history: History) -> Iterable[Decision]:  # noqa: ARG002
        """What to Rent, Release or Move because of this event, which the history has taken in already; each of
        them is taken in before the next one is asked for.

        A Tick comes at the end of every turn, when all that can be placed is, and whenever `wake_at` wants it.
        When a study stops, everything that was rented is given back without being asked for.
        """
        return ()

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
        """How many workers the trial shall have now on which machine, the first of them first; None: it waits.

        `trial` waits, or is paused and would be promoted; None: a new one would be made. Asked only while a
        machine has a free slot.
        """
        ...

    def wants(self, history: History) -> int:  # noqa: ARG002
        """How many trials shall run or wait for a machine: it rents for those that wait. 0: it rents for none."""
        return 0

    def save_every(self, trial: TrialRecord, machine: str, history: History) -> float | None:  # noqa: ARG002
        """The trial need not save more often on this machine than every so many seconds; None: only at its end."""
        return 0.0

    def wake_at(self, history: History, now: float) -> float | None:  # noqa: ARG002
        """When it wants a Tick even if nothing happens."""
        return None


class PresentMachines(Provisioner):
    """Rents nothing: fills the machines that are there, fullest first, so that others can be let go.

    - `gang`: workers of each trial, on as few machines as can be.
    - `at_a_time`: trials; None: as many as find room.
    - `narrows`: fewer on a machine, where that is known to get more done.

    Where others want the machines, too, it keeps to its share.
    """

    backs_off: bool = True
    gang = 1
    at_a_time: int | None = None
    narrows = False

    def __init__(self, gang: int = 1, at_a_time: int | None = None, *, narrows: bool = False) -> None:
        self.gang = gang
        self.at_a_time = at_a_time
        self.narrows = narrows

    def react(self, event: Event, history: History) -> Iterable[Decision]:
        share = history.share
        if type(event) is not ShareChanged or share is None or share.workers is None:
            return
        staying = [i for i in history.running if history.trials[i].asked is None]  # others leave already
        for trial_id in staying[: max(1, share.workers // self.gang) - 1 : -1]:  # the last have the least to lose
            trial = history.trials[trial_id]
            yield Move(event.at, trial_id, trial.attempts, f"others want the machines, too: {share.why}")

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:  # noqa: ARG002
        most, share = self.at_a_time, history.share
        if share is not None and share.workers is not None:
            fair = max(1, share.workers // self.gang)
            most = fair if most is None else min(most, fair)
        if most is not None and len(history.running) >= most:
            return None
        free = {machine.id: slots for machine in history.machines.values() if (slots := machine.free) > 0}
        if self.narrows and history.narrowed:
            free = {name: slots for name, slots in free.items() if not _is_narrow(history.machines[name], history)}
        if self.gang == 1:
            return {min(free, key=free.__getitem__): 1} if free else None
        return together(self.gang, free)


def _is_narrow(machine: Machine, history: History) -> bool:
    """It has room, and yet as many trials as are good for it."""
    narrowed = history.narrowed.get(machine.slots)
    return narrowed is not None and len(machine.running) >= narrowed.at_a_time
