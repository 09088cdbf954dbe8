"""What every object store does. A test class inherits this one, and provides the fixture `objects`."""

from __future__ import annotations

import os
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectMissing, ObjectStore, ObjectStoreError

PAGE_KEYS = 1000
"""The most keys that servers list or delete at once."""


class ObjectStoreConformance:
    """Tests of one object store, which is empty at first."""

    def test_an_object_is_read_as_it_was_written(self, objects: ObjectStore) -> None:
        data = secrets.token_bytes(1000)
        objects.put("a/b", data)
        assert objects.get("a/b") == data

    def test_an_object_is_replaced(self, objects: ObjectStore) -> None:
        for data in (b"first", b"second, longer", b"3"):
            objects.put("a", data)
            assert objects.get("a") == data

    def test_an_object_may_be_empty(self, objects: ObjectStore, tmp_path: Path) -> None:
        objects.put("a", b"")
        assert objects.get("a") == b""
        assert objects.download("a", tmp_path / "file").size == 0
        assert (tmp_path / "file").read_bytes() == b""

    def test_a_view_of_memory_is_written(self, objects: ObjectStore) -> None:
        data = bytearray(secrets.token_bytes(100_000))
        objects.put("a", memoryview(data)[10:])
        objects.put("b", data)
        written = bytes(data)
        data[:] = bytes(len(data))
        assert objects.get("a") == written[10:]
        assert objects.get("b") == written

    def test_a_missing_object_is_an_error(self, objects: ObjectStore, tmp_path: Path) -> None:
        with pytest.raises(ObjectMissing, match=r"reading a/b failed in .*: there is no such object"):
            objects.get("a/b")
        with pytest.raises(ObjectMissing, match="there is no such object"):
            objects.download("a/b", tmp_path / "file")
        assert objects.info("a/b") is None
        assert list(tmp_path.glob("*file*")) == []

    def test_an_object_is_created_once(self, objects: ObjectStore) -> None:
        assert objects.create("a", b"first")
        assert not objects.create("a", b"second")
        assert objects.get("a") == b"first"

    def test_creating_again_with_the_same_data_succeeds(self, objects: ObjectStore) -> None:
        assert objects.create("a", b"mine")
        assert objects.create("a", b"mine")

    def test_a_deleted_object_can_be_created_again(self, objects: ObjectStore) -> None:
        assert objects.create("a", b"first")
        objects.delete(["a"])
        assert objects.create("a", b"second")
        assert objects.get("a") == b"second"

    def test_the_info_of_an_object(self, objects: ObjectStore) -> None:
        before = time.time()
        objects.put("a/b", b"12345")
        info = objects.info("a/b")
        assert info is not None
        assert (info.key, info.size) == ("a/b", 5)
        assert before - 2 < info.modified_at < time.time() + 2  # some servers tell whole seconds
        assert info.etag

    def test_a_list_tells_the_same_as_the_info(self, objects: ObjectStore) -> None:
        objects.put("a", b"1")
        objects.put("b", b"22")
        for listed in objects.list_objects():
            info = objects.info(listed.key)
            assert info is not None
            assert (listed.key, listed.size, listed.etag) == (info.key, info.size, info.etag)
            assert abs(listed.modified_at - info.modified_at) <= 1

    def test_an_etag_changes_with_the_object(self, objects: ObjectStore) -> None:
        objects.put("a", b"first")
        first = objects.info("a")
        objects.put("a", b"other")
        second = objects.info("a")
        assert first is not None
        assert second is not None
        assert first.etag != second.etag

    def test_a_list_is_in_ascending_order_of_keys(self, objects: ObjectStore) -> None:
        keys = ["b", "a/2", "a/10", "a-1", "a/b/c", "a0", "Z", "ü", "a b", "日本"]
        for key in keys:
            objects.put(key, key.encode())
        assert [each.key for each in objects.list_objects()] == sorted(keys)

    def test_an_empty_list(self, objects: ObjectStore) -> None:
        assert list(objects.list_objects()) == []
        assert list(objects.list_objects("a/")) == []
        assert objects.list_folders() == []
        assert objects.list_folders("a/") == []

    @pytest.mark.parametrize(
        ("prefix", "after", "found"),
        [
            ("", "", ["log/000", "log/001", "log/002", "log/01/x", "other", "p"]),
            ("log/", "", ["log/000", "log/001", "log/002", "log/01/x"]),
            ("log", "", ["log/000", "log/001", "log/002", "log/01/x"]),
            ("log/00", "", ["log/000", "log/001", "log/002"]),
            ("log/001", "", ["log/001"]),
            ("log/00", "log/000", ["log/001", "log/002"]),
            ("log/", "log/001", ["log/002", "log/01/x"]),
            ("log/", "log/0005", ["log/001", "log/002", "log/01/x"]),
            ("", "log/01", ["log/01/x", "other", "p"]),
            ("", "log/01/", ["log/01/x", "other", "p"]),
            ("log/", "zzz", []),
            ("log/", "a", ["log/000", "log/001", "log/002", "log/01/x"]),
            ("log/2", "", []),
            ("lo/", "", []),
            ("other/", "", []),
        ],
    )
    def test_lists_of_prefixes(self, objects: ObjectStore, prefix: str, after: str, found: list[str]) -> None:
        for key in ("log/000", "log/001", "log/002", "log/01/x", "other", "p"):
            objects.put(key, b"")
        assert [each.key for each in objects.list_objects(prefix, after=after)] == found

    def test_folders_are_listed(self, objects: ObjectStore) -> None:
        for key in ("a/b/1", "a/b/2", "a/c d/e/f", "a/x", "b", "ab/1"):
            objects.put(key, b"")
        assert objects.list_folders() == ["a", "ab"]
        assert objects.list_folders("a/") == ["b", "c d"]
        assert objects.list_folders("a/b/") == []

    def test_many_objects_are_listed_and_deleted(self, objects: ObjectStore) -> None:
        keys = [f"many/{number:05}" for number in range(PAGE_KEYS + 50)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: objects.put(key, b"x"), keys))
        objects.put("other", b"")
        assert [each.key for each in objects.list_objects("many/")] == keys
        assert [each.key for each in objects.list_objects(after=keys[500])] == [*keys[501:], "other"]
        objects.delete(keys)
        assert [each.key for each in objects.list_objects()] == ["other"]

    def test_deleting_what_is_missing_is_no_error(self, objects: ObjectStore) -> None:
        objects.put("a", b"1")
        objects.delete(["missing", "a", "also/missing"])
        objects.delete(["a"])
        objects.delete([])
        assert list(objects.list_objects()) == []

    @pytest.mark.parametrize("size", [1, 100_000, 20 << 20])
    def test_an_object_is_downloaded(self, objects: ObjectStore, tmp_path: Path, size: int) -> None:
        data = os.urandom(size)
        objects.put("a/b", data)
        path = tmp_path / "file"
        path.write_bytes(b"what was there before")
        info = objects.download("a/b", path)
        assert path.read_bytes() == data
        assert (info.key, info.size) == ("a/b", size)
        assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["file"]

    def test_places_below_one_url_do_not_meet(self, objects: ObjectStore) -> None:
        base, separator, options = objects.url.partition("?")
        one, two, all_of_them = (
            open_objects(f"{base}/{name}{separator}{options}") for name in ("p/1", "p/10", "p")
        )
        one.put("a", b"1")
        two.put("a", b"2")
        assert [each.key for each in one.list_objects()] == ["a"]
        assert [each.key for each in all_of_them.list_objects()] == ["1/a", "10/a"]
        assert all_of_them.list_folders() == ["1", "10"]
        assert objects.get("p/10/a") == b"2"
        one.delete(["a"])
        assert [each.key for each in all_of_them.list_objects()] == ["10/a"]

    def test_the_url_opens_the_same_place(self, objects: ObjectStore) -> None:
        objects.put("a", b"1")
        assert open_objects(objects.url).get("a") == b"1"

    @pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", "./a", "a\nb", "a\x00b"])
    def test_wrong_keys_are_refused(self, objects: ObjectStore, key: str) -> None:
        for request in (
            objects.get,
            objects.info,
            lambda key: objects.put(key, b""),
            lambda key: objects.delete([key]),
        ):
            with pytest.raises(ObjectStoreError, match="is no key of an object"):
                request(key)

    @pytest.mark.parametrize(
        "key",
        [
            "a#1",
            "a#b",
            "a%20b",
            "a%",
            "a%23",
            "a+b",
            "a&b=c?d",
            "a b /c",
            "~a",
            "a*",
            "[a]",
            "ü/日本",
            "'\"",
            "x" * 200,
        ],
    )
    def test_strange_keys_are_kept(self, objects: ObjectStore, tmp_path: Path, key: str) -> None:
        objects.put(key, key.encode())
        assert objects.get(key) == key.encode()
        assert objects.create(key, key.encode())
        assert [each.key for each in objects.list_objects()] == [key]
        assert objects.info(key) is not None
        objects.download(key, tmp_path / "file")
        objects.delete([key])
        assert list(objects.list_objects()) == []

    def test_threads_may_share_it(self, objects: ObjectStore) -> None:
        def use(number: int) -> bytes:
            objects.put(f"a/{number}", b"%d" % number)
            return objects.get(f"a/{number}")

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(use, range(40))) == [b"%d" % number for number in range(40)]

    def test_of_many_writers_one_creates(self, objects: ObjectStore) -> None:
        """At a server that does not honour create-only writes, several may believe it; see docs/decisions.md."""
        objects.create("other", b"")  # learns what the server does
        start = threading.Barrier(8)

        def create(number: int) -> bool:
            start.wait()
            return objects.create("a", b"%d" % number)

        with ThreadPoolExecutor(8) as pool:
            created = list(pool.map(create, range(8)))
        assert any(created)
        if objects.creates_exclusively:
            assert created.count(True) == 1
            assert objects.get("a") == b"%d" % created.index(True)
