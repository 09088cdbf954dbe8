"""Find large objects that are pickled with a training function.

Such an object is often a data set in a global variable. It is stored with the study and loaded by each worker,
which takes unexpected space and time.
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
"""The size above which the user gets a warning. The code of a script is much smaller."""


def size_warning(train: Callable[..., object], pickled_bytes: int) -> str:
    """Return a warning if a pickled training function is large.

    Returns an empty string if it is small.
    """
    if pickled_bytes <= LARGE_BYTES:
        return ""
    sizes = {name: _size(value) for name, value in pickled_objects(train)}
    largest = max(sizes, key=lambda name: sizes[name], default="")
    mostly = f", mostly {largest} ({_megabytes(sizes[largest])})" if largest else ""
    return (
        f"train: the function uses {_megabytes(pickled_bytes)} of objects{mostly}, which are stored with the "
        "study and loaded by each worker; load large data from a file inside the function instead"
    )


def pickled_objects(train: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each object that is pickled with a function.

    Examples are the globals that the function uses.
    """
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
    if by_name or not isinstance(function, FunctionType):  # workers import the function of a module
        return
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from ((name, cell.cell_contents) for name, cell in cells)
    yield from _defaults(function)
    used = dict.fromkeys(_global_names(function.__code__))
    yield from ((name, function.__globals__[name]) for name in used if name in function.__globals__)


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each default argument."""
    defaults = function.__defaults__ or ()
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the names of the globals that the code reads."""
    yield from (each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # a function or comprehension in it
            yield from _global_names(constant)


def _size(value: Any) -> int:
    """Return the size of a pickled value in bytes; 0 if it cannot be pickled.

    The data of arrays is counted without a copy.
    """
    buffers: list[int] = []

    def count(buffer: pickle.PickleBuffer) -> None:
        buffers.append(buffer.raw().nbytes)

    stream = io.BytesIO()
    try:
        cloudpickle.CloudPickler(stream, protocol=5, buffer_callback=count).dump(value)
    except Exception:  # it was pickled as a part of the function, perhaps in another way
        return 0
    return stream.tell() + sum(buffers)


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
