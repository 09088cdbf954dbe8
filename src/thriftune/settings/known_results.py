"""Check the results that a user knows from elsewhere, and turn them into events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from thriftune.errors import SettingError, SpaceError
from thriftune.space.objectives import join_with_and
from thriftune.space.space import Space
from thriftune.state.events import ResultAdded
from thriftune.state.metrics import checked_metrics


def metrics_of_result(value: float | Mapping[str, float], needed: Sequence[str], who: str) -> dict[str, float]:
    """Return the metrics of a result. A plain number is the value of the only metric that the study needs.

    - `needed`: the metrics that a trial must report.
    - `who`: the function or setting that the value was given to, for errors.
    """
    if not isinstance(value, Mapping) and len(needed) > 1:
        names = ", ".join(f"{name!r}: ..." for name in needed)
        raise SettingError(f"{who}: {value!r} is one number, and the study needs several; give {{{names}}}")
    metrics = checked_metrics(value if isinstance(value, Mapping) else {needed[0]: value})
    if missing := [repr(name) for name in needed if name not in metrics]:
        are = "is" if len(missing) == 1 else "are"
        raise SettingError(f"{who}: {join_with_and(missing)} {are} missing; there is {', '.join(metrics)}")
    return metrics


def known_result(
    space: Space,
    needed: Sequence[str],
    at: float,
    config: Any,
    value: float | Mapping[str, float] | None,
    failed: str | None = None,
    who: str = "add",
) -> ResultAdded:
    """Return the event of one known result: the metrics of a configuration, or why it failed."""
    if (value is None) == (failed is None):
        raise SettingError(f"{who}: give either a value (or a dict of metrics) or failed='why'")
    try:
        checked = space.check(config)
    except SpaceError as error:
        raise SpaceError(f"{who}: {config!r}: {error}") from None
    if value is None:
        return ResultAdded(at, checked, {}, str(failed) or "failed")
    metrics = metrics_of_result(value, needed, who)
    for name in needed:
        if not math.isfinite(metrics[name]):
            raise SettingError(f"{who}: {name} is {metrics[name]}; give failed='why' instead of a value")
    return ResultAdded(at, checked, metrics)


def known_results(space: Space, needed: Sequence[str], at: float, results: object) -> list[ResultAdded]:
    """Return the events of `known=`: pairs of a configuration and its value, which is None if it failed."""
    if results is None:
        return []
    if not isinstance(results, Sequence) or isinstance(results, str):
        raise SettingError(f"known: {results!r} is not a list; give pairs such as [({{'lr': 0.1}}, 0.93)]")
    events = []
    for number, result in enumerate(results, start=1):
        if not isinstance(result, Sequence) or isinstance(result, str) or len(result) != 2:
            raise SettingError(f"known: {result!r} is not a pair of a configuration and a value")
        config, value = result
        failed = "failed, as the user knew" if value is None else None
        events.append(known_result(space, needed, at, config, value, failed, f"known: result {number}"))
    return events


def known_tables(space: Space, needed: Sequence[str], at: float, tables: Sequence[Any]) -> list[ResultAdded]:
    """Return the events of the [[known]] tables of a study file."""
    events = []
    for number, table in enumerate(tables, start=1):
        who = f"known: result {number}"
        if not isinstance(table, Mapping) or "config" not in table:
            raise SettingError(f"{who}: {table!r} has no config; write config = {{ lr = 0.1 }} and value = 0.93")
        if unknown := table.keys() - {"config", "value", "failed"}:
            raise SettingError(f"{who}: {', '.join(sorted(unknown))}: unknown; it has config, value and failed")
        given = table["config"], table.get("value"), table.get("failed")
        events.append(known_result(space, needed, at, *given, who))
    return events
