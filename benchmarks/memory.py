"""Does the driver's memory stay flat? Its resident memory over 10,000 no-op trials, less the trials' own records.

The records are what a fresh process allocates (tracemalloc) to fold the same log: the History with its trials and
their reports. That leaves out the allocator's overhead, so it is on the strict side.
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
from benchmarks.common import Row, fresh, main, say, scratch
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


class Scales(SilentView):
    """A view that draws nothing and weighs its process every so many trials."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every = every
        self.weights: dict[int, int] = {}  # trials ended -> bytes resident

    def update(self, history: History, doing: Callable[[], Sequence[WorkerStatus]], now: float) -> None:  # noqa: ARG002 (the protocol's)
        ended = len(history.trials) - len(history.running) - len(history.waiting)
        mark = ended - ended % self._every
        if mark and mark not in self.weights:
            self.weights[mark] = resident_bytes()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def weigh_driver(path: Path, trials: int, every: int) -> dict[int, int]:
    """A real drive of a real study, by this process."""
    space = {"lr": tt.Float(1e-4, 1e-1, log=True), "act": tt.Choice(["relu", "tanh"])}
    settings = Settings(minimize="loss", searcher="random", stopping="none", seed=0, trials=trials, workers=2)
    spec = make_spec(space, settings, target=Target("pickled"), name=NAME)
    scales = Scales(every)
    function = pickled.dump("_train", {"train": _train, "searcher": None, "stopper": None})
    with open_store(path) as store:
        drive(store, open_study(store, spec), scales, function=function)
    return scales.weights


def _train(trial: tt.Trial) -> float:
    return float(trial["lr"])


def weigh_records(path: Path, trials: int) -> int:
    """Bytes that the History of the first so many trials takes."""
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
    first, last = (20, 60) if options.quick else (1000, 10_000)
    with scratch() as folder:
        path = folder / "studies.db"
        say(f"{last:,} trials")
        started = time.perf_counter()
        weights = fresh(weigh_driver, path, last, first // 10)
        took = time.perf_counter() - started
        say("weighing the records")
        records = {trials: fresh(weigh_records, path, trials) for trials in (first, last)}
    growth = weights[last] - weights[first]
    own = records[last] - records[first]
    left = 100 * (growth - own) / weights[first]
    mb = 1e6
    return [
        Row(
            f"driver memory, growth from trial {first:,} to {last:,} apart from the trials' own records",
            f"{left:.1f} % ({weights[first] / mb:.1f} MB to {weights[last] / mb:.1f} MB, "
            f"of which {own / mb:.1f} MB records)",
            bar=f"within {BAR_PERCENT:g} %",
            met=None if options.quick else left <= BAR_PERCENT,
            data={"resident_bytes": weights, "record_bytes": records, "percent_left": left, "seconds": took},
        ),
        Row("a trial's own records, each", f"{own / (last - first):,.0f} bytes"),
    ]


if __name__ == "__main__":
    raise SystemExit(main(measure))
