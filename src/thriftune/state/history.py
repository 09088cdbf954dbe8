"""The history of a study: its state, and how each entry of its log changes it.

A running driver and a reader of the store build the same history: both apply the entries of the log, in order.
The history makes no decisions. The conductor's decisions are entries of the log like all other events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from thriftune.state import events as ev
from thriftune.state import machine_events, study_events, trial_events
from thriftune.state.invariants import check_invariants
from thriftune.state.study_state import StudyState

_HANDLERS: dict[type[ev.Event], Callable[[StudyState, Any], bool]] = {
    **study_events.HANDLERS,
    **trial_events.HANDLERS,
    **machine_events.HANDLERS,
}

_BETWEEN_DRIVES = frozenset({ev.Enqueued, ev.ResultAdded, ev.AttributeSet, ev.Retry})
"""Events that may be recorded while no driver runs. They do not change `last_at`."""


class History(StudyState):
    """The state of a study after the entries of its log that were applied.

    Searchers, stopping rules and policies read it. It changes only through apply() and apply_log().
    """

    def apply(self, event: ev.Event) -> bool:
        """Apply one event.

        Returns False if it changes nothing, because it is late or repeated. It then need not be recorded.
        """
        handler = _HANDLERS.get(type(event))
        if handler is None or not handler(self, event):
            return False
        self.entries += 1
        if event.at > self.last_at and type(event) not in _BETWEEN_DRIVES:
            self.last_at = event.at
        return True

    def apply_log(self, log: Iterable[ev.Event]) -> History:
        """Apply recorded entries and return the history itself.

        An entry counts even if it changes nothing, because it may have changed something in another version of
        thriftune. Raises an error of any type for an entry that cannot follow those before it. The number of that
        entry is `entries` + 1. The history must not be used after an error.
        """
        for entry in log:
            if type(entry) is ev.Create:
                self.space.check(entry.config)
            if not self.apply(entry):
                self._check_trial(entry)
                self.entries += 1
        return self

    def _check_trial(self, entry: ev.Event) -> None:
        """Raise ValueError if an entry is about a trial that does not exist.

        Called for entries that change nothing.
        """
        trial: int | None = getattr(entry, "trial", None)
        if type(entry) is ev.Create and trial != len(self.trials):
            raise ValueError(f"it creates trial {trial} where trial {len(self.trials)} is next")
        if trial is not None and trial >= len(self.trials):
            raise ValueError(f"there is no trial {trial} yet")

    def validate(self) -> None:
        """Raise AssertionError if an invariant of the state does not hold.

        Tests call it after every event.
        """
        check_invariants(self)
