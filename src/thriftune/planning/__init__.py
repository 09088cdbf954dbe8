"""How many machines, of which kind, when? Plans, the provisioner protocol, and the one for this machine only.

What makes plans is loaded when it is first used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from thriftune.events import Decision, Event
from thriftune.history import History
from thriftune.trial import TrialRecord

if TYPE_CHECKING:
    from thriftune.planning.choosing import frontier as frontier
    from thriftune.planning.cloud import CloudProfile as CloudProfile
    from thriftune.planning.latency import Latency as Latency
    from thriftune.planning.plan import Plan as Plan
    from thriftune.planning.profile import Profile as Profile
    from thriftune.planning.spec import JobSpec as JobSpec
    from thriftune.planning.spec import asha as asha
    from thriftune.planning.spec import hyperband as hyperband
    from thriftune.planning.spec import successive_halving as successive_halving

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
    """Rents nothing: fills the machines that are there, fullest first, so that others can be let go."""

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:  # noqa: ARG002
        fullest, least = None, sys.maxsize
        for machine in history.machines.values():
            free = machine.free
            if 0 < free < least:
                fullest, least = machine.id, free
        return None if fullest is None else {fullest: 1}
