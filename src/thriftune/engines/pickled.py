"""How does a function reach a worker? Pickled, by value if it is of the main script, and kept with its study."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

from thriftune.errors import SettingError


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        # A cached function of the main script, often the one that loads the data, would go by name, and the main
        # script of a worker is another.
        if isinstance(obj, functools._lru_cache_wrapper) and obj.__module__ == "__main__":
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def dump(name: str, contents: dict[str, Any]) -> bytes:
    """The contents in the form that a worker can load; SettingError if they have none."""
    stream = io.BytesIO()
    try:
        _Pickler(stream).dump(contents)
    except Exception as error:
        raise SettingError(
            f"train: {name} cannot be sent to a worker process ({error}); make what it uses inside the function, "
            "or import it from a module"
        ) from error
    return stream.getvalue()


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
