"""Where is the user's own store? What the environment and the configuration file say.

The first of these that is given: $THRIFTUNE_STORE, $THRIFTUNE_HOME, `[store]` in the configuration file, which is
thriftune/config.toml in $XDG_CONFIG_HOME or ~/.config, and else ~/.thriftune.
"""

from __future__ import annotations

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path

from thriftune.errors import SettingError

STORE_FILE = "studies.db"
"""The store's name in a folder."""

_KNOWN = {"store": ("path",)}
"""The tables of the configuration file and their keys."""


def config_file() -> Path:
    """Return the path of the configuration file, which need not exist."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification has relative paths ignored.
    folder = Path(home) if Path(home).is_absolute() else Path("~/.config").expanduser()
    return folder / "thriftune" / "config.toml"


def default_store() -> str | Path:
    """Return the path or URL of the store to use where none is named."""
    if given := os.environ.get("THRIFTUNE_STORE"):
        return given
    if home := os.environ.get("THRIFTUNE_HOME"):
        return Path(home) / STORE_FILE
    return _store_of(config_file()) or Path("~/.thriftune") / STORE_FILE


def _store_of(file: Path) -> str | Path | None:
    """Return the store that the configuration file names; None if it names none, or is not there."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{file}: is no valid TOML: {error}; mend it, or remove it") from None
    except OSError as error:
        raise SettingError(f"{file}: the configuration cannot be read ({error.strerror})") from None
    for name, table in tables.items():
        _check_known(file, name, tuple(_KNOWN))
        if not isinstance(table, dict):
            raise SettingError(f"{file}: {name}: {table!r} must be a table: write [{name}]")
        for key in table:
            _check_known(file, key, _KNOWN[name])
    path = tables.get("store", {}).get("path")
    if path is None:
        return None
    if not isinstance(path, str) or not path:
        raise SettingError(f'{file}: path: {path!r} must be a path or URL of a store, such as "~/studies.db"')
    if "://" in path or path == ":memory:":
        return path
    return f"{file.parent / Path(path).expanduser()}{'/' if path.endswith('/') else ''}"  # which marks a folder


def _check_known(file: Path, key: str, known: tuple[str, ...]) -> None:
    if key not in known:
        close = get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it may have {', '.join(known)}"
        raise SettingError(f"{file}: {key}: unknown; {hint}")
