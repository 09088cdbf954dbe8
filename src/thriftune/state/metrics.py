"""Check the metrics that users report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from thriftune.errors import SettingError
from thriftune.space.objectives import join_with_and


def missing_metrics_error(missing: Iterable[str], reported: Iterable[str]) -> str:
    """Return the error for a trial that ended without some metrics."""
    names = join_with_and(map(repr, missing))
    return f"the trial ended without a value of {names}; it reported {', '.join(reported) or 'nothing'}"


def checked_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics as Python floats.

    NumPy scalars, 0-d arrays and torch scalars are converted.
    """
    if not metrics:
        raise SettingError("report() was given no metric; say for example report(loss=0.3)")
    values = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise SettingError(f"a metric's name must be a string, not {name!r}")
        if not name:
            raise SettingError("a metric needs a name; say for example report(loss=0.3)")
        if type(value) is float:
            values[name] = value
            continue
        if isinstance(value, str | bytes):  # float() would accept some texts
            raise SettingError(f"{name}: {value!r} is a text and not a number")
        try:
            values[name] = float(value)
        except (TypeError, ValueError, OverflowError):
            raise SettingError(f"{name}: {value!r} is not a number") from None
    return values
