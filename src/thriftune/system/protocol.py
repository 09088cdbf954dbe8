"""The tuner protocol: decides how trials use their machines while they run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from thriftune.state.events import Decision, Event
from thriftune.state.history import History


class Tuner(Protocol):
    """Decides the knob settings of trials. The conductor calls it, and engines carry out its decisions."""

    def react(self, event: Event, history: History) -> Iterable[Decision]:
        """Return the SetKnobs decisions that follow from an event, which the history already contains.

        Called for every event but reports.
        """
        ...
