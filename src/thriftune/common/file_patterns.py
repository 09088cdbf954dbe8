"""Check patterns of files, relative to the user's project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from thriftune.errors import SettingError


def check_patterns(name: str, patterns: object) -> None:
    """Raise SettingError unless the value of the setting can be used.

    A pattern is relative to the root of the project. It names files, or folders with all their files: "src",
    "configs/*.yaml", "**/*.py". After "!" it names what is left out.
    """
    if isinstance(patterns, str) or not isinstance(patterns, Sequence):
        raise SettingError(f"{name}: {patterns!r} must be a list of patterns, such as ['src', 'train.py']")
    for each in patterns:
        path = each.removeprefix("!") if isinstance(each, str) else ""
        parts = PurePosixPath(path).parts
        if not parts or ".." in parts or path.startswith(("/", "~")):
            raise SettingError(
                f"{name}: {each!r} must be a path or pattern relative to the project, such as 'src' or '**/*.py'"
            )
        if any("**" in part and part != "**" for part in parts):
            raise SettingError(f"{name}: {each!r}: '**' must stand alone between slashes, as in '**/*.py'")
