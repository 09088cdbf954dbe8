"""Measure the time of one read of trial.time_left and trial.should_save with a real link, as in an inner loop."""

from __future__ import annotations

import socket
import tempfile
import timeit
from pathlib import Path

from thriftune.engines.driver_link import DriverLink
from thriftune.training.run import Run
from thriftune.training.trial import Trial


def nanoseconds_per_read(reads: int) -> dict[str, float]:
    """Return the nanoseconds of a read, by what is read: without a notice, the fastest of five runs."""
    ours, drivers = socket.socketpair()
    with tempfile.TemporaryDirectory() as folder, ours, drivers:
        link = DriverLink(ours, Path(folder) / "spool")
        run = Run(0, 1, {}, 0, ("loss",), None, 0, folder, 2, save_every=1000.0)
        link._run = run  # no driver has sent it
        trial = Trial(run, link)
        reading = {"trial.time_left": lambda: trial.time_left, "trial.should_save": lambda: trial.should_save}
        return {
            what: min(timeit.repeat(read, number=reads, repeat=5)) / reads * 1e9 for what, read in reading.items()
        }
