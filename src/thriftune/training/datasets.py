"""The datasets of a trial: `trial.data["train"]` is a path on this machine.

A dataset that is a local path is used in place. That of a URL is fetched into the cache of this machine when its
path is first read. Workers import this module only when a trial reads its data.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from thriftune.common.spelling import did_you_mean
from thriftune.errors import DataError, SettingError
from thriftune.object_store.dataset_listing import OpenObjects
from thriftune.object_store.protocol import ObjectStoreError
from thriftune.object_store.urls import is_object_url
from thriftune.training.data_cache import DataCache, LocalCopy


class Datasets(Mapping[str, Path]):
    """The datasets of a study by name. Each value is the path of a file or folder on this machine.

    The first access to a name fetches the dataset, unless it is in the cache. Any thread may use it.
    """

    def __init__(
        self,
        sources: Mapping[str, Sequence[str]],
        warn: Callable[[str], object],
        open_objects: OpenObjects | None = None,
    ) -> None:
        """Fetch nothing yet.

        - `sources`: the URL or path of each dataset, and its version when the study was started; see Run.data.
        - `warn`: called with warnings for the user.
        - `open_objects`: opens object stores.
        """
        self._sources = sources
        self._warn = warn
        self._open_objects = open_objects
        self._lock = threading.Lock()
        self._copies: dict[str, LocalCopy] = {}  # those that this trial uses
        self._process = os.getpid()

    def __getitem__(self, name: str) -> Path:
        if name not in self._sources:
            known = ", ".join(self._sources) or "none: give data={NAME: URL} to the study"
            hint = did_you_mean(name, self._sources) if isinstance(name, str) else ""
            raise KeyError(f"{name!r} is not a dataset of this study; {hint or f'it has {known}'}")
        text, version = self._sources[name]
        if not is_object_url(text):
            if not (path := Path(text)).exists():
                raise DataError(f"data: {name}: {path} does not exist on this machine")
            return path
        if (copy := self._copies.get(name)) is not None:
            return copy.path
        if os.getpid() != self._process:  # object stores do not work after a fork
            raise DataError(
                f"data: {name}: this process was forked by the trial's; read trial.data[{name!r}] before that"
            )
        with self._lock:
            if name not in self._copies:
                self._copies[name] = self._fetch(name, text, version)
            return self._copies[name].path

    def _fetch(self, name: str, url: str, version: str) -> LocalCopy:
        def say(message: str) -> None:
            print(f"thriftune: data: {name}: {message}", file=sys.stderr, flush=True)

        try:
            copy = DataCache(self._open_objects).fetch(url, version, say)
        except (DataError, ObjectStoreError, SettingError) as error:
            raise DataError(f"data: {name}: {error}") from error
        if copy.was_damaged:
            self._warn(f"data: {name}: another program has changed the copy of {url}, so it was fetched again")
        if version and copy.version != version:
            self._warn(f"data: {name}: {url} has changed since the study started; new trials use the new data")
        return copy

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __repr__(self) -> str:
        return f"<datasets {', '.join(self._sources)}>"

    def close(self) -> None:
        """Allow that the copies in the cache are removed. Called when the trial's attempt ends."""
        with self._lock:
            for copy in self._copies.values():
                copy.release()
            self._copies.clear()
