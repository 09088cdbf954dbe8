"""The tuner protocol: decides how trials use their machines while they run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from thriftune.state.events import Decision, Event
from thriftune.state.history import History


class Tuner(Protocol):
    """Policy over how trials use their machines: asked by the conductor; engines carry out what it says."""

    def react(self, event: Event, history: History) -> Iterable[Decision]:
        """What to Turn because of this event, which the history has taken in already. Asked of all events but
        reports."""
        ...
