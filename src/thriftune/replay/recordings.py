"""Recordings: the learning curves of a study, stored in a file for replay.

A recording is stored as one npz file with these arrays. Values and seconds have seven digits (float32).

- `values` (metrics, trials, reports): the value of each metric.
- `told` (metrics, trials, reports): whether the metric was reported.
- `steps`, `seconds` (trials, reports): the step of each report and the seconds since the one before. Step 0 marks
  the end of a trial's reports.
- `thriftune_recording`: a JSON text with the space, the objectives and the configurations.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from thriftune.common.formatting import plural
from thriftune.errors import SettingError, SpaceError
from thriftune.replay.simulated_engine import Curve
from thriftune.search.protocol import Past, Searcher
from thriftune.space.objectives import (
    Constraint,
    Objective,
    needed_metrics,
    objectives_from_json,
    objectives_to_json,
    parse_constraints,
)
from thriftune.space.space import Space
from thriftune.state.events import Config
from thriftune.state.trial_record import State, TrialRecord
from thriftune.study.result import Result

_STEADY_QUANTILE = 0.1
"""Low enough to leave out disturbed steps, high enough not to rest on a single one."""

_SHORTEST_SECONDS = 1e-9
"""The least time of a step that is taken from the time of its trial: above zero, so that steps take time."""


@dataclass(frozen=True)
class Recording:
    """Configurations of a space, each with the learning curve of its trial.

    `seconds_by_cores`: the measured seconds of a step by number of cores; empty if they were not measured.
    """

    space: Space
    objectives: tuple[Objective, ...]
    rows: Sequence[tuple[Config, Curve]]
    constraints: tuple[Constraint, ...] = ()
    seconds_by_cores: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not any(curve.steps for _, curve in self.rows):
            raise SettingError("no trial reported a value, so no learning curve can be replayed")
        for config, curve in self.rows:
            if invalid := [seconds for seconds in curve.seconds if not seconds >= 0.0]:
                raise SettingError(f"a step of {dict(config)} takes {invalid[0]} seconds; it must be 0 or more")

    def player(self) -> Callable[[Config], Curve]:
        """Return a function that returns the curve of a configuration; if it has several, each in turn."""
        plays: Counter[tuple[Any, ...]] = Counter()  # by configuration

        def play(config: Config) -> Curve:
            key = self.space.key(config)
            curves = self._curves[key]
            plays[key] += 1
            return curves[(plays[key] - 1) % len(curves)]

        return play

    def times(self, config: Config) -> int:
        """Return how many trials of the configuration were recorded."""
        return len(self._curves[self.space.key(config)])

    @property
    def max_steps(self) -> int:
        return max(curve.steps[-1] for _, curve in self.rows if curve.steps)

    @cached_property
    def _curves(self) -> dict[tuple[Any, ...], list[Curve]]:
        """The curves of each configuration, by its key in the space."""
        curves: dict[tuple[Any, ...], list[Curve]] = {}
        for config, curve in self.rows:
            curves.setdefault(self.space.key(config), []).append(curve)
        return curves


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many trials of a study a recording leaves out, by reason."""

    unfinished: int = 0  # neither completed nor failed
    failed: int = 0  # failed before their first report
    without_report: int = 0  # completed without a report

    @property
    def total(self) -> int:
        return self.unfinished + self.failed + self.without_report

    def sentences(self) -> list[str]:
        """Return one sentence for each reason that applies."""
        reasons = (
            (self.unfinished, "did not finish"),
            (self.failed, "failed before {} first report"),
            (self.without_report, "completed without a report"),
        )
        return [
            f"{plural(count, 'trial')} {reason.format('its' if count == 1 else 'their')} "
            f"and {'is' if count == 1 else 'are'} left out"
            for count, reason in reasons
            if count
        ]


def recording_from_result(result: Result) -> tuple[Recording, LeftOut]:
    """Return a recording of the trials that completed or failed after a report, and the number of the others."""
    ended = [trial for trial in result.history.trials if trial.state in (State.COMPLETED, State.FAILED)]
    rows = [(trial.config, _curve(trial)) for trial in ended if trial.reports]
    silent = Counter(trial.state for trial in ended if not trial.reports)
    left_out = LeftOut(
        unfinished=len(result.history.trials) - len(ended),
        failed=silent[State.FAILED],
        without_report=silent[State.COMPLETED],
    )
    if not rows:
        raise SettingError(f"study {result.name!r} has no completed or failed trial, so it has nothing to replay")
    spec = result.spec
    return Recording(spec.space, spec.objectives, rows, spec.constraints), left_out


def _curve(trial: TrialRecord) -> Curve:
    """Return the curve of a trial; the first report of each attempt is given the median time between reports."""
    reports = trial.reports
    times = np.array([report.at for report in reports])
    seconds = np.diff(times, prepend=np.nan)
    begins_attempt = np.array([True] + [a.attempt != b.attempt for a, b in pairwise(reports)])
    seconds[begins_attempt] = np.nan
    if trial.created_at <= times[0] and trial.attempts == 1 and trial.started_at is not None:
        seconds[0] = max(0.0, times[0] - trial.started_at)
    median = float(np.nanmedian(seconds)) if np.isfinite(seconds).any() else max(trial.seconds, _SHORTEST_SECONDS)
    seconds = np.where(np.isfinite(seconds) & (seconds >= 0.0), seconds, median)
    error = trial.error if trial.state is State.FAILED else None
    return Curve([r.step for r in reports], [r.metrics for r in reports], seconds.tolist(), error)


def with_steady_steps(recording: Recording) -> Recording:
    """Return the recording with the same time for each step of a trial: the 10% quantile of its recorded times.

    Disturbances only make a step longer: the start of the process, a save, other programs on the machine. A low
    quantile leaves them out.
    """
    quick = [
        float(np.quantile(curve.seconds, _STEADY_QUANTILE)) if curve.steps else 0.0 for _, curve in recording.rows
    ]
    rows = [
        (config, replace(curve, seconds=[seconds] * len(curve.steps)))
        for (config, curve), seconds in zip(recording.rows, quick, strict=True)
    ]
    return replace(recording, rows=rows)


# --- files --------------------------------------------------------------------------------------------------

_ABOUT, _VERSION = "thriftune_recording", 1
_READ_ERRORS = (EOFError, KeyError, TypeError, ValueError, AttributeError, zipfile.BadZipFile, zlib.error)
"""The errors that reading a truncated or foreign file may raise."""


def is_recording(path: Path) -> bool:
    """Return whether the file has the array that `write` puts into recordings only."""
    try:
        with zipfile.ZipFile(path) as file:
            return f"{_ABOUT}.npy" in file.namelist()
    except zipfile.BadZipFile:
        return False


def write(recording: Recording, path: Path) -> None:
    """Write a recording to an npz file, atomically; of the metrics, only objectives and constrained ones.

    The file is never incomplete: it is written under another name and renamed.
    """
    if path.suffix != ".npz":
        raise SettingError(f"{path}: a recording is an npz file; give it a name that ends in .npz")
    curves = [curve for _, curve in recording.rows]
    metrics = needed_metrics(recording.objectives, recording.constraints)
    longest = max(len(curve.steps) for curve in curves)
    values = np.full((len(metrics), len(curves), longest), np.nan)
    reported = np.zeros(values.shape, dtype=bool)
    steps, seconds = np.zeros(values.shape[1:], dtype=np.int64), np.zeros(values.shape[1:])
    for row, curve in enumerate(curves):
        steps[row, : len(curve.steps)] = curve.steps
        seconds[row, : len(curve.steps)] = curve.seconds
        for i, report in enumerate(curve.metrics):
            for m, name in enumerate(metrics):
                if name in report:
                    values[m, row, i], reported[m, row, i] = report[name], True
    about = {
        "version": _VERSION,
        "space": recording.space.to_json(),
        "objectives": objectives_to_json(recording.objectives),
        "constraints": [str(constraint) for constraint in recording.constraints],
        "configs": [dict(config) for config, _ in recording.rows],
        "errors": [curve.error for curve in curves],
        "seconds_by_cores": {str(cores): each for cores, each in recording.seconds_by_cores.items()},
    }
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("wb") as file:
        np.savez_compressed(
            file,
            thriftune_recording=np.array(json.dumps(about)),
            values=_single(values),
            told=reported,
            steps=steps,
            seconds=_single(seconds),
        )
    unfinished.replace(path)


def _single(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Return the numbers as float32; finite ones stay finite, so that a loss of 1e300 becomes about 1e38."""
    largest = float(np.finfo(np.float32).max)
    return np.where(np.isfinite(numbers), np.clip(numbers, -largest, largest), numbers).astype(np.float32)


def read(path: Path) -> Recording:
    """Read a recording that `write` has written."""
    try:
        with np.load(path) as file:
            about = json.loads(str(file[_ABOUT]))
            if about["version"] != _VERSION:
                raise SettingError(
                    f"has format version {about['version']}; this version of thriftune reads {_VERSION}"
                )
            return _recording(about, *(file[name] for name in ("values", "told", "steps", "seconds")))
    except (SettingError, SpaceError) as error:
        raise SettingError(f"{path}: {error}") from None
    except _READ_ERRORS as error:
        raise SettingError(
            f"{path}: is not a complete recording ({error}); make one with `thriftune record`"
        ) from None


def _recording(about: Mapping[str, Any], values: Any, reported: Any, steps: Any, seconds: Any) -> Recording:
    space = Space.from_json(about["space"])
    objectives, constraints = objectives_from_json(about), parse_constraints(about["constraints"])
    metrics = needed_metrics(objectives, constraints)
    shape = (len(metrics), len(about["configs"]), *steps.shape[1:])
    if not values.shape == reported.shape == shape or not steps.shape == seconds.shape == shape[1:]:
        raise ValueError(f"its arrays do not have {shape[0]} metrics and {shape[1]} trials")
    rows = []
    for row, (config, error) in enumerate(zip(about["configs"], about["errors"], strict=True)):
        count = int(np.count_nonzero(steps[row]))
        reports = [
            {name: float(values[m, row, i]) for m, name in enumerate(metrics) if reported[m, row, i]}
            for i in range(count)
        ]
        curve = Curve(steps[row, :count].tolist(), reports, seconds[row, :count].tolist(), error)
        rows.append((space.check(config), curve))
    by_cores = {int(cores): float(each) for cores, each in about["seconds_by_cores"].items()}
    return Recording(space, objectives, rows, constraints, by_cores)


# --- searchers that suggest recorded configurations ---------------------------------------------------------


class RecordedOrder:
    """A searcher that suggests the recorded configurations in their order."""

    def __init__(self, recording: Recording) -> None:
        self._rows = recording.rows

    def suggest(self, past: Past, rng: np.random.Generator) -> Config | None:  # noqa: ARG002 (the protocol's)
        number = len(past.trials)
        return self._rows[number][0] if number < len(self._rows) else None


class NearestRecorded:
    """A searcher that replaces the suggestions of another one by the nearest untried recorded configurations."""

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
        nearest_first = (self._rows[i][0] for i in np.argsort(distances, kind="stable"))
        untried = (each for each in nearest_first if past.times(each) < self._recording.times(each))
        return next(untried, None)
