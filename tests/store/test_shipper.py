"""Tests of shipping while the object store fails: refused, slow, cut and lost requests, and stale lists."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.store.conformance import reports
from tests.support.object_servers import FaultyServer, faulty
from thriftune.errors import StoreConflict
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import StoreUnavailable
from thriftune.store import shipped_log, shipper
from thriftune.store.epochs import Epochs, new_claim
from thriftune.store.heartbeat import Heartbeat, ServerClock
from thriftune.store.object_url_store import ObjectUrlStore
from thriftune.store.study_index import study_objects


@pytest.fixture(autouse=True)
def _quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SHIP_SECONDS", "REQUESTS_SECONDS", "OUTPUT_SECONDS", "HEARTBEAT_SECONDS", "_LAST_RETRY_SECONDS"):
        monkeypatch.setattr(shipper, name, 0.05)
    monkeypatch.setattr(shipped_log, "_ATTEMPT_SECONDS", 0.05)


@pytest.fixture
def server(s3_url: str) -> Iterator[FaultyServer]:
    with faulty(s3_url) as server:
        yield server


@pytest.fixture
def store(server: FaultyServer) -> Iterator[ObjectUrlStore]:
    """Return a store behind the server, with one study, "s"."""
    with open_at(server.url) as store:
        store.create("s", {"name": "s"}, 1.0)
        yield store


def open_at(url: str) -> ObjectUrlStore:
    return ObjectUrlStore(open_objects(url, retry_seconds=0.1, silence_seconds=2.0), url)


@pytest.fixture
def elsewhere(s3_url: str, tmp_path: Path) -> Iterator[ObjectUrlStore]:
    """Return the same studies as another machine sees them, past the proxy."""
    with open_at(s3_url) as store:
        yield store


def eventually(condition: Callable[[], object], what: str) -> None:
    give_up_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.02)


def test_a_study_goes_on_while_the_object_store_is_away(
    server: FaultyServer, store: ObjectUrlStore, elsewhere: ObjectUrlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(shipper, "SHORT_PATIENCE_SECONDS", 0.1)
    said: list[str] = []
    with store.drive("s"):
        ships = store.shipper("s")
        ships.say = said.append
        store.append("s", 0, reports(1, 3))
        ships.wait_until_shipped()
        assert elsewhere.read("s") == reports(1, 3)
        server.refuse()
        store.append("s", 3, reports(4, 5))
        eventually(lambda: ships.raise_if_lost() or said, "nobody was told")  # type: ignore[func-returns-value]
        assert "cannot be written" in said[0]
        assert "the study goes on" in said[0]
        ships.wait_until_shipped()
        assert "a machine is rented or released" in said[1]
        time.sleep(0.3)
        ships.raise_if_lost()
        assert len(said) == 2, "it is said once"
        monkeypatch.setattr(shipper, "_SAY_SECONDS", 0.01)
        ships.wait_until_shipped()
        assert said.pop(2).startswith("waiting until s3://")
        assert "a machine is rented or released" in said.pop()
        ships.wait_until_shipped("it has started", "its checkpoints")
        assert said.pop(2) == f"waiting until {ships._objects.url} knows that it has started"
        assert "it has started, and this could not be written" in said.pop()
        server.mend()
        eventually(lambda: elsewhere.read("s") == reports(1, 5), "it was not shipped later")
        eventually(lambda: ships.raise_if_lost() or len(said) == 3, "nobody was told")  # type: ignore[func-returns-value]
        assert "can be written again" in said[2]
    assert elsewhere.driver("s") is None


def test_what_must_not_wait_is_shipped_at_once(
    store: ObjectUrlStore, elsewhere: ObjectUrlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "SHIP_SECONDS", 3600.0)
    with store.drive("s"):
        ships = store.shipper("s")
        store.append("s", 0, reports(1, 3))
        ships.wait_until_shipped()
        time.sleep(0.2)  # the thread waits again
        store.append("s", 3, reports(4, 5))
        ships.ship_soon()
        eventually(lambda: elsewhere.read("s") == reports(1, 5), "it was not shipped")


def test_a_drive_that_cannot_ship_its_end_says_where_the_log_is(
    server: FaultyServer, store: ObjectUrlStore, elsewhere: ObjectUrlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "LAST_PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(shipper, "_SAY_SECONDS", 0.2)
    said: list[str] = []
    with store.drive("s"):
        store.shipper("s").say = said.append
        server.refuse()
        store.append("s", 0, reports(1, 3))
    assert any("waiting until the study is written" in line for line in said)
    assert "the last 3 entries of the log" in said[-1]
    assert "Resume the study on this machine" in said[-1]
    server.mend()
    with store.drive("s"):
        assert store.read("s") == reports(1, 3)
    assert elsewhere.read("s") == reports(1, 3)


@pytest.mark.parametrize("seed", range(6))
def test_faults_lose_nothing(
    seed: int, server: FaultyServer, store: ObjectUrlStore, elsewhere: ObjectUrlStore
) -> None:
    chance = random.Random(seed)
    number = 0
    with store.drive("s"):
        ships = store.shipper("s")
        ships.say = lambda text: None
        for _ in range(25):
            match chance.randrange(7):
                case 0:
                    server.answer(500, "InternalError", times=2)
                case 1:
                    server.answer(503, "SlowDown", times=3)
                case 2:
                    server.cut_request(times=2, method="PUT")
                case 3:
                    server.lose_answer(times=2, method="PUT")
                case 4:
                    server.cut_answer(times=2, method="GET")
                case 5:
                    server.delay(0.1, times=2, method="PUT", path="/log/")
                case 6:
                    server.mend()
            store.append("s", number, reports(number + 1, number + 2))
            number += 2
            time.sleep(0.02)
        server.mend()
        ships.wait_until_shipped()
    assert elsewhere.read("s") == reports(1, number)


def test_lists_that_are_out_of_date_lose_nothing(server: FaultyServer, store: ObjectUrlStore) -> None:
    with store.drive("s"):
        store.append("s", 0, reports(1, 3))
        store.shipper("s").wait_until_shipped()
        server.stale_lists()
        store.append("s", 3, reports(4, 6))
    with open_at(server.url) as other:
        assert other.read("s") == reports(1, 6)
        with other.drive("s"):
            assert other.read("s") == reports(1, 6)
            other.append("s", 6, reports(7, 7))
        assert other.read("s") == reports(1, 7)


def test_a_driver_that_was_replaced_is_told(store: ObjectUrlStore, elsewhere: ObjectUrlStore) -> None:
    claim = new_claim()

    def drive() -> None:
        with store.drive("s"):
            store.append("s", 0, reports(1, 2))
            ships = store.shipper("s")
            ships.wait_until_shipped()
            Epochs(study_objects(elsewhere._objects, elsewhere._record("s").id)).claim(claim)
            for told in (ships.check, ships.wait_until_shipped, lambda: store.take_requests("s")):
                store.append("s", store.length("s"), reports(3, 3))
                with pytest.raises(
                    StoreConflict, match=f"another driver, process {claim.pid} on {claim.host}, has"
                ):
                    told()

    with pytest.raises(StoreConflict, match="study 's'"):
        drive()
    assert elsewhere.read("s")[:2] == reports(1, 2)


def test_a_deleted_study_keeps_nothing_of_a_driver_that_was_paused(
    store: ObjectUrlStore, elsewhere: ObjectUrlStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    study = study_objects(elsewhere._objects, elsewhere._record("s").id)

    def drive() -> None:
        with store.drive("s"):
            ships = store.shipper("s")
            with ships._changed:  # paused, with its last heartbeat long ago
                study.delete(["driver.json"])
                monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
                elsewhere.delete("s")
            study.put("trials/0/checkpoints/1-0000000a/000001.json", b"a worker goes on")
            store.append("s", 0, reports(1, 2))
            ships.wait_until_shipped()

    with pytest.raises(StoreConflict):
        drive()
    assert list(study.list_objects()) == []


def test_any_thread_may_ship_and_check_without_speaking_to_the_user(
    server: FaultyServer, store: ObjectUrlStore, elsewhere: ObjectUrlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(shipper, "SHORT_PATIENCE_SECONDS", 0.1)
    said: list[str] = []
    with store.drive("s"):
        ships = store.shipper("s")
        ships.say = said.append
        store.append("s", 0, reports(1, 3))
        ships.ship_now()
        assert elsewhere.read("s") == reports(1, 3)
        server.refuse()
        store.append("s", 3, reports(4, 5))
        eventually(lambda: ships._away_since is not None, "nothing has failed")
        with pytest.raises(StoreUnavailable, match="the log could not be written to s3://"):
            ships.ship_now()
        server.mend()
        ships.check()
        assert not said, "only the driver's thread may show messages"


def test_a_driver_that_was_replaced_does_not_tell_that_it_lives(
    store: ObjectUrlStore, elsewhere: ObjectUrlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused, and its heartbeat is due when it goes on."""
    monkeypatch.setattr(shipper, "SHIP_SECONDS", 3600.0)
    monkeypatch.setattr(shipper, "HEARTBEAT_SECONDS", 0.0)
    objects = study_objects(elsewhere._objects, elsewhere._record("s").id)
    claim, heartbeat = new_claim(), Heartbeat(objects, ServerClock(objects))

    def drive() -> None:
        with store.drive("s"):
            ships = store.shipper("s")
            ships.wait_until_shipped()
            time.sleep(0.2)  # the thread waits again
            Epochs(objects).claim(claim)
            heartbeat.beat(claim)
            ships.ship_soon()
            eventually(lambda: ships.has_ended, "the driver was not told")

    with pytest.raises(StoreConflict, match="has taken it over"):
        drive()
    assert heartbeat.last() == claim


def test_requests_of_other_machines_reach_the_driver(store: ObjectUrlStore, elsewhere: ObjectUrlStore) -> None:
    with store.drive("s"):
        study_objects(elsewhere._objects, elsewhere._record("s").id).put("requests/0", b"no request")
        elsewhere.request("s", "stop", 1.0)
        taken: list[str] = []

        def take() -> list[str]:
            taken.extend(store.take_requests("s"))
            return taken

        eventually(take, "the request did not come")
        assert taken == ["stop"]
    assert elsewhere.take_requests("s") == []


def test_output_and_function_are_shipped_and_fetched(
    store: ObjectUrlStore, elsewhere: ObjectUrlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store.folder / "s"
    output = folder / "trials" / "3" / "output"
    output.mkdir(parents=True)
    (output / "1.log").write_text("one\n")
    (output / "1.1048576.log").write_text("later\n")
    (folder / "function.pickle").write_bytes(b"code")
    with store.drive("s"):
        store.shipper("s").ship_files(folder)
        study = study_objects(elsewhere._objects, elsewhere._record("s").id)
        eventually(lambda: study.info("trials/3/output/1.1048576.log"), "the output was not shipped")
        (output / "1.1048576.log").unlink()
        (output / "2.log").write_text("two\n")
    assert study.get("function.pickle") == b"code"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    elsewhere.fetch_output("s")
    fetched = elsewhere.folder / "s" / "trials" / "3" / "output"
    assert fetched != output
    assert {path.name: path.read_text() for path in fetched.iterdir()} == {"1.log": "one\n", "2.log": "two\n"}


def test_no_thread_is_left(store: ObjectUrlStore) -> None:
    with store.drive("s"):
        assert any(thread.name == "shipper" for thread in threading.enumerate())
    assert not any(thread.name == "shipper" for thread in threading.enumerate())
