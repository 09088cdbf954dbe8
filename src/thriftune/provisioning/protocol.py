"""The provisioner protocol: policies that rent machines and place trials on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from thriftune.state.events import Decision, Event
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord


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
