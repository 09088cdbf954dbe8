"""Open a store by its path or URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from thriftune.errors import SettingError
from thriftune.object_store.urls import is_object_url, parse_object_url
from thriftune.store.default_store import STORE_FILE, default_store
from thriftune.store.protocol import Store


def open_store(where: str | Path | None = None, *, create: bool = True) -> Store:
    """Open a store.

    - `where`: the path of a file or folder, "sqlite:///path", ":memory:", the URL of an object store such as
      "s3://bucket/prefix" or "file:///folder", or None for the default store.
    - `create`: create the store if it does not exist. Otherwise StudyNotFound is raised. Commands that only show
      studies do not create a store.
    """
    # Imported here, so that sqlite3 is loaded only if a store is opened.
    from thriftune.store.sqlite import SqliteStore

    if where is None:
        where = default_store()
    if where == ":memory:":
        return SqliteStore(None)
    if isinstance(where, str) and is_object_store(where):
        # Imported here, so that commands on local stores do not load it.
        from thriftune.object_store.opening import open_objects
        from thriftune.object_store.reopening import ReopenedObjects
        from thriftune.store.object_url_store import ObjectUrlStore

        place = parse_object_url(where, "store") if is_object_url(where) else where
        return ObjectUrlStore(ReopenedObjects(partial(open_objects, place)), where)
    if isinstance(where, str) and "://" in where:
        scheme, _, rest = where.partition("://")
        if scheme != "sqlite" or not rest.startswith("/") or rest == "/":
            # The error does not show the rest of the URL, which may contain a password.
            what = "sqlite:// without a path" if scheme == "sqlite" else f"{scheme}://"
            raise SettingError(
                f'store: {what} is not supported; use a path, "sqlite:///path", ":memory:", or an object store: '
                "s3://, gs://, az:// or file://"
            )
        where = rest[1:]
    path = Path(where).expanduser()
    is_folder = path.is_dir() or str(where).endswith("/")
    return SqliteStore(path / STORE_FILE if is_folder else path, create=create)


def is_object_store(where: str) -> bool:
    """Return whether the place of a store is in an object store."""
    return is_object_url(where) or where.startswith("file://")


@contextmanager
def use_store(store: str | Path | Store | None, *, create: bool = True) -> Iterator[Store]:
    """Open a store for the time of a `with` block.

    A Store object is yielded unchanged, and stays open afterwards. The arguments are those of open_store().
    """
    if store is None or isinstance(store, (str, Path)):
        with open_store(store, create=create) as opened:
            yield opened
    else:
        yield store
