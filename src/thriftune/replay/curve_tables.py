"""Reads a table of learning curves (CSV, Parquet or npz) as a recording.

CSV and Parquet have one row a report, as `thriftune export --reports` writes them, with these columns:

- `trial` and `step`.
- The parameters as `config.NAME`.
- The metrics as `metrics.NAME`, or as NAME alone.
- `seconds` since the report before, or `at`, the time of the report. Without either, each report takes one second.
- Optionally `attempt` and `state`. Trials that have neither completed nor failed are left out.

An npz has an array `values` (trials, steps), and each parameter as an array (trials). Optionally it has `seconds`
(trials, steps) or (trials). A trial whose objective is not a finite number fails at that report.

An npz that `thriftune record` made is a recording already: it has its own objectives and space.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from thriftune.errors import MissingExtra, SettingError
from thriftune.replay.recordings import Recording, is_recording, read
from thriftune.replay.simulated_engine import Curve
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Choice, Float, Int, Parameter
from thriftune.space.space import Space
from thriftune.space.values import identity

LOG_FROM_RATIO = 100.0
"""Without a space, a positive parameter with at least this ratio of largest to smallest value gets a log scale."""

_DEFAULT_STEP_SECONDS = 1.0
"""The time of a step in a table without times."""

_UNENDED_STATES = {"STOPPED", "PAUSED", "RUNNING", "WAITING"}
"""The states of trials that are left out, since their curves are incomplete."""


def read_table(path: Path, objectives: Sequence[Objective] = (), space: Space | None = None) -> Recording:
    """Read a table or a recording.

    A recording takes neither objectives nor a space. A table needs objectives. Without a space, its columns
    give the parameters, each with the range of its values.
    """
    if path.suffix == ".npz" and is_recording(path):
        if objectives or space is not None:
            raise SettingError(
                f"{path}: a recording has its own objectives and space; leave out minimize, maximize and space"
            )
        return read(path)
    if not objectives and not path.exists():
        raise SettingError(f"{path}: no such file")
    if not objectives:
        raise SettingError(f"{path}: a table does not name its objective; give minimize or maximize")
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    reader = readers.get(path.suffix)
    if reader is None:
        raise SettingError(f"{path}: a table is a file of one of these types: {', '.join(readers)}")
    try:
        configs, curves = reader(path, [objective.metric for objective in objectives])
    except (KeyError, ValueError) as error:
        raise SettingError(f"{path}: {error.args[0] if isinstance(error, KeyError) else error}") from None
    known_space = space or Space({name: _parameter([c[name] for c in configs]) for name in configs[0]})
    rows = [
        (known_space.check({name: value for name, value in config.items() if name in known_space}), curve)
        for config, curve in zip(configs, curves, strict=True)
    ]
    return Recording(known_space, tuple(objectives), rows)


def _parameter(values: Sequence[Any]) -> Parameter:
    """Return a parameter whose range or choices are those of the values."""
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        low, high = min(values), max(values)
        log = low > 0 and high / low >= LOG_FROM_RATIO
        return (Int if all(isinstance(value, int) for value in values) else Float)(low, high, log=log)
    return Choice(list({identity(value): value for value in values}.values()))


# --- tables with one row a report -------------------------------------------------------------------------


def _read_csv(path: Path, metrics: Sequence[str]) -> tuple[list[dict[str, Any]], list[Curve]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, restval="")
        rows = [{name: _value(text) for name, text in row.items() if name is not None} for row in reader]
    return _from_reports(rows, metrics)


def _read_parquet(path: Path, metrics: Sequence[str]) -> tuple[list[dict[str, Any]], list[Curve]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("a Parquet table needs pyarrow; install it with: pip install pyarrow") from None
    return _from_reports(parquet.read_table(path).to_pylist(), metrics)


def _value(text: str) -> Any:
    """Convert the text of a CSV field to a number, list, bool or None if it reads as one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text.startswith("["):  # a list or a tuple, as `thriftune export` writes it
        with contextlib.suppress(ValueError):
            return json.loads(text)
    return {"True": True, "False": False, "": None}.get(text, text)


def _from_reports(
    rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]
) -> tuple[list[dict[str, Any]], list[Curve]]:
    """Return the configuration and the curve of each trial that has completed or failed."""
    if not rows:
        raise ValueError("the table has no row")
    columns = {metric: _column(rows[0], metric) for metric in metrics}
    rows_by_trial: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        rows_by_trial.setdefault(row[_column(rows[0], "trial")], []).append(row)
    prefix = "config."
    parameters = [name for name in rows[0] if name.startswith(prefix)]
    configs, curves = [], []
    for trial, trial_rows in rows_by_trial.items():
        if trial_rows[0].get("state") in _UNENDED_STATES:
            continue
        steps = [row.get("step") for row in trial_rows]
        if not all(isinstance(step, int) and step > 0 for step in steps) or len(set(steps)) < len(steps):
            raise ValueError(f"trial {trial}: its steps must be whole numbers from 1, each once; they are {steps}")
        trial_rows.sort(key=lambda row: row["step"])
        first = trial_rows[0]
        configs.append({name.removeprefix(prefix): first[name] for name in parameters if first[name] is not None})
        reports = [
            {metric: row[name] for metric, name in columns.items() if row[name] is not None} for row in trial_rows
        ]
        curve = Curve([row["step"] for row in trial_rows], reports, _seconds(trial_rows))
        curves.append(_failed_at_nonfinite(curve))
    if not configs:
        raise ValueError("the table has no completed or failed trial, so it has nothing to replay")
    if not parameters:
        raise ValueError(
            f"the table has no parameter; add a column such as config.lr. Its columns are {', '.join(rows[0])}"
        )
    return configs, curves


def _failed_at_nonfinite(curve: Curve) -> Curve:
    """Return the curve up to the first value that is not finite; there it fails, as a real trial does."""
    for i, metrics in enumerate(curve.metrics):
        for name, value in metrics.items():
            if not isinstance(value, (int, float)):
                raise ValueError(f"{name} is {value!r} at step {curve.steps[i]}; it must be a number")
            if not math.isfinite(value):
                error = f"{name} is {value} at step {curve.steps[i]}"
                return Curve(curve.steps[:i], curve.metrics[:i], curve.seconds[:i], error)
    return curve


def _column(row: Mapping[str, Any], name: str) -> str:
    column = next((column for column in (f"metrics.{name}", name) if column in row), None)
    if column is None:
        raise ValueError(f"the table has no column {name!r}; its columns are {', '.join(row)}")
    return column


def _seconds(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the seconds of each report of a trial.

    The time between two attempts is no training time: the first report of an attempt gets the median time instead.
    """
    if "seconds" in rows[0]:
        return [float(row["seconds"] or 0.0) for row in rows]
    if rows[0].get("at") is not None and len(rows) > 1:
        between = np.diff([float(row["at"] or math.nan) for row in rows], prepend=math.nan)
        between[1:][[a.get("attempt") != b.get("attempt") for a, b in pairwise(rows)]] = math.nan
        median = float(np.nanmedian(between)) if np.isfinite(between).any() else _DEFAULT_STEP_SECONDS
        seconds: list[float] = np.where(np.isfinite(between), between, median).clip(0.0).tolist()
        return seconds
    return [_DEFAULT_STEP_SECONDS] * len(rows)


# --- arrays -----------------------------------------------------------------------------------------------


def _read_npz(path: Path, metrics: Sequence[str]) -> tuple[list[dict[str, Any]], list[Curve]]:
    if len(metrics) > 1:
        raise ValueError(f"an npz table holds one metric; {len(metrics)} objectives were given")
    if not zipfile.is_zipfile(path):
        raise ValueError("is not an npz file; numpy.savez writes one")
    with np.load(path) as file:
        arrays = {name: _array(file, name) for name in file.files}
    if "values" not in arrays or arrays["values"].ndim != 2 or not arrays["values"].size:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none"
        raise ValueError(f"needs an array 'values' (trials, steps); its arrays: {shapes}")
    values = arrays.pop("values").astype(float)
    seconds = np.asarray(arrays.pop("seconds", np.full(len(values), _DEFAULT_STEP_SECONDS)), dtype=float)
    if seconds.shape not in (values.shape, values.shape[:1]):
        raise ValueError(
            f"'seconds' {seconds.shape} must have the shape of 'values' {values.shape}, or one value a trial"
        )
    seconds = np.broadcast_to(seconds.reshape(len(values), -1), values.shape)
    parameters = [name for name, array in arrays.items() if array.shape == (len(values),)]
    if invalid := [f"{name} {array.shape}" for name, array in arrays.items() if name not in parameters]:
        raise ValueError(f"a parameter's array must have {len(values)} values, one a trial, unlike {invalid[0]}")
    if not parameters:
        raise ValueError("has no parameter; add an array for each, with one value a trial")
    columns = {name: arrays[name].tolist() for name in parameters}
    configs = [{name: column[i] for name, column in columns.items()} for i in range(len(values))]
    steps = range(1, values.shape[1] + 1)
    curves = [
        _failed_at_nonfinite(Curve(steps, [{metrics[0]: value} for value in row.tolist()], times.tolist()))
        for row, times in zip(values, seconds, strict=True)
    ]
    return configs, curves


def _array(file: Mapping[str, Any], name: str) -> Any:
    try:
        return file[name]
    except ValueError:
        raise ValueError(f"array {name!r} holds Python objects; save it as numbers or strings") from None
