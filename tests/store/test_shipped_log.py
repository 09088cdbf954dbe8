"""Tests of the shipped log: what is read, what is noticed, and that two drives never both count."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence

import pytest

from tests.store.memory_objects import MemoryObjects
from thriftune.errors import StoreConflict, StudyDamaged
from thriftune.store import shipped_log
from thriftune.store.epochs import Claim, Epoch, Epochs
from thriftune.store.log_segments import Line
from thriftune.store.shipped_log import ShippedLogReader, ShippedLogWriter


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_log, "_ATTEMPT_SECONDS", 0.0)


class Drive:
    """A drive, with its local log."""

    def __init__(self, objects: MemoryObjects, number: int) -> None:
        self.objects = objects
        self.number = number  # also the time of its entries
        self.log: list[Line] = []
        self.safe: list[Line] = []  # entries that it was told to be safe
        self.writer: ShippedLogWriter

    def begin(self) -> bool:
        """Take the study over. Return whether that succeeded."""
        epochs = Epochs(self.objects)
        claim = Claim(f"{self.number:08x}", self.number, "here", 0.0)
        while True:
            epoch, other = epochs.claim(claim)
            if other is None:
                break
        self.log = list(reader(self.objects).read()[1])
        self.writer = ShippedLogWriter(self.objects, epoch, self._lines, "s")
        self.writer.start(len(self.log))
        return True

    def ship(self, entries: int) -> None:
        """Append entries and ship them. Raises StoreConflict."""
        self.log += [
            Line("Reported", None, float(self.number), str(len(self.log) + each)) for each in range(entries)
        ]
        self.writer.ship(len(self.log))
        self.safe = list(self.log)

    def _lines(self, first: int, entries: int) -> Sequence[Line]:
        return self.log[first : first + entries]


def reader(objects: MemoryObjects) -> ShippedLogReader:
    return ShippedLogReader(objects, "s", "memory://test")


def segments(objects: MemoryObjects) -> list[str]:
    return sorted(key for key in objects.data if key.startswith("log/"))


@pytest.fixture
def drive() -> Drive:
    drive = Drive(MemoryObjects(), 1)
    drive.begin()
    return drive


def test_a_study_that_was_never_driven_has_no_log() -> None:
    assert reader(MemoryObjects()).read() == (None, [])


def test_a_reader_sees_what_was_shipped_and_reads_only_what_is_new(drive: Drive) -> None:
    seen = reader(drive.objects)
    assert seen.read() == (Epoch(1, "00000001"), [])
    for entries in (3, 1, 40):
        drive.ship(entries)
        assert seen.read()[1] == drive.log
    gets: list[str] = []
    get = drive.objects.get
    drive.objects.get = lambda key: gets.append(key) or get(key)  # type: ignore[method-assign, func-returns-value]
    drive.ship(2)
    assert seen.read()[1] == drive.log
    assert sum(key.startswith("log/") for key in gets) == 2  # the new segment, and the one that is not there yet


def test_many_shipments_make_few_segments(drive: Drive) -> None:
    seen = reader(drive.objects)
    for number in range(600):
        drive.ship(1)
        if number % 7 == 0:
            assert seen.read()[1] == drive.log
    assert len(segments(drive.objects)) < 40
    assert seen.read()[1] == reader(drive.objects).read()[1] == drive.log


def test_the_next_drive_goes_on_and_removes_the_log_before(drive: Drive) -> None:
    drive.ship(5)
    seen = reader(drive.objects)
    seen.read()
    following = Drive(drive.objects, 2)
    following.begin()
    following.ship(2)
    assert following.log[:5] == drive.log
    assert seen.read() == (Epoch(2, "00000002"), following.log)
    assert all("/000002-" in key for key in segments(drive.objects))


def test_a_drive_that_was_replaced_is_told_and_does_not_count(drive: Drive) -> None:
    drive.ship(5)
    following = Drive(drive.objects, 2)
    following.begin()
    with pytest.raises(StoreConflict, match="study 's': another driver, process 2 on here, has taken it over"):
        drive.ship(3)
    assert reader(drive.objects).read()[1] == following.log == drive.log[:5]


def test_a_drive_that_has_claimed_and_not_started_changes_nothing(drive: Drive) -> None:
    drive.ship(5)
    Epochs(drive.objects).claim(Claim("00000002", 2, "here", 0.0))
    assert reader(drive.objects).read()[1] == drive.log
    with pytest.raises(StoreConflict):
        drive.ship(1)


def test_a_list_that_is_out_of_date_hides_nothing(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    drive.ship(5)
    stale = drive.objects.data.copy()
    drive.ship(2)
    drive.ship(2)
    listed = MemoryObjects()
    listed.data, listed.times = stale, drive.objects.times
    monkeypatch.setattr(drive.objects, "list_objects", listed.list_objects)
    assert reader(drive.objects).read()[1] == drive.log
    following = Drive(drive.objects, 2)
    following.begin()
    assert following.log == drive.log
    following.ship(1)
    assert reader(drive.objects).read() == (Epoch(2, "00000002"), following.log)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-3], "segment 000000000005: its checksum is wrong"),
        (lambda data: b"", "segment 000000000005: "),
        (None, "its log has a gap after entry 5"),
    ],
)
def test_damage_is_an_error_that_names_the_segment(drive: Drive, damage: object, message: str) -> None:
    for entries in (5, 2, 2):
        drive.ship(entries)
    key = next(key for key in segments(drive.objects) if key.endswith("/000000000005"))
    if callable(damage):
        drive.objects.data[key] = damage(drive.objects.data[key])
    else:
        del drive.objects.data[key]
    with pytest.raises(StudyDamaged, match=message):
        reader(drive.objects).read()


def test_a_log_that_lacks_entries_that_were_shipped_is_damaged(drive: Drive) -> None:
    drive.ship(5)
    with pytest.raises(StudyDamaged, match="its log has 5 entries, and should have 6"):
        reader(drive.objects).read(6)
    following = Drive(drive.objects, 2)
    following.begin()
    for key in segments(drive.objects):
        del drive.objects.data[key]
    with pytest.raises(StudyDamaged, match="its log has 0 entries, and should have 5"):
        reader(drive.objects).read()


def test_segments_that_are_merged_while_they_are_read_are_not_left_out(drive: Drive) -> None:
    # The driver was paused between its look for a newer claim and the merge. Its successor reads meanwhile.
    for _ in range(15):
        drive.ship(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped_log, "to_merge", lambda segments: [])
        drive.ship(1)
    get, reads = drive.objects.get, itertools.count(1)

    def get_slowly(key: str) -> bytes:
        if key.startswith("log/") and next(reads) == 14:  # only the last ones are missing, so there is no gap
            drive.writer._merge(list(drive.writer._segments))
        return get(key)

    drive.objects.get = get_slowly  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped_log, "in_parallel", lambda function, items: [function(item) for item in items])
        assert reader(drive.objects).read()[1] == drive.safe


def test_a_shipment_that_failed_is_repeated_with_the_same_content(drive: Drive) -> None:
    drive.ship(1)
    put, sent = drive.objects.put, list[tuple[str, bytes]]()

    def lose_answer(key: str, data: bytes) -> None:
        put(key, data)
        sent.append((key, data))
        raise ConnectionError

    drive.objects.put = lose_answer  # type: ignore[assignment, method-assign]
    with pytest.raises(ConnectionError):
        drive.ship(2)
    with pytest.raises(ConnectionError):
        drive.ship(3)
    assert sent[0] == sent[1]
    drive.objects.put = put  # type: ignore[method-assign]
    drive.ship(1)
    put(*sent[0])  # the server carries the first request out only now
    assert reader(drive.objects).read()[1] == drive.log


# --- any order of requests --------------------------------------------------------------------------------


class Killed(Exception):
    """Ends a drive at a request, as a kill does."""


class Turns:
    """Lets threads make their requests in a random order, one at a time, and kills some of them."""

    def __init__(self, seed: int, threads: int) -> None:
        self._chance = random.Random(seed)
        self._kill = self._chance.random() < 0.5
        self._changed = threading.Condition()
        self._waiting: set[int] = set()
        self._running = threads
        self._next = -1

    def wait(self) -> None:
        """Called before each request."""
        own = threading.get_ident()
        with self._changed:
            self._waiting.add(own)
            self._choose()
            self._changed.wait_for(lambda: self._next == own)
            self._next = -1
            self._waiting.discard(own)
            if self._kill and self._chance.random() < 0.01:
                raise Killed

    def end(self) -> None:
        """Called when a thread has ended."""
        with self._changed:
            self._running -= 1
            self._choose()

    def _choose(self) -> None:
        if self._running and len(self._waiting) == self._running:
            self._next = self._chance.choice(sorted(self._waiting))
            self._changed.notify_all()


@pytest.mark.parametrize(("drives", "creates"), [(4, True), (2, False)])
def test_whatever_the_order_of_requests_one_drive_counts(
    drives: int, creates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drives that begin at once are safe even on servers that do not honour create-only writes."""
    monkeypatch.setattr(shipped_log, "_PARALLEL", 1)
    takeovers = 0
    for seed in range(300):
        turns = Turns(seed, drives)
        objects = MemoryObjects(creates=creates)
        objects._before = turns.wait
        all_drives = [Drive(objects, number) for number in range(1, drives + 1)]
        lengths = random.Random(seed)
        plans = [[lengths.randrange(1, 4) for _ in range(lengths.randrange(1, 12))] for _ in all_drives]

        def run(drive: Drive, plan: list[int], turns: Turns = turns) -> None:
            try:
                drive.begin()
                for entries in plan:
                    drive.ship(entries)
            except (StoreConflict, Killed, StudyDamaged):
                pass
            finally:
                turns.end()

        threads = [threading.Thread(target=run, args=each) for each in zip(all_drives, plans, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        objects._before = lambda: None
        log = list(reader(objects).read()[1])
        for drive in all_drives:
            assert log[: len(drive.safe)] == drive.safe, f"seed {seed}: entries that were safe are lost"
        blocks = [number for number, _ in itertools.groupby(line.at for line in log)]
        assert len(blocks) == len(set(blocks)), f"seed {seed}: two drives have written in turns"
        takeovers += len(blocks) > 1
    assert takeovers > 5
