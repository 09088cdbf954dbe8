"""Tests of the thread that collects garbage, with an object store in memory."""

from __future__ import annotations

import threading

from tests.training.memory_objects import MemoryObjects, store_checkpoint
from thriftune.errors import StoreConflict, StoreError, ThriftuneError
from thriftune.loop.garbage import WantedCheckpoints
from thriftune.loop.garbage_collector import GarbageCollector
from thriftune.object_store.protocol import StoreUnavailable
from thriftune.training.checkpoint_objects import manifest_key

DRIVE = "0000000b"
EARLIER = frozenset({"0000000a"})
UNKNOWN = WantedCheckpoints(-1, frozenset(), DRIVE, EARLIER)


def wanted(trial: int, *names: str) -> WantedCheckpoints:
    return WantedCheckpoints(trial, frozenset(names), DRIVE, EARLIER, 1)


def manifests(objects: MemoryObjects) -> set[str]:
    return {key for key in objects.data if "/checkpoints/" in key and key.endswith(".json")}


def test_a_trial_keeps_what_is_wanted_and_all_parts_that_it_names() -> None:
    objects = MemoryObjects()
    for number in (1, 2, 3):
        store_checkpoint(objects, f"1-{DRIVE}/{number:06}", {"model": b"12345678", "more": bytes([number])})
    collector = GarbageCollector(lambda: objects)
    collector.submit(wanted(7, f"1-{DRIVE}/000003"))
    collector.close(60.0)
    assert manifests(objects) == {manifest_key(7, f"1-{DRIVE}/000003")}
    assert all("/000003" in key for key in objects.data)
    assert len(objects.data) == 4


def test_a_sweep_finds_what_crashes_and_unknown_trials_have_left() -> None:
    objects = MemoryObjects()
    kept = store_checkpoint(objects, "1-0000000a/000001", {"model": b"1"}, trial=7)
    store_checkpoint(objects, "1-0000000a/000002", {"model": b"2"}, trial=7)
    store_checkpoint(objects, "1-0000000a/000001", {"model": b"3"}, trial=70)
    store_checkpoint(objects, f"1-{DRIVE}/000001", {"model": b"4"}, trial=71)  # this drive has started it since
    objects.data["trials/8/checkpoints/1-0000000a/000001/abc"] = b"cut short"
    objects.data["trials/8/output/1.log"] = objects.data["log/1"] = objects.data["driver.json"] = b"other"
    collector = GarbageCollector(lambda: objects)
    collector.sweep([wanted(7, kept.name), wanted(8)], UNKNOWN)
    collector.close(60.0)
    assert manifests(objects) == {manifest_key(7, kept.name), manifest_key(71, f"1-{DRIVE}/000001")}
    assert {"trials/8/output/1.log", "log/1", "driver.json"} <= objects.data.keys()
    assert not any(key.startswith(("trials/8/checkpoints", "trials/70/")) for key in objects.data)


def test_a_sweep_reads_manifests_of_trials_with_garbage_only() -> None:
    objects = MemoryObjects()
    trials = {trial: [f"1-0000000a/{number:06}" for number in (1, 2, 3)] for trial in range(20)}
    for trial, names in trials.items():
        for name in names:
            store_checkpoint(objects, name, {"model": name.encode()}, trial=trial)
    objects.data["trials/7/checkpoints/1-0000000a/000004/abc"] = b"cut short"
    del objects.data[manifest_key(8, trials[8][0])]
    before = set(objects.data)
    collector = GarbageCollector(lambda: objects)
    collector.sweep([wanted(trial, *names) for trial, names in trials.items()], UNKNOWN)
    collector.close(60.0)
    assert before - objects.data.keys() == {"trials/7/checkpoints/1-0000000a/000004/abc"}
    assert len(objects.keys("get")) == 3


def test_a_drive_that_has_lost_its_study_deletes_nothing_any_more() -> None:
    objects = MemoryObjects()
    store_checkpoint(objects, f"1-{DRIVE}/000001", {"model": b"1"})
    before = set(objects.data)

    def check() -> None:
        raise StoreConflict("another driver has taken the study over")

    collector = GarbageCollector(lambda: objects, check=check)
    collector.submit(wanted(7))
    collector.sweep([wanted(7)], UNKNOWN)
    collector.close(60.0)
    assert set(objects.data) == before


def test_nothing_is_deleted_before_the_log_that_makes_it_garbage_is_shipped() -> None:
    objects = MemoryObjects()
    for number in (1, 2):
        store_checkpoint(objects, f"1-{DRIVE}/{number:06}", {"model": bytes([number])})
    before = set(objects.data)
    events: list[object] = []
    delete = objects.delete
    objects.delete = lambda keys: events.append("delete") or delete(keys)  # type: ignore[method-assign, func-returns-value]

    def ship_now() -> None:
        assert set(objects.data) == before
        events.append("ship")
        if len(events) == 1:
            raise StoreUnavailable("the log could not be written")

    health: list[ThriftuneError | None] = []
    collector = GarbageCollector(lambda: objects, health.append, ship_now=ship_now)
    collector.submit(wanted(7, f"1-{DRIVE}/000002"))
    while not health:
        threading.Event().wait(0.01)
    assert set(objects.data) == before
    collector.close(60.0)
    assert events == ["ship", "ship", "delete", "delete"]


def test_manifests_go_before_their_parts() -> None:
    objects = MemoryObjects()
    deleted: list[str] = []
    objects.delete = lambda keys: deleted.extend(keys)  # type: ignore[method-assign]
    for number in (1, 2):
        store_checkpoint(objects, f"1-{DRIVE}/{number:06}", {"model": b"12345678"})
    collector = GarbageCollector(lambda: objects)
    collector.submit(wanted(7))
    collector.close(60.0)
    assert [key.endswith(".json") for key in deleted] == [True, True, False, False, False, False]


def test_a_store_that_does_not_work_is_tried_again_and_the_caller_never_waits() -> None:
    objects = MemoryObjects()
    store_checkpoint(objects, f"1-{DRIVE}/000001", {"model": b"1"})
    health: list[ThriftuneError | None] = []
    failed = threading.Event()

    def fail(method: str, key: str) -> None:
        raise StoreUnavailable("no answer")

    def note(error: ThriftuneError | None) -> None:
        health.append(error)
        if error is not None:
            objects.before = lambda method, key: None
            failed.set()

    objects.before = fail
    collector = GarbageCollector(lambda: objects, note)
    collector.submit(wanted(7))
    assert failed.wait(60.0)
    collector.close(60.0)  # the last try does not wait for its time
    assert [type(each) for each in health] == [StoreUnavailable, type(None)]
    assert not objects.data


def test_an_error_of_the_local_store_does_not_end_the_collection() -> None:
    objects = MemoryObjects()
    store_checkpoint(objects, f"1-{DRIVE}/000001", {"model": b"1"})
    health: list[ThriftuneError | None] = []

    def ship_now() -> None:
        if not health:
            raise StoreError("the disk of the log is full")

    collector = GarbageCollector(lambda: objects, health.append, ship_now=ship_now)
    collector.submit(wanted(7))
    while not health:
        threading.Event().wait(0.01)
    collector.close(60.0)
    assert [type(each) for each in health] == [StoreError, type(None)]
    assert not objects.data


def test_a_collector_that_is_closed_during_an_outage_leaves_the_rest() -> None:
    objects = MemoryObjects()
    store_checkpoint(objects, f"1-{DRIVE}/000001", {"model": b"1"})

    def fail(method: str, key: str) -> None:
        raise StoreUnavailable("no answer")

    objects.before = fail
    collector = GarbageCollector(lambda: objects)
    collector.submit(wanted(7))
    collector.close(60.0)
    assert manifests(objects)


def test_without_work_there_is_no_thread() -> None:
    before = threading.active_count()
    collector = GarbageCollector(MemoryObjects)
    collector.close(60.0)
    assert threading.active_count() == before
