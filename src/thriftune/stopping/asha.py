"""Is it among the best that have come to its rung so far? ASHA (Li et al. 2020), halving without waiting."""

from __future__ import annotations

from typing import Literal

from thriftune.errors import SettingError
from thriftune.state.trial_record import TrialRecord
from thriftune.stopping.ladder import Ladder
from thriftune.stopping.protocol import Verdict
from thriftune.stopping.rungs import Rungs


class ASHA(Ladder):
    """At steps `min_steps`, `min_steps` * `eta`, ... only the best 1 / `eta` of the trials there so far go on.
    Where `min_steps` is None, they begin at a twenty-fifth of `max_steps`.

    - `how="stop"`: a trial that is not among them is stopped; it needs no checkpoints. While fewer than `eta` have
      come to a step, all go on.
    - `how="pause"`: it is set aside, and goes on from its checkpoint when it is found to be among them.
    """

    def __init__(
        self, *, min_steps: int | None = None, eta: int = 3, how: Literal["stop", "pause"] = "stop"
    ) -> None:
        super().__init__("asha", min_steps, eta)
        if how not in ("stop", "pause"):
            raise SettingError(f"asha: how {how!r} must be 'stop' or 'pause'")
        self.options["how"] = how
        self._how = how

    def places(self, rung: int, rungs: Rungs, trial: TrialRecord | None) -> int:  # noqa: ARG002
        there = len(rungs.values[rung])
        return there if there < self._eta and self._how == "stop" else there // self._eta

    def otherwise(self, trial: TrialRecord) -> Verdict:  # noqa: ARG002
        return Verdict.STOP if self._how == "stop" else Verdict.PAUSE
