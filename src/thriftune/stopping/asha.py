"""ASHA: asynchronous successive halving (Li et al. 2020).

The rungs and the promotion of paused trials are in rungs.py. Here is how many trials go on from a rung.
"""

from __future__ import annotations

from typing import Literal

from thriftune.errors import SettingError
from thriftune.state.trial_record import TrialRecord
from thriftune.stopping.protocol import Verdict
from thriftune.stopping.rungs import RungRule, Rungs


class ASHA(RungRule):
    """Let the best 1 / `eta` of the trials that have reached a rung go on.

    The rungs are at steps `min_steps`, `min_steps` * `eta`, ...; `min_steps` None puts the first one at a
    twenty-fifth of `max_steps`.

    - `how="stop"`: stop a trial that is not among the best. This needs no checkpoints. All trials go on from a
      rung until `eta` have reached it.
    - `how="pause"`: pause it, and resume it from its checkpoint once it is among the best.
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
        reached = len(rungs.values[rung])
        return reached if reached < self._eta and self._how == "stop" else reached // self._eta

    def verdict_without_place(self, trial: TrialRecord) -> Verdict:  # noqa: ARG002
        return Verdict.STOP if self._how == "stop" else Verdict.PAUSE
