"""Tests of heartbeats: only the server's clock counts."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from tests.store.memory_objects import MemoryObjects
from thriftune.object_store.protocol import AccessDenied, Data
from thriftune.store.epochs import new_claim
from thriftune.store.heartbeat import KEY, LIFETIME_SECONDS, Heartbeat, ServerClock


class SkewedObjects(MemoryObjects):
    """An object store whose clock is ahead by some seconds."""

    def __init__(self, ahead: float, *, may_write: bool = True) -> None:
        super().__init__()
        self.ahead = ahead
        self.may_write = may_write

    def put(self, key: str, data: Data) -> None:
        if not self.may_write:
            raise AccessDenied("only reading is allowed")
        super().put(key, data)
        self.times[key] += self.ahead

    def delete(self, keys: Iterable[str]) -> None:
        super().delete(keys)


@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0])
def test_a_drive_lives_for_some_time_after_its_heartbeat(ahead: float) -> None:
    objects = SkewedObjects(ahead)
    heartbeat, claim = Heartbeat(objects, ServerClock(objects)), new_claim()
    assert heartbeat.living() is None
    heartbeat.beat(claim)
    assert heartbeat.living() == claim
    assert 0 < heartbeat.seconds_left() <= LIFETIME_SECONDS + 1
    objects.times[KEY] -= LIFETIME_SECONDS + 1
    assert heartbeat.living() is None
    assert heartbeat.last() == claim
    heartbeat.beat(claim)
    heartbeat.end(new_claim())
    assert heartbeat.living() == claim, "the heartbeat of another drive was ended"
    heartbeat.end(claim)
    assert heartbeat.last() is None
    assert list(objects.data) == [], "a probe is left"


def test_a_drive_that_may_not_delete_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(keys: Iterable[str]) -> None:
        raise AccessDenied("deleting is not allowed")

    objects, claim = MemoryObjects(), new_claim()
    heartbeat = Heartbeat(objects, ServerClock(objects))
    heartbeat.beat(claim)
    monkeypatch.setattr(objects, "delete", refuse)
    heartbeat.end(claim)
    assert heartbeat.last() is None
    assert heartbeat.living() is None


def test_who_may_only_read_compares_with_the_own_clock() -> None:
    objects = SkewedObjects(0.0)
    claim = new_claim()
    Heartbeat(objects, ServerClock(objects)).beat(claim)
    objects.may_write = False
    assert Heartbeat(objects, ServerClock(objects)).living() == claim
    assert abs(ServerClock(objects).now() - time.time()) < 60


def test_a_heartbeat_that_cannot_be_read_still_counts() -> None:
    objects = MemoryObjects()
    objects.put(KEY, b"not JSON")
    living = Heartbeat(objects, ServerClock(objects)).living()
    assert living is not None
    assert living.host == "an unknown host"
