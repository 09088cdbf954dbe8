"""Measure the time from a notice to a durable checkpoint: of a real worker in the middle of a long step."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.common import ROOT
from thriftune.engines.local import LocalEngine
from thriftune.state.events import THIS_MACHINE, CheckpointSaved, Event, Failed, Reported
from thriftune.training.run import Run
from thriftune.training.trial import Trial

NOTICE_SECONDS = 30.0
_LIMIT_SECONDS = 300.0


def long_step(trial: Trial) -> None:
    """Report once, then train a step that does not end. Saves in its middle when it is time."""
    state = os.urandom(trial["megabytes"] * 10**6)
    trial.report(loss=1.0)
    while True:
        time.sleep(0.001)  # a batch
        if trial.should_save:
            trial.save(lambda folder: (folder / "state").write_bytes(state))


def notice_to_checkpoint(folder: Path, objects: str, trial: int, megabytes: int) -> float:
    """Return the seconds from the engine's notice to the event that the checkpoint counts."""
    target = {"kind": "function", "where": "benchmarks.object_store.notice:long_step", "folder": str(ROOT)}
    engine = LocalEngine(folder, 1, target)
    engine.recover()
    engine.open()
    try:
        run = Run(
            trial, 1, {"megabytes": megabytes}, 0, ("loss",), None, 0, str(folder / "trial"), 2,
            objects=objects, drive="00000000",
        )  # fmt: skip
        engine.start(run, {THIS_MACHINE: 1})
        _wait_for(engine, Reported)
        started = time.perf_counter()
        engine.give_notice(trial, 1, NOTICE_SECONDS)
        _wait_for(engine, CheckpointSaved)
        return time.perf_counter() - started
    finally:
        engine.close()


def _wait_for(engine: LocalEngine, kind: type[Event]) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < deadline:
        for event in engine.wait(1.0):
            if isinstance(event, Failed):
                raise RuntimeError(event.error)
            if isinstance(event, kind):
                return
    raise RuntimeError(f"no {kind.__name__} came within {_LIMIT_SECONDS:g} s")
