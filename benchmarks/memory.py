"""Measure how the driver's memory grows over 10,000 no-op trials, apart from the records of the trials.

The size of the records is the memory that a new process allocates (by tracemalloc) to replay the same log into a
History with its trials and reports. It excludes the allocator's overhead, so the growth is rather overestimated.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import thriftune as tt
from benchmarks.common import Row, in_new_process, main, say, scratch
from thriftune.engines import pickled
from thriftune.engines.protocol import WorkerStatus
from thriftune.launch.drive import drive
from thriftune.launch.open_study import open_study
from thriftune.settings.make_spec import make_spec
from thriftune.settings.table import Settings
from thriftune.show.progress import SilentView
from thriftune.state.history import History
from thriftune.state.spec import Spec, Target
from thriftune.store.opening import open_store

NAME = "memory"
BAR_PERCENT = 10.0


class MemoryMeter(SilentView):
    """A view that draws nothing and measures the memory of its process after every `every` trials."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every = every
        self.bytes_by_trials: dict[int, int] = {}  # ended trials -> resident bytes

    def update(self, history: History, doing: Callable[[], Sequence[WorkerStatus]], now: float) -> None:  # noqa: ARG002 (the protocol's)
        ended = len(history.trials) - len(history.running) - len(history.waiting)
        mark = ended - ended % self._every
        if mark and mark not in self.bytes_by_trials:
            self.bytes_by_trials[mark] = resident_bytes()


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def driver_bytes(path: Path, trials: int, every: int) -> dict[int, int]:
    """Drive a study in this process, and return its resident bytes by the number of ended trials."""
    space = {"lr": tt.Float(1e-4, 1e-1, log=True), "act": tt.Choice(["relu", "tanh"])}
    settings = Settings(minimize="loss", searcher="random", stopping="none", seed=0, trials=trials, workers=2)
    spec = make_spec(space, settings, target=Target("pickled"), name=NAME)
    meter = MemoryMeter(every)
    function = pickled.dump("_train", {"train": _train, "searcher": None, "stopper": None})
    with open_store(path) as store:
        drive(store, open_study(store, spec), meter, function=function)
    return meter.bytes_by_trials


def _train(trial: tt.Trial) -> float:
    return float(trial["lr"])


def record_bytes(path: Path, trials: int) -> int:
    """Return the bytes of a History with the first `trials` trials of the log."""
    with open_store(path, create=False) as store:
        spec = Spec.from_json(store.spec(NAME))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        history = spec.new_history()
        for entry in store.read(NAME):
            if getattr(entry, "trial", 0) < trials:
                history.apply(entry)
        del entry
        gc.collect()
        size = tracemalloc.get_traced_memory()[0] - before
    if len(history.trials) != trials:
        raise AssertionError(f"{len(history.trials)} trials in the log instead of {trials}")
    return size


def measure(options: argparse.Namespace) -> list[Row]:
    """Return the rows of the driver's growth and of the size of a record."""
    first, last = (20, 60) if options.quick else (1000, 10_000)
    with scratch() as folder:
        path = folder / "studies.db"
        say(f"{last:,} trials")
        started = time.perf_counter()
        driver = in_new_process(driver_bytes, path, last, first // 10)
        seconds = time.perf_counter() - started
        say("measuring the records")
        records = {trials: in_new_process(record_bytes, path, trials) for trials in (first, last)}
    growth = driver[last] - driver[first]
    record_growth = records[last] - records[first]
    percent_left = 100 * (growth - record_growth) / driver[first]
    mb = 1e6
    return [
        Row(
            f"growth of driver memory from trial {first:,} to {last:,}, without the records of trials",
            f"{percent_left:.1f} % ({driver[first] / mb:.1f} MB to {driver[last] / mb:.1f} MB, "
            f"of which {record_growth / mb:.1f} MB records)",
            bar=f"within {BAR_PERCENT:g} %",
            met=None if options.quick else percent_left <= BAR_PERCENT,
            data={
                "resident_bytes": driver,
                "record_bytes": records,
                "percent_left": percent_left,
                "seconds": seconds,
            },
        ),
        Row("the record of a trial", f"{record_growth / (last - first):,.0f} bytes"),
    ]


if __name__ == "__main__":
    raise SystemExit(main(measure))
