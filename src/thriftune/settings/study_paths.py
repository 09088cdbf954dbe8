"""Read the names of studies as users write them: "name", or "other.db:name" in another store."""

from __future__ import annotations

from pathlib import Path


def store_and_name(source: str) -> tuple[str, str]:
    """Return the store's path, empty for the new study's own store, and the study's name. Names have no colon."""
    store, _, name = source.rpartition(":")
    return store, name


def absolute_source(folder: Path, source: str) -> str:
    """Make the store's path in a source absolute; it is relative to this folder."""
    store, name = store_and_name(source)
    return f"{folder / Path(store).expanduser()}:{name}" if store and "://" not in store else source


def absolute_path(folder: Path, path: str) -> str:
    """Return a path that is relative to this folder as an absolute one. URLs and ":memory:" stay as they are."""
    return path if path == ":memory:" or "://" in path else str(folder / Path(path).expanduser())
