"""Checks the placeholders in the command of a study, and fills in their values for a trial.

- `{name}` is replaced by the value of a parameter; a tuple or list is written as JSON.
- `{name|text}` is replaced by `text` if the parameter is inactive.
- `{{...}}` is replaced by `{...}`.
- `{trial}`, `{seed}`, `{folder}` and `{checkpoint}` are replaced by those of the trial, unless parameters have
  these names.
- `{data.name}` is replaced by the path of a dataset's copy on the machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError
from thriftune.space.space import Space
from thriftune.space.values import is_nested
from thriftune.state.spec import Target

_BRACES = re.compile(r"\{(\{[^{}]*\})\}|\{([^{}\s\"':,|\d][^{}\s\"':,|]*)(?:\|([^{}]*))?\}")
"""Groups: a text in double braces; or the name of a parameter, and its default (None without one)."""

_NESTED = re.compile(r"(?<!\{)\{([^{}\s\"':,|\d][^{}\s\"':,|]*)\|[^{}]*\{")
"""A placeholder whose default contains a brace."""

_FORMAT = re.compile(r"(?<!\{)\{([^{}\s\"':,|!\d][^{}\s\"':,|!]*)[:!][^{}]*\}")
"""A placeholder with a format, as in Python's format strings."""

_FLAG = re.compile(r"--?[A-Za-z][^={}]*")
"""An argument such as -m or --momentum, which may take the next argument as its value."""


PLACEHOLDERS = ("trial", "seed", "folder", "checkpoint")
"""The placeholders that are no parameters: the trial's number, its seed, its folder, and its state's folder."""


_DATA = "data."
"""Begins the placeholders of datasets."""


def used_datasets(command: Sequence[str], data: Iterable[str]) -> dict[str, str]:
    """Return the datasets that the command names: the name of each by its placeholder. `data`: all datasets."""
    used = {match.group(2) for part in command for match in _BRACES.finditer(part)}
    return {f"{_DATA}{name}": name for name in data if f"{_DATA}{name}" in used}


def arguments(command: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """Return the command with all placeholders replaced. `config`: active parameters and other placeholders.

    An argument with an inactive parameter that has no default is left out. If the argument is only this
    placeholder and follows a flag, the flag is left out too.
    """
    filled: list[str] = []
    before = ""
    for part in command:
        if not _inactive(part, config):
            filled.append(_fill_in(part, config))
        elif _BRACES.fullmatch(part) and _FLAG.fullmatch(before):
            filled.pop()
        before = part
    return filled


def check_command(command: Sequence[str], space: Space, data: Iterable[str] = ()) -> None:
    """Raise SettingError unless arguments() can fill in the command for every configuration of the space.

    Also refuses a command in which an argument that is left out may belong to others that remain. `data`: the
    names of the study's datasets.
    """
    if isinstance(command, str) or not command or not all(isinstance(part, str) for part in command):
        raise SettingError(f"command: {command!r} must be a list of strings, such as ['python', 'train.py']")
    places = (*PLACEHOLDERS, *(f"{_DATA}{name}" for name in data))
    known = {**dict.fromkeys(places), **dict.fromkeys(space.names)}
    always = {name: None for name in known if name not in space.names or not space[name].when}
    for position, part in enumerate(command):
        if (nested := _NESTED.search(part)) and nested.group(1) in known:
            raise SettingError(f"command: {part!r}: the text after {{{nested.group(1)}| must not contain braces")
        if (formatted := _FORMAT.search(part)) and formatted.group(1) in known:
            raise SettingError(
                f"command: {formatted.group()} in {part!r} has a format, but placeholders take none; write "
                f"{{{formatted.group(1)}}}, or {{{formatted.group()}}} for the literal text {formatted.group()}"
            )
        before = command[position - 1] if position else ""
        for match in _BRACES.finditer(part):
            text, name, _ = match.groups()
            if text is None and name not in known:
                others = ", ".join(f"{{{each}}}" for each in places)
                raise SettingError(
                    f"command: {{{name}}} in {part!r} is not a parameter; the space has {', '.join(space.names)}; "
                    f"you can also use {others}. For the literal text {match.group()}, write {{{match.group()}}}"
                )
            if text is None and name in places and name not in always:
                raise SettingError(
                    f"command: {{{name}}} in {part!r} is a parameter that may be inactive; it would then be "
                    f"replaced by the trial's {name}; give the parameter another name"
                )
        for name in _inactive(part, always):
            where = f"command: {{{name}}} in {part!r}"
            way_out = f"give the text to use if {name} is inactive: {{{name}|...}}"
            if position == 0:
                raise SettingError(f"{where} is in the name of the program, which cannot be left out; {way_out}")
            if _FLAG.fullmatch(before) and not part.startswith("-") and not _BRACES.fullmatch(part):
                joined = "join the two with '=', or " if before.startswith("--") else ""
                raise SettingError(
                    f"{where} comes after {before!r}, which may need it as its value if {name} is inactive; "
                    f"{joined}{way_out}"
                )
            if flag := _split_flag(command, position, space, places):
                raise SettingError(
                    f"{where} is one of several arguments after {flag!r}, which may need all of them; {way_out}"
                )


def _split_flag(command: Sequence[str], position: int, space: Space, places: Sequence[str]) -> str:
    """Return the flag before a group of placeholders, if only some of them may be left out; else an empty text.

    `position`: of a placeholder in the group. `places`: the placeholders that are no parameters.
    """
    first = last = position
    while first and _BRACES.fullmatch(command[first]):
        first -= 1
    while last + 1 < len(command) and _BRACES.fullmatch(command[last + 1]):
        last += 1
    parts = command[first + 1 : last + 1]
    own = dict.fromkeys(name for name in places if name not in space.names)
    conditions = [[space[name].when for name in _inactive(part, own)] for part in parts]
    is_split = _FLAG.fullmatch(command[first]) and any(each != conditions[0] for each in conditions)
    return command[first] if is_split else ""


def _inactive(part: str, config: Mapping[str, Any]) -> list[str]:
    """Return the parameters without a default in an argument that are not in the configuration."""
    return [
        name
        for text, name, default in (match.groups() for match in _BRACES.finditer(part))
        if text is None and default is None and name not in config
    ]


def _fill_in(part: str, config: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        text, name, default = match.groups()
        filled = text if text is not None else config.get(name, default)
        if is_nested(filled):
            return json.dumps(filled)
        return "" if filled is None else str(filled)

    return _BRACES.sub(value, part)


def shared_folder(command: Sequence[str], space: Space, folder: str) -> str:
    """Return a remark that all trials run in one folder; empty if the command uses a folder of the trial."""
    own = {"folder", "checkpoint"} - set(space.names)
    used = {match.group(2) for part in command for match in _BRACES.finditer(part)}
    if own & used:
        return ""
    return (
        f"all trials run in {folder}: what a trial writes belongs in its own folder: "
        "`{folder}` in the command, or `$THRIFTUNE_FOLDER`"
    )


def command_target(
    command: Sequence[str],
    patterns: Mapping[str, str] | None,
    space: Space,
    needed: Sequence[str],
    folder: Path,
    data: Iterable[str] = (),
) -> Target:
    """Return a command as a target. Raises SettingError for a wrong placeholder or pattern.

    - `patterns`: the regular expression of each metric that the command prints; None if it prints none.
    - `needed`: the metrics that a trial must end with. If patterns are given, each of these metrics needs one.
    - `data`: the names of the study's datasets.
    """
    check_command(command, space, data)
    for name, pattern in (patterns or {}).items():
        try:
            groups = re.compile(pattern).groups
        except (re.error, TypeError) as error:
            raise SettingError(f"metrics: {name}: {pattern!r} is not a regular expression ({error})") from None
        if groups != 1:
            raise SettingError(
                f"metrics: {name}: {pattern!r} has {groups} groups; put exactly one (...) around the number"
            )
    for metric in () if patterns is None else needed:
        if metric not in (patterns or {}) or metric == "step":  # "step" is the pattern of the step number
            raise SettingError(
                f"metrics: there is no pattern for {metric!r}; "
                "every objective and every constrained metric needs one"
            )
    return Target("command", command=tuple(command), patterns=dict(patterns or {}), folder=str(folder))
