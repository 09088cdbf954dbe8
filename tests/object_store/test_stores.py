"""The object stores behind open_objects() do what the protocol says."""

from __future__ import annotations

import pytest

from tests.object_store.conformance import ObjectStoreConformance
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectStore


class TestStores(ObjectStoreConformance):
    @pytest.fixture
    def objects(self, object_url: str) -> ObjectStore:
        return open_objects(object_url)
