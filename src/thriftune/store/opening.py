"""Opens a store by its path or URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thriftune.errors import SettingError
from thriftune.store.default_store import STORE_FILE, default_store
from thriftune.store.protocol import Store


def open_store(where: str | Path | None = None, *, create: bool = True) -> Store:
    """The store at `where`: a file or folder, "sqlite:///path", ":memory:", or None for the user's own store.

    location.py says which the user's own store is. With `create` off, as for commands that only look, a store that
    is not there raises StudyNotFound instead of being made.
    """
    # Late, so that those who need only the types do not load a database.
    from thriftune.store.sqlite import SqliteStore

    if where is None:
        where = default_store()
    if where == ":memory:":
        return SqliteStore(None)
    if isinstance(where, str) and "://" in where:
        scheme, _, rest = where.partition("://")
        if scheme != "sqlite" or not rest.startswith("/") or rest == "/":
            # The rest is not shown: it may hold a password.
            raise SettingError(
                f"store: a {scheme}:// URL of this form is not supported; "
                'use a path, "sqlite:///path" or ":memory:"'
            )
        where = rest[1:]
    path = Path(where).expanduser()
    is_folder = path.is_dir() or str(where).endswith("/")
    return SqliteStore(path / STORE_FILE if is_folder else path, create=create)


@contextmanager
def use_store(store: str | Path | Store | None, *, create: bool = True) -> Iterator[Store]:
    """Open the store for the time inside. A store given as an object stays open afterwards."""
    if store is None or isinstance(store, (str, Path)):
        with open_store(store, create=create) as found:
            yield found
    else:
        yield store
