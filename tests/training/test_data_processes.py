"""Tests of several processes that use the cache of datasets, some of which are killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from thriftune.training import data_folder
from thriftune.training.data_folder import DataFolder

SCRIPT = Path(__file__).with_name("fetch_dataset.py")
URL = "s3://bucket/train"
FILES = 40


class Machine:
    """A machine whose processes fetch a dataset from a server."""

    def __init__(self, folder: Path) -> None:
        self.cache, self.server = folder / "cache", folder / "server"
        self.folder = DataFolder(self.cache)
        self.processes: list[subprocess.Popen[str]] = []
        for number in range(FILES):
            path = self.server / "bucket/train" / f"{number % 4}/{number}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes([number]) * 1_000)

    def start(self, *steps: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(SCRIPT), str(self.cache), str(self.server), URL, *steps]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def fetched(self, process: subprocess.Popen[str]) -> dict[str, bytes]:
        """Return the files that a process has fetched, once it has."""
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.bin")}

    @property
    def downloads(self) -> list[str]:
        """The downloads that were begun: the id of the process, and the key."""
        log = self.server / "downloads"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def original(self) -> dict[str, bytes]:
        folder = self.server / "bucket/train"
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.bin")}

    def left(self) -> list[str]:
        return [path.name for name in ("partial", "trash") for path in (self.folder.path / name).iterdir()]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    started = Machine(tmp_path)
    yield started
    for process in started.processes:
        process.kill()
        process.communicate()


def wait_until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.01)


def test_several_processes_fetch_a_dataset_once(machine: Machine) -> None:
    processes = [machine.start("slow") for _ in range(4)]
    assert all(machine.fetched(each) == machine.original for each in processes)
    assert Counter(line.split()[1] for line in machine.downloads) == dict.fromkeys(machine.original, 1)


def test_another_process_takes_over_from_a_killed_one(machine: Machine) -> None:
    first = machine.start("gate")
    wait_until(lambda: machine.downloads)
    second = machine.start("slow")
    time.sleep(0.5)  # so that it most likely waits for the first
    assert {line.split()[0] for line in machine.downloads} == {str(first.pid)}
    first.kill()
    assert machine.fetched(second) == machine.original
    assert machine.left() == []


def test_kills_at_any_moment_leave_no_incomplete_dataset(machine: Machine) -> None:
    dice = random.Random(5)
    for _ in range(8):
        pair = [machine.start("slow"), machine.start("slow")]
        began = len(machine.downloads)
        wait_until(lambda began=began: len(machine.downloads) > began or machine.folder.entries())  # type: ignore[misc]
        time.sleep(dice.uniform(0.0, 0.12))
        for process in pair:
            process.kill()
            process.wait()
        for entry in machine.folder.entries():
            assert machine.folder.intact(entry.key) is not None
            machine.folder.remove(entry.key)
    assert machine.fetched(machine.start()) == machine.original
    assert machine.left() == []


def test_a_dataset_is_in_use_until_its_process_dies(machine: Machine) -> None:
    process = machine.start()
    machine.fetched(process)
    (entry,) = machine.folder.entries()
    assert not machine.folder.remove(entry.key)
    process.kill()
    process.wait()
    assert machine.folder.remove(entry.key)


def test_a_dataset_is_in_use_while_a_child_process_lives(machine: Machine) -> None:
    process = machine.start("fork")
    machine.fetched(process)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    (entry,) = machine.folder.entries()
    process.kill()
    process.wait()
    assert not machine.folder.remove(entry.key)
    os.kill(child, 9)
    wait_until(lambda: machine.folder.remove(entry.key))


def test_what_a_killed_process_has_reserved_becomes_free(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(data_folder.BYTES_VARIABLE, str(FILES * 4096 + 4096))
    first = machine.start("gate")
    wait_until(lambda: machine.downloads)
    (machine.server / "bucket/train/more.bin").write_bytes(b"1")  # so that the next one fetches another version
    first.kill()
    first.wait()
    assert machine.fetched(machine.start()) == machine.original
    assert machine.left() == []
