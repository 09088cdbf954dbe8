"""Every trial is worth all its steps."""

from __future__ import annotations

from thriftune.history import History
from thriftune.stopping import Verdict
from thriftune.trial import TrialRecord


class Never:
    """Stops nothing."""

    def judge(self, trial: TrialRecord, history: History) -> Verdict:  # noqa: ARG002 (the protocol's)
        return Verdict.GO_ON

    def promote(self, history: History, more: bool) -> int | None:  # noqa: ARG002 (the protocol's)
        return None
