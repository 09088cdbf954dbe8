"""How does a function reach a worker? Pickled, by value if it is of the main script, and kept with its study.

The file has two parts: a line of JSON with the script's arguments, and the pickle. Modules that the pickle names
are imported while it is loaded, and may read the arguments, so these can be read first.
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
"""The script's module: as it is run, and as multiprocessing has it in a process that it spawns."""


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        # A cached function of the main script, often the one that loads the data, would go by name, and the main
        # script of a worker is another.
        if isinstance(obj, functools._lru_cache_wrapper) and obj.__module__ in SCRIPTS:
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def dump(name: str, contents: dict[str, Any]) -> bytes:
    """The contents, with sys.argv, in the form that a worker can load; SettingError if they have none."""
    stream = io.BytesIO()
    stream.write(json.dumps({"argv": [str(argument) for argument in sys.argv]}).encode() + b"\n")
    try:
        with _by_value({getattr(contents.get("train"), "__module__", ""), "__mp_main__"}):
            _Pickler(stream).dump(contents)
    except Exception as error:
        raise SettingError(
            f"train: {name} cannot be sent to a worker process ({error}); make what it uses inside the function, "
            "or import it from a module"
        ) from error
    return stream.getvalue()


@contextlib.contextmanager
def _by_value(modules: Collection[str]) -> Iterator[None]:
    """Have what is of these modules pickled by value, if no other process can import them.

    That is so for a script that multiprocessing or runpy.run_path() runs. cloudpickle knows it of __main__.
    """
    found = [sys.modules[name] for name in modules if name in sys.modules and name != "__main__"]
    alone = [each for each in found if each.__name__ in SCRIPTS or getattr(each, "__spec__", None) is None]
    for module in alone:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in alone:
            cloudpickle.unregister_pickle_by_value(module)


def keep(path: Path, dumped: bytes) -> None:
    """Write the file whole or not at all, for its owner alone."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(dumped)
    unfinished.replace(path)


def check_owner(path: Path) -> None:
    """Raise SettingError if another user may have written the file. Called before load(), which runs its code."""
    for each in dict.fromkeys((path, path.parent, path.resolve().parent)):
        try:
            found = each.stat()
        except OSError:
            continue  # load() says what is wrong
        if found.st_uid not in (os.geteuid(), 0):
            raise SettingError(
                f"{each} belongs to another user, {found.st_uid}, and resuming the study would run its code; "
                "run the script that began the study again instead, or make the folder yours if you trust it"
            )
        if found.st_mode & 0o022:
            raise SettingError(
                f"{each} can be written by other users, and resuming the study would run its code; if you "
                f"trust it: chmod go-w {path.parent} {path}"
            )


def load(path: Path) -> dict[str, Any]:
    """Unpickle a file that keep() wrote. This runs code: see check_owner()."""
    try:
        with path.open("rb") as stream:
            _read_arguments(stream)
            return cloudpickle.load(stream)  # type: ignore[no-any-return]
    except OSError as error:
        raise SettingError(
            f"the training function kept in {path} cannot be read ({error.strerror}); "
            "run the script that began the study again instead"
        ) from None
    except AttributeError as error:
        if "__main__" not in str(error):
            raise
        raise SettingError(
            f"the training function needs something of the main script that cannot be sent along ({error}); "
            "move it into a module, or make it inside the function"
        ) from None


def set_arguments(path: Path) -> None:
    """Set sys.argv to that of the script whose function is in the file. Called before load()."""
    with contextlib.suppress(OSError):  # load() says what is wrong
        with path.open("rb") as stream:
            arguments = _read_arguments(stream)
        if arguments is not None:
            sys.argv = arguments


def _read_arguments(stream: BinaryIO) -> list[str] | None:
    """Read up to where the pickle begins. Files of older versions have no arguments, which returns None."""
    if stream.read(1) != b"{":  # a pickle begins with another byte
        stream.seek(0)
        return None
    stream.seek(0)
    return json.loads(stream.readline())["argv"]  # type: ignore[no-any-return]
