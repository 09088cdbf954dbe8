"""Is this trial worth another step? The stopper protocol."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from thriftune.history import History
from thriftune.trial import TrialRecord


class Verdict(Enum):
    GO_ON = "go on"
    PAUSE = "pause"
    STOP = "stop"


class Stopper(Protocol):
    """A pure function of what has been observed; what it keeps between calls is only a cache."""

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        """Asked after every report of a running trial on a new step, which is the last of `trial.reports`.

        A step that is done again after a loss is not judged again. What is decided here stands, however the
        attempt ends that it was said to.
        """
        ...

    def promote(self, history: History) -> int | None:
        """A paused trial that deserves more steps now, if any; asked when a machine has room."""
        ...
