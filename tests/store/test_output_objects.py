"""Tests of copying output to an object store: all trials get their turn."""

from __future__ import annotations

from pathlib import Path

from tests.store.memory_objects import MemoryObjects
from thriftune.store.output_objects import OutputShipper

TRIALS = 200


def write(folder: Path, trial: int, text: str) -> None:
    output = folder / "trials" / str(trial) / "output"
    output.mkdir(parents=True, exist_ok=True)
    (output / "1.log").write_text(text)


def test_many_trials_that_print_all_the_time_are_copied_in_turns(tmp_path: Path) -> None:
    objects = MemoryObjects()
    shipper = OutputShipper(objects)
    copied: set[str] = set()
    passes = 0
    while len(copied) < TRIALS:
        passes += 1
        for trial in range(TRIALS):
            write(tmp_path, trial, "x" * passes)
        turns = iter(range(50))
        assert not shipper.ship(tmp_path, is_urgent=lambda turns=turns: next(turns, None) is None)  # type: ignore[misc]
        assert len(objects.data) == 50, "log and heartbeat wait"
        copied |= objects.data.keys()
        objects.data.clear()
        assert passes < 10, "trials that print all the time keep others from being copied"
    shipper.ship(tmp_path, None)
    assert {len(data) for data in objects.data.values()} == {passes}


def test_removed_files_are_removed(tmp_path: Path) -> None:
    objects = MemoryObjects()
    shipper = OutputShipper(objects)
    for trial in (1, 2):
        write(tmp_path, trial, "x")
    assert shipper.ship(tmp_path)
    (tmp_path / "trials/1/output/1.log").unlink()
    assert shipper.ship(tmp_path)
    assert list(objects.data) == ["trials/2/output/1.log"]
