"""Compute digests of code, values, arrays and files; a change that means nothing does not change them."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

_MOST_BYTES = 256 << 20
"""Larger arrays and files are compared by size. Reading this much takes about half a second."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_NESTED, _MOST_ITEMS = 20, 100_000
"""Containers are read to this depth, and only if they have at most this many items."""


def source_digest(what: type | CodeType) -> str | None:
    """Return a digest of the source without comments, docstrings and layout; None if there is no source."""
    if isinstance(what, CodeType) and what.co_name == "<lambda>":
        return None  # its source would be the whole statement around it
    try:
        return digest(_normal(textwrap.dedent(inspect.getsource(what))).encode())
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return None


def _normal(source: str) -> str:
    """Return Python source in a standard layout, without docstrings. Raise SyntaxError or ValueError."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def code_digest(code: CodeType) -> str:
    """Return a digest of compiled code, with the version of Python, as each version compiles differently."""

    def parts(code: CodeType) -> Iterator[str]:
        yield repr((code.co_code, code.co_names, code.co_varnames))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from parts(constant)
            elif isinstance(constant, frozenset):  # its order differs between processes
                yield repr(sorted(map(repr, constant)))
            else:
                yield repr(constant)

    return f"{_python()}:{digest(''.join(parts(code)).encode())}"


def _python() -> str:
    return f"py{sys.version_info.major}.{sys.version_info.minor}"


def of_other_python(old: str, new: str) -> bool:
    """Return whether two digests cannot be compared, as different versions of Python compiled the code."""
    before, now = (text.partition(":")[0] if text.startswith("py") else "" for text in (old, new))
    return before != now


def data_digest(what: Any) -> str | None:
    """Return a digest of an array or a data frame; None for anything else."""
    module = type(what).__module__.partition(".")[0]
    if module == "numpy" and hasattr(what, "tobytes"):
        about = f"{what.dtype} {what.shape}"
        small = not what.dtype.hasobject and what.nbytes <= _MOST_BYTES
        return digest(about.encode() + (what.tobytes() if small else b""))
    if module == "pandas" and hasattr(what, "memory_usage"):
        from pandas.util import hash_pandas_object

        try:
            return digest(hash_pandas_object(what).to_numpy().tobytes())
        except (TypeError, ValueError):  # some of its values cannot be hashed
            return digest(repr(getattr(what, "shape", "")).encode())
    return None


def file_digest(path: Path) -> str:
    """Return a digest of a file; layout and comments of Python files do not count."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return f"{path.stat().st_size} bytes"
        content = path.read_bytes()
    except OSError:
        return "cannot be read"
    if path.suffix == ".py":
        try:
            return digest(_normal(content.decode()).encode())
        except (SyntaxError, ValueError, RecursionError):  # perhaps it is being edited
            return digest(content)
    return digest(content)


DIGEST = "blake2b-"
"""The beginning of every digest."""


def digest(content: bytes) -> str:
    """Return the digest of these bytes."""
    return DIGEST + hashlib.blake2b(content, digest_size=12).hexdigest()


def text_of(what: Any, depth: int = _NESTED) -> str | None:
    """Return a text that is the same for equal plain values and containers of them; None for other objects."""
    if isinstance(what, _PLAIN):
        with contextlib.suppress(ValueError):  # an integer of thousands of digits
            return repr(what)
        return None
    if depth == 0 or not isinstance(what, (dict, list, tuple, set, frozenset)) or len(what) > _MOST_ITEMS:
        return None
    if isinstance(what, dict):
        parts = [text_of(each, depth - 1) for item in what.items() for each in item]
    else:
        parts = [text_of(each, depth - 1) for each in what]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    kind = type(what).__name__
    return f"{kind}({', '.join(sorted(known) if isinstance(what, (set, frozenset)) else known)})"


def imports_of(path: Path, folder: Path) -> Iterator[Path]:
    """Yield the files that a Python file imports from its own folder or from `folder`, without running it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    own = path.resolve().parent
    for node in ast.walk(tree):
        homes = [own, folder]
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                homes = [own, *own.parents][node.level - 1 : node.level]
            module = f"{node.module}." if node.module else ""
            modules = [module.removesuffix("."), *(f"{module}{alias.name}" for alias in node.names)]
        else:
            continue
        for home in dict.fromkeys(homes):
            for module in modules:
                steps = module.split(".") if module else []
                for depth in range(1, len(steps) + 1):
                    place = home.joinpath(*steps[:depth])
                    yield from (each for each in (Path(f"{place}.py"), place / "__init__.py") if each.is_file())
