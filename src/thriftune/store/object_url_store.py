"""The store in an object store, such as s3://bucket/prefix.

Every machine that can read the object store sees the same studies. A study's log is shipped there by the process
that drives it. That process works on a copy, in an SQLite store in the user's cache folder, so that nothing waits
for the object store but what must not be lost.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from thriftune.common.user_cache import cache_folder, user_cache
from thriftune.errors import StoreConflict, StoreError, StudyBusy, StudyDamaged, StudyExists, StudyNotFound
from thriftune.object_store.protocol import ObjectStore
from thriftune.object_store.urls import folder_of, is_object_url
from thriftune.state.events import Codec, Event
from thriftune.store.default_store import STORE_FILE
from thriftune.store.heartbeat import Heartbeat, ServerClock
from thriftune.store.log_segments import Line
from thriftune.store.messages import busy, conflict, exists, new_name_exists
from thriftune.store.output_objects import fetch_output
from thriftune.store.protocol import DriverInfo, StudyListing
from thriftune.store.shipped_log import ShippedLogReader
from thriftune.store.shipper import REQUESTS, Shipper
from thriftune.store.shipping import StudyShipping
from thriftune.store.sqlite import SqliteStore
from thriftune.store.study_files import StudyFiles
from thriftune.store.study_index import RECORD_KEY, StudyIndex, StudyRecord, study_objects

_CACHE = "stores"
"""The folder of the user's cache with the copies of studies that this machine has driven."""


class ObjectUrlStore:
    """The studies below a URL of an object store.

    - `objects`: of the URL.
    - `url`: as the user has written it.
    """

    def __init__(self, objects: ObjectStore, url: str) -> None:
        self._objects = objects
        self._url = url
        self._index = StudyIndex(objects, url)
        self._clock = ServerClock(objects)
        self._lock = threading.RLock()  # guards the attributes below
        self._local_store: SqliteStore | None = None  # opened when a study is first driven
        self._shippings: dict[str, StudyShipping] = {}  # by the study's id: of all that this object has driven
        self._driven: dict[str, tuple[StudyRecord, Shipper]] = {}  # by name: what this object drives now
        self._readers: dict[str, ShippedLogReader] = {}  # by the study's id
        self._closed = False

    @property
    def url(self) -> str:
        return self._url

    @property
    def folder(self) -> Path:
        # A folder that several machines share can have the files itself.
        return folder_of(self._url) / "files" if self._is_folder else self._local.folder

    @property
    def _is_folder(self) -> bool:
        return not is_object_url(self._url)

    # --- studies ------------------------------------------------------------------------------------------

    def create(self, name: str, spec: Mapping[str, Any], at: float, entries: Sequence[Event] = ()) -> None:
        self._check_open()
        with suppress(StudyNotFound):
            self._index.find(name)
            raise StudyExists(exists(name, self._url))
        study = str(spec.get("id") or secrets.token_hex(16))
        json.dumps(spec)  # raises TypeError before anything is written
        self._forget(study)
        self._local.create(study, spec, at, entries)
        record = StudyRecord(study, name, at, spec, {})
        try:
            if entries:
                with self._shipping(study).drive(record, warnings.warn):
                    pass
            self._index.add(replace(record, entries=len(entries)))
        except BaseException:
            with suppress(Exception):
                self._index.remove(study, name)
            self._forget(study)
            raise

    def spec(self, name: str) -> dict[str, Any]:
        if name in self._driven:
            return self._local.spec(self._driven[name][0].id)
        return dict(self._undamaged(name).spec)

    def update_spec(self, name: str, spec: Mapping[str, Any]) -> None:
        record = self._record(name)
        if name in self._driven:
            self._local.update_spec(record.id, spec)
            self._driven[name][1].ship_record()
        else:
            self._index.write(replace(record, spec=spec, damage=""))

    def studies(self) -> list[StudyListing]:
        self._check_open()
        return [self._listing(record) for record in self._index.all()]

    def _listing(self, record: StudyRecord) -> StudyListing:
        driver = self._driver_of(record)
        if record.name in self._driven:
            local = self._local.listing(record.id)
            return replace(local, name=record.name, driver=driver)
        # The summary may lag behind the log after a driver was killed. The log would have to be read to know more.
        entries = int(record.summary.get("entries", record.entries))
        return StudyListing(
            record.name, record.created_at, dict(record.spec), dict(record.summary), entries, driver, record.damage
        )

    def rename(self, name: str, new: str, spec: Mapping[str, Any]) -> None:
        record = self._record(name)
        with self._held(record):
            try:
                self._index.rename(record, new, spec)
            except StudyExists:
                raise StudyExists(new_name_exists(new, self._url)) from None

    def delete(self, name: str) -> None:
        record = self._record(name)
        with self._held(record):
            self._index.remove(record.id, name)
        self._forget(record.id)

    # --- the log ------------------------------------------------------------------------------------------

    def append(
        self, name: str, after: int, entries: Sequence[Event], summary: Mapping[str, Any] | None = None
    ) -> None:
        if name not in self._driven:
            with self.drive(name):
                return self.append(name, after, entries, summary)
        study = self._driven[name][0].id
        try:
            self._local.append(study, after, entries, summary)
        except StoreConflict:
            raise StoreConflict(conflict(name, self._url, self._local.length(study), after)) from None

    def sync(self) -> None:
        self._check_open()
        if self._local_store is not None:
            self._local_store.sync()

    def read(self, name: str, after: int = 0) -> list[Event]:
        if name in self._driven:
            return self._local.read(self._driven[name][0].id, after)
        number, events = after, list[Event]()
        try:
            for number, line in enumerate(self._lines(name)[after:], after + 1):  # noqa: B007 (for the error)
                events.append(Codec.event(line.kind, line.body))
        except ValueError as error:
            raise StudyDamaged(name, self._url, f"entry {number}: {error}") from error
        return events

    def length(self, name: str) -> int:
        if name in self._driven:
            return self._local.length(self._driven[name][0].id)
        return len(self._lines(name))

    def _lines(self, name: str) -> Sequence[Line]:
        record = self._record(name)
        with self._lock:
            reader = self._readers.get(record.id)
            if reader is None:
                reader = ShippedLogReader(study_objects(self._objects, record.id), name, self._url)
                self._readers[record.id] = reader
            return list(reader.read(record.entries)[1])

    # --- drivers and requests -----------------------------------------------------------------------------

    @contextmanager
    def drive(self, name: str) -> Iterator[None]:
        record = self._undamaged(name)
        local = self._local
        self._prepare_local(record)
        with self._lock_held(record):
            local.update_spec(record.id, record.spec)
            with self._shipping(record.id).drive(record, warnings.warn) as shipper:
                shipper.has_files_elsewhere = self._is_folder
                self._driven[name] = record, shipper
                try:
                    yield
                finally:
                    del self._driven[name]

    def shipper(self, name: str) -> Shipper:
        """Return what ships a study that this object drives."""
        return self._driven[name][1]

    def fetch_output(self, name: str, trial: int | None = None) -> None:
        """Copy the output of a trial, or of all, to this machine, unless it was the last to drive the study."""
        record = self._record(name)
        folder = self.folder / name
        if self._is_folder:
            return
        with suppress(StudyNotFound):
            newest = ShippedLogReader(study_objects(self._objects, record.id), name, self._url).epoch()
            if newest is not None and self._local.shipped_by(record.id) == newest.drive:
                return
        fetch_output(study_objects(self._objects, record.id), folder, trial)

    def driver(self, name: str) -> DriverInfo | None:
        return self._driver_of(self._record(name))

    def request(self, name: str, what: str, at: float) -> None:
        content = json.dumps([what, at]).encode()
        key = f"{REQUESTS}{time.time_ns():020}-{secrets.token_hex(4)}.json"
        study_objects(self._objects, self._record(name).id).put(key, content)

    def take_requests(self, name: str) -> list[str]:
        if name in self._driven:
            record, shipper = self._driven[name]
            shipper.raise_if_lost()
            return self._local.take_requests(record.id)
        objects = study_objects(self._objects, self._record(name).id)
        keys = [info.key for info in objects.list_objects(REQUESTS)]
        requests = [str(json.loads(objects.get(key))[0]) for key in keys]
        objects.delete(keys)
        with suppress(StudyNotFound):  # a short drive, as of append(), may have fetched some
            if self._local_store is not None:
                requests = self._local_store.take_requests(self._record(name).id) + requests
        return requests

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._local_store is not None:
                self._local_store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- helpers ------------------------------------------------------------------------------------------

    @property
    def _local(self) -> SqliteStore:
        with self._lock:
            self._check_open()
            if self._local_store is None:
                self._local_store = SqliteStore(user_cache(_CACHE) / self._cache_name / STORE_FILE)
            return self._local_store

    @property
    def _cache_name(self) -> str:
        return hashlib.sha256(self._url.encode()).hexdigest()[:16]

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"store {self._url} is closed")

    def _record(self, name: str) -> StudyRecord:
        self._check_open()
        return self._driven[name][0] if name in self._driven else self._index.find(name)

    def _undamaged(self, name: str) -> StudyRecord:
        record = self._record(name)
        if record.damage:
            raise StudyDamaged(name, self._url, record.damage)
        return record

    def _driver_of(self, record: StudyRecord) -> DriverInfo | None:
        if record.name in self._driven:
            return self._shipping(record.id).claim.driver
        if record.driver is None:
            return None
        living = Heartbeat(study_objects(self._objects, record.id), self._clock).living()
        if living is None or self._was_killed_here(record.id, living.drive):
            return None
        return living.driver

    def _was_killed_here(self, study: str, drive: str) -> bool:
        """Return whether a drive was one of this machine and user, and its process has ended."""
        if not (cache_folder() / _CACHE / self._cache_name / STORE_FILE).exists():
            return False
        with suppress(StudyNotFound):
            return self._local.shipped_by(study) == drive and self._local.driver(study) is None
        return False

    def _shipping(self, study: str) -> StudyShipping:
        with self._lock:
            if study not in self._shippings:
                self._shippings[study] = StudyShipping(self._objects, self._url, self._local, study, study)
            return self._shippings[study]

    def _prepare_local(self, record: StudyRecord) -> None:
        """Make sure that the local store has the study, and that no deleted study has its folder."""
        with suppress(StudyExists):
            self._local.create(record.id, record.spec, record.created_at)
        if record.name in (".", "..") or "/" in record.name:  # no study of thriftune's own
            return
        folder = self.folder / record.name
        try:
            owner = (folder / "owner").read_text()
        except (OSError, ValueError):
            return
        if owner != record.id and study_objects(self._objects, owner).info(RECORD_KEY) is None:
            StudyFiles(folder, owner).remove()

    @contextmanager
    def _lock_held(self, record: StudyRecord) -> Iterator[None]:
        """Hold the study's lock on this machine. Raises StudyBusy."""
        lock = self._local.drive(record.id)
        try:
            lock.__enter__()
        except StudyBusy as error:
            driver = self._driver_of(record) or self._local.driver(record.id)
            if driver is None:
                raise StudyBusy(str(error)) from None
            raise StudyBusy(busy(record.name, self._url, driver)) from None
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    @contextmanager
    def _held(self, record: StudyRecord) -> Iterator[None]:
        """Keep all drivers from the study while it is renamed or deleted. Raises StudyBusy."""
        self._prepare_local(record)
        with self._lock_held(record), self._shipping(record.id).fenced(record.name):
            yield

    def _forget(self, study: str) -> None:
        """Remove the study from the local store."""
        self._shippings.pop(study, None)
        self._readers.pop(study, None)
        with suppress(StudyNotFound, StudyBusy):
            self._local.delete(study)
