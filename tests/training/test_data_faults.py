"""Tests of fetching datasets from an S3 server that fails."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.object_servers import FaultyServer, faulty
from thriftune.object_store.dataset_listing import list_dataset
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import AccessDenied, ObjectMissing, StoreUnavailable
from thriftune.training.data_cache import DataCache, LocalCopy
from thriftune.training.data_folder import DataFolder

FILES = {f"{number % 3}/{number}.bin": bytes([number]) * 20_000 for number in range(8)}


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "cache")


def fill(url: str) -> None:
    bucket = open_objects(url)
    for key, content in FILES.items():
        bucket.put(f"data/train/{key}", content)


def train_of(url: str) -> str:
    """Return the URL of the dataset in a bucket."""
    bucket, _, options = url.partition("?")
    return f"{bucket}/data/train?{options}"


def fetch(url: str, folder: DataFolder, retry_seconds: float = 30.0) -> LocalCopy:
    opener = partial(open_objects, retry_seconds=retry_seconds)
    return DataCache(opener, folder).fetch(train_of(url), "", lambda message: None)


def arrived(copy: LocalCopy) -> bool:
    return {
        str(path.relative_to(copy.path)): path.read_bytes() for path in copy.path.rglob("*") if path.is_file()
    } == FILES


def nothing_left(folder: DataFolder) -> bool:
    return not folder.entries() and not list((folder.path / "partial").iterdir())


def test_a_dataset_arrives_from_each_kind_of_store(object_url: str, folder: DataFolder) -> None:
    if "://" not in object_url:
        pytest.skip("a folder is used in place")
    fill(object_url)
    copy = fetch(object_url, folder)
    assert arrived(copy)
    assert list_dataset(train_of(object_url)).version == copy.version
    open_objects(object_url).put("data/train/0/0.bin", b"new")
    assert list_dataset(train_of(object_url)).version != copy.version


def test_a_large_object_arrives_in_ranges(moto_url: str, folder: DataFolder) -> None:
    content = bytes(range(256)) * (20 << 12)  # 20 MiB
    open_objects(moto_url).put("data/train", content)
    assert fetch(moto_url, folder).path.read_bytes() == content


@pytest.mark.parametrize("fault", ["errors", "throttling", "cuts", "lost answers"])
def test_faults_that_pass_are_retried(moto_url: str, folder: DataFolder, fault: str) -> None:
    fill(moto_url)
    with faulty(moto_url) as server:
        make_fault(server, fault)
        assert arrived(fetch(server.url, folder))


def make_fault(server: FaultyServer, fault: str) -> None:
    match fault:
        case "errors":
            server.answer(500, "InternalError", times=5)
        case "throttling":
            server.answer(503, "SlowDown", times=5, path="data/train")
        case "cuts":
            server.cut_answer(times=5, method="GET", path="train/")
        case "lost answers":
            server.lose_answer(times=5, method="GET")


def test_a_download_that_is_always_cut_leaves_nothing(moto_url: str, folder: DataFolder) -> None:
    fill(moto_url)
    with faulty(moto_url) as server:
        server.cut_answer(method="GET", path="train/1/4.bin")
        with pytest.raises(StoreUnavailable, match="the connection was cut"):
            fetch(server.url, folder, retry_seconds=0.5)
        assert nothing_left(folder)
        server.mend()
        assert arrived(fetch(server.url, folder))


def test_a_server_that_cannot_be_reached_is_needed_only_for_the_download(
    moto_url: str, folder: DataFolder
) -> None:
    fill(moto_url)
    with faulty(moto_url) as server:
        first = fetch(server.url, folder)
        server.refuse()
        url = train_of(server.url)
        opener = partial(open_objects, retry_seconds=0.5)
        assert arrived(DataCache(opener, folder).fetch(url, first.version, lambda message: None))
        first.path.chmod(0o755)
        (first.path / "more").write_bytes(b"")  # damages the copy
        with pytest.raises(StoreUnavailable):
            DataCache(opener, folder).fetch(url, first.version, lambda message: None)


def test_an_expired_credential_is_a_clear_error(moto_url: str, folder: DataFolder) -> None:
    fill(moto_url)
    with faulty(moto_url) as server:
        server.answer(400, "ExpiredToken", method="GET", path="train/2/")
        with pytest.raises(AccessDenied, match="the credentials have expired"):
            fetch(server.url, folder)
    assert nothing_left(folder)


def test_an_object_that_was_deleted_after_it_was_listed_is_an_error(moto_url: str, folder: DataFolder) -> None:
    fill(moto_url)
    with faulty(moto_url) as server:
        server.stale_lists()
        open_objects(moto_url).delete(["data/train/2/5.bin"])
        with pytest.raises(ObjectMissing, match=r"2/5\.bin"):
            fetch(server.url, folder)
        assert nothing_left(folder)
        server.mend()
        assert not (fetch(server.url, folder).path / "2/5.bin").exists()


def test_an_object_that_changed_after_it_was_listed_is_fetched_anew(moto_url: str, folder: DataFolder) -> None:
    fill(moto_url)
    with faulty(moto_url) as server:
        server.stale_lists()
        open_objects(moto_url).put("data/train/2/5.bin", b"new")
        listing = list_dataset(train_of(server.url))
        server.mend()
        copy = DataCache(open_objects, folder).fetch(train_of(server.url), listing.version, lambda message: None)
        assert (copy.path / "2/5.bin").read_bytes() == b"new"
        assert copy.version != listing.version
