"""The command line of a trial: checks its placeholders and fills in values.

`{name}` stands for a parameter's value; a tuple or list is written as JSON. `{name|text}` stands for `text` where
the parameter is inactive. `{{...}}` stands for `{...}`. `{trial}`, `{seed}`, `{folder}` and `{checkpoint}` stand
for the trial's own, unless there are parameters of these names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError
from thriftune.space.space import Space
from thriftune.space.values import is_nested
from thriftune.state.spec import Target

_BRACES = re.compile(r"\{(\{[^{}]*\})\}|\{([^{}\s\"':,|\d][^{}\s\"':,|]*)(?:\|([^{}]*))?\}")
"""Groups: a text in double braces; or the name of a parameter, and its default (None if there is none)."""

_NESTED = re.compile(r"(?<!\{)\{([^{}\s\"':,|\d][^{}\s\"':,|]*)\|[^{}]*\{")
"""A default with a brace in it."""

_FORMAT = re.compile(r"(?<!\{)\{([^{}\s\"':,|!\d][^{}\s\"':,|!]*)[:!][^{}]*\}")
"""A placeholder with a format, as Python's strings have it."""

_FLAG = re.compile(r"--?[A-Za-z][^={}]*")
"""An argument such as -m or --momentum, which may take the next argument as its value."""


PLACEHOLDERS = ("trial", "seed", "folder", "checkpoint")
"""The placeholders that are no parameters: the trial's number, its seed, its folder, and the one for its state."""


def arguments(command: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """Return the arguments of `command` for the active parameters, and the other placeholders, in `config`.

    An argument that mentions an inactive parameter without a default is left out. If it is nothing but that
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


def check_command(command: Sequence[str], space: Space) -> None:
    """Raise SettingError unless `arguments` can fill in `command` for every configuration of `space`.

    A command is refused where it is unclear what goes with an argument that is left out.
    """
    if isinstance(command, str) or not command or not all(isinstance(part, str) for part in command):
        raise SettingError(f"command: {command!r} must be a list of strings, such as ['python', 'train.py']")
    known = {**dict.fromkeys(PLACEHOLDERS), **dict.fromkeys(space.names)}
    always = {name: None for name in known if name not in space.names or not space[name].when}
    for place, part in enumerate(command):
        if (nested := _NESTED.search(part)) and nested.group(1) in known:
            raise SettingError(f"command: {part!r}: the text after {{{nested.group(1)}| may have no braces")
        if (formatted := _FORMAT.search(part)) and formatted.group(1) in known:
            raise SettingError(
                f"command: {formatted.group()} in {part!r} has a format, which placeholders do not take; write "
                f"{{{formatted.group(1)}}}, or {{{formatted.group()}}} if it is meant as it stands"
            )
        before = command[place - 1] if place else ""
        for match in _BRACES.finditer(part):
            text, name, _ = match.groups()
            if text is None and name not in known:
                others = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
                raise SettingError(
                    f"command: {{{name}}} in {part!r} is no parameter; the space has {', '.join(space.names)}; "
                    f"{others} are there as well. If it is meant as it stands, write {{{match.group()}}}"
                )
            if text is None and name in PLACEHOLDERS and name not in always:
                raise SettingError(
                    f"command: {{{name}}} in {part!r} is a parameter that is inactive at times, and stands for "
                    f"the trial's own {name} then; give the parameter another name"
                )
        for name in _inactive(part, always):
            where = f"command: {{{name}}} in {part!r}"
            way_out = f"give the text to use where {name} is inactive: {{{name}|...}}"
            if place == 0:
                raise SettingError(f"{where} is in the name of the program, which is always needed; {way_out}")
            if _FLAG.fullmatch(before) and not part.startswith("-") and not _BRACES.fullmatch(part):
                joined = "join the two with '=', or " if before.startswith("--") else ""
                raise SettingError(
                    f"{where} comes after {before!r}, which may need it as its value where {name} is inactive; "
                    f"{joined}{way_out}"
                )
            if flag := _torn_flag(command, place, space):
                raise SettingError(
                    f"{where} is one of several arguments after {flag!r}, which may need all of them; {way_out}"
                )


def _torn_flag(command: Sequence[str], place: int, space: Space) -> str:
    """Return the flag before several placeholders, this one among them, of which some alone may be left out."""
    first = last = place
    while first and _BRACES.fullmatch(command[first]):
        first -= 1
    while last + 1 < len(command) and _BRACES.fullmatch(command[last + 1]):
        last += 1
    parts = command[first + 1 : last + 1]
    own = dict.fromkeys(name for name in PLACEHOLDERS if name not in space.names)
    conditions = [[space[name].when for name in _inactive(part, own)] for part in parts]
    torn = _FLAG.fullmatch(command[first]) and any(each != conditions[0] for each in conditions)
    return command[first] if torn else ""


def _inactive(part: str, config: Mapping[str, Any]) -> list[str]:
    """Return the parameters that `part` mentions without a default and `config` does not have."""
    return [
        name
        for text, name, default in (match.groups() for match in _BRACES.finditer(part))
        if text is None and default is None and name not in config
    ]


def _fill_in(part: str, config: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        text, name, default = match.groups()
        found = text if text is not None else config.get(name, default)
        if is_nested(found):
            return json.dumps(found)
        return "" if found is None else str(found)

    return _BRACES.sub(value, part)


def shared_folder(command: Sequence[str], space: Space, folder: str) -> str:
    """Return a remark that all trials run in one folder; empty if the command names one of the trial's own."""
    own = {"folder", "checkpoint"} - set(space.names)
    used = {match.group(2) for part in command for match in _BRACES.finditer(part)}
    if own & used:
        return ""
    return (
        f"all trials run in {folder}: what a trial writes belongs into its own folder, "
        "which is {folder} in the command and THRIFTUNE_FOLDER in its environment"
    )


def command_target(
    command: Sequence[str], patterns: Mapping[str, str], space: Space, needed: Sequence[str], folder: Path
) -> Target:
    """Return a command as a target; raise SettingError for a wrong placeholder or pattern.

    `needed`: the metrics that a trial must end with. Where there are patterns, each of them must have one.
    """
    check_command(command, space)
    for name, pattern in patterns.items():
        try:
            groups = re.compile(pattern).groups
        except (re.error, TypeError) as error:
            raise SettingError(f"metrics: {name}: {pattern!r} is no regular expression ({error})") from None
        if groups != 1:
            raise SettingError(
                f"metrics: {name}: {pattern!r} has {groups} groups; put exactly one (...) around the number"
            )
    names = [name for name in patterns if name != "step"]  # that one is no metric's
    for metric in needed if patterns else ():
        if metric not in names:
            have = f"none of {', '.join(names)} is" if names else "there is none for"
            raise SettingError(f"metrics: {have} {metric!r}, which every trial must end with")
    return Target("command", command=tuple(command), patterns=dict(patterns), folder=str(folder))
