"""Find the names that a Python file binds at its top level, without running it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from thriftune.common.spelling import did_you_mean
from thriftune.errors import SettingError

_BINDS_ANY = frozenset({"globals", "locals", "vars", "exec", "setattr"})
"""A file that uses one of these may bind names that cannot be read from its source."""

_LISTED = 10
"""Errors list at most this many names."""


def check_bound(file: Path, name: str) -> None:
    """Raise SettingError if the file certainly does not bind the name; the error names the most similar one."""
    names = bound_names(file)
    if names is None or name in names:
        return
    have = [each for each in names if not each.startswith("__")]
    listed = ", ".join(have[:_LISTED]) + (f" and {len(have) - _LISTED} more" if len(have) > _LISTED else "")
    hint = did_you_mean(name, have) or f"it has {listed or 'no name at all'}"
    raise SettingError(f"function: {file} has no {name!r} at its top level; {hint}")


def bound_names(file: Path) -> list[str] | None:
    """Return the names that a file binds at its top level; None if they cannot all be read from its source.

    This is the case if the file cannot be parsed, has `import *`, or may bind names in other ways.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the source appear when the file is run
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # importing the file will show what is wrong
    for node in ast.walk(tree):
        match node:
            case ast.Global() | ast.alias(name="*"):
                return None
            case ast.Name(id=word) if word in _BINDS_ANY:
                return None
            case ast.Attribute(attr="__dict__") | ast.Subscript(value=ast.Attribute(attr="modules")):
                return None
            case _:
                pass
    names = list(dict.fromkeys(name for statement in tree.body for name in _bound(statement)))
    return None if "__getattr__" in names else names


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds in its scope, and not those bound in functions and classes."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
            return
        case ast.Lambda():
            return
        case ast.alias(name=module, asname=other):
            yield other or module.partition(".")[0]
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from _bound(child)
