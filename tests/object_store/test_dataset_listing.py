"""Tests of listing datasets: what counts as a file or a folder, and when its version changes."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thriftune.errors import SettingError
from thriftune.object_store.dataset_listing import DatasetListing, list_dataset
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectInfo, ObjectMissing, ObjectStore


@pytest.fixture
def bucket() -> ObjectStore:
    return open_objects(f"memory://{secrets.token_hex(4)}")


def test_an_object_becomes_a_file(bucket: ObjectStore) -> None:
    bucket.put("data/train.csv", b"1,2")
    listing = list_dataset(f"{bucket.url}/data/train.csv")
    assert (listing.name, listing.is_folder, listing.size) == ("train.csv", False, 3)
    assert listing.objects.get(listing.files[0].key) == b"1,2"


def test_an_object_of_the_bucket_itself_becomes_a_file(bucket: ObjectStore) -> None:
    bucket.put("train.csv", b"1,2")
    assert list_dataset(f"{bucket.url}/train.csv").files[0].key == "train.csv"


def test_a_prefix_becomes_a_folder(bucket: ObjectStore) -> None:
    for key in ("data/train/b/2.csv", "data/train/1.csv", "data/training/3.csv", "data/4.csv"):
        bucket.put(key, b"x")
    listing = list_dataset(f"{bucket.url}/data/train")
    assert (listing.name, listing.is_folder) == ("train", True)
    assert [each.key for each in listing.files] == ["1.csv", "b/2.csv"]


def test_a_whole_bucket_becomes_a_folder(bucket: ObjectStore) -> None:
    bucket.put("a", b"x")
    listing = list_dataset(bucket.url)
    assert listing.is_folder
    assert listing.name in bucket.url


def test_a_slash_at_the_end_means_the_folder(bucket: ObjectStore) -> None:
    bucket.put("data", b"x")
    bucket.put("data/1.csv", b"y")
    assert not list_dataset(f"{bucket.url}/data").is_folder
    assert list_dataset(f"{bucket.url}/data/").is_folder


def test_what_does_not_exist_is_named(bucket: ObjectStore) -> None:
    with pytest.raises(ObjectMissing, match=r"memory://\w+/no does not exist: there is no object of this name"):
        list_dataset(f"{bucket.url}/no")


def test_an_object_that_is_also_a_folder_is_refused(bucket: ObjectStore) -> None:
    bucket.put("data/a", b"x")
    bucket.put("data/a/b", b"y")
    with pytest.raises(SettingError, match=r"'a' in .* is an object and also a folder; rename one"):
        list_dataset(f"{bucket.url}/data")


class Listed:
    """Lists given objects, which some servers have and obstore cannot write."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def info(self, key: str) -> None:
        return None

    def list_objects(self) -> list[ObjectInfo]:
        return [ObjectInfo(key, 1, 0.0, "e") for key in self.keys]


def test_markers_of_folders_are_left_out() -> None:
    found = list_dataset("s3://b/data", lambda url: Listed("", "a/", "a/1.csv"))  # type: ignore[arg-type, return-value]
    assert [each.key for each in found.files] == ["a/1.csv"]


@pytest.mark.parametrize("key", ["../../etc/passwd", "a//b", "./a", "/etc/passwd", "a\0b"])
def test_keys_that_lead_out_of_the_folder_are_refused(key: str) -> None:
    with pytest.raises(SettingError, match="cannot be a file; rename it"):
        list_dataset("s3://b/data", lambda url: Listed("ok", key))  # type: ignore[arg-type, return-value]


ENTRIES = st.dictionaries(
    st.text(min_size=1), st.tuples(st.integers(0, 9), st.floats(0, 9), st.sampled_from(["", "1", "2"])), min_size=1
)


def listing_of(entries: dict[str, tuple[int, float, str]]) -> DatasetListing:
    files = tuple(sorted(ObjectInfo(key, *about) for key, about in entries.items()))
    return DatasetListing("name", True, open_objects("memory://unused"), files)


@given(ENTRIES, ENTRIES)
def test_the_version_is_the_same_only_for_the_same_content(
    one: dict[str, tuple[int, float, str]], other: dict[str, tuple[int, float, str]]
) -> None:
    def content(entries: dict[str, tuple[int, float, str]]) -> object:
        return {key: (size, etag or time) for key, (size, time, etag) in entries.items()}

    same = listing_of(one).version == listing_of(other).version
    assert same == (content(one) == content(other))
    assert listing_of(dict(reversed(one.items()))).version == listing_of(one).version


def test_writing_an_object_again_changes_the_version(bucket: ObjectStore) -> None:
    bucket.put("data/a", b"x")
    before = list_dataset(f"{bucket.url}/data").version
    assert list_dataset(f"{bucket.url}/data").version == before
    bucket.put("data/a", b"y")
    assert list_dataset(f"{bucket.url}/data").version != before
