"""Drivers of one study that are killed, paused and replaced, against a real S3 server."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from thriftune.state.events import Reported
from thriftune.store.opening import open_store


class Child:
    """A driver in a process of its own, whose lines are read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.strip())
                self._changed.notify_all()
        with self._changed:
            self.lines.append("ended")
            self._changed.notify_all()

    def wait_for(self, beginning: str, count: int = 1) -> str:
        """Return the line with which so many lines of this beginning have come."""

        def found() -> list[str]:
            return [line for line in self.lines if line.startswith(beginning)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count or "ended" in self.lines, 60), self.lines
            assert len(found()) >= count, self.lines
            return found()[count - 1]

    @property
    def safe(self) -> int:
        """The number of the last entry that the driver was told to be safe."""
        return max([int(line.split()[1]) for line in self.lines if line.startswith("safe ")], default=0)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self._thread.join()


@contextmanager
def child(url: str, cache: Path, tag: int, lifetime: float | None = None) -> Iterator[Child]:
    command = [sys.executable, "-m", "tests.store.shipping_child", url, "s", str(tag)]
    command += [] if lifetime is None else [str(lifetime)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_CACHE_HOME": str(cache),
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


@pytest.fixture
def url(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a store with one study, "s"."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "reader"))
    with open_store(s3_url) as store:
        store.create("s", {"name": "s"}, 1.0)
    return s3_url


def check(url: str, drivers: dict[int, int]) -> list[tuple[int, int]]:
    """Check the log: each driver's entries are in one block, and it has all that it was told to be safe.

    - `drivers`: by tag, in the order in which they took over: the last entry that was safe.

    Returns (tag, number of its last entry) of each block.
    """
    with open_store(url) as store:
        entries = store.read("s")
    assert all(isinstance(entry, Reported) for entry in entries)
    reported = [entry for entry in entries if isinstance(entry, Reported)]
    assert [entry.number for entry in reported] == list(range(1, len(entries) + 1))
    tags = [int(entry.metrics["loss"]) for entry in reported]
    assert tags == sorted(tags), "entries of an older driver follow those of a newer one"
    for tag, safe in drivers.items():
        if safe:
            assert tags[safe - 1] == tag, f"what driver {tag} was told to be safe is lost"
    blocks = []
    for tag, group in itertools.groupby(enumerate(tags, 1), key=lambda each: each[1]):
        blocks.append((tag, list(group)[-1][0]))
    return blocks


def test_killed_drivers_are_continued_on_the_same_and_on_other_machines(url: str, tmp_path: Path) -> None:
    chance = random.Random(0)
    safe: dict[int, int] = {}
    for tag in range(1, 13):
        cache = tmp_path / f"machine{chance.randrange(2)}"
        if chance.random() < 0.3:
            shutil.rmtree(cache, ignore_errors=True)  # with its disk
        with child(url, cache, tag, lifetime=0) as driver:
            driver.wait_for("driving" if chance.random() < 0.8 else "")
            time.sleep(chance.uniform(0, 0.4))
            driver.kill()
            safe[tag] = driver.safe
        check(url, safe)
    assert max(safe.values()) > 0


def test_a_paused_driver_that_wakes_up_after_a_takeover_writes_nothing_that_counts(
    url: str, tmp_path: Path
) -> None:
    with child(url, tmp_path / "one", 1) as old:
        old.wait_for("safe", 3)
        old.signal(signal.SIGSTOP)
        with child(url, tmp_path / "two", 2, lifetime=0) as new:
            new.wait_for("safe", 2)
            old.signal(signal.SIGCONT)
            assert "another driver, process" in old.wait_for("lost")
            new.wait_for("safe", len([line for line in new.lines if line.startswith("safe")]) + 3)
            new.kill()
            assert [tag for tag, _ in check(url, {1: old.safe, 2: new.safe})] == [1, 2]


def test_drivers_that_take_the_study_from_each_other_never_both_count(url: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    with ExitStack() as stack:
        drivers = [stack.enter_context(child(url, tmp_path / "1", 1))]
        drivers[0].wait_for("safe")
        for tag in range(2, 6):
            # Paused at any moment of its shipping, and awake again while the next one takes over
            drivers[-1].signal(signal.SIGSTOP)
            drivers.append(stack.enter_context(child(url, tmp_path / str(tag), tag, lifetime=0)))
            time.sleep(chance.uniform(0.3, 1.2))
            drivers[-2].signal(signal.SIGCONT)
            drivers[-2].wait_for("lost")
            drivers[-1].wait_for("safe", 2)
        drivers[-1].kill()
        check(url, {tag: driver.safe for tag, driver in enumerate(drivers, 1)})


def test_of_two_that_begin_at_once_one_is_refused(url: str, tmp_path: Path) -> None:
    with child(url, tmp_path / "one", 1) as one, child(url, tmp_path / "two", 1) as two:
        deadline = time.monotonic() + 60
        while not any(line.startswith(("busy", "lost")) for line in one.lines + two.lines):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        loser, winner = (one, two) if any(line.startswith(("busy", "lost")) for line in one.lines) else (two, one)
        winner.wait_for("safe", 2)
        assert "safe" not in " ".join(loser.lines) or any(line.startswith("lost") for line in loser.lines)
        winner.kill()
        check(url, {1: winner.safe})


def test_a_killed_driver_of_another_machine_is_waited_for(url: str, tmp_path: Path) -> None:
    with child(url, tmp_path / "one", 1) as old:
        old.wait_for("safe")
        old.kill()
    with child(url, tmp_path / "two", 2) as refused:
        message = refused.wait_for("busy")
        assert f"is being run by process {old.process.pid} on " in message
        assert "If that process or its machine is dead, wait " in message
    with child(url, tmp_path / "one", 3) as same:  # here the process is known to be dead
        same.wait_for("safe")
        same.kill()
    with child(url, tmp_path / "two", 4, lifetime=2.0) as later:
        line = later.wait_for("")
    for _ in range(100):
        if not line.startswith("busy"):
            break
        time.sleep(0.2)
        with child(url, tmp_path / "two", 4, lifetime=2.0) as later:
            line = later.wait_for("")
    assert line == "driving"
