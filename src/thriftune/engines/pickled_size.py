"""Finds out which large object a training function brings along, such as a data set in a global variable.

It is stored with the study and loaded by each worker, which takes room and time that nobody expects.
"""

from __future__ import annotations

import dis
import functools
import io
import pickle
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import cloudpickle

from thriftune.engines import pickled

LARGE_BYTES = 20_000_000
"""A function with more than this is remarked upon. A script's own code is far smaller."""


def remark(train: Callable[..., object], pickled_bytes: int) -> str:
    """Return what to tell the user about the size of a pickled training function; nothing if it is small."""
    if pickled_bytes <= LARGE_BYTES:
        return ""
    sizes = {name: _size(value) for name, value in brought_along(train)}
    largest = max(sizes, key=lambda name: sizes[name], default="")
    mostly = f", mostly {largest} ({_megabytes(sizes[largest])})" if largest else ""
    return (
        f"train: the function brings {_megabytes(pickled_bytes)} along{mostly}, which are stored with the study "
        "and loaded by each worker; load large data inside the function instead, from a file"
    )


def brought_along(train: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and values of what is pickled with the function: globals and closure variables, for one."""
    while isinstance(train, functools.partial):
        yield from ((f"argument {number}", value) for number, value in enumerate(train.args))
        yield from train.keywords.items()
        train = train.func
    function = getattr(train, "__func__", train)
    if function is not train:  # a method
        yield from getattr(train.__self__, "__dict__", {}).items()
    elif not isinstance(function, FunctionType):  # an object with __call__
        yield from getattr(train, "__dict__", {}).items()
        function = type(train).__call__
    by_name = getattr(function, "__module__", "") not in pickled.SCRIPTS and function.__qualname__.isidentifier()
    if by_name or not isinstance(function, FunctionType):  # a module's function is imported by workers
        return
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from ((name, cell.cell_contents) for name, cell in cells)
    yield from _defaults(function)
    used = dict.fromkeys(_global_names(function.__code__))
    yield from ((name, function.__globals__[name]) for name in used if name in function.__globals__)


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    given = function.__defaults__ or ()
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(arguments[len(arguments) - len(given) :], given, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _global_names(code: CodeType) -> Iterator[str]:
    yield from (each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # a function or comprehension in it
            yield from _global_names(constant)


def _size(value: Any) -> int:
    """Return the bytes of a value when pickled; 0 if it cannot be. Arrays are not copied."""
    buffers: list[int] = []

    def count(buffer: pickle.PickleBuffer) -> None:
        buffers.append(buffer.raw().nbytes)

    stream = io.BytesIO()
    try:
        cloudpickle.CloudPickler(stream, protocol=5, buffer_callback=count).dump(value)
    except Exception:  # the whole was pickled, perhaps in another way; only its largest part is looked for
        return 0
    return stream.tell() + sum(buffers)


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
