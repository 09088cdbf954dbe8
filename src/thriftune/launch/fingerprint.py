"""Tell whether the code of a study has changed, by digests of what its trials run.

A fingerprint maps each part of the code to a digest. The first word of a key is the kind of part:

    code train       a function or class, without its comments, docstring and layout
    file train.py    a file of code that a command or a study file names, or that such a file imports
    value EPOCHS     a small number that the function reads from outside; a digest of any other plain value
    data images      an array, a table or a file of data
    dataset train (s3://b/train)   the version of a dataset, added by study_data.py

Only parts that two fingerprints share are compared. A function that uses an additional part has changed itself.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from thriftune.engines.pickled import SCRIPTS
from thriftune.launch.code_digests import (
    DIGEST,
    code_digest,
    data_digest,
    digest,
    file_digest,
    imports_of,
    of_other_python,
    source_digest,
    text_of,
)
from thriftune.state.spec import Target

_MOST_PARTS = 1_000
"""A fingerprint has at most this many parts."""

CODE_SUFFIXES = frozenset({".bash", ".jl", ".js", ".lua", ".pl", ".py", ".r", ".rb", ".sh", ".ts"})
"""Files of code. Other files that a command names count as data, as it may write them."""

_DEEPEST, _MOST_ITEMS = 100, 200
"""Objects are followed to this depth, and this many items of a container that holds objects."""

_LARGEST_SHOWN = 100_000
"""Smaller numbers are stored as they are, so that a change can be shown. A larger one may be a secret."""

_INSTALLED = tuple(
    dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
)

_EMPTY_CELL = CellType()

Fingerprint = Mapping[str, str]


class Changes(NamedTuple):
    """The differences between two fingerprints, as sentences.

    - `code`: changes after which values may not be comparable with earlier ones.
    - `data`: other changes. A value such as a path or a date may differ in every run.
    """

    code: list[str]
    data: list[str]


def changes(before: Fingerprint, now: Fingerprint) -> Changes:
    """Return what changed between the fingerprint of a study and that of the current code."""
    found = Changes([], [])
    for key in before.keys() & now.keys():
        old, new = before[key], now[key]
        if old == new or of_other_python(old, new):
            continue
        kind, _, name = key.partition(" ")
        if kind == "value":
            shown = not any(text.startswith(DIGEST) for text in (old, new))
            found.data.append(f"{name} was {old}, is now {new}" if shown else f"{name} has changed")
        elif kind in ("data", "dataset"):
            found.data.append(f"the data of {name} have changed")
        else:
            found.code.append(f"{name} has changed")
    return Changes(sorted(found.code), sorted(found.data))


def of_function(train: Callable[..., Any]) -> dict[str, str]:
    """Return the fingerprint of a training function and of all the user's code and values that it uses."""
    walk = _Walk()
    walk.add(getattr(train, "__name__", type(train).__name__), train)
    return walk.found


def of_target(target: Target) -> dict[str, str]:
    """Return the fingerprint of a command or of a function in a file; empty for other targets."""
    folder = Path(target.folder)
    if target.kind == "function":
        source, _, _ = target.where.rpartition(":")
        found: dict[str, str] = {}
        parts = source.replace(".", "/")
        names = [source] if source.endswith(".py") else [f"{parts}.py", f"{parts}/__init__.py"]
        for name in names:
            if (folder / name).is_file():
                _add_file(found, "file", name, folder)
        return found
    if target.kind != "command":
        return {}
    found = {"code the command": digest(repr((target.command, sorted(target.patterns.items()))).encode())}
    for number, argument in enumerate(target.command):
        path = folder / argument
        if number == 0 and Path(argument).is_absolute():
            continue  # a program, not the user's code
        try:
            is_file = "{" not in argument and path.is_file()
        except (OSError, ValueError):  # not a path
            continue
        if is_file:
            kind = "file" if path.suffix.lower() in CODE_SUFFIXES else "data"
            _add_file(found, kind, argument, folder)
    return found


def _add_file(found: dict[str, str], kind: str, name: str, folder: Path) -> None:
    """Add a file and, if it is Python, the user's files that it imports."""
    key = f"{kind} {name}"
    if key in found or len(found) >= _MOST_PARTS:
        return
    path = folder / name
    found[key] = file_digest(path)
    if path.suffix == ".py":
        for imported in imports_of(path, folder.resolve()):
            with contextlib.suppress(ValueError):  # the file is in another folder
                _add_file(found, "file", str(imported.relative_to(folder.resolve())), folder)


def of_imported(train: Callable[..., Any]) -> dict[str, str]:
    """Return the fingerprint of what a pickled function imports, which is not part of the pickle."""
    walk = _Walk(imported_only=True)
    walk.add(getattr(train, "__name__", type(train).__name__), train)
    return walk.found


class _Walk:
    """Collects the parts that a function uses, each once."""

    def __init__(self, *, imported_only: bool = False) -> None:
        self.found: dict[str, str] = {}
        self._imported_only = imported_only
        self._seen: dict[int, Any] = {}  # by id(); holds the objects, so that no other one gets the same id
        self._depth = 0

    def add(self, name: str, what: Any) -> None:
        """Add a part and all that it uses."""
        if id(what) in self._seen or len(self.found) >= _MOST_PARTS or self._depth >= _DEEPEST:
            return
        self._depth += 1
        try:
            self._add(name, what)
        finally:
            self._depth -= 1

    def _add(self, name: str, what: Any) -> None:
        if isinstance(what, FunctionType):
            self._add_function(name, what)
        elif isinstance(what, functools._lru_cache_wrapper):
            self.add(name, what.__wrapped__)
        elif isinstance(what, functools.partial):
            self.add(name, what.func)
            for key, value in (*enumerate(what.args), *what.keywords.items()):
                self.add(f"{name}({key}=)", value)
        elif isinstance(what, MethodType):
            self.add(name, what.__func__)
            self.add(f"{name}'s object", what.__self__)
        elif isinstance(what, type):
            self._add_class(what)
        elif isinstance(what, ModuleType):
            if is_users(what.__name__) and what.__name__ not in SCRIPTS and what.__file__:
                self._seen[id(what)] = what
                self._add_module(what.__name__, Path(what.__file__))
        elif (text := text_of(what)) is not None:
            self._add_value(f"value {name}", text if _is_shown(what) else digest(text.encode()))
        elif (data := data_digest(what)) is not None:
            self._add_value(f"data {name}", data)
        elif isinstance(what, (dict, list, tuple, set, frozenset)):
            self._seen[id(what)] = what
            items = what.items() if isinstance(what, dict) else enumerate(what)
            for key, value in itertools.islice(items, _MOST_ITEMS):
                self.add(f"{name}[{key if text_of(key) is not None else '...'}]", value)
        elif is_users(type(what).__module__):
            self._add_object(name, what)

    def _add_value(self, key: str, text: str) -> None:
        if not self._imported_only:
            self.found[key] = text

    def _add_function(self, name: str, function: FunctionType) -> None:
        if not is_users(function.__module__):
            return
        self._seen[id(function)] = function
        code = function.__code__
        if self._counts(function.__module__):
            self.found[f"code {name}"] = source_digest(code) or code_digest(code)
        for number, value in enumerate(function.__defaults__ or ()):
            self.add(f"{name}(default {number})", value)
        for key, value in (function.__kwdefaults__ or {}).items():
            self.add(f"{name}({key}=)", value)
        for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if cell != _EMPTY_CELL:
                self.add(key, cell.cell_contents)
        used = _Used(code)
        for key in used.names:
            if key in function.__globals__:
                self.add(key, function.__globals__[key])
        for module in used.modules:
            self._add_imported(module)

    def _add_imported(self, module: str) -> None:
        """Add a module that a function imports when it is called."""
        top = module.partition(".")[0]
        if module in sys.modules or top in sys.modules:
            self.add(module, sys.modules.get(module, sys.modules.get(top)))
            return
        for folder in sys.path:
            for path in (Path(folder, f"{top}.py"), Path(folder, top, "__init__.py")):
                if path.is_file():
                    if not _is_installed(str(path.resolve())):
                        self._add_module(top, path)
                    return

    def _add_module(self, name: str, path: Path) -> None:
        """Add a module's file, and the files beside it that it imports."""
        root = path.parent.parent if path.name == "__init__.py" else path.parent
        self.found[f"file {name}"] = file_digest(path)
        left, seen = [path], {path.resolve()}
        while left:
            for imported in imports_of(left.pop(), root.resolve()):
                if imported not in seen and len(self.found) < _MOST_PARTS:
                    seen.add(imported)
                    left.append(imported)
                    with contextlib.suppress(ValueError):  # the file is in another folder
                        self.found[f"file {imported.relative_to(root.resolve())}"] = file_digest(imported)

    def _counts(self, module: str) -> bool:
        if not self._imported_only:
            return True
        return module not in SCRIPTS and getattr(sys.modules.get(module), "__spec__", None) is not None

    def _add_class(self, kind: type) -> None:
        if not is_users(kind.__module__):
            return
        self._seen[id(kind)] = kind
        source = source_digest(kind)
        if source is not None and self._counts(kind.__module__):
            self.found[f"code {kind.__name__}"] = source
        for key, member in vars(kind).items():
            function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            if isinstance(function, property):
                function = function.fget
            if isinstance(function, FunctionType):
                self.add(f"{kind.__name__}.{key}", function)
        for base in kind.__bases__:
            self.add(base.__name__, base)

    def _add_object(self, name: str, what: Any) -> None:
        self._seen[id(what)] = what
        self.add(type(what).__name__, type(what))
        try:  # bypasses the object's own __getattr__, which may run any code
            attributes = object.__getattribute__(what, "__dict__")
        except AttributeError:
            return
        if isinstance(attributes, dict):
            for key, value in itertools.islice(attributes.items(), _MOST_ITEMS):
                self.add(f"{name}.{key}", value)


class _Used:
    """The globals that a function uses and the modules that it imports, nested functions included."""

    def __init__(self, code: CodeType) -> None:
        self.names: dict[str, None] = {}
        self.modules: dict[str, None] = {}
        left = [code]
        while left:
            one = left.pop()
            for instruction in dis.get_instructions(one):
                if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                    self.names[instruction.argval] = None
                elif instruction.opname == "IMPORT_NAME":
                    self.modules[instruction.argval] = None
            left += [constant for constant in one.co_consts if isinstance(constant, CodeType)]


def is_users(module: str | None) -> bool:
    """Return whether a module is the user's own code: not installed, not Python's, and not thriftune."""
    if module is None or module.partition(".")[0] == "thriftune":
        return False
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    if file is None:  # built in, or created at run time, as by a notebook or another console
        return found is None or module == "__main__"
    return not _is_installed(file) and not module.startswith("importlib")


def _is_installed(file: str) -> bool:
    parts = Path(file).parts
    return file.startswith(_INSTALLED) or "site-packages" in parts or "dist-packages" in parts


def _is_shown(what: Any) -> bool:
    """Return whether a value is stored as it is: a small number, which cannot be a password."""
    return what is None or (isinstance(what, (int, float)) and abs(what) < _LARGEST_SHOWN)
