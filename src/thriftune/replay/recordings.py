"""What did trials do, that can be done again in a moment? Learning curves of a study, to be replayed.

A recording is kept as one small npz: `values` of each metric (metrics, trials, reports) and `steps` and `seconds`
of each report (trials, reports), where a step of 0 is no report; `told`, which values were reported at all; and
`thriftune_recording`, a JSON text with the rest. Values and seconds have seven digits (float32).
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

from thriftune.errors import SettingError, SpaceError
from thriftune.replay.simulated_engine import Curve
from thriftune.results.result import Result
from thriftune.search.protocol import Past, Searcher
from thriftune.space.objectives import (
    Constraint,
    Objective,
    needed,
    objectives_json,
    objectives_of,
    parse_constraints,
)
from thriftune.space.space import Space
from thriftune.state.events import Config
from thriftune.state.trial_record import State, TrialRecord


@dataclass(frozen=True)
class Recording:
    """Configurations of a space, and what a trial of each does.

    `seconds_by_cores`: of a step of one of them, by the number of cores it may use; empty where nobody measured.
    """

    space: Space
    objectives: tuple[Objective, ...]
    rows: Sequence[tuple[Config, Curve]]
    constraints: tuple[Constraint, ...] = ()
    seconds_by_cores: Mapping[int, float] = field(default_factory=dict)

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


def steady(recording: Recording) -> Recording:
    """Every step of a trial takes as long as its quickest tenth took at most.

    What is no part of a step only adds to it: the start of the process, saving now and then, and what other
    programs on the machine took from it.
    """
    quick = [float(np.quantile(curve.seconds, 0.1)) if curve.steps else 0.0 for _, curve in recording.rows]
    rows = [
        (config, replace(curve, seconds=[each] * len(curve.steps)))
        for (config, curve), each in zip(recording.rows, quick, strict=True)
    ]
    return replace(recording, rows=rows)


# --- as a file ----------------------------------------------------------------------------------------------

_ABOUT, _VERSION = "thriftune_recording", 1
_NOT_WHOLE = (EOFError, KeyError, TypeError, ValueError, AttributeError, zipfile.BadZipFile, zlib.error)
"""What comes of reading a file that was cut, or made by something else."""


def is_recording(path: Path) -> bool:
    """Whether `write` made that file, as far as can be told at a glance."""
    try:
        with zipfile.ZipFile(path) as file:
            return f"{_ABOUT}.npy" in file.namelist()
    except zipfile.BadZipFile:
        return False


def write(recording: Recording, path: Path) -> None:
    """Of the metrics, those that are objectives or constrained. The file is there whole or as it was before."""
    if path.suffix != ".npz":
        raise SettingError(f"{path}: a recording is an npz file; give it a name that ends in .npz")
    curves = [curve for _, curve in recording.rows]
    metrics = needed(recording.objectives, recording.constraints)
    most = max(len(curve.steps) for curve in curves)
    values = np.full((len(metrics), len(curves), most), np.nan)
    told = np.zeros(values.shape, dtype=bool)
    steps, seconds = np.zeros(values.shape[1:], dtype=np.int64), np.zeros(values.shape[1:])
    for row, curve in enumerate(curves):
        steps[row, : len(curve.steps)] = curve.steps
        seconds[row, : len(curve.steps)] = curve.seconds
        for i, report in enumerate(curve.metrics):
            for m, name in enumerate(metrics):
                if name in report:
                    values[m, row, i], told[m, row, i] = report[name], True
    about = {
        "version": _VERSION,
        "space": recording.space.to_json(),
        "objectives": objectives_json(recording.objectives),
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
            told=told,
            steps=steps,
            seconds=_single(seconds),
        )
    unfinished.replace(path)


def _single(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """What is finite stays so: a loss of 1e300 is as bad as one of 1e38."""
    largest = float(np.finfo(np.float32).max)
    return np.where(np.isfinite(numbers), np.clip(numbers, -largest, largest), numbers).astype(np.float32)


def read(path: Path) -> Recording:
    """The inverse of `write`."""
    try:
        with np.load(path) as found:
            about = json.loads(str(found[_ABOUT]))
            if about["version"] != _VERSION:
                raise SettingError(f"is of version {about['version']}; this thriftune reads {_VERSION}")
            return _recording(about, *(found[name] for name in ("values", "told", "steps", "seconds")))
    except (SettingError, SpaceError) as error:
        raise SettingError(f"{path}: {error}") from None
    except _NOT_WHOLE as error:
        raise SettingError(f"{path}: is no whole recording ({error}); thriftune record makes one") from None


def _recording(about: Mapping[str, Any], values: Any, told: Any, steps: Any, seconds: Any) -> Recording:
    space = Space.from_json(about["space"])
    objectives, constraints = objectives_of(about), parse_constraints(about["constraints"])
    metrics = needed(objectives, constraints)
    shape = (len(metrics), len(about["configs"]), *steps.shape[1:])
    if not values.shape == told.shape == shape or not steps.shape == seconds.shape == shape[1:]:
        raise ValueError(f"its arrays are not of {shape[0]} metrics and {shape[1]} trials")
    rows = []
    for row, (config, error) in enumerate(zip(about["configs"], about["errors"], strict=True)):
        there = int(np.count_nonzero(steps[row]))
        reports = [
            {name: float(values[m, row, i]) for m, name in enumerate(metrics) if told[m, row, i]}
            for i in range(there)
        ]
        curve = Curve(steps[row, :there].tolist(), reports, seconds[row, :there].tolist(), error)
        rows.append((space.check(config), curve))
    by_cores = {int(cores): float(each) for cores, each in about["seconds_by_cores"].items()}
    return Recording(space, objectives, rows, constraints, by_cores)


# --- who suggests what was recorded -------------------------------------------------------------------------


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
