"""The measurement of step, start and save times from the reports of trials."""

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
    """One attempt: its start, its reports, and its end.

    The end is None if the attempt was killed.
    """

    started: float
    reports: Sequence[Reported]
    ended: Ended | None


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """The times of one trial, in seconds.

    - `steps`: the steps that the mean is taken over.
    - `startup`, `checkpoint`: None where they could not be separated from the steps.
    - `saves`: which of the measured steps saved their state.
    - `whole`: the trial made a single report, for its whole training.
    """

    steps: int
    seconds_per_step: float
    startup: float | None
    checkpoint: float | None
    saves: Literal["none", "some", "every"]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class TimingRow:
    """The times of all trials with one number of workers."""

    workers: int
    trials: tuple[TrialTimes, ...]

    @property
    def steps(self) -> int:
        return sum(trial.steps for trial in self.trials)

    @property
    def seconds_per_step(self) -> float:
        """Return the median of the trials' seconds per step.

        Unlike the mean, it changes little if other programs slowed one trial down.
        """
        return median(trial.seconds_per_step for trial in self.trials)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The result of a measurement.

    - `config`: the configuration of all trials.
    - `remarks`: sentences for the user about the limits of the measurement.
    """

    profile: Profile
    rows: tuple[TimingRow, ...]
    config: Config
    remarks: tuple[str, ...]


class _FirstReport(NamedTuple):
    """The first report of a step.

    `saved` tells whether a checkpoint was written since the previous step's first report.
    """

    step: int
    at: float
    saved: bool


def _first_reports(reports: Sequence[Reported]) -> list[_FirstReport]:
    """Return the first report of each step.

    The last step has two reports if the training function reports it and also returns its value.
    """
    firsts: list[_FirstReport] = []
    saved = False
    for report in reports:
        saved = saved or report.saved
        if not firsts or report.step > firsts[-1].step:
            firsts.append(_FirstReport(report.step, report.at, saved))
            saved = False
    return firsts


def _mean_step_seconds(first: _FirstReport, last: _FirstReport) -> float:
    return (last.at - first.at) / (last.step - first.step)


def time_trial(attempt: ObservedAttempt) -> TrialTimes:
    """Return the times of a trial whose attempt began with step 1 and has reported.

    The mean leaves out the first step, which warms up caches and whose start is unknown. The time that the first
    step takes longer than the others counts as startup. A function may report every tenth step only, so steps are
    counted by their numbers.
    """
    first, *later = reports = _first_reports(attempt.reports)
    if not later:
        return _time_single_report(attempt, first)
    last = later[-1]
    mean = _mean_step_seconds(first, last)
    saves = sum(report.saved for report in later)
    return TrialTimes(
        steps=last.step - first.step,
        seconds_per_step=mean,
        startup=startup_seconds(attempt, mean),
        checkpoint=_checkpoint_seconds(reports) if 0 < saves < len(later) else None,
        saves="none" if not saves else "every" if saves == len(later) else "some",
    )


def _time_single_report(attempt: ObservedAttempt, report: _FirstReport) -> TrialTimes:
    saves: Literal["none", "every"] = "every" if report.saved else "none"
    if attempt.ended is None or attempt.ended.cut:
        return TrialTimes(report.step, (report.at - attempt.started) / report.step, None, None, saves)
    seconds = attempt.ended.seconds
    startup = max(0.0, attempt.ended.at - attempt.started - seconds)
    return TrialTimes(report.step, seconds / report.step, startup, None, saves, whole=True)


def startup_seconds(attempt: ObservedAttempt, seconds_per_step: float, resume_step: int = 0) -> float:
    """Return the seconds from the start of the attempt to the start of its first step.

    `resume_step` is the last step of the checkpoint that the attempt resumed from, or 0 for a new trial.

    The first step is assumed to take as long as the attempt's other steps, or `seconds_per_step` if there are
    none. The attempt's own steps are preferred, because the machine's speed may have changed since the other
    measurement.
    """
    first, *later = _first_reports(attempt.reports)
    steps = first.step - resume_step if first.step > resume_step else first.step
    if later:
        seconds_per_step = _mean_step_seconds(first, later[-1])
    return max(0.0, first.at - attempt.started - steps * seconds_per_step)


def _checkpoint_seconds(reports: Sequence[_FirstReport]) -> float:
    """Return how much longer a step with a save takes than one without.

    The trial must have both.
    """
    spans = [(after.step - before.step, after.at - before.at, after.saved) for before, after in pairwise(reports)]
    unsaved = [(steps, seconds) for steps, seconds, saved in spans if not saved]
    plain_step = sum(seconds for _, seconds in unsaved) / sum(steps for steps, _ in unsaved)
    return max(0.0, fmean(seconds - steps * plain_step for steps, seconds, saved in spans if saved))


def summarize_trials(rows: Sequence[TimingRow], resumed: Sequence[float], config: Config) -> StepTimes:
    """Return the profile that these rows give, with remarks on its limits.

    `resumed` holds the measured seconds to resume trials from their checkpoints, if any were resumed.
    """
    trials = [trial for row in rows for trial in row.trials]
    seconds = {row.workers: row.seconds_per_step for row in rows}
    startups = [trial.startup for trial in trials if trial.startup is not None]
    saves = [trial.checkpoint for trial in trials if trial.checkpoint is not None]
    profile = Profile(
        seconds,
        std=_variation(rows) * seconds[1],
        startup=median(resumed or startups or [0.0]),
        checkpoint=median(saves or [0.0]),
    )
    return StepTimes(profile, tuple(rows), config, tuple(_remarks(trials)))


def _remarks(trials: Sequence[TrialTimes]) -> Iterator[str]:
    if any(trial.whole for trial in trials):
        yield "the function reports only once: its whole training was measured as one step"
    if any(trial.startup is None for trial in trials):
        yield "a trial had time for only one report: its step includes the start; give more --seconds"
    if all(trial.checkpoint is None for trial in trials):  # otherwise at least one trial has measured a save
        if any(trial.saves == "every" for trial in trials):
            yield "every step saves its state: the time to save is part of the step, and checkpoint is 0"
        else:
            yield "no measured step saved its state: the time to save is unknown, and checkpoint is 0"


def _variation(rows: Sequence[TimingRow]) -> float:
    """Return the relative standard deviation between trials.

    The deviation is pooled over the numbers of workers. It is 0 if no number of workers has several trials.
    """
    squares, degrees_of_freedom = 0.0, 0
    for row in rows:
        seconds = [trial.seconds_per_step for trial in row.trials]
        mean = fmean(seconds)
        squares += sum((each / mean - 1.0) ** 2 for each in seconds)
        degrees_of_freedom += len(seconds) - 1
    return math.sqrt(squares / degrees_of_freedom) if degrees_of_freedom else 0.0
