"""Which trials will have been the best? EarlyCurve (SpotTune III-C) extrapolates each, and finishes a few."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

from thriftune.common.checks import check_share, check_whole
from thriftune.errors import SettingError
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord
from thriftune.stopping.brackets import ALL, Brackets, Stage, crosses
from thriftune.stopping.curve_fits import Prediction, plateau, predict
from thriftune.stopping.protocol import Verdict


class EarlyCurve:
    """Train every trial for `theta` of its steps, then finish the `top` that are predicted to end best.

    A trial that reaches a plateau before that ends there and counts as finished: it keeps its value, competes for
    the `top` places with it, and can be the best.

    SpotTune's theta and mcnt. A study needs `max_steps`, and a number of `trials` after which there are no more.
    """

    needs = ("max_steps", "trials")

    def __init__(self, theta: float = 0.7, top: int = 3) -> None:
        check_share("early_curve: theta", theta)
        check_whole("early_curve: top", top, 1)
        self.options = {"theta": theta, "top": top}
        self._theta = theta
        self._top = top
        self._brackets: Brackets | None = None

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        stages = self._of(history).stages_of(trial.id)
        if crosses(trial, stages):
            return Verdict.PAUSE
        if len(stages) > 1 and trial.step < stages[0].end and plateau(*_curve(trial)):
            return Verdict.CONVERGED
        return Verdict.GO_ON

    def promote(self, history: History, more: bool) -> int | None:
        return self._of(history).promotable(more)

    def predict(self, steps: Sequence[int], values: Sequence[float], *, at: int) -> Prediction:
        """The value to be expected at a later step, from those so far."""
        if len(steps) != len(values):
            raise SettingError(f"predict: there are {len(steps)} steps, but {len(values)} values")
        return predict(steps, values, at)

    def _of(self, history: History) -> Brackets:
        if self._brackets is None or not self._brackets.covers(history):
            last = history.max_steps
            assert last is not None, self.needs
            early = math.ceil(self._theta * last)
            stages = (
                [Stage(ALL, 0, early), Stage(self._top, early, last)] if early < last else [Stage(ALL, 0, last)]
            )
            self._brackets = Brackets(history, [stages], partial(_expected, at=last))
        return self._brackets


def _expected(trial: TrialRecord, end: int, history: History, *, at: int) -> float:
    """Return the value that is predicted for step `at` from those up to the end of the stage; lower is better."""
    if trial.finished and trial.value is not None and trial.step < end:  # it converged: that is its last value
        return -trial.value if history.maximize else trial.value
    steps, values = _curve(trial)
    seen = bisect_left(steps, end) + 1
    mean = predict(steps[:seen], values[:seen], at).mean
    if math.isnan(mean):
        return math.inf
    return -mean if history.maximize else mean


def _curve(trial: TrialRecord) -> tuple[list[int], list[float]]:
    told = [(report.step, report.value) for report in trial.reports if report.value is not None]
    return [step for step, _ in told], [value for _, value in told]
