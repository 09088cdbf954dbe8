"""Find the user's default store.

It is named by the first of these that is set: $THRIFTUNE_STORE, $THRIFTUNE_HOME, and `[store]` in the
configuration file. If none is set, it is in ~/.thriftune. The configuration file is thriftune/config.toml in
$XDG_CONFIG_HOME or ~/.config.
"""

from __future__ import annotations

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path

from thriftune.errors import SettingError

STORE_FILE = "studies.db"
"""The file name of a store for which only the folder is given."""

_KEYS = {"store": ("path",)}
"""The allowed keys of each table of the configuration file."""


def config_file() -> Path:
    """Return the path of the configuration file, whether or not it exists."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification requires that relative paths are ignored.
    folder = Path(home) if Path(home).is_absolute() else Path("~/.config").expanduser()
    return folder / "thriftune" / "config.toml"


def default_store() -> str | Path:
    """Return the path or URL of the default store."""
    if store := os.environ.get("THRIFTUNE_STORE"):
        return store
    if home := os.environ.get("THRIFTUNE_HOME"):
        return Path(home) / STORE_FILE
    return _configured_store(config_file()) or Path("~/.thriftune") / STORE_FILE


def _configured_store(file: Path) -> str | Path | None:
    """Return the store that the configuration file names.

    Returns None if it names none or does not exist.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{file}: not valid TOML: {error}; correct the file or remove it") from None
    except OSError as error:
        raise SettingError(f"{file}: the configuration cannot be read ({error.strerror})") from None
    for name, table in tables.items():
        _check_known(file, name, tuple(_KEYS))
        if not isinstance(table, dict):
            raise SettingError(f"{file}: {name}: {table!r} must be a table: write [{name}]")
        for key in table:
            _check_known(file, key, _KEYS[name])
    path = tables.get("store", {}).get("path")
    if path is None:
        return None
    if not isinstance(path, str) or not path:
        raise SettingError(f'{file}: path: {path!r} must be a path or URL of a store, such as "~/studies.db"')
    if "://" in path or path == ":memory:":
        return path
    slash = "/" if path.endswith("/") else ""  # the slash says that the path is a folder
    return f"{file.parent / Path(path).expanduser()}{slash}"


def _check_known(file: Path, key: str, known: tuple[str, ...]) -> None:
    if key not in known:
        similar = get_close_matches(key, known, n=1)
        hint = f"did you mean {similar[0]}?" if similar else f"it may have {', '.join(known)}"
        raise SettingError(f"{file}: {key}: unknown; {hint}")
