"""List and find the studies of an object store.

    names/digits.json            the id of the study of this name, created once
    studies/ID/study.json        the study's name, settings, summary and driver, as its driver has written them

The study's own record decides what its name is. Thus a rename that was cut short changes nothing: the name that is
not in the record leads nowhere, and may be taken, unless nothing else leads to the study.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from thriftune.errors import StoreError, StudyExists, StudyNotFound
from thriftune.object_store.below import ObjectsBelow
from thriftune.object_store.protocol import ObjectMissing, ObjectStore
from thriftune.store.epochs import Claim
from thriftune.store.heartbeat import KEY as HEARTBEAT_KEY
from thriftune.store.messages import exists, not_found

STUDIES = "studies"
RECORD_KEY = "study.json"

_NAMES = "names/"
_READABLE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_PARALLEL = 16  # requests at a time


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """What the object store tells of a study without its log.

    - `entries`: how many entries of the log were shipped. The log may have more by now.
    - `driver`: the drive that has written this last; None if it has ended cleanly.
    - `damage`: why the record cannot be read; empty if it can be.
    """

    id: str
    name: str
    created_at: float
    spec: Mapping[str, Any]
    summary: Mapping[str, Any]
    entries: int = 0
    driver: Claim | None = None
    damage: str = ""


def encode(record: StudyRecord) -> bytes:
    """Return the record as JSON."""
    values = asdict(record)
    del values["damage"]
    return json.dumps(values).encode()


def decode(study: str, name: str, data: bytes) -> StudyRecord:
    """Return the record in JSON of encode(). What cannot be read becomes a damaged record of this id and name."""
    try:
        values = json.loads(data)
        driver = values.pop("driver")
        record = StudyRecord(**values, driver=Claim(**driver) if driver else None)
        if not (
            record.id == study
            and isinstance(record.name, str)
            and isinstance(record.created_at, float | int)
            and isinstance(record.spec, dict)
            and isinstance(record.summary, dict)
            and isinstance(record.entries, int)
        ):
            raise ValueError("it has values of wrong types")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        damage = f"its settings cannot be read ({type(error).__name__}: {error})"
        return StudyRecord(study, name, 0.0, {}, {}, damage=damage)
    return record


def study_objects(objects: ObjectStore, study: str) -> ObjectsBelow:
    """Return the objects of the study with this id."""
    return ObjectsBelow(objects, f"{STUDIES}/{study}")


class StudyIndex:
    """The studies of an object store. `objects`: of the store's URL; `url`: as the user has written it."""

    def __init__(self, objects: ObjectStore, url: str) -> None:
        self._objects = objects
        self._url = url

    def find(self, name: str) -> StudyRecord:
        """Return the study of this name. Raises StudyNotFound."""
        record = self._lookup(name)
        if record is None:
            raise StudyNotFound(not_found(name, self._url, [each.name for each in self.all()]))
        return record

    def all(self) -> list[StudyRecord]:
        """Return all studies, the newest first."""
        keys = [info.key for info in self._objects.list_objects(_NAMES)]
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="studies") as pool:
            found = [record for record in pool.map(self._read, keys) if record is not None]
        return sorted(found, key=lambda record: (record.created_at, record.name), reverse=True)

    def add(self, record: StudyRecord) -> None:
        """Add a study whose log was already shipped. Raises StudyExists."""
        self.write(record)
        self._take_name(record.name, record.id)

    def write(self, record: StudyRecord) -> None:
        """Replace the record of a study."""
        study_objects(self._objects, record.id).put(RECORD_KEY, encode(record))

    def rename(self, record: StudyRecord, new: str, spec: Mapping[str, Any]) -> StudyRecord:
        """Give the study another name and spec. Return its new record. Raises StudyExists."""
        self._take_name(new, record.id)
        renamed = replace(record, name=new, spec=spec)
        self.write(renamed)
        if new != record.name:
            self._objects.delete([_name_key(record.name)])
        return renamed

    def remove(self, study: str, *names: str) -> None:
        """Delete a study with all its objects. `names`: those that it may have, besides the one in its record.

        The record and then the name go last. If this is cut short, the study is still listed, and can be deleted
        again. Its log is damaged then, so that nobody can continue it.
        """
        objects = study_objects(self._objects, study)
        with suppress(ObjectMissing):
            names = (*names, decode(study, "", objects.get(RECORD_KEY)).name)
        last = (HEARTBEAT_KEY, RECORD_KEY)  # with the heartbeat, no driver starts meanwhile
        objects.delete(info.key for info in objects.list_objects() if info.key not in last)
        objects.delete(last)
        self._objects.delete([key for key in map(_name_key, dict.fromkeys(names)) if self._id_of(key) == study])

    def register(self, record: StudyRecord) -> None:
        """Take the study's name unless it has it. Raises StudyExists if another study has it."""
        if self._id_of(_name_key(record.name)) != record.id:
            self._take_name(record.name, record.id)

    def _take_name(self, name: str, study: str) -> None:
        key = _name_key(name)
        record = self._lookup(name)
        if record is not None and record.id != study:
            raise StudyExists(exists(name, self._url))
        content = json.dumps({"id": study, "name": name}).encode()
        if self._objects.create(key, content):
            return
        if self._read(key) is not None and self._id_of(key) != study:
            raise StudyExists(exists(name, self._url))
        self._objects.put(key, content)  # a leftover of a study that was renamed or deleted

    def _lookup(self, name: str) -> StudyRecord | None:
        return self._read(_name_key(name))

    def _read(self, key: str) -> StudyRecord | None:
        """Return the study to which an object of a name leads; None if it leads nowhere."""
        try:
            values = json.loads(self._objects.get(key))
            study, name = str(values["id"]), str(values["name"])
            record = decode(study, name, study_objects(self._objects, study).get(RECORD_KEY))
        except (ObjectMissing, ValueError, KeyError, TypeError):
            return None
        if record.name == name:
            return record
        if self._id_of(_name_key(record.name)) == study:
            return None
        # The server has carried out a write of the record from before a rename after it. No name would lead here.
        return replace(record, name=name, spec={**record.spec, "name": name})

    def _id_of(self, key: str) -> str:
        try:
            return str(json.loads(self._objects.get(key))["id"])
        except (ObjectMissing, ValueError, KeyError, TypeError):
            return ""


def _name_key(name: str) -> str:
    """Return the key of a name. Names that are no file names have a hash instead, after a tilde."""
    try:
        data = name.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"the name {name!r} is not valid text") from error
    if _READABLE.fullmatch(name):
        return f"{_NAMES}{name}.json"
    return f"{_NAMES}~{hashlib.sha256(data).hexdigest()[:32]}.json"
