"""The stages of a job: numbers of trials, and the steps that they train.

All trials of a stage wait for each other at its end (RubberBand section 3). The results decide which trials
continue, but never how many, so the whole job can be planned before its first trial starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from thriftune.common.checks import check_whole
from thriftune.errors import SettingError
from thriftune.stopping import brackets
from thriftune.stopping.successive_halving import Hyperband, halving_stages


class Stage(NamedTuple):
    """A stage in which each of `trials` trials trains for `steps` more steps."""

    trials: int
    steps: int


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The stages of a job, one after the other.

    `begins` holds the step at which the trials of each stage start: 0 for new trials.
    """

    stages: list[Stage]
    begins: list[int]

    @classmethod
    def of(cls, stages: Iterable[tuple[int, int]]) -> JobSpec:
        """Return the job with these pairs of trials and steps.

        A stage with more trials than the one before begins with new trials.
        """
        checked: list[Stage] = []
        begins: list[int] = []
        try:
            pairs = [(trials, steps) for trials, steps in stages]
        except (TypeError, ValueError):
            raise SettingError(
                f"stages: {stages!r} must be pairs of trials and steps, such as [(64, 4)]"
            ) from None
        for trials, steps in pairs:
            check_whole("trials", trials, 1)
            check_whole("steps", steps, 1)
            are_new = not checked or trials > checked[-1].trials
            begins.append(0 if are_new else begins[-1] + checked[-1].steps)
            checked.append(Stage(trials, steps))
        if not checked:
            raise SettingError("a job needs at least one stage, such as (64, 4): 64 trials for 4 steps each")
        return cls(checked, begins)

    def __add__(self, other: JobSpec) -> JobSpec:
        """Return the job that runs `other` after this one."""
        return JobSpec(self.stages + other.stages, self.begins + other.begins)

    @property
    def total_steps(self) -> int:
        """Return the steps of all trials together."""
        return sum(stage.trials * stage.steps for stage in self.stages)


def successive_halving(n: int, r: int, R: int, eta: int = 2) -> JobSpec:
    """Return RubberBand's SHA(n, r, R, eta).

    n trials train for r steps, the best 1 / eta of them for r * eta more, and so on. The last ones train to step
    R.
    """
    _check(r=r, R=R, n=n, eta=eta)
    return _job(halving_stages(n, r, R, eta))


def hyperband(r: int, R: int, eta: int = 3) -> JobSpec:
    """Return Hyperband's brackets as one job (Li et al. 2018).

    The brackets of successive halving run one after the other.
    """
    _check(r=r, R=R, eta=eta)
    first, *others = (_job(bracket) for bracket in Hyperband(min_steps=r, eta=eta).bracket_kinds(R))
    return sum(others, first)


def asha(n: int, r: int, R: int, eta: int = 3) -> JobSpec:
    """Return the expected stages of ASHA with n trials.

    The i-th trial to reach a rung continues with probability floor(i / eta) / i; the first eta - 1 trials always
    continue. ASHA's trials do not wait for each other, so ASHA takes less time than a plan for these stages.
    """
    _check(r=r, R=R, n=n, eta=eta)
    stages, step, rung = [], 0, r
    while rung * eta <= R:  # the last rung is at most R / eta; the last stage goes from there to R
        stages.append(brackets.BracketStage(n, step, rung))
        n = max(1, round(sum(1.0 if i < eta else (i // eta) / i for i in range(1, n + 1))))
        step, rung = rung, rung * eta
    return _job([*stages, brackets.BracketStage(n, step, R)])


def _job(stages: Sequence[brackets.BracketStage]) -> JobSpec:
    return JobSpec([Stage(s.trials, s.end - s.start) for s in stages], [s.start for s in stages])


def _check(r: int, R: int, eta: int, n: int = 1) -> None:
    for name, value, minimum in (("n", n, 1), ("r", r, 1), ("R", R, 1), ("eta", eta, 2)):
        check_whole(name, value, minimum)
    if r > R:
        raise SettingError(f"r: {r} steps are more than R, {R}; give an r of at most R")
