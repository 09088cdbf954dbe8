"""Has the code of a study changed? Digests of what its trials run, kept with the study and compared.

A fingerprint maps the parts of the code to digests. Its keys begin with what kind of part it is:

    code train       a function or class, without its comments, docstring and layout
    file train.py    a file of code that a command or a study file names
    value EPOCHS     a number that the function reads from outside; of a string or a list a digest
    data images      an array, a table or a file of data

Two fingerprints are compared part by part, and only in the parts that both have: a function that uses another part
has itself changed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from thriftune.spec import Target

_MOST_PARTS = 1_000
"""A function that reaches more than this is compared in the first parts only."""

_MOST_BYTES = 256 << 20
"""Larger arrays and files are compared by their size. Reading this much takes about half a second."""

_CODE_SUFFIXES = frozenset(
    {".bash", ".cfg", ".ini", ".jl", ".js", ".json", ".lua", ".pl", ".py", ".r", ".rb", ".sh", ".toml", ".ts"}
    | {".yaml", ".yml"}
)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_INSTALLED = tuple(
    dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
)

Fingerprint = Mapping[str, str]


class Changes(NamedTuple):
    """What differs between two fingerprints, in words.

    - `code`: values from before and after it may not be comparable.
    - `data`: they may be, as a value such as a path or a date may differ in every run.
    """

    code: list[str]
    data: list[str]


def changes(before: Fingerprint, now: Fingerprint) -> Changes:
    """Compare the fingerprint of a study with that of the code it is to go on with."""
    found = Changes([], [])
    for key in before.keys() & now.keys():
        old, new = before[key], now[key]
        if old == new or _of_other_python(old, new):
            continue
        kind, _, name = key.partition(" ")
        if kind == "value":
            found.data.append(f"{name} was {old}, is now {new}" if _is_shown(old, new) else f"{name} has changed")
        elif kind == "data":
            found.data.append(f"the data of {name} have changed")
        else:
            found.code.append(f"{name} has changed")
    return Changes(sorted(found.code), sorted(found.data))


def of_function(train: Callable[..., Any]) -> dict[str, str]:
    """Return the fingerprint of a training function and of all its user's code and values that it reaches."""
    walk = _Walk()
    walk.add(getattr(train, "__name__", type(train).__name__), train)
    return walk.found


def of_target(target: Target) -> dict[str, str]:
    """Return the fingerprint of a command or of a function in a file; of other targets an empty one."""
    folder = Path(target.folder)
    if target.kind == "function":
        source, _, _ = target.where.rpartition(":")
        found: dict[str, str] = {}
        parts = source.replace(".", "/")
        names = [source] if source.endswith(".py") else [f"{parts}.py", f"{parts}/__init__.py"]
        for name in names:
            if (folder / name).is_file():
                found[f"file {name}"] = _file(folder / name)
        return found
    if target.kind != "command":
        return {}
    found = {"code the command": _digest(repr((target.command, sorted(target.patterns.items()))).encode())}
    for number, argument in enumerate(target.command):
        path = folder / argument
        if number == 0 and Path(argument).is_absolute():
            continue  # a program, not the user's code
        try:
            is_file = "{" not in argument and path.is_file()
        except (OSError, ValueError):  # no path at all
            continue
        if is_file:
            kind = "file" if path.suffix.lower() in _CODE_SUFFIXES else "data"
            found[f"{kind} {argument}"] = _file(path)
    return found


class _Walk:
    """Collects the parts that a function reaches, each once."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._seen: set[int] = set()

    def add(self, name: str, what: Any) -> None:
        """Add the part of that name, and what it reaches."""
        if id(what) in self._seen or len(self.found) >= _MOST_PARTS:
            return
        if isinstance(what, functools.partial):
            self.add(name, what.func)
            for key, value in (*enumerate(what.args), *what.keywords.items()):
                self.add(f"{name}({key}=)", value)
        elif isinstance(what, MethodType):
            self.add(name, what.__func__)
            self.add(f"{name}'s object", what.__self__)
        elif isinstance(what, FunctionType) or hasattr(what, "__wrapped__"):
            self._add_function(name, inspect.unwrap(what))
        elif isinstance(what, type):
            if _is_users(what.__module__):
                self._add_class(what)
        elif isinstance(what, ModuleType):
            if _is_users(what.__name__) and what.__name__ != "__main__":
                self._seen.add(id(what))
                self.found[f"file {what.__name__}"] = _file(Path(what.__file__ or ""))
        elif _is_plain(what):
            # Text may be a password, and a study may be read by others.
            shown = isinstance(what, (int, float, type(None)))
            self.found[f"value {name}"] = repr(what) if shown else _digest(repr(what).encode())
        elif (data := _data(what)) is not None:
            self.found[f"data {name}"] = data
        elif _is_users(type(what).__module__) and not isinstance(what, type):
            self._seen.add(id(what))
            self._add_class(type(what))
            for key, value in sorted(getattr(what, "__dict__", {}).items()):
                self.add(f"{name}.{key}", value)

    def _add_function(self, name: str, function: Any) -> None:
        if not isinstance(function, FunctionType) or not _is_users(function.__module__):
            return
        self._seen.add(id(function))
        self.found[f"code {name}"] = _source(function) or _code(function.__code__)
        for number, value in enumerate(function.__defaults__ or ()):
            self.add(f"{name}(default {number})", value)
        for key, value in (function.__kwdefaults__ or {}).items():
            self.add(f"{name}({key}=)", value)
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.add(key, cell.cell_contents)
            except ValueError:  # not assigned yet
                continue
        for key in dict.fromkeys(_names(function.__code__)):
            if key in function.__globals__:
                self.add(key, function.__globals__[key])

    def _add_class(self, kind: type) -> None:
        if id(kind) in self._seen:
            return
        self._seen.add(id(kind))
        source = _source(kind)
        if source is not None:
            self.found[f"code {kind.__name__}"] = source
        for key, member in vars(kind).items():
            function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            if isinstance(function, property):
                function = function.fget
            if isinstance(function, FunctionType):
                self._add_function(f"{kind.__name__}.{key}", function)
        for base in kind.__bases__:
            if _is_users(base.__module__):
                self._add_class(base)


def _is_users(module: str | None) -> bool:
    """Return whether a module is the user's own code: neither installed nor of Python, nor thriftune itself."""
    if module is None or module.partition(".")[0] == "thriftune":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module == "__main__"  # such as a notebook; others are built in
    return not file.startswith(_INSTALLED) and not module.startswith("importlib")


def _is_plain(what: Any) -> bool:
    if isinstance(what, _PLAIN):
        return True
    if isinstance(what, (tuple, list)):
        return all(map(_is_plain, what))
    return type(what) is dict and all(_is_plain(key) and _is_plain(value) for key, value in what.items())


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals that a function uses, also in the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _source(what: Any) -> str | None:
    """Return a digest of the source without comments, docstrings and layout; None where that cannot be had."""
    if getattr(what, "__name__", "") == "<lambda>":  # whose source is the whole statement that it stands in
        return None
    try:
        return _digest(_normal(textwrap.dedent(inspect.getsource(what))).encode())
    except (OSError, TypeError, SyntaxError):
        return None


def _normal(source: str) -> str:
    """Return Python source in one layout, without docstrings. Raises SyntaxError or ValueError if it is none."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _code(code: CodeType) -> str:
    """Return a digest of compiled code. It says for which Python, as another one compiles differently."""

    def parts(code: CodeType) -> Iterator[str]:
        yield repr((code.co_code, code.co_names, code.co_varnames))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from parts(constant)
            elif isinstance(constant, frozenset):  # whose order differs from process to process
                yield repr(sorted(map(repr, constant)))
            else:
                yield repr(constant)

    return f"{_python()}:{_digest(''.join(parts(code)).encode())}"


def _python() -> str:
    return f"py{sys.version_info.major}.{sys.version_info.minor}"


def _of_other_python(old: str, new: str) -> bool:
    """Return whether one is of compiled code and the other not of the same Python, so that neither tells."""
    before, now = (text.partition(":")[0] if text.startswith("py") else "" for text in (old, new))
    return before != now


def _data(what: Any) -> str | None:
    """Return a digest of an array or a data frame; None for anything else."""
    module = type(what).__module__.partition(".")[0]
    if module == "numpy" and hasattr(what, "tobytes"):
        about = f"{what.dtype} {what.shape}"
        small = not what.dtype.hasobject and what.nbytes <= _MOST_BYTES
        return _digest(about.encode() + (what.tobytes() if small else b""))
    if module == "pandas" and hasattr(what, "memory_usage"):
        from pandas.util import hash_pandas_object

        try:
            return _digest(hash_pandas_object(what).to_numpy().tobytes())
        except TypeError:  # it holds what cannot be hashed
            return _digest(repr(getattr(what, "shape", "")).encode())
    return None


def _file(path: Path) -> str:
    """Return a digest of a file: of Python code as code, of others as they are."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return f"{path.stat().st_size} bytes"
        content = path.read_bytes()
    except OSError:
        return "cannot be read"
    if path.suffix == ".py":
        try:
            return _digest(_normal(content.decode()).encode())
        except (SyntaxError, ValueError):  # as while it is being written
            return _digest(content)
    return _digest(content)


def _is_shown(old: str, new: str) -> bool:
    """Return whether both are values as they stand, and no digests of long ones."""
    return not any(text.startswith(_DIGEST) for text in (old, new))


_DIGEST = "blake2b-"


def _digest(content: bytes) -> str:
    return _DIGEST + hashlib.blake2b(content, digest_size=12).hexdigest()
