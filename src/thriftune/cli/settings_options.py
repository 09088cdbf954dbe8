"""Derive the options of `run` and `resume` from the table of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from thriftune.common.setting_kinds import Kind, Setting
from thriftune.settings.table import RUN_SETTINGS, SETTINGS, in_groups

Command = Callable[..., Any]


def run_options(command: Command) -> Command:
    """Add an option for each setting that can be given on the command line."""
    grouped = (each for group in in_groups({**SETTINGS, **RUN_SETTINGS}).values() for each in group)
    return _with_options(command, (each for each in grouped if each.kind.metavar is not None))


def resume_options(command: Command) -> Command:
    """Add an option for each setting that `resume` can change."""
    return _with_options(command, (each for each in (SETTINGS | RUN_SETTINGS).values() if each.at_resume))


def given_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among a command's options that the user has given."""
    return {name: value for name, value in options.items() if name in SETTINGS and value is not None}


def _with_options(command: Command, settings: Iterable[Setting]) -> Command:
    for each in reversed(list(settings)):  # the last option that is added comes first in the help
        command = _option(each)(command)
    return command


def _option(setting: Setting) -> Callable[[Command], Command]:
    """Return the option of a setting.

    An option that is not given is None, so that the study file's value counts.
    """
    name = setting.name.replace("_", "-")
    kind, help = setting.kind, setting.help
    if setting.name in RUN_SETTINGS:
        if bool in kind.types:
            return click.option(f"--{name}", is_flag=True, help=help)
        return click.option(f"--{name}", type=_type(kind), default=setting.default, help=help)
    if bool in kind.types:
        return click.option(f"--{name}/--no-{name}", default=None, help=help)
    return click.option(f"--{name}", type=_type(kind), metavar=kind.metavar, help=help)


def _type(kind: Kind) -> click.ParamType[Any]:
    if kind.choices:
        return click.Choice(kind.choices)
    if kind.types == (int,):
        return click.INT
    if kind.types == (int, float):
        return click.FLOAT
    return click.STRING
