"""What do the commands share? The store they work on, and the JSON they give to programs."""

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
    return click.option("--store", metavar="PATH", help="Where the study is recorded.")(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Give JSON, for programs.")(command)


def plot_option(command: F) -> F:
    what = "Write a picture: .png, .svg or .pdf."
    return click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help=what)(command)


def where(given: str | None) -> str | None:
    """The store named after the command, else before it."""
    found: str | None = given if given is not None else click.get_current_context().find_root().obj
    return found


def existing_store(given: str | None) -> Store:
    """For commands that only work on what is there."""
    return open_store(where(given), create=False)


def trial_of(history: History, study: str, number: int) -> TrialRecord:
    """Return a trial that a person has named; raise SettingError if there is none of that number."""
    if not 0 <= number < len(history.trials):
        have = f"0 to {len(history.trials) - 1}" if history.trials else "none yet"
        raise SettingError(f"study {study!r} has no trial {number}; it has {have}")
    return history.trials[number]


def print_json(value: object) -> None:
    click.echo(to_json(value))


def to_json(value: object) -> str:
    """Strict JSON: what it has no word for, NaN and the infinities, is null."""
    return json.dumps(_strict(value), indent=2, allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value
