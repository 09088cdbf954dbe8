"""Tests of downloading datasets: what arrives, and how damage and changes are found."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from thriftune.object_store import dataset_download
from thriftune.object_store.dataset_download import download_dataset
from thriftune.object_store.dataset_listing import DatasetListing, list_dataset
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectInfo, ObjectMissing, ObjectStore, ObjectStoreError


@pytest.fixture
def bucket() -> ObjectStore:
    return open_objects(f"memory://{secrets.token_hex(4)}")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_arrives_as_it_is(bucket: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_download, "_LARGE_BYTES", 1_000)  # so that some count as large
    files = {f"{i % 7}/{i}.bin": secrets.token_bytes(i * 20) for i in range(100)} | {"empty": b""}
    for key, data in files.items():
        bucket.put(f"train/{key}", data)
    download_dataset(list_dataset(f"{bucket.url}/train"), tmp_path / "train")
    assert contents(tmp_path / "train") == files


def test_a_single_object_arrives_as_a_file(bucket: ObjectStore, tmp_path: Path) -> None:
    bucket.put("data/train.csv", b"1,2")
    download_dataset(list_dataset(f"{bucket.url}/data/train.csv"), tmp_path / "train.csv")
    assert contents(tmp_path) == {"train.csv": b"1,2"}


def test_an_object_that_changed_after_it_was_listed_is_an_error(bucket: ObjectStore, tmp_path: Path) -> None:
    bucket.put("train/a", b"old")
    listing = list_dataset(f"{bucket.url}/train")
    bucket.put("train/a", b"new")
    with pytest.raises(ObjectStoreError, match="a has changed while it was fetched"):
        download_dataset(listing, tmp_path / "train")


def test_an_object_that_was_deleted_after_it_was_listed_is_an_error(bucket: ObjectStore, tmp_path: Path) -> None:
    bucket.put("train/a", b"old")
    listing = list_dataset(f"{bucket.url}/train")
    bucket.delete(["train/a"])
    with pytest.raises(ObjectMissing):
        download_dataset(listing, tmp_path / "train")


class Transfers:
    """Delivers given contents, one after the other, for an object that is listed with an ETag."""

    def __init__(self, *arriving: bytes) -> None:
        self.arriving = list(arriving)

    def download(self, key: str, path: Path) -> ObjectInfo:
        path.write_bytes(self.arriving.pop(0))
        return ObjectInfo(key, path.stat().st_size, 0.0, "")


def listing_of(content: bytes, transfers: Transfers, etag: str = "") -> DatasetListing:
    found = ObjectInfo("train", len(content), 0.0, etag or hashlib.md5(content).hexdigest())
    return DatasetListing("train", False, transfers, (found,))  # type: ignore[arg-type]


def test_damage_on_the_way_is_found_by_the_md5_sum(tmp_path: Path) -> None:
    transfers = Transfers(b"bad!", b"good")
    download_dataset(listing_of(b"good", transfers), tmp_path / "train")
    assert (tmp_path / "train").read_bytes() == b"good"


def test_damage_that_repeats_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ObjectStoreError, match="train arrived damaged twice"):
        download_dataset(listing_of(b"good", Transfers(b"bad1", b"bad2")), tmp_path / "train")


def test_an_etag_that_only_looks_like_an_md5_sum_is_no_error(tmp_path: Path) -> None:
    transfers = Transfers(b"good", b"good", b"next")
    listing = listing_of(b"good", transfers, etag="0" * 32)
    both = replace(
        listing, is_folder=True, files=(*listing.files, ObjectInfo("next", 4, 0.0, "1" * 32)), name="folder"
    )
    download_dataset(replace(both, files=both.files[:1]), tmp_path / "folder")
    assert (tmp_path / "folder/train").read_bytes() == b"good"
    assert transfers.arriving == [b"next"]


def test_a_file_that_cannot_be_written_is_an_error_of_the_file_system(bucket: ObjectStore, tmp_path: Path) -> None:
    bucket.put("train/a", b"1")
    (tmp_path / "train/a").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        download_dataset(list_dataset(f"{bucket.url}/train"), tmp_path / "train")


def test_a_wrong_size_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ObjectStoreError, match="has changed while it was fetched"):
        download_dataset(listing_of(b"good", Transfers(b"goo"), etag="1-2"), tmp_path / "train")
