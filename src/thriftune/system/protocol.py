"""The protocol of tuners, which decide how trials use their machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from thriftune.state.events import Decision, Event
from thriftune.state.history import History


class Tuner(Protocol):
    """Decides the knob settings of trials.

    The conductor calls it, and engines carry out its decisions.
    """

    def react(self, event: Event, history: History) -> Iterable[Decision]:
        """Return the SetKnobs decisions that follow from an event.

        Called for every event except reports, after the event was applied to the history.
        """
        ...
