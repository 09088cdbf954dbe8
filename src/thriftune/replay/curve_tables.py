"""What does a table of learning curves hold? CSV, Parquet or npz, read as a recording.

CSV and Parquet have a row a report, as `thriftune export --reports` writes them: `trial`, `step`, the parameters
as `config.lr`, the metrics as `metrics.loss` (or by their bare names), and `seconds` since the report before, or
`at`, the time of the report, and perhaps `attempt` and `state`: trials that did not come to their end are left
out. An npz has `values` (trials, steps), perhaps `seconds` of the same shape or one a trial, and every parameter
as an array of its own, a value a trial. Where an objective is no number, the trial fails.

An npz that `thriftune record` made is none of these tables: it has its own objectives and space.
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
from thriftune.space.values import frozen

LOG_FROM_RATIO = 100.0
"""Numbers above zero that span so much are taken to be on a log scale, where no space is given."""


def read_table(path: Path, objectives: Sequence[Objective] = (), space: Space | None = None) -> Recording:
    """Without a space, the parameters are what the table has, each in the range that it shows.

    A file of `thriftune record` takes neither objectives nor a space, and any other one needs objectives.
    """
    if path.suffix == ".npz" and is_recording(path):
        if objectives or space is not None:
            raise SettingError(
                f"{path}: a recording has its own objectives and space; leave out minimize, maximize and space"
            )
        return read(path)
    if not objectives and not path.exists():
        raise SettingError(f"{path}: there is no such file")
    if not objectives:
        raise SettingError(
            f"{path}: a table does not say which metric decides, as a recording does; give minimize or maximize"
        )
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    reader = readers.get(path.suffix)
    if reader is None:
        raise SettingError(f"{path}: is none of {', '.join(readers)}")
    try:
        configs, curves = reader(path, [objective.metric for objective in objectives])
    except (KeyError, ValueError) as error:
        raise SettingError(f"{path}: {error.args[0] if isinstance(error, KeyError) else error}") from None
    known = space or Space({name: _parameter([c[name] for c in configs]) for name in configs[0]})
    rows = [
        (known.check({name: value for name, value in config.items() if name in known}), curve)
        for config, curve in zip(configs, curves, strict=True)
    ]
    return Recording(known, tuple(objectives), rows)


def _parameter(values: Sequence[Any]) -> Parameter:
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        low, high = min(values), max(values)
        log = low > 0 and high / low >= LOG_FROM_RATIO
        return (Int if all(isinstance(value, int) for value in values) else Float)(low, high, log=log)
    return Choice(list({frozen(value): value for value in values}.values()))


# --- a row a report ---------------------------------------------------------------------------------------


def _read_csv(path: Path, metrics: Sequence[str]) -> tuple[list[dict[str, Any]], list[Curve]]:
    with path.open(newline="", encoding="utf-8") as file:
        read = csv.DictReader(file, restval="")
        rows = [{name: _value(text) for name, text in row.items() if name is not None} for row in read]
    return _from_reports(rows, metrics)


def _read_parquet(path: Path, metrics: Sequence[str]) -> tuple[list[dict[str, Any]], list[Curve]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("a Parquet table needs pyarrow; install it with: pip install pyarrow") from None
    return _from_reports(parquet.read_table(path).to_pylist(), metrics)


def _value(text: str) -> Any:
    """As CSV has no types: a number if it reads as one."""
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
    if not rows:
        raise ValueError("there is no row")
    columns = {metric: _column(rows[0], metric) for metric in metrics}
    trials: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        trials.setdefault(row[_column(rows[0], "trial")], []).append(row)
    prefix = "config."
    names = [name for name in rows[0] if name.startswith(prefix)]
    configs, curves = [], []
    for trial, told in trials.items():
        if told[0].get("state") in _NOT_WHOLE:
            continue
        steps = [row.get("step") for row in told]
        if not all(isinstance(step, int) and step > 0 for step in steps) or len(set(steps)) < len(steps):
            raise ValueError(f"trial {trial}: its steps must be whole numbers from 1, each once; they are {steps}")
        told.sort(key=lambda row: row["step"])
        configs.append({n.removeprefix(prefix): told[0][n] for n in names if told[0][n] is not None})
        reports = [
            {metric: row[name] for metric, name in columns.items() if row[name] is not None} for row in told
        ]
        curves.append(_cut_at_nan(Curve([row["step"] for row in told], reports, _seconds(told))))
    if not configs:
        raise ValueError("no trial in it came to its end, so there is nothing to replay")
    if not names:
        raise ValueError(f"has no parameter: a column such as config.lr for each; there are {', '.join(rows[0])}")
    return configs, curves


_NOT_WHOLE = {"STOPPED", "PAUSED", "RUNNING", "WAITING"}


def _cut_at_nan(curve: Curve) -> Curve:
    """A real trial whose objective is no number has failed."""
    for i, metrics in enumerate(curve.metrics):
        for name, value in metrics.items():
            if not isinstance(value, (int, float)):
                raise ValueError(f"{name} is {value!r} at step {curve.steps[i]}, which is no number")
            if not math.isfinite(value):
                error = f"{name} is {value} at step {curve.steps[i]}"
                return Curve(curve.steps[:i], curve.metrics[:i], curve.seconds[:i], error)
    return curve


def _column(row: Mapping[str, Any], name: str) -> str:
    found = next((column for column in (f"metrics.{name}", name) if column in row), None)
    if found is None:
        raise ValueError(f"has no column {name!r}; there are {', '.join(row)}")
    return found


def _seconds(told: Sequence[Mapping[str, Any]]) -> list[float]:
    """Between attempts a trial did nothing; the step that one began with has taken as long as the middle one."""
    if "seconds" in told[0]:
        return [float(row["seconds"] or 0.0) for row in told]
    if told[0].get("at") is not None and len(told) > 1:
        between = np.diff([float(row["at"] or math.nan) for row in told], prepend=math.nan)
        between[1:][[a.get("attempt") != b.get("attempt") for a, b in pairwise(told)]] = math.nan
        usual = float(np.nanmedian(between)) if np.isfinite(between).any() else 1.0
        seconds: list[float] = np.where(np.isfinite(between), between, usual).clip(0.0).tolist()
        return seconds
    return [1.0] * len(told)


# --- arrays -----------------------------------------------------------------------------------------------


def _read_npz(path: Path, metrics: Sequence[str]) -> tuple[list[dict[str, Any]], list[Curve]]:
    if len(metrics) > 1:
        raise ValueError(f"an npz holds one metric; there are {len(metrics)} objectives")
    if not zipfile.is_zipfile(path):
        raise ValueError("is no npz file; numpy.savez writes one")
    with np.load(path) as found:
        arrays = {name: _array(found, name) for name in found.files}
    if "values" not in arrays or arrays["values"].ndim != 2 or not arrays["values"].size:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none"
        raise ValueError(f"needs an array 'values' (trials, steps); its arrays: {shapes}")
    values = arrays.pop("values").astype(float)
    seconds = np.asarray(arrays.pop("seconds", np.ones(len(values))), dtype=float)
    if seconds.shape not in (values.shape, values.shape[:1]):
        raise ValueError(
            f"'seconds' {seconds.shape} must have the shape of 'values' {values.shape}, or one a trial"
        )
    seconds = np.broadcast_to(seconds.reshape(len(values), -1), values.shape)
    names = [name for name, array in arrays.items() if array.shape == (len(values),)]
    if wrong := [f"{name} {array.shape}" for name, array in arrays.items() if name not in names]:
        raise ValueError(f"every other array must have {len(values)} values, one a trial, but there is {wrong[0]}")
    if not names:
        raise ValueError("has no parameter: an array of its own for each, a value a trial")
    columns = {name: arrays[name].tolist() for name in names}
    configs = [{name: column[i] for name, column in columns.items()} for i in range(len(values))]
    steps = range(1, values.shape[1] + 1)
    curves = [
        _cut_at_nan(Curve(steps, [{metrics[0]: value} for value in row.tolist()], times.tolist()))
        for row, times in zip(values, seconds, strict=True)
    ]
    return configs, curves


def _array(found: Mapping[str, Any], name: str) -> Any:
    try:
        return found[name]
    except ValueError:
        raise ValueError(f"array {name!r} holds Python objects; make it one of numbers or of strings") from None
