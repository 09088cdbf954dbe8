"""Tests of the index of studies: names, damaged records, and changes that were cut short."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.memory_objects import MemoryObjects
from thriftune.errors import StudyExists, StudyNotFound
from thriftune.object_store.protocol import StoreUnavailable
from thriftune.store.epochs import Claim
from thriftune.store.study_index import StudyIndex, StudyRecord, decode, encode

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
objects_in_json = st.dictionaries(st.text(), json, max_size=3)


def record(study: str, name: str, at: float = 1.0) -> StudyRecord:
    return StudyRecord(study, name, at, {"name": name}, {})


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def index(objects: MemoryObjects) -> StudyIndex:
    return StudyIndex(objects, "s3://bucket")


@given(st.text(), objects_in_json, objects_in_json, st.integers(0), st.booleans())
def test_a_record_is_read_as_it_was_written(
    name: str, spec: dict[str, object], summary: dict[str, object], entries: int, driven: bool
) -> None:
    written = StudyRecord("id", name, 1.5, spec, summary, entries, Claim("d", 1, "host", 2.0) if driven else None)
    assert decode("id", "other", encode(written)) == written


@given(st.binary() | json.map(lambda value: str(value).encode()))
def test_a_damaged_record_says_so(data: bytes) -> None:
    damaged = decode("id", "s", data)
    assert (damaged.id, damaged.name, damaged.spec) == ("id", "s", {})
    assert damaged.damage.startswith("its settings cannot be read (")


def test_studies_are_found_by_name_and_listed_by_time(index: StudyIndex) -> None:
    index.add(record("1", "old", 1.0))
    index.add(record("2", "new", 2.0))
    assert [each.name for each in index.all()] == ["new", "old"]
    assert index.find("old").id == "1"
    with pytest.raises(StudyNotFound, match="there is no study 'ol' in s3://bucket; did you mean 'old'"):
        index.find("ol")
    with pytest.raises(StudyExists):
        index.add(record("3", "old"))
    assert index.find("old").id == "1"


def test_a_rename_that_was_cut_short_changes_nothing(index: StudyIndex, objects: MemoryObjects) -> None:
    index.add(record("1", "a"))
    objects.put("names/b.json", b'{"id": "1", "name": "b"}')  # the first step
    assert [each.name for each in index.all()] == ["a"]
    with pytest.raises(StudyNotFound):
        index.find("b")
    index.add(record("2", "b"))  # the name is free
    assert index.find("b").id == "2"


def test_a_rename_that_left_the_old_name_is_complete(index: StudyIndex, objects: MemoryObjects) -> None:
    index.add(record("1", "a"))
    left = objects.data["names/a.json"]
    index.rename(index.find("a"), "b", {"name": "b"})
    objects.put("names/a.json", left)
    assert [each.name for each in index.all()] == ["b"]
    index.add(record("2", "a"))
    assert {each.name: each.id for each in index.all()} == {"a": "2", "b": "1"}


def test_a_record_that_is_written_late_does_not_hide_a_renamed_study(
    index: StudyIndex, objects: MemoryObjects
) -> None:
    index.add(record("1", "a"))
    late = objects.data["studies/1/study.json"]  # a driver that was paused, or its request, comes after the rename
    index.rename(index.find("a"), "b", {"name": "b"})
    objects.data["studies/1/study.json"] = late
    found = index.find("b")
    assert (found.id, found.name, found.spec["name"]) == ("1", "b", "b")
    assert [each.name for each in index.all()] == ["b"]
    with pytest.raises(StudyNotFound):
        index.find("a")


def test_a_deleted_study_leaves_nothing(index: StudyIndex, objects: MemoryObjects) -> None:
    index.add(record("1", "a"))
    index.add(record("11", "b"))
    objects.put("studies/1/log/x", b"")
    index.remove("1", "a")
    assert [key for key in objects.data if "1/" in key] == ["studies/11/study.json"]
    index.add(record("2", "a"))


def test_a_deletion_that_was_cut_short_can_be_repeated(index: StudyIndex, objects: MemoryObjects) -> None:
    index.add(record("1", "a"))
    for key in ("log/x", "trials/7/checkpoints/x", "driver.json"):
        objects.put(f"studies/1/{key}", b"")
    left = 0
    while objects.data:
        requests = itertools.count()

        def before(requests: Iterator[int] = requests, most: int = left) -> None:
            if next(requests) >= most:
                raise StoreUnavailable("cut short")

        objects._before = before
        with suppress(StoreUnavailable):
            index.remove("1", "a")
        objects._before = lambda: None
        if any(key.startswith("studies/") for key in objects.data):
            assert index.find("a").id == "1", f"after {left} requests, the rest can never be deleted"
        left += 1
    assert left > 5
