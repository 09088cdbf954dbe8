"""How does a function reach a worker? Pickled, by value if it is of the main script, and kept with its study."""

from __future__ import annotations

import functools
import io
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
    """Writes the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(dumped)
    unfinished.replace(path)


def load(path: Path) -> dict[str, Any]:
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
