"""How much energy did an attempt take? What was measured of its steps, and the rest of its time at the same watts.

Not all of an attempt is measured: not its start, nor what came after its last window. A trial of which nothing was
measured drew what the others of its study did, and where nothing was at all, each worker what a busy core draws.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum
from typing import NamedTuple

from thriftune.state.events import UsageMeasured
from thriftune.state.trial_record import PastAttempt, TrialRecord
from thriftune.system.energy import BUSY_CORE_WATTS

NO_METER = ("", "estimate")


class Joules(NamedTuple):
    """`estimated`: the part of them that no meter has told."""

    total: float = 0.0
    estimated: float = 0.0


def usual_watts(trials: Iterable[TrialRecord]) -> float:
    """Of a worker, by all that was measured."""
    return _watts([window for trial in trials for window in _told(trial)]) or BUSY_CORE_WATTS


def joules_of(trial: TrialRecord, stays: Sequence[PastAttempt], usual: float) -> list[Joules]:
    """Of these attempts of the trial, all workers together. `usual`: watts, where it has none of its own."""
    told = _told(trial)
    watts = _watts(told) or usual
    by_attempt: dict[int, list[UsageMeasured]] = defaultdict(list)
    for window in told:
        by_attempt[window.attempt].append(window)
    return [_joules(by_attempt.get(stay.attempt, ()), stay, watts) for stay in stays]


def _joules(told: Sequence[UsageMeasured], stay: PastAttempt, watts: float) -> Joules:
    seconds = sum(stay.workers.values()) * (stay.ended_at - stay.started_at)
    rest = watts * max(0.0, seconds - fsum(window.seconds for window in told))
    unmetered = fsum(window.joules for window in told if window.meter in NO_METER)
    return Joules(fsum(window.joules for window in told) + rest, unmetered + rest)


def _told(trial: TrialRecord) -> list[UsageMeasured]:
    """The windows in which somebody has told the joules."""
    return [window for window, _ in trial.windows if window.meter or window.joules]


def _watts(told: Sequence[UsageMeasured]) -> float:
    seconds = fsum(window.seconds for window in told)
    return fsum(window.joules for window in told) / seconds if seconds else 0.0
