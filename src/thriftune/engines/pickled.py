"""Pickle the training function of a script, and store it with the study.

Functions of the main script are pickled by value. The file has two parts: a line of JSON with the script's
arguments, and the pickle. The arguments come first because sys.argv must be set before the pickle is loaded: this
imports modules, which may read sys.argv.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle

from thriftune.errors import SettingError

SCRIPTS = ("__main__", "__mp_main__")
"""Names of the script's module: in the process that runs it, and in processes that multiprocessing spawns."""


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        # cloudpickle pickles a cached function by name. This fails for functions of the main script, because a
        # worker has another one. Functions that load data are often cached.
        if isinstance(obj, functools._lru_cache_wrapper) and obj.__module__ in SCRIPTS:
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def dump(name: str, contents: dict[str, Any]) -> bytes:
    """Return the contents and sys.argv as the bytes of a file for load().

    Raises SettingError if the contents cannot be pickled. `name`: the name of the training function, for the
    error.
    """
    stream = io.BytesIO()
    stream.write(json.dumps({"argv": [str(argument) for argument in sys.argv]}).encode() + b"\n")
    try:
        with _by_value({getattr(contents.get("train"), "__module__", ""), "__mp_main__"}):
            _Pickler(stream).dump(contents)
    except Exception as error:
        raise SettingError(
            f"train: {name} cannot be sent to a worker process ({error}); create what it uses inside the "
            "function, or import it from a module"
        ) from error
    return stream.getvalue()


@contextlib.contextmanager
def _by_value(modules: Collection[str]) -> Iterator[None]:
    """Pickle objects of these modules by value, if other processes cannot import them.

    Such a module is a script that was run by multiprocessing or runpy.run_path(). cloudpickle handles __main__
    itself.
    """
    loaded = [sys.modules[name] for name in modules if name in sys.modules and name != "__main__"]
    scripts = [each for each in loaded if each.__name__ in SCRIPTS or getattr(each, "__spec__", None) is None]
    for module in scripts:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in scripts:
            cloudpickle.unregister_pickle_by_value(module)


def write(path: Path, dumped: bytes) -> None:
    """Write a file that only its owner can read.

    If this fails, no incomplete file of that name exists.
    """
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(dumped)
    unfinished.replace(path)


def check_owner(path: Path) -> None:
    """Raise SettingError if another user may have written the file.

    Called before load(), which runs code from the file.
    """
    for each in dict.fromkeys((path, path.parent, path.resolve().parent)):
        try:
            status = each.stat()
        except OSError:
            continue  # load() raises the error
        if status.st_uid not in (os.geteuid(), 0):
            raise SettingError(
                f"{each} belongs to another user, {status.st_uid}, and resuming the study would run its code; "
                "run the script of the study again instead, or change the owner of the folder if you trust it"
            )
        if status.st_mode & 0o022:
            raise SettingError(
                f"{each} can be written by other users, and resuming the study would run its code; if you "
                f"trust it: chmod go-w {path.parent} {path}"
            )


def load(path: Path) -> dict[str, Any]:
    """Unpickle a file that write() has written, and return its contents.

    This runs code from the file, so check_owner() must be called before.
    """
    try:
        with path.open("rb") as stream:
            _read_arguments(stream)
            return cloudpickle.load(stream)  # type: ignore[no-any-return]
    except OSError as error:
        raise SettingError(
            f"the training function stored in {path} cannot be read ({error.strerror}); "
            "run the script of the study again instead"
        ) from None
    except AttributeError as error:
        if "__main__" not in str(error):
            raise
        raise SettingError(
            f"the training function needs something of the main script that cannot be sent along ({error}); "
            "move it into a module, or create it inside the function"
        ) from None


def set_arguments(path: Path) -> None:
    """Set sys.argv to the arguments of the script that has written the file.

    Called before load().
    """
    with contextlib.suppress(OSError):  # load() raises the error
        with path.open("rb") as stream:
            arguments = _read_arguments(stream)
        if arguments is not None:
            sys.argv = arguments


def _read_arguments(stream: BinaryIO) -> list[str] | None:
    """Read and return the script's arguments.

    Returns None for a file of an older version of thriftune, which has no arguments.
    """
    if stream.read(1) != b"{":  # a pickle begins with another byte
        stream.seek(0)
        return None
    stream.seek(0)
    return json.loads(stream.readline())["argv"]  # type: ignore[no-any-return]
