"""The rule that stops no trial."""

from __future__ import annotations

from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping.protocol import Verdict


class Never:
    """Stop no trial, and let trials go on that another rule paused."""

    def judge(self, trial: TrialRecord, history: History) -> Verdict:  # noqa: ARG002 (the protocol's)
        return Verdict.GO_ON

    def promote(self, history: History, more: bool) -> int | None:  # noqa: ARG002 (the protocol's)
        if not history.counts[State.PAUSED]:
            return None
        return next(trial.id for trial in history.trials if trial.state is State.PAUSED)
