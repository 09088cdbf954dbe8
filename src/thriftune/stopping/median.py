"""The median rule of SageMaker AMT, section 5.2."""

from __future__ import annotations

import math
from bisect import insort

from thriftune.common.checks import check_fraction, check_whole
from thriftune.state.history import History
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping.protocol import Verdict

_GO_ON = Verdict.GO_ON  # most reports need it, and Python 3.11 looks enum members up slowly


class Median:
    """Stop a trial whose value is worse than the median of the others' values at the same step.

    - `share`: judge no step before this share of the median number of steps of completed trials. Until a trial has
      completed, before this share of `max_steps`; without `max_steps`, judge nothing.
    - `fewest`: judge a step only when this many other trials have reached it.
    """

    def __init__(self, *, share: float = 0.1, fewest: int = 4) -> None:
        check_fraction("median: share", share)
        check_whole("median: fewest", fewest, 1)
        self.options = {"share": share, "fewest": fewest}
        self._share = share
        self._fewest = fewest
        self._history: History | None = None
        self._rewrites = 0  # history.rewritten_values when the history was read
        self._values: dict[int, list[float]] = {}  # by step: the trials' values, ascending; lower is better
        self._lengths: list[int] = []  # number of steps of each completed trial, ascending
        self._ended = 0  # number of ended trials that were read
        self._first = math.inf  # the first step that is judged

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        if history is not self._history or history.rewritten_values != self._rewrites:
            self._read(history, without=trial.id)
        report = trial.reports[-1]
        value = report.value
        if value is None:
            return _GO_ON
        mine = _minimised(value, history.maximize)
        others = self._values.setdefault(report.step, [])
        if self._ended < len(history.ended):
            self._read_ended(history)
        worse = len(others) >= self._fewest and report.step >= self._first and mine > _median(others)
        insort(others, mine)
        return Verdict.STOP if worse else _GO_ON

    def promote(self, history: History, more: bool) -> int | None:  # noqa: ARG002 (the protocol's)
        return None

    def _read_ended(self, history: History) -> None:
        for trial in history.ended[self._ended :]:
            if trial.state is State.COMPLETED and trial.reports:
                insort(self._lengths, trial.reports[-1].step)
        self._ended = len(history.ended)
        usual = _median(self._lengths) if self._lengths else history.max_steps
        self._first = math.inf if usual is None else self._share * usual

    def _read(self, history: History, without: int) -> None:
        self._history, self._values, self._lengths, self._ended = history, {}, [], 0
        self._rewrites = history.rewritten_values
        for trial in history.trials:
            last = trial.reports[-1] if trial.reports else None
            for report in trial.reports:
                value = report.value
                if value is not None and not (trial.id == without and report is last):
                    self._values.setdefault(report.step, []).append(_minimised(value, history.maximize))
        for values in self._values.values():
            values.sort()
        self._read_ended(history)


def _minimised(value: float, maximize: bool) -> float:
    """Return the value with its sign set so that lower is better; NaN becomes infinity."""
    return math.inf if math.isnan(value) else -value if maximize else value


def _median(ascending: list[float] | list[int]) -> float:
    half = len(ascending) // 2
    return ascending[half] if len(ascending) % 2 else 0.5 * ascending[half - 1] + 0.5 * ascending[half]
