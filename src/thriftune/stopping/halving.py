"""Which trials train for how long? Successive halving and Hyperband, synchronous, as RubberBand specifies them."""

from __future__ import annotations

from collections.abc import Sequence

from thriftune.common.checks import check_whole
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord
from thriftune.stopping.brackets import Brackets, Stage, crosses
from thriftune.stopping.protocol import Verdict


def stages(n: int, r: int, R: int, eta: int) -> list[Stage]:
    """RubberBand's SHA(n, r, R, eta): n trials train for r steps, the best n / eta for r * eta more, and so on.

    The last ones go on to step R.
    """
    found: list[Stage] = []
    start, work = 0, r
    while n // eta >= 1 and start + work < R:
        found.append(Stage(n, start, start + work))
        start, work, n = start + work, work * eta, n // eta
    return [*found, Stage(n, start, R)]


class SuccessiveHalving:
    """`n` trials train for `min_steps`; the best 1 / `eta` of them go on, for `eta` times as many steps, and so on
    to the last step. They wait for each other, set aside with their checkpoints; then the next `n` begin.

    RubberBand's SHA(n, r, R, eta), r being `min_steps` and R the study's `max_steps`.
    """

    name = "halving"
    needs = ("max_steps",)

    def __init__(self, n: int = 27, *, min_steps: int = 1, eta: int = 3) -> None:
        check_whole(f"{self.name}: n", n, 1)
        check_whole(f"{self.name}: min_steps", min_steps, 1)
        check_whole(f"{self.name}: eta", eta, 2)
        self.options = {"n": n, "min_steps": min_steps, "eta": eta}
        self._n, self._min_steps, self._eta = n, min_steps, eta
        self._brackets: Brackets | None = None

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        stages = self._of(history).stages_of(trial.id)
        return Verdict.PAUSE if crosses(trial, stages) else Verdict.GO_ON

    def promote(self, history: History, more: bool) -> int | None:
        return self._of(history).promotable(more)

    def kinds(self, max_steps: int) -> Sequence[Sequence[Stage]]:
        """The brackets that take turns."""
        return [stages(self._n, self._min_steps, max_steps, self._eta)]

    def _of(self, history: History) -> Brackets:
        if self._brackets is None or not self._brackets.covers(history):
            assert history.max_steps is not None, self.needs
            self._brackets = Brackets(history, self.kinds(history.max_steps))
        return self._brackets


class Hyperband(SuccessiveHalving):
    """Successive halving, by turns of many trials with few first steps and of few that train to the end.

    So it matters less how much early values tell (Li et al. 2018).
    """

    name = "hyperband"

    def __init__(self, *, min_steps: int = 1, eta: int = 3) -> None:
        super().__init__(min_steps=min_steps, eta=eta)
        self.options = {"min_steps": min_steps, "eta": eta}

    def kinds(self, max_steps: int) -> Sequence[Sequence[Stage]]:
        most = 0
        while self._min_steps * self._eta ** (most + 1) <= max_steps:
            most += 1
        found = []
        for s in reversed(range(most + 1)):
            n = -(-(most + 1) * self._eta**s // (s + 1))
            found.append(stages(n, max(1, max_steps // self._eta**s), max_steps, self._eta))
        return found
