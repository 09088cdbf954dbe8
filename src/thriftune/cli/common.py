"""Options and helpers that several commands share: the store, trials by number, and JSON output."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thriftune.errors import SettingError
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store

if TYPE_CHECKING:
    from thriftune.state.history import History
    from thriftune.state.trial_record import TrialRecord

F = Callable[..., Any]


def store_option(command: F) -> F:
    return click.option("--store", metavar="PATH|URL", help="Where the study is stored.")(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def plot_option(command: F) -> F:
    path = click.Path(path_type=Path)
    return click.option("--plot", type=path, metavar="FILE", help="Write a picture: .png, .svg or .pdf.")(command)


def store_location(option: str | None) -> str | None:
    """Return the value of --store, which may stand after the command or before it."""
    location: str | None = option if option is not None else click.get_current_context().find_root().obj
    return location


def existing_store(option: str | None) -> Store:
    """Open a store that exists; raise StudyNotFound if it does not."""
    return open_store(store_location(option), create=False)


def trial_of(history: History, study: str, number: int) -> TrialRecord:
    """Return the trial with this number.

    Raises SettingError if the study has no such trial.
    """
    if not 0 <= number < len(history.trials):
        from thriftune.results.trial_states import existing_trials  # late: it imports numpy

        raise SettingError(f"study {study!r} has no trial {number}; {existing_trials(history)}")
    return history.trials[number]


def print_json(value: object) -> None:
    click.echo(to_json(value))


def to_json(value: object) -> str:
    """Return a value as strict JSON, in which NaN and the infinities are null."""
    return json.dumps(_strict(value), indent=2, allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value
