"""The stopper protocol: rules that end or pause trials before their last step."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from thriftune.state.history import History
    from thriftune.state.trial_record import TrialRecord


class Verdict(Enum):
    """What becomes of a trial after a report.

    STOP: it will not be the best, so it ends and cannot be. CONVERGED: more steps would change nothing, so it ends
    and counts as finished. PAUSE: it is set aside with its checkpoint until promote() returns it.
    """

    GO_ON = "go on"
    PAUSE = "pause"
    STOP = "stop"
    CONVERGED = "converged"


class Stopper(Protocol):
    """A pure function of what has been observed; what it keeps between calls is only a cache.

    A retried trial may tell other values of steps that it told before. `history.rewrites` counts such changes, so
    that a cache of values is dropped when it differs.
    """

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        """Return what becomes of a running trial, after a report of a new step, the last of `trial.reports`.

        A step that is reported in parts is judged again when the objective's value comes, if that was missing. A
        step that is repeated after a loss is not. The verdict stands, however the attempt ends; an earlier one
        stands when a trial that is to end reports once more.
        """
        ...

    def promote(self, history: History, more: bool) -> int | None:
        """A paused trial that deserves more steps now, if any; asked when a machine has room.

        `more`: further trials may still be made.
        """
        ...
