"""Tests of the cache of datasets: what is fetched, kept, checked, replaced and removed."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from thriftune.common.user_cache import FOLDER_VARIABLE, cache_folder
from thriftune.errors import DataError, SettingError
from thriftune.object_store.dataset_listing import list_dataset
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import (
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    ObjectStoreError,
    StoreUnavailable,
)
from thriftune.object_store.urls import ObjectUrl
from thriftune.training.data_cache import DataCache, LocalCopy
from thriftune.training.data_folder import BYTES_VARIABLE, DataFolder

MB = 1_000_000


@pytest.fixture
def bucket() -> ObjectStore:
    return open_objects(f"memory://{secrets.token_hex(4)}")


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "cache")


class Fetcher:
    """Fetches datasets as a trial does, and keeps what was said."""

    def __init__(self, folder: DataFolder) -> None:
        self.folder = folder
        self.said: list[str] = []

    def __call__(
        self, url: str, version: str = "", opener: Callable[[ObjectUrl], ObjectStore] = open_objects
    ) -> LocalCopy:
        return DataCache(opener, self.folder).fetch(url, version, self.said.append)


@pytest.fixture
def fetch(folder: DataFolder) -> Fetcher:
    return Fetcher(folder)


def no_store(url: ObjectUrl) -> ObjectStore:
    raise StoreUnavailable("the store is not needed")


def left(folder: DataFolder) -> list[str]:
    """Return what is left of downloads and removals that have ended."""
    return [path.name for name in ("partial", "trash") for path in (folder.path / name).iterdir()]


# --- fetching -----------------------------------------------------------------------------------------------


def test_a_dataset_is_fetched_once(bucket: ObjectStore, fetch: Fetcher) -> None:
    bucket.put("train/a/1.csv", b"1,2")
    version = list_dataset(f"{bucket.url}/train").version
    first = fetch(f"{bucket.url}/train", version)
    assert (first.path / "a/1.csv").read_bytes() == b"1,2"
    assert fetch(f"{bucket.url}/train", version, no_store).path == first.path
    assert fetch.said == []


def test_a_single_object_keeps_its_name(bucket: ObjectStore, fetch: Fetcher) -> None:
    bucket.put("train.csv.gz", b"1,2")
    path = fetch(f"{bucket.url}/train.csv.gz").path
    assert (path.name, path.read_bytes()) == ("train.csv.gz", b"1,2")


def test_the_files_cannot_be_written(bucket: ObjectStore, fetch: Fetcher) -> None:
    bucket.put("train/a/1.csv", b"1,2")
    path = fetch(f"{bucket.url}/train").path
    for each in (path, path / "a", path / "a/1.csv"):
        assert not each.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)


def test_the_current_version_is_fetched_if_the_wanted_one_is_gone(bucket: ObjectStore, fetch: Fetcher) -> None:
    bucket.put("train/a", b"old")
    url = f"{bucket.url}/train"
    version = list_dataset(url).version
    bucket.put("train/a", b"new")
    copy = fetch(url, version)
    assert (copy.path / "a").read_bytes() == b"new"
    assert copy.version == list_dataset(url).version != version


def test_both_versions_are_kept(bucket: ObjectStore, fetch: Fetcher) -> None:
    bucket.put("train/a", b"old")
    old = fetch(f"{bucket.url}/train")
    bucket.put("train/a", b"new")
    new = fetch(f"{bucket.url}/train")
    assert (old.path / "a").read_bytes() == b"old"
    assert (new.path / "a").read_bytes() == b"new"


class Changing:
    """A store whose object is written again before each of its first downloads."""

    def __init__(self, objects: ObjectStore, times: int) -> None:
        self.objects = objects
        self.left = times

    def __call__(self, url: ObjectUrl) -> ObjectStore:
        self.opened = open_objects(url)
        return self  # type: ignore[return-value]

    def info(self, key: str) -> ObjectInfo | None:
        return self.opened.info(key)

    def list_objects(self) -> Iterator[ObjectInfo]:
        return self.opened.list_objects()

    def download(self, key: str, path: Path) -> ObjectInfo:
        if self.left:
            self.left -= 1
            self.objects.put("train/a", f"version {self.left}".encode())
        return self.opened.download(key, path)


def test_a_dataset_that_changes_while_it_is_fetched_is_fetched_again(
    bucket: ObjectStore, fetch: Fetcher, folder: DataFolder
) -> None:
    bucket.put("train/a", b"old")
    copy = fetch(f"{bucket.url}/train", "", Changing(bucket, 2))
    assert (copy.path / "a").read_bytes() == b"version 0"
    assert left(folder) == []


def test_a_dataset_that_never_stays_the_same_is_an_error(
    bucket: ObjectStore, fetch: Fetcher, folder: DataFolder
) -> None:
    bucket.put("train/a", b"old")
    with pytest.raises(ObjectStoreError, match="changes again and again while it is fetched"):
        fetch(f"{bucket.url}/train", "", Changing(bucket, 99))
    assert left(folder) == []
    assert folder.entries() == []


def test_a_deleted_dataset_is_an_error_unless_it_is_cached(bucket: ObjectStore, fetch: Fetcher) -> None:
    bucket.put("train/a", b"1")
    url = f"{bucket.url}/train"
    version = list_dataset(url).version
    bucket.delete(["train/a"])
    with pytest.raises(ObjectMissing, match="does not exist"):
        fetch(url, version)
    bucket.put("train/a", b"1")
    version = fetch(url).version
    bucket.delete(["train/a"])
    assert (fetch(url, version).path / "a").read_bytes() == b"1"


# --- damage -------------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, 1)


def rewrite(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"X" * path.stat().st_size)


def delete(path: Path) -> None:
    path.parent.chmod(0o755)
    path.unlink()


def add(path: Path) -> None:
    path.parent.chmod(0o755)
    path.with_name("more").write_bytes(b"")


def delete_all(path: Path) -> None:
    path.parents[1].chmod(0o755)
    path.parent.chmod(0o755)
    shutil.rmtree(path.parent)


def damage_about(path: Path) -> None:
    (path.parents[2] / "about.json").write_text('{"files"')


@pytest.mark.parametrize("damage", [truncate, rewrite, delete, add, delete_all, damage_about])
def test_a_damaged_copy_is_fetched_again(
    bucket: ObjectStore, fetch: Fetcher, folder: DataFolder, damage: Callable[[Path], None]
) -> None:
    bucket.put("train/a", b"content")
    first = fetch(f"{bucket.url}/train")  # in use, as by another trial
    damage(first.path / "a")
    again = fetch(f"{bucket.url}/train", first.version)
    assert [path.name for path in again.path.iterdir()] == ["a"]
    assert (again.path / "a").read_bytes() == b"content"
    assert again.was_damaged
    assert left(folder) == []


# --- room ---------------------------------------------------------------------------------------------------


def put(bucket: ObjectStore, name: str, size: int) -> str:
    bucket.put(name, bytes(size))
    return f"{bucket.url}/{name}"


def test_the_least_recently_used_datasets_make_room(
    bucket: ObjectStore, fetch: Fetcher, folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BYTES_VARIABLE, str(3 * MB))
    urls = [put(bucket, name, 900_000) for name in "abc"]
    for used_at, url in zip((3.0, 1.0, 2.0), urls, strict=True):
        fetch(url).release()
        os.utime(folder.use_lock(next(each.key for each in folder.entries() if each.url == url)), (0, used_at))
    fetch(put(bucket, "d", 1 * MB)).release()
    assert sorted(each.url[-1] for each in folder.entries()) == ["a", "c", "d"]
    fetch(put(bucket, "e", 2_500_000)).release()
    assert [each.url[-1] for each in folder.entries()] == ["e"]
    assert left(folder) == []
    assert len(list((folder.path / "locks").iterdir())) == 3  # of the room, and two of e


def test_a_dataset_in_use_is_not_removed(
    bucket: ObjectStore, fetch: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BYTES_VARIABLE, str(2 * MB))
    used = fetch(put(bucket, "a", 1_500_000))
    other = put(bucket, "b", 1 * MB)
    with pytest.raises(
        DataError, match=r"b has 1 MB, .* room for 2 MB, of which live trials use 1\.5 MB; free disk"
    ):
        fetch(other)
    assert used.path.stat().st_size == 1_500_000
    used.release()
    fetch(other)
    assert not used.path.exists()


def test_a_dataset_larger_than_the_cache_removes_nothing(
    bucket: ObjectStore, fetch: Fetcher, folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BYTES_VARIABLE, str(2 * MB))
    fetch(put(bucket, "a", 1 * MB)).release()
    with pytest.raises(
        DataError, match=rf"has 3 MB, .* room for 2 MB; free .*{FOLDER_VARIABLE}.*{BYTES_VARIABLE}"
    ):
        fetch(put(bucket, "b", 3 * MB))
    assert len(folder.entries()) == 1


def test_a_damaged_copy_makes_room_for_its_replacement(
    bucket: ObjectStore, fetch: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BYTES_VARIABLE, str(2 * MB))
    first = fetch(put(bucket, "a", 1_500_000))
    truncate(first.path)
    assert fetch(f"{bucket.url}/a", first.version).path.stat().st_size == 1_500_000


def test_the_limit_is_a_share_of_the_disk_unless_it_is_set(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(BYTES_VARIABLE, raising=False)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))
    assert folder.capacity() == 9
    monkeypatch.setenv(BYTES_VARIABLE, "50")
    assert folder.capacity() == 10
    monkeypatch.setenv(BYTES_VARIABLE, "5")
    assert folder.capacity() == 5
    monkeypatch.setenv(BYTES_VARIABLE, "5 GB")
    with pytest.raises(SettingError, match=f"{BYTES_VARIABLE}: '5 GB' must be a whole number of bytes"):
        folder.capacity()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_is_a_clear_error_and_leaves_nothing(
    bucket: ObjectStore, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DataFolder(small_disk)
    monkeypatch.setattr(DataFolder, "capacity", lambda self: 100 * MB)  # as if another program had then written
    with pytest.raises(DataError, match=r"the disk of the data cache in .* is full; free disk space"):
        Fetcher(folder)(put(bucket, "a", 5 * MB))
    assert left(folder) == []
    copy = Fetcher(folder)(put(bucket, "b", 10))
    assert copy.path.stat().st_size == 10
    copy.release()


def test_a_cache_that_cannot_be_written_is_a_clear_error(bucket: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=rf"cannot be used \(Not a directory.*{FOLDER_VARIABLE}"):
        Fetcher(DataFolder(tmp_path / "file"))(put(bucket, "a", 10))


# --- the folder ---------------------------------------------------------------------------------------------


def test_the_folder_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv(FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert cache_folder() == Path("/var/cache/thriftune")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache/thriftune"


def test_a_dataset_can_be_removed_unless_it_is_used(
    bucket: ObjectStore, fetch: Fetcher, folder: DataFolder
) -> None:
    copy = fetch(put(bucket, "a", 10))
    (entry,) = folder.entries()
    assert not folder.remove(entry.key)
    copy.release()
    assert folder.remove(entry.key)
    assert folder.entries() == []
    assert not copy.path.exists()
