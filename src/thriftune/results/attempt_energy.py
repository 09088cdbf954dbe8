"""Compute how much energy a trial's attempts took.

Usage windows do not cover all of an attempt: they miss its start and what came after its last window. This time
counts with the watts of the trial's windows. A trial without windows counts with the watts of the study's other
trials. In a study without any windows, each worker counts as a busy core.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum
from typing import NamedTuple

from thriftune.state.events import UsageMeasured
from thriftune.state.trial_record import PastAttempt, TrialRecord
from thriftune.system.energy import BUSY_CORE_WATTS, NO_METER


class Joules(NamedTuple):
    """An amount of energy; `estimated` is the part that no meter has measured."""

    total: float = 0.0
    estimated: float = 0.0


def usual_watts(trials: Iterable[TrialRecord]) -> float:
    """Return the mean watts of a worker over all windows of the study."""
    return _mean_watts([window for trial in trials for window in _with_joules(trial)]) or BUSY_CORE_WATTS


def joules_of(trial: TrialRecord, attempts: Sequence[PastAttempt], usual: float) -> list[Joules]:
    """Return the energy of each attempt, all its workers together. `usual`: watts of a trial without windows."""
    windows = _with_joules(trial)
    watts = _mean_watts(windows) or usual
    by_attempt: dict[int, list[UsageMeasured]] = defaultdict(list)
    for window in windows:
        by_attempt[window.attempt].append(window)
    return [_joules(by_attempt.get(attempt.attempt, ()), attempt, watts) for attempt in attempts]


def _joules(windows: Sequence[UsageMeasured], attempt: PastAttempt, watts: float) -> Joules:
    seconds = sum(attempt.workers.values()) * (attempt.ended_at - attempt.started_at)
    rest = watts * max(0.0, seconds - fsum(window.seconds for window in windows))
    unmetered = fsum(window.joules for window in windows if window.meter in NO_METER)
    return Joules(fsum(window.joules for window in windows) + rest, unmetered + rest)


def _with_joules(trial: TrialRecord) -> list[UsageMeasured]:
    """Return the windows with joules: logs of old versions have windows without."""
    return [window for window, _ in trial.windows if window.meter or window.joules]


def _mean_watts(windows: Sequence[UsageMeasured]) -> float:
    seconds = fsum(window.seconds for window in windows)
    return fsum(window.joules for window in windows) / seconds if seconds else 0.0
