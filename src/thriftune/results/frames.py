"""A study's trials and reports as pandas data frames; pandas comes with the extra `pandas`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from thriftune.common.text import last_line
from thriftune.errors import MissingExtra
from thriftune.space.parameters import Int
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

if TYPE_CHECKING:
    import pandas as pd

_NULLABLE_INT = "Int64"
"""The pandas type of whole numbers that may be missing; plain integers would become floats."""


def trials_frame(history: History) -> pd.DataFrame:
    """Return a row for each trial. See StudyViews.to_pandas() for the columns."""
    pandas = _pandas()
    metrics = _metric_names(history, (trial.metrics for trial in history.trials))
    columns: dict[str, Any] = {}
    single = len(history.objectives) == 1
    if single and history.metric == "value":
        metrics.remove("value")  # the fixed column of that name has it already
    before: list[tuple[str, Callable[[TrialRecord], Any]]] = [
        ("trial", lambda trial: trial.id),
        ("state", lambda trial: str(trial.state)),
        *([("value", lambda trial: _number(trial.value))] if single else []),
    ]
    after: list[tuple[str, Callable[[TrialRecord], Any]]] = [
        *([("feasible", history.feasible)] if history.constraints else []),
        ("step", lambda trial: trial.step),
        ("value_step", history.value_step),
        ("seconds", lambda trial: trial.seconds),
        ("started", _started),
        ("ended", lambda trial: trial.ended_at),
        ("attempts", lambda trial: trial.attempts),
        ("failures", lambda trial: trial.failures),
        ("losses", lambda trial: trial.losses),
        ("origin", lambda trial: trial.origin),
        ("error", lambda trial: last_line(trial.error) if trial.error else None),
    ]
    fixed = [name for name, _ in before + after]
    metric_columns, parameter_columns = _free_names(fixed, metrics, history.space.names)
    for name, read in before:
        columns[name] = [read(trial) for trial in history.trials]
    for metric, column in metric_columns.items():
        values = [_number(history.metric_of(trial, metric)) for trial in history.trials]
        columns[column] = pandas.array(values, dtype="float64")
    for parameter, column in parameter_columns.items():
        columns[column] = [trial.config.get(parameter) for trial in history.trials]
    for name, read in after:
        columns[name] = [read(trial) for trial in history.trials]
    attributes = dict.fromkeys(name for trial in history.trials for name in trial.attrs)
    for attribute, column in _attribute_columns(columns, attributes).items():
        columns[column] = pandas.Series([trial.attrs.get(attribute) for trial in history.trials]).infer_objects()
    frame = pandas.DataFrame(columns)
    for parameter, column in parameter_columns.items():
        if isinstance(history.space[parameter], Int) and frame[column].isna().any():
            frame[column] = pandas.array(columns[column], dtype=_NULLABLE_INT)
    for name in ("started", "ended"):
        frame[name] = pandas.to_datetime(frame[name].astype("float64"), unit="s", utc=True)
    return frame


def reports_frame(history: History) -> pd.DataFrame:
    """Return a row for each report, ordered by trial and step. See StudyViews.to_pandas() for the columns."""
    pandas = _pandas()
    rows = [(trial.id, report) for trial in history.trials for report in trial.reports]
    metrics = _metric_names(history, (report.metrics for _, report in rows))
    metric_columns, _ = _free_names(("trial", "step", "time", "attempt", "saved"), metrics, ())
    columns: dict[str, Any] = {
        "trial": [number for number, _ in rows],
        "step": [report.step for _, report in rows],
    }
    for metric, column in metric_columns.items():
        values = [_number(report.metrics.get(metric)) for _, report in rows]
        columns[column] = pandas.array(values, dtype="float64")
    times = pandas.array([report.at for _, report in rows], dtype="float64")
    columns["time"] = pandas.to_datetime(times, unit="s", utc=True)
    columns["attempt"] = [report.attempt for _, report in rows]
    columns["saved"] = [report.saved for _, report in rows]
    return pandas.DataFrame(columns)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtra("a data frame needs pandas; install it with: pip install 'thriftune[pandas]'") from None
    return pandas


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _started(trial: TrialRecord) -> float | None:
    """Return when the trial's first attempt began, in unix seconds."""
    return trial.past_attempts[0].started_at if trial.past_attempts else trial.started_at


def _metric_names(history: History, metric_sets: Iterable[Iterable[str]]) -> list[str]:
    """Return the names of all metrics: objectives first, then the others in order of appearance."""
    names = dict.fromkeys(objective.metric for objective in history.objectives)
    for metrics in metric_sets:
        names.update(dict.fromkeys(metrics))
    return list(names)


def _attribute_columns(used_names: Iterable[str], attributes: Iterable[str]) -> dict[str, str]:
    """Return the column name of each attribute: its own if it is unused, else with the prefix attrs_."""
    used = set(used_names)
    columns: dict[str, str] = {}
    for attribute in attributes:
        columns[attribute] = attribute
        while columns[attribute] in used:
            columns[attribute] = f"attrs_{columns[attribute]}"
        used.add(columns[attribute])
    return columns


def _free_names(
    fixed: Sequence[str], metrics: Sequence[str], parameters: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the column name of each metric and of each parameter: its own name if it is unused.

    A metric with the name of a fixed column gets the prefix metrics_. A parameter with the name of a fixed column
    or of a metric gets the prefix params_.
    """
    used = set(fixed)

    def unused_name(name: str, prefix: str) -> str:
        while name in used:
            name = prefix + name
        used.add(name)
        return name

    metric_columns = {name: unused_name(name, "metrics_") for name in metrics}
    return metric_columns, {name: unused_name(name, "params_") for name in parameters}
