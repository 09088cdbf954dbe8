"""The proxy that fails as it is told does so, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.object_servers import FaultyServer, faulty
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import StoreUnavailable


@pytest.fixture
def proxy(s3_url: str) -> Iterator[FaultyServer]:
    with faulty(s3_url) as server:
        yield server


def test_a_fault_ends_after_its_times(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url, retry_seconds=0)
    proxy.answer(503, "SlowDown", times=2, method="PUT")
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            objects.put("a", b"1")
    objects.put("a", b"2")
    assert objects.get("a") == b"2"
    assert proxy.count("PUT") == 3
    assert proxy.count("PUT", "/b") == 0


def test_a_fault_meets_only_its_paths(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url, retry_seconds=0)
    proxy.answer(503, "SlowDown", path="/a b")
    objects.put("b", b"1")
    with pytest.raises(StoreUnavailable):
        objects.put("a b", b"1")


def test_a_request_that_is_cut_is_not_forwarded(proxy: FaultyServer, s3_url: str) -> None:
    proxy.cut_request(times=1)
    with pytest.raises(StoreUnavailable):
        open_objects(proxy.url, retry_seconds=0).put("a", bytes(1 << 20))
    assert open_objects(s3_url).info("a") is None


@pytest.mark.parametrize("fault", ["cut_answer", "lose_answer"])
def test_a_request_without_its_answer_is_forwarded(proxy: FaultyServer, s3_url: str, fault: str) -> None:
    getattr(proxy, fault)(times=1)
    with pytest.raises(StoreUnavailable):
        open_objects(proxy.url, retry_seconds=0).put("a", b"1")
    assert open_objects(s3_url).get("a") == b"1"


def test_it_refuses_and_accepts_at_the_same_port(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url, retry_seconds=0)
    objects.put("a", b"1")
    for _ in range(3):
        proxy.refuse()
        # The client may have a connection open from before, which is cut.
        with pytest.raises(StoreUnavailable, match=r"refused the connection|the connection was cut"):
            objects.get("a")
        proxy.accept()
        assert objects.get("a") == b"1"


def test_lists_are_stale_until_it_is_mended(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url)
    for key in ("a/1", "a/2", "b"):
        objects.put(key, b"")
    proxy.stale_lists()
    objects.put("a/3", b"")
    objects.put("c/1", b"")
    objects.delete(["a/1"])
    assert [each.key for each in objects.list_objects()] == ["a/1", "a/2", "b"]
    assert [each.key for each in objects.list_objects("a/", after="a/1")] == ["a/2"]
    assert objects.list_folders() == ["a"]
    proxy.mend()
    assert [each.key for each in objects.list_objects()] == ["a/2", "a/3", "b", "c/1"]
    assert objects.list_folders() == ["a", "c"]


def test_a_limited_line_carries_everything(proxy: FaultyServer) -> None:
    objects = open_objects(proxy.url)
    proxy.limit(4 << 20)
    data = bytes(range(256)) * 4096
    objects.put("a", data)
    assert objects.get("a") == data
