"""Tests of object stores that are opened again when they deny access."""

from __future__ import annotations

import secrets

import pytest

from tests.object_store.conformance import ObjectStoreConformance
from tests.training.memory_objects import MemoryObjects
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import AccessDenied, ObjectMissing, ObjectStore
from thriftune.object_store.reopening import ReopenedObjects


class TestReopenedObjects(ObjectStoreConformance):
    @pytest.fixture
    def objects(self) -> ObjectStore:
        url = f"memory://{secrets.token_hex(4)}"
        return ReopenedObjects(lambda: open_objects(url))


@pytest.mark.parametrize("method", ["put", "create", "get", "info", "list_objects", "list_folders", "delete"])
def test_renewed_credentials_are_used_after_access_was_denied(method: str) -> None:
    opened: list[MemoryObjects] = []

    def open_store() -> MemoryObjects:
        store = MemoryObjects()
        store.data["a"] = b"1"
        opened.append(store)
        return store

    def call() -> None:
        arguments = {"put": ("a", b"1"), "create": ("a", b"1"), "delete": (["a"],), "list_folders": ()}
        result = getattr(objects, method)(*arguments.get(method, ("a",)))
        if method == "list_objects":
            list(result)

    def deny(*_: object, **__: object) -> None:
        raise AccessDenied("the token has expired")

    objects = ReopenedObjects(open_store)
    call()
    with pytest.raises(ObjectMissing):
        objects.get("b")
    assert len(opened) == 1
    setattr(opened[0], method, deny)
    with pytest.raises(AccessDenied):
        call()
    call()
    assert len(opened) == 2
