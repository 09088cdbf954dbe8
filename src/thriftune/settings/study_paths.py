"""Read the names of studies as users write them: "name", or "other.db:name" in another store."""

from __future__ import annotations

from pathlib import Path


def store_and_name(source: str) -> tuple[str, str]:
    """Return the store's path, empty for the new study's own store, and the study's name, which has no colon."""
    store, _, name = source.rpartition(":")
    return store, name


def absolute_source(folder: Path, source: str) -> str:
    """Return a source whose store's path is relative to this folder with an absolute path."""
    store, name = store_and_name(source)
    return f"{folder / Path(store).expanduser()}:{name}" if store and "://" not in store else source
