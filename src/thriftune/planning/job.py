"""What is there to train? Stages: so many trials for so many steps each, and then only the best of them go on.

All trials of a stage wait for each other at its end (RubberBand section 3). What is learnt of the trials decides
who goes on, never how many: so all of it can be planned before the first one starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from thriftune.common.checks import check_whole
from thriftune.errors import SettingError
from thriftune.stopping import brackets
from thriftune.stopping.halving import Hyperband, halving_stages


class Stage(NamedTuple):
    """So many trials, each for so many steps more."""

    trials: int
    steps: int


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Stages, one after the other. `begins`: the step at which a stage's trials take up, 0 for new ones."""

    stages: list[Stage]
    begins: list[int]

    @classmethod
    def of(cls, stages: Iterable[tuple[int, int]]) -> JobSpec:
        """By hand, from pairs of trials and steps; where there are more trials than before, new ones begin."""
        found: list[Stage] = []
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
            more = not found or trials > found[-1].trials
            begins.append(0 if more else begins[-1] + found[-1].steps)
            found.append(Stage(trials, steps))
        if not found:
            raise SettingError("a job needs at least one stage, such as (64, 4): 64 trials for 4 steps each")
        return cls(found, begins)

    def __add__(self, other: JobSpec) -> JobSpec:
        """This job, and then the other."""
        return JobSpec(self.stages + other.stages, self.begins + other.begins)

    @property
    def total_steps(self) -> int:
        """Of all trials together."""
        return sum(stage.trials * stage.steps for stage in self.stages)


def successive_halving(n: int, r: int, R: int, eta: int = 2) -> JobSpec:
    """RubberBand's SHA(n, r, R, eta): n trials for r steps, the best 1 / eta of them for r * eta more, and so on;
    the last ones go on to step R."""
    _check(r=r, R=R, n=n, eta=eta)
    return _job(halving_stages(n, r, R, eta))


def hyperband(r: int, R: int, eta: int = 3) -> JobSpec:
    """Brackets of successive halving, one after the other, as one job (Li et al. 2018)."""
    _check(r=r, R=R, eta=eta)
    first, *others = (_job(kind) for kind in Hyperband(min_steps=r, eta=eta).bracket_kinds(R))
    return sum(others, first)


def asha(n: int, r: int, R: int, eta: int = 3) -> JobSpec:
    """What is to be expected of ASHA with n trials: the i-th to come to a rung goes on with probability
    floor(i / eta) / i, and the first eta - 1 do. Its trials do
    not wait for each other, so that a plan of this is longer than it takes."""
    _check(r=r, R=R, n=n, eta=eta)
    found, step, rung = [], 0, r
    while rung * eta <= R:  # above the last rung there are fewer than eta times as many steps left
        found.append(brackets.BracketStage(n, step, rung))
        n = max(1, round(sum(1.0 if i < eta else (i // eta) / i for i in range(1, n + 1))))
        step, rung = rung, rung * eta
    return _job([*found, brackets.BracketStage(n, step, R)])


def _job(found: Sequence[brackets.BracketStage]) -> JobSpec:
    return JobSpec([Stage(s.trials, s.end - s.start) for s in found], [s.start for s in found])


def _check(r: int, R: int, eta: int, n: int = 1) -> None:
    for name, value, least in (("n", n, 1), ("r", r, 1), ("R", R, 1), ("eta", eta, 2)):
        check_whole(name, value, least)
    if r > R:
        raise SettingError(f"r: {r} steps are more than R, {R}")
