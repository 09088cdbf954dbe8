"""How many machines, of which kind, when? The provisioner protocol, and the one for this machine only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol

from thriftune.events import Decision, Event
from thriftune.history import History


class Provisioner(Protocol):
    """Policy over machines: pure, and asked by the conductor; engines and clouds carry out what it says."""

    def react(self, event: Event, history: History) -> Sequence[Decision]:
        """What to Rent, Release or Move because of this event, which the history has taken in already.

        A Tick says only that time has passed; Finish, that every machine which was rented is to go back.
        """
        ...

    def machine_for_next(self, history: History) -> str | None:
        """Where the next trial shall start now; None: it waits. Asked only while a machine has a free slot."""
        ...


class PresentMachines:
    """Rents nothing: fills the machines that are there, fullest first, so that others can be let go."""

    def react(self, event: Event, history: History) -> Sequence[Decision]:  # noqa: ARG002 (the protocol's)
        return ()

    def machine_for_next(self, history: History) -> str | None:
        fullest, least = None, sys.maxsize
        for machine in history.machines.values():
            free = machine.free
            if 0 < free < least:
                fullest, least = machine.id, free
        return fullest
