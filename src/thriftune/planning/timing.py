"""What do the reports of trials tell about how long their steps take?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Literal, NamedTuple

from thriftune.planning.profile import Profile
from thriftune.state.events import Config, Ended, Reported


class ObservedAttempt(NamedTuple):
    """One attempt: when it was started, what it reported, and its end unless it was ended by force."""

    started: float
    reports: Sequence[Reported]
    ended: Ended | None


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """Of one trial, in seconds. `startup`, `checkpoint`: None where they could not be told from the steps.

    `saves`: which of the steps that were measured saved their state. `whole`: there was one report of it all.
    """

    steps: int  # that went into the mean
    seconds_per_step: float
    startup: float | None
    checkpoint: float | None
    saves: Literal["none", "some", "every"]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class TimingRow:
    """All trials with one number of workers."""

    workers: int
    trials: tuple[TrialTimes, ...]

    @property
    def steps(self) -> int:
        return sum(trial.steps for trial in self.trials)

    @property
    def seconds_per_step(self) -> float:
        """The median over the trials: one of them may have met with something else on the machine."""
        return median(trial.seconds_per_step for trial in self.trials)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What came of it. `config`: which configuration all trials had; `remarks`: sentences for a reader."""

    profile: Profile
    rows: tuple[TimingRow, ...]
    config: Config
    remarks: tuple[str, ...]


class _Mark(NamedTuple):
    """The first that was heard of a step. `saved`: a checkpoint was written since the mark before."""

    step: int
    at: float
    saved: bool


def _marks(reports: Sequence[Reported]) -> list[_Mark]:
    """A step may be reported twice, as when a function also returns its value; the second is no step."""
    marks: list[_Mark] = []
    saved = False
    for report in reports:
        saved = saved or report.saved
        if not marks or report.step > marks[-1].step:
            marks.append(_Mark(report.step, report.at, saved))
            saved = False
    return marks


def _mean(first: _Mark, last: _Mark) -> float:
    return (last.at - first.at) / (last.step - first.step)


def times(seen: ObservedAttempt) -> TrialTimes:
    """Of an attempt that began with step 1 and has reported.

    Its first step is not in the mean: it warms caches up, and when it began nobody told. What it takes longer
    than others counts as startup. A function may report every tenth step, say: it is their numbers that count.
    """
    first, *later = marks = _marks(seen.reports)
    if not later:
        return _one_report(seen, first)
    last = later[-1]
    mean = _mean(first, last)
    count = sum(mark.saved for mark in later)
    return TrialTimes(
        steps=last.step - first.step,
        seconds_per_step=mean,
        startup=startup(seen, mean),
        checkpoint=_checkpoint(marks) if 0 < count < len(later) else None,
        saves="none" if not count else "every" if count == len(later) else "some",
    )


def _one_report(seen: ObservedAttempt, only: _Mark) -> TrialTimes:
    saves: Literal["none", "every"] = "every" if only.saved else "none"
    if seen.ended is None or seen.ended.cut:
        return TrialTimes(only.step, (only.at - seen.started) / only.step, None, None, saves)
    taken = seen.ended.seconds
    before = max(0.0, seen.ended.at - seen.started - taken)
    return TrialTimes(only.step, taken / only.step, before, None, saves, whole=True)


def startup(seen: ObservedAttempt, seconds_per_step: float, resume_step: int = 0) -> float:
    """From the start of the attempt to that of its first step, which took as long as its others did: at another
    time, when `seconds_per_step` was measured, the machine may not have been as fast."""
    first, *later = _marks(seen.reports)
    steps = first.step - resume_step if first.step > resume_step else first.step
    if later:
        seconds_per_step = _mean(first, later[-1])
    return max(0.0, first.at - seen.started - steps * seconds_per_step)


def _checkpoint(marks: Sequence[_Mark]) -> float:
    """What a step with a save takes longer than one without, where there are both."""
    spans = [(after.step - before.step, after.at - before.at, after.saved) for before, after in pairwise(marks)]
    without = [(steps, taken) for steps, taken, saved in spans if not saved]
    plain_step = sum(taken for _, taken in without) / sum(steps for steps, _ in without)
    return max(0.0, fmean(taken - steps * plain_step for steps, taken, saved in spans if saved))


def summary(rows: Sequence[TimingRow], resumed: Sequence[float], config: Config) -> StepTimes:
    """`resumed`: what it took to take trials up from their checkpoints, where there were any."""
    trials = [trial for row in rows for trial in row.trials]
    seconds = {row.workers: row.seconds_per_step for row in rows}
    fresh = [trial.startup for trial in trials if trial.startup is not None]
    saves = [trial.checkpoint for trial in trials if trial.checkpoint is not None]
    profile = Profile(
        seconds,
        std=_variation(rows) * seconds[1],
        startup=median(resumed or fresh or [0.0]),
        checkpoint=median(saves or [0.0]),
    )
    return StepTimes(profile, tuple(rows), config, tuple(_remarks(trials)))


def _remarks(trials: Sequence[TrialTimes]) -> Iterator[str]:
    """What a reader of the figures has to know."""
    if any(trial.whole for trial in trials):
        yield "the function reports only once: what was measured is its whole training"
    if any(trial.startup is None for trial in trials):
        yield "only one report came in a trial's time: its step has the start in it; give more --seconds"
    if all(trial.checkpoint is None for trial in trials):  # what one trial could not tell, another may have told
        if any(trial.saves == "every" for trial in trials):
            yield "every step saves its state: what that takes is part of the step, and checkpoint is 0"
        else:
            yield "no step that was measured saved its state: what that takes is not known, and checkpoint is 0"


def _variation(rows: Sequence[TimingRow]) -> float:
    """The standard deviation of trials' means as a part of them, over all numbers of workers; 0: none is known."""
    squares, freedom = 0.0, 0
    for row in rows:
        means = [trial.seconds_per_step for trial in row.trials]
        middle = fmean(means)
        squares += sum((each / middle - 1.0) ** 2 for each in means)
        freedom += len(means) - 1
    return math.sqrt(squares / freedom) if freedom else 0.0
