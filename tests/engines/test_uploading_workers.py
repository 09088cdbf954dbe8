"""Tests that kill real workers while they upload checkpoints to a real S3 server."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.conftest import needs_torch
from tests.engines.conformance import ON_THIS_MACHINE, ends, events_of, wait_for_end, wait_until
from tests.engines.uploading_functions import BATCHES, read_state
from thriftune.engines.local import LocalEngine
from thriftune.object_store.opening import open_objects
from thriftune.state.events import CheckpointSaved, Ended, Event, Failed, Lost, Reported, Warned
from thriftune.training.messages import from_line
from thriftune.training.run import Run
from thriftune.training.stored_checkpoints import StoredCheckpoints

KILLS = int(os.environ.get("THRIFTUNE_KILLS", "12"))
LONGEST_SECONDS = 0.4  # before a worker is killed: some ten uploads

TARGET = {"kind": "function", "where": "tests.engines.uploading_functions:act", "folder": str(ROOT)}


@pytest.fixture
def engine(s3_url: str, tmp_path: Path) -> Iterator[LocalEngine]:
    engine = LocalEngine(tmp_path / "run", 1, TARGET)
    engine.recover()
    engine.open()
    yield engine
    engine.close()


@pytest.fixture
def run(s3_url: str, tmp_path: Path) -> Callable[..., Run]:
    def make(
        do: str, trial: int = 0, attempt: int = 1, saved: list[CheckpointSaved] | None = None, **settings: Any
    ) -> Run:
        """Return an attempt on a machine of its own. `saved`: the trial's checkpoints in the log."""
        newest = saved[-1] if saved else None
        least = newest.step * BATCHES + newest.partial if newest else 0
        return Run(
            trial,
            attempt,
            {"do": do, "least": least},
            newest.step if newest else 0,
            ("loss",),
            settings.pop("max_steps", 100_000),
            0,
            str(tmp_path / f"machine-{attempt}" / str(trial)),
            2,
            objects=s3_url,
            drive="3fa9c1d2",
            checkpoints=[(event.name, event.step) for event in reversed(saved or [])],
            resume_partial=newest is not None and newest.partial,
            **settings,
        )

    return make


def saves(events: list[Event]) -> list[CheckpointSaved]:
    return [event for event in events if isinstance(event, CheckpointSaved)]


@pytest.mark.timeout(60 + 5 * KILLS)
def test_kills_during_uploads_lose_nothing_that_was_stored(
    engine: LocalEngine, run: Callable[..., Run], s3_url: str, tmp_path: Path
) -> None:
    when = random.Random(0)
    saved: list[CheckpointSaved] = []
    for attempt in range(1, KILLS + 1):
        engine.start(run("train", attempt=attempt, saved=saved), ON_THIS_MACHINE)
        # Every other worker uploads something first; the others die at any time after their first report.
        awaited = (CheckpointSaved, Failed) if attempt % 2 else (Reported, Failed)
        events = wait_until(engine, lambda events, of=awaited: [e for e in events if isinstance(e, of)])  # type: ignore[misc]
        time.sleep(when.uniform(0.0, LONGEST_SECONDS))
        (status,) = engine.status()
        assert status.pid is not None, events
        os.kill(status.pid, signal.SIGKILL)
        events = wait_until(engine, lambda events: ends(events), events)
        assert isinstance(events[-1], (Lost, Failed)), events
        assert not list(tmp_path.glob("machine-*/0/scratch/*")), "states of a killed worker fill the disk"
        assert "assert" not in getattr(events[-1], "error", ""), events[-1]
        saved += saves(events)
    # An attempt that is not killed restores once more, and ends in good order.
    last = saved[-1].step + 2
    engine.start(run("train", attempt=KILLS + 1, saved=saved, max_steps=last), ON_THIS_MACHINE)
    events = wait_for_end(engine, 0, attempt=KILLS + 1)
    assert isinstance(events[-1], Ended)
    assert saves(events)[-1].step == last

    stored = StoredCheckpoints(open_objects(s3_url), 0)
    names = stored.names()
    assert {event.name for event in [*saved, *saves(events)]} <= set(names)
    assert len(names) >= KILLS
    for number, name in enumerate(names):
        manifest = stored.manifest(name)
        stored.fetch(manifest, tmp_path / f"fetched-{number}")
        assert read_state(tmp_path / f"fetched-{number}") == manifest.step * BATCHES + manifest.partial
        for line in manifest.reports:
            assert isinstance(from_line(line.encode()), Reported)


def test_a_worker_that_has_uploaded_and_fetched_can_run_the_next_trial(
    engine: LocalEngine, run: Callable[..., Run]
) -> None:
    pids = set()
    for trial in range(3):
        saved: list[CheckpointSaved] = []
        for attempt in (1, 2):
            engine.start(run("save_and_fork", trial, attempt=attempt, saved=saved), ON_THIS_MACHINE)
            events = events_of(wait_for_end(engine, trial, attempt=attempt), trial, attempt)
            assert isinstance(events[-1], Ended), events[-1]
            saved += saves(events)
            assert saved[-1].step == 2
            assert not [event for event in events if isinstance(event, Warned) and not event.once]
            pids.add([event.metrics["loss"] for event in events if isinstance(event, Reported)][-1])
    assert len(pids) == 1


def test_the_checkpoint_of_a_failed_attempt_is_uploaded(engine: LocalEngine, run: Callable[..., Run]) -> None:
    engine.start(run("save_and_raise"), ON_THIS_MACHINE)
    events = wait_for_end(engine, 0)
    assert isinstance(events[-1], Failed)
    assert [event.step for event in saves(events)] == [1]


@needs_torch
def test_processes_that_load_data_may_be_forked_during_uploads(
    engine: LocalEngine, run: Callable[..., Run]
) -> None:
    engine.start(run("load_data", max_steps=4), ON_THIS_MACHINE)
    events = wait_for_end(engine, 0)
    assert isinstance(events[-1], Ended), events[-1]
    assert {event.metrics["loss"] for event in events if isinstance(event, Reported)} == {2016.0}
    assert saves(events)[-1].step == 4


def test_a_notice_in_a_long_step_keeps_its_work(engine: LocalEngine, run: Callable[..., Run]) -> None:
    engine.start(run("wait_for_notice"), ON_THIS_MACHINE)
    wait_until(engine, lambda events: engine.status()[0].trial == 0)
    engine.give_notice(0, 1, 60.0)
    events = wait_until(engine, lambda events: saves(events))
    (saved,) = saves(events)
    assert (saved.step, saved.partial) == (0, True)
    engine.kill(0, 1)
    wait_until(engine, lambda events: ends(events), events)
