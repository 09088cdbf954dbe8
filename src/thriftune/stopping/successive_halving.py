"""Successive halving and Hyperband, synchronous, as RubberBand specifies them."""

from __future__ import annotations

from collections.abc import Sequence

from thriftune.common.checks import check_whole
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord
from thriftune.stopping.brackets import Brackets, BracketStage, reaches_stage_end
from thriftune.stopping.protocol import Verdict


def halving_stages(n: int, r: int, R: int, eta: int) -> list[BracketStage]:
    """Return the stages of RubberBand's SHA(n, r, R, eta).

    n trials train for r steps, the best n / eta of them for r * eta more, and so on. The last ones train to step
    R.
    """
    done: list[BracketStage] = []
    start, steps = 0, r
    while n // eta >= 1 and start + steps < R:
        done.append(BracketStage(n, start, start + steps))
        start, steps, n = start + steps, steps * eta, n // eta
    return [*done, BracketStage(n, start, R)]


class SuccessiveHalving:
    """Train `n` trials for `min_steps`; the best 1 / `eta` go on for `eta` times as many steps, and so on.

    A trial is paused at the end of a stage until all have reached it. The last trials train to `max_steps`; then
    the next `n` begin. This is RubberBand's SHA(n, r, R, eta), with r = `min_steps` and R = the study's
    `max_steps`.
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
        return Verdict.PAUSE if reaches_stage_end(trial, stages) else Verdict.GO_ON

    def promote(self, history: History, more: bool) -> int | None:
        return self._of(history).trial_to_promote(more)

    def bracket_kinds(self, max_steps: int) -> Sequence[Sequence[BracketStage]]:
        """Return a list of stages for each kind of bracket.

        The study's first bracket is of the first kind, the next one of the second, and so on. After the last kind
        comes the first one again.
        """
        return [halving_stages(self._n, self._min_steps, max_steps, self._eta)]

    def _of(self, history: History) -> Brackets:
        if self._brackets is None or not self._brackets.covers(history):
            assert history.max_steps is not None, self.needs
            self._brackets = Brackets(history, self.bracket_kinds(history.max_steps))
        return self._brackets


class Hyperband(SuccessiveHalving):
    """Successive halving whose brackets alternate between many short first stages and few long ones.

    So a study depends less on how well early values predict late ones (Li et al. 2018).
    """

    name = "hyperband"

    def __init__(self, *, min_steps: int = 1, eta: int = 3) -> None:
        super().__init__(min_steps=min_steps, eta=eta)
        self.options = {"min_steps": min_steps, "eta": eta}

    def bracket_kinds(self, max_steps: int) -> Sequence[Sequence[BracketStage]]:
        last_bracket = 0
        while self._min_steps * self._eta ** (last_bracket + 1) <= max_steps:
            last_bracket += 1
        kinds = []
        for s in reversed(range(last_bracket + 1)):
            n = -(-(last_bracket + 1) * self._eta**s // (s + 1))
            kinds.append(halving_stages(n, max(1, max_steps // self._eta**s), max_steps, self._eta))
        return kinds
