"""Errors and retries of object stores, provoked at a real server behind a proxy that fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError

from tests.support.object_servers import FaultyServer, faulty
from thriftune.object_store.causes import Destination, translated
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import AccessDenied, ObjectStore, ObjectStoreError, StoreUnavailable

LARGE = os.urandom(3 << 20)

REQUESTS: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda objects: objects.put("a", b"1"),
    "put much": lambda objects: objects.put("a", LARGE),
    "create": lambda objects: objects.create("a", b"1"),
    "get": lambda objects: objects.get("old"),
    "info": lambda objects: objects.info("old"),
    "list": lambda objects: list(objects.list_objects()),
    "folders": lambda objects: objects.list_folders(),
    "delete": lambda objects: objects.delete(["old", "b"]),
}


@pytest.fixture
def proxy(moto_url: str) -> Iterator[FaultyServer]:
    open_objects(moto_url).put("old", b"content")
    with faulty(moto_url) as server:
        yield server


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize(
    ("status", "code", "kind", "text"),
    [
        (403, "AccessDenied", AccessDenied, r"do not permit it \(status 403.*\); grant the permission"),
        (403, "InvalidAccessKeyId", AccessDenied, r"not valid|do not permit it"),
        (400, "ExpiredToken", AccessDenied, r"have expired \(status 400, ExpiredToken\); renew them"),
        (503, "SlowDown", StoreUnavailable, r"overloaded \(status 503.*\); try again later"),
        (500, "InternalError", StoreUnavailable, r"the server failed \(status 500.*\); try again later"),
        (301, "PermanentRedirect", ObjectStoreError, r"in another region; add \?region="),
    ],
)
def test_answers_are_translated(
    proxy: FaultyServer, name: str, status: int, code: str, kind: type[Exception], text: str
) -> None:
    if name in ("info", "create") and status == 400:  # these begin with HEAD, whose answer has no code
        text = r"credentials may have expired: renew them"
    objects = open_objects(proxy.url, retry_seconds=0)
    proxy.answer(status, code)
    with pytest.raises(kind, match=text) as raised:
        REQUESTS[name](objects)
    assert proxy.url in str(raised.value)
    assert "Debug source" not in str(raised.value)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("fault", ["refuse", "cut_answer", "cut_request", "lose_answer"])
def test_lost_connections_are_translated(proxy: FaultyServer, name: str, fault: str) -> None:
    objects = open_objects(proxy.url, retry_seconds=0)
    getattr(proxy, fault)()
    if fault == "cut_answer" and name == "info":
        pytest.skip("an answer to HEAD that is cut in its headers is another fault")
    with pytest.raises(StoreUnavailable, match=r"connection|did not answer"):
        REQUESTS[name](objects)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize(
    "fault",
    [
        lambda proxy: proxy.answer(500, "InternalError", times=2),
        lambda proxy: proxy.answer(503, "SlowDown", times=2),
        lambda proxy: proxy.answer(429, "TooManyRequests", times=2),
        lambda proxy: proxy.cut_answer(times=2),
        lambda proxy: proxy.cut_request(times=2),
        lambda proxy: proxy.lose_answer(times=2),
    ],
    ids=["500", "503", "429", "cut answer", "cut request", "lost answer"],
)
def test_what_may_pass_is_retried(proxy: FaultyServer, name: str, fault: Callable[[FaultyServer], None]) -> None:
    objects = open_objects(proxy.url)
    fault(proxy)
    REQUESTS[name](objects)
    assert len(proxy.requests) >= 3


def test_a_server_that_starts_again_is_reached(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url)
    proxy.refuse()
    threading.Timer(0.5, proxy.accept).start()
    objects.put("a", LARGE)
    assert objects.get("a") == LARGE


def test_what_does_not_pass_is_not_retried(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url)
    proxy.answer(403, "AccessDenied")
    with pytest.raises(AccessDenied):
        objects.put("a", b"1")
    with pytest.raises(AccessDenied):
        objects.delete(["a", "b"])
    assert len(proxy.requests) == 2


def test_a_server_that_is_silent_is_given_up(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url, retry_seconds=0, silence_seconds=0.5)
    proxy.delay(30)
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        objects.get("old")


def test_a_slow_line_does_not_end_a_large_write(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url, retry_seconds=0, silence_seconds=0.5)
    proxy.limit(2 << 20)  # so it takes longer than the silence that ends other requests
    objects.put("a", LARGE)
    proxy.mend()
    assert objects.get("a") == LARGE


@pytest.mark.parametrize("server", ["moto_url", "s3_url"])
def test_an_object_whose_first_answer_was_lost_is_created(request: pytest.FixtureRequest, server: str) -> None:
    with faulty(request.getfixturevalue(server)) as proxy:
        objects = open_objects(proxy.url)
        proxy.lose_answer(times=1, method="PUT")
        assert objects.create("a", b"mine")
        assert not objects.create("a", b"another's")
        assert objects.get("a") == b"mine"


def test_two_creators_in_conflict_try_again(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url)
    objects.create("b", b"")  # learns that the server honours create-only writes
    proxy.answer(409, "ConditionalRequestConflict", times=1, method="PUT")
    assert objects.create("a", b"mine")


def test_a_server_without_create_only_writes_is_used_for_one_writer(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url)
    proxy.answer(501, "NotImplemented", times=1, method="PUT")
    assert objects.create("a", b"mine")
    assert objects.creates_exclusively is False
    assert not objects.create("a", b"another's")
    assert objects.create("b", b"mine")


def test_which_servers_honour_create_only_writes(s3_url: str, moto_url: str) -> None:
    for url, expected in ((s3_url, False), (moto_url, True)):
        objects = open_objects(url)
        assert objects.creates_exclusively is None
        objects.create("a", b"1")
        assert objects.creates_exclusively is expected
    assert open_objects("s3://bucket?region=eu-west-1").creates_exclusively is True


def test_objects_are_deleted_singly_if_the_server_does_not_know_better(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url)
    objects.put("a", b"1")
    proxy.answer(501, "NotImplemented", method="POST")
    objects.delete(["a", "missing", "old"])
    assert list(objects.list_objects()) == []


def test_an_object_that_may_not_be_deleted_with_others() -> None:
    """The answer has status 200, and names the objects that were not deleted."""
    text = "Generic S3 error: DeleteObjects request failed for key k: Access Denied (code: AccessDenied)"
    error = translated(GenericError(text), "deleting objects", Destination("s3://b", "bucket", ""))
    assert isinstance(error, AccessDenied)
    assert "s3://b: the credentials do not permit it (AccessDenied); grant the permission" in str(error)


def test_a_list_continues_after_its_last_page(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url)
    keys = [f"k/{number:04}" for number in range(1005)]
    for key in keys:
        objects.put(key, b"")
    listed = objects.list_objects("k/")
    assert next(listed).key == keys[0]
    proxy.cut_answer(times=2)
    assert [each.key for each in listed] == keys[1:]


def test_a_server_that_ignores_where_a_list_begins(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = obstore.list
    monkeypatch.setattr(obstore, "list", lambda *args, offset=None, **options: real(*args, **options))
    objects = open_objects(moto_url)
    keys = [f"k/{number:04}" for number in range(1005)]
    for key in keys:
        objects.put(key, b"")
    assert [each.key for each in objects.list_objects("k/")] == keys
    assert [each.key for each in objects.list_objects(after=keys[3])] == keys[4:]


def test_a_download_survives_cuts(proxy: FaultyServer, tmp_path: Path) -> None:
    data = os.urandom(20 << 20)
    objects = open_objects(proxy.url)
    objects.put("a", data)
    proxy.cut_answer(times=3, method="GET")
    objects.download("a", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == data


def test_a_download_without_ranges_survives_cuts(s3_url: str, tmp_path: Path) -> None:
    data = os.urandom(20 << 20)
    with faulty(s3_url) as proxy:
        objects = open_objects(proxy.url)
        objects.put("a", data)
        proxy.cut_answer(times=2, method="GET")
        objects.download("a", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == data


def test_a_failed_download_leaves_nothing(proxy: FaultyServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"what was there before")
    objects = open_objects(proxy.url, retry_seconds=0)
    proxy.cut_answer(method="GET")
    with pytest.raises(StoreUnavailable):
        objects.download("old", tmp_path / "file")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"what was there before"


def test_a_full_disk(small_disk: Path) -> None:
    objects = open_objects(str(small_disk / "objects"))
    with pytest.raises(ObjectStoreError, match="the disk is full; free some space"):
        objects.put("a", bytes(32 << 20))
    assert list(objects.list_objects()) == []


def test_a_download_to_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path / "objects"))
    objects.put("a", bytes(40 << 20))
    with pytest.raises(ObjectStoreError, match="cannot be written: No space left on device"):
        objects.download("a", small_disk / "file")
    assert list(small_disk.iterdir()) == []


def test_a_name_that_the_file_system_does_not_permit(tmp_path: Path) -> None:
    with pytest.raises(ObjectStoreError, match="does not permit names that long"):
        open_objects(str(tmp_path)).put("x" * 300, b"")
