"""How many machines, of which kind, when? Plans, the provisioner protocol, and the one for this machine only.

What makes plans is loaded when it is first used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
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
    """Policy over machines: pure, and asked by the conductor; engines and clouds carry out what it says."""

    def react(self, event: Event, history: History) -> Sequence[Decision]:
        """What to Rent, Release or Move because of this event, which the history has taken in already.

        A Tick says only that time has passed; Finish, that every machine which was rented is to go back.
        """
        ...

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
        """How many workers the trial shall have now on which machine, the first of them first; None: it waits.

        `trial` waits, or is paused and would be promoted; None: a new one would be made. Asked only while a
        machine has a free slot.
        """
        ...


class PresentMachines:
    """Rents nothing: fills the machines that are there, fullest first, so that others can be let go."""

    def react(self, event: Event, history: History) -> Sequence[Decision]:  # noqa: ARG002 (the protocol's)
        return ()

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:  # noqa: ARG002
        fullest, least = None, sys.maxsize
        for machine in history.machines.values():
            free = machine.free
            if 0 < free < least:
                fullest, least = machine.id, free
        return None if fullest is None else {fullest: 1}
