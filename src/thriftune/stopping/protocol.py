"""The protocol of stopping rules, which end or pause trials before their last step."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from thriftune.state.history import History
    from thriftune.state.trial_record import TrialRecord


class Verdict(Enum):
    """What happens to a trial after a report.

    STOP: the trial ends, and cannot be the best. CONVERGED: more steps would not change its value, so it ends and
    counts as finished. PAUSE: it waits with its checkpoint until promote() returns it.
    """

    GO_ON = "go on"
    PAUSE = "pause"
    STOP = "stop"
    CONVERGED = "converged"


class Stopper(Protocol):
    """A pure function of the history; any state it holds between calls is only a cache.

    A retried trial may report other values for steps that it reported before. `history.rewritten_values` counts
    such changes: drop a cache of values when it differs.
    """

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        """Return what happens to a running trial, after its report of a new step.

        The report is `trial.reports[-1]`. If it lacks the objective's value, the step is judged again when the
        value comes. A step that is repeated after a lost attempt is not judged again. A verdict stands however the
        attempt ends, and while a trial that is to end still reports.
        """
        ...

    def promote(self, history: History, more: bool) -> int | None:
        """Return a paused trial that should go on now, if any; called when a machine has a free slot.

        `more`: the study may still create trials.
        """
        ...
