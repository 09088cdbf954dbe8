"""What does a table of learning curves hold? CSV, Parquet or npz, read as a recording.

CSV and Parquet have a row a report, as `thriftune export --reports` writes them: `trial`, `step`, the parameters
as `config.lr`, the metrics as `metrics.loss` (or by their bare names), and `seconds` since the report before, or
`at`, the time of the report. An npz has `values` (trials, steps), perhaps `seconds` of the same shape or one a
trial, and every parameter as an array of its own, a value a trial.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thriftune.engines.simulated import Curve
from thriftune.errors import MissingExtra, SettingError
from thriftune.objectives import Objective
from thriftune.parameters import Choice, Float, Int, Parameter
from thriftune.recordings import Recording
from thriftune.space import Space

LOG_FROM_RATIO = 100.0
"""Numbers above zero that span so much are taken to be on a log scale, where no space is given."""


def read_table(path: Path, objectives: Sequence[Objective], space: Space | None = None) -> Recording:
    """Without a space, the parameters are what the table has, each in the range that it shows."""
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    reader = readers.get(path.suffix)
    if reader is None:
        raise SettingError(f"{path}: is none of {', '.join(readers)}")
    try:
        configs, curves = reader(path, [objective.metric for objective in objectives])
    except (KeyError, ValueError) as error:
        raise SettingError(f"{path}: {error.args[0] if error.args else error}") from None
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
    return Choice(list(dict.fromkeys(values)))


# --- a row a report ---------------------------------------------------------------------------------------


def _read_csv(path: Path, metrics: Sequence[str]) -> tuple[list[dict[str, Any]], list[Curve]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]
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
    for told in trials.values():
        told.sort(key=lambda row: row["step"])
        configs.append({n.removeprefix(prefix): told[0][n] for n in names if told[0][n] is not None})
        reports = [{metric: float(row[column]) for metric, column in columns.items()} for row in told]
        curves.append(Curve([row["step"] for row in told], reports, _seconds(told)))
    return configs, curves


def _column(row: Mapping[str, Any], name: str) -> str:
    found = next((column for column in (f"metrics.{name}", name) if column in row), None)
    if found is None:
        raise ValueError(f"has no column {name!r}; there are {', '.join(row)}")
    return found


def _seconds(told: Sequence[Mapping[str, Any]]) -> list[float]:
    if "seconds" in told[0]:
        return [float(row["seconds"]) for row in told]
    if "at" in told[0] and len(told) > 1:
        between = np.diff([float(row["at"]) for row in told])
        return [float(np.median(between)), *between.clip(0.0).tolist()]
    return [1.0] * len(told)


# --- arrays -----------------------------------------------------------------------------------------------


def _read_npz(path: Path, metrics: Sequence[str]) -> tuple[list[dict[str, Any]], list[Curve]]:
    if len(metrics) > 1:
        raise ValueError(f"an npz holds one metric; there are {len(metrics)} objectives")
    with np.load(path) as found:
        arrays = dict(found)
    if "values" not in arrays or arrays["values"].ndim != 2:
        raise ValueError(f"needs an array 'values' (trials, steps); there are {', '.join(arrays)}")
    values = arrays.pop("values").astype(float)
    seconds = np.asarray(arrays.pop("seconds", np.ones(len(values))), dtype=float)
    seconds = np.broadcast_to(seconds.reshape(len(values), -1), values.shape)
    names = [name for name, array in arrays.items() if array.shape == (len(values),)]
    if not names:
        raise ValueError("has no parameter: an array of its own for each, a value a trial")
    columns = {name: arrays[name].tolist() for name in names}
    configs = [{name: column[i] for name, column in columns.items()} for i in range(len(values))]
    curves = []
    for row, times in zip(values, seconds, strict=True):
        whole = np.isfinite(row)
        count = len(row) if whole.all() else int(np.argmin(whole))
        error = None if count == len(row) else f"{metrics[0]} is {row[count]} at step {count + 1}"
        reports = [{metrics[0]: value} for value in row[:count].tolist()]
        curves.append(Curve(range(1, count + 1), reports, times[:count].tolist(), error))
    return configs, curves
