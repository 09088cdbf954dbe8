"""EarlyCurve (SpotTune III-C): predict where each trial's curve ends, and finish only the best few."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

from thriftune.common.checks import check_fraction, check_whole
from thriftune.errors import SettingError
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord
from thriftune.stopping.brackets import ALL, Brackets, BracketStage, reaches_stage_end
from thriftune.stopping.curve_fits import Prediction, plateau, predict
from thriftune.stopping.protocol import Verdict


class EarlyCurve:
    """Train every trial for `theta` of its steps, then finish the `top` that are predicted to end best.

    A trial that reaches a plateau earlier ends there and counts as finished: it competes for the `top` places with
    the value it has, and can be the best.

    `theta` and `top` are SpotTune's theta and mcnt. A study needs `max_steps` and `trials`.
    """

    needs = ("max_steps", "trials")

    def __init__(self, theta: float = 0.7, top: int = 3) -> None:
        check_fraction("early_curve: theta", theta)
        check_whole("early_curve: top", top, 1)
        self.options = {"theta": theta, "top": top}
        self._theta = theta
        self._top = top
        self._brackets: Brackets | None = None

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        stages = self._of(history).stages_of(trial.id)
        if reaches_stage_end(trial, stages):
            return Verdict.PAUSE
        if len(stages) > 1 and trial.step < stages[0].end and plateau(*_curve(trial)):
            return Verdict.CONVERGED
        return Verdict.GO_ON

    def promote(self, history: History, more: bool) -> int | None:
        return self._of(history).trial_to_promote(more)

    def predict(self, steps: Sequence[int], values: Sequence[float], *, at: int) -> Prediction:
        """Return the value expected at the later step `at`, given the values up to now."""
        if len(steps) != len(values):
            raise SettingError(f"predict: got {len(steps)} steps but {len(values)} values; give one value a step")
        return predict(steps, values, at)

    def _of(self, history: History) -> Brackets:
        if self._brackets is None or not self._brackets.covers(history):
            last = history.max_steps
            assert last is not None, self.needs
            early = math.ceil(self._theta * last)
            stages = (
                [BracketStage(ALL, 0, early), BracketStage(self._top, early, last)]
                if early < last
                else [BracketStage(ALL, 0, last)]
            )
            self._brackets = Brackets(history, [stages], partial(_predicted, at=last))
        return self._brackets


def _predicted(trial: TrialRecord, end: int, history: History, *, at: int) -> float:
    """Return the value at step `at`, predicted from the reports up to step `end`; lower is better.

    A trial that finished before `end` has its own value. Return infinity if no prediction is possible.
    """
    if trial.finished and trial.value is not None and trial.step < end:  # it converged, so this is its last value
        return -trial.value if history.maximize else trial.value
    steps, values = _curve(trial)
    seen = bisect_left(steps, end) + 1
    mean = predict(steps[:seen], values[:seen], at).mean
    if math.isnan(mean):
        return math.inf
    return -mean if history.maximize else mean


def _curve(trial: TrialRecord) -> tuple[list[int], list[float]]:
    """Return the steps and values of the reports that have a value."""
    points = [(report.step, report.value) for report in trial.reports if report.value is not None]
    return [step for step, _ in points], [value for _, value in points]
