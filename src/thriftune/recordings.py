"""What did trials do, that can be done again in a moment? Learning curves of a study, to be replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from thriftune.engines.simulated import Curve
from thriftune.errors import SettingError
from thriftune.events import Config
from thriftune.objectives import Constraint, Objective
from thriftune.result import Result
from thriftune.search import Past, Searcher
from thriftune.space import Space
from thriftune.trial import State, TrialRecord


@dataclass(frozen=True)
class Recording:
    """Configurations of a space, and what a trial of each does."""

    space: Space
    objectives: tuple[Objective, ...]
    rows: Sequence[tuple[Config, Curve]]
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        if not any(curve.steps for _, curve in self.rows):
            raise SettingError("there is no learning curve to replay: none has a value")
        for config, curve in self.rows:
            if wrong := [each for each in curve.seconds if not each >= 0.0]:
                raise SettingError(f"a step of {dict(config)} takes {wrong[0]} seconds; it cannot be below zero")

    def player(self) -> Callable[[Config], Curve]:
        """What a trial of a configuration does. Of several records of the same one, each in turn."""
        times: Counter[tuple[Any, ...]] = Counter()

        def play(config: Config) -> Curve:
            key = self.space.key(config)
            curves = self._by_key[key]
            times[key] += 1
            return curves[(times[key] - 1) % len(curves)]

        return play

    def times(self, config: Config) -> int:
        """How often it is there."""
        return len(self._by_key[self.space.key(config)])

    @property
    def max_steps(self) -> int:
        return max(curve.steps[-1] for _, curve in self.rows if curve.steps)

    @cached_property
    def _by_key(self) -> dict[tuple[Any, ...], list[Curve]]:
        found: dict[tuple[Any, ...], list[Curve]] = {}
        for config, curve in self.rows:
            found.setdefault(self.space.key(config), []).append(curve)
        return found


def of_result(result: Result) -> tuple[Recording, int]:
    """The trials of a study that came to their end, well or badly; and how many did not, and are left out."""
    rows = [
        (trial.config, _curve(trial))
        for trial in result.history.trials
        if trial.state in (State.COMPLETED, State.FAILED) and trial.reports
    ]
    left_out = len(result.history.trials) - len(rows)
    if not rows:
        raise SettingError(
            f"study {result.name!r} has no trial that came to its end, so there is nothing to replay"
        )
    spec = result.spec
    return Recording(spec.space, spec.objectives, rows, spec.constraints), left_out


def _curve(trial: TrialRecord) -> Curve:
    """With the times as they were; a report that an attempt began with has taken as long as the middle one."""
    reports = trial.reports
    at = np.array([report.at for report in reports])
    seconds = np.diff(at, prepend=np.nan)
    other_attempt = np.array([True] + [a.attempt != b.attempt for a, b in pairwise(reports)])
    seconds[other_attempt] = np.nan
    if trial.created_at <= at[0] and trial.attempts == 1 and trial.started_at is not None:
        seconds[0] = max(0.0, at[0] - trial.started_at)
    usual = float(np.nanmedian(seconds)) if np.isfinite(seconds).any() else max(trial.seconds, 1e-9)
    seconds = np.where(np.isfinite(seconds) & (seconds >= 0.0), seconds, usual)
    error = trial.error if trial.state is State.FAILED else None
    return Curve([r.step for r in reports], [r.metrics for r in reports], seconds.tolist(), error)


class InOrder:
    """Suggests the recorded configurations in the order of the record."""

    def __init__(self, recording: Recording) -> None:
        self._rows = recording.rows

    def suggest(self, past: Past, rng: np.random.Generator) -> Config | None:  # noqa: ARG002 (the protocol's)
        number = len(past.trials)
        return self._rows[number][0] if number < len(self._rows) else None


class Nearest:
    """Suggests the recorded configuration that is nearest to what a searcher suggests, of those not yet tried."""

    def __init__(self, recording: Recording, searcher: Searcher) -> None:
        self._recording = recording
        self._rows = recording.rows
        self._points = np.array([recording.space.encode(config) for config, _ in recording.rows])
        self._searcher = searcher

    def suggest(self, past: Past, rng: np.random.Generator) -> Config | None:
        config = self._searcher.suggest(past, rng)
        if config is None:
            return None
        distances = np.abs(self._points - past.space.encode(config)).sum(axis=1)
        near = (self._rows[i][0] for i in np.argsort(distances, kind="stable"))
        return next((config for config in near if past.times(config) < self._recording.times(config)), None)
