"""Measure the time to resume and to list a study of 1,000 trials with 100 reports each.

The conductor makes the log from made-up reports and ends of trials. In one store the driver has ended normally, in
the other it was killed during the last trial.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import thriftune as tt
from benchmarks.common import Row, in_new_process, main, say, scratch
from thriftune.clouds.local import LocalCloud
from thriftune.launch.open_study import open_study
from thriftune.loop.conductor import Conductor
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.results.loading import load_history
from thriftune.search import SEARCHERS
from thriftune.settings.make_spec import make_spec
from thriftune.settings.table import Settings
from thriftune.space.parameters import Parameter
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec, Target
from thriftune.state.summary import summarize
from thriftune.store.opening import open_store

NAME = "large"
SPACE: dict[str, Parameter] = {
    "lr": tt.Float(1e-4, 1e-1, log=True),
    "width": tt.Int(16, 256, log=True),
    "act": tt.Choice(["relu", "tanh"]),
}
RESUME_BAR_SECONDS = 2.0
LIST_BAR_SECONDS = 0.2


def make(path: Path, trials: int, reports: int, *, killed: bool) -> int:
    """Write the store, and return the number of entries in its log."""
    settings = Settings(
        minimize="loss",
        searcher="random",
        stopping="none",
        seed=0,
        trials=trials + 1 if killed else trials,
        max_steps=reports,
        workers=1,
    )
    spec = make_spec(SPACE, settings, target=Target("pickled"), name=NAME)
    with open_store(path) as store:
        spec = open_study(store, spec)
        conductor = _conductor(spec, spec.new_history())
        history, cloud, now = conductor.history, LocalCloud(1), 1.7e9
        log = conductor.handle([ev.DriverStarted(now, 1, "here"), *cloud.open(now)], now)
        store.append(NAME, 0, log, summarize(history, now))
        for trial in range(trials):
            before = history.entries
            log = []
            for step in range(1, reports + 1):
                now += 0.5
                metrics = {"loss": 1 / (trial + step), "accuracy": 1 - 1 / (trial + step)}
                log += conductor.handle([ev.Reported(now, trial, 1, step, step, metrics, step % 10 == 0)], now)
            log += conductor.handle([ev.Ended(now, trial, 1, reports * 0.5)], now)
            # A driver writes the summary twice a second, so the summary of a killed driver is not up to date.
            summary = None if killed and trial == trials - 1 else summarize(history, now)
            store.append(NAME, before, log, summary)
        if not killed:
            before = history.entries
            log = conductor.handle([*cloud.close(now), ev.DriverStopped(now)], now)
            store.append(NAME, before, log, summarize(history, now))
        history.validate()
        return history.entries


def _conductor(spec: Spec, history: History) -> Conductor:
    return Conductor(spec, history, SEARCHERS.make(spec.searcher, {}), PresentMachines())


def resume_seconds(path: Path) -> float:
    """Return the time from opening the store until the conductor has placed the next trial."""
    started = time.perf_counter()
    with open_store(path) as store:
        spec = Spec.from_json(store.spec(NAME))
        conductor = _conductor(spec, load_history(store, spec))
        now = time.time()
        log = conductor.handle([ev.DriverStarted(now, 1, "here"), *LocalCloud(1).open(now)], now)
        seconds = time.perf_counter() - started
    if not any(isinstance(entry, ev.Place) for entry in log):
        raise AssertionError("the resumed study placed no trial")
    return seconds


def tune_seconds(path: Path, trials: int, reports: int) -> float:
    """Return the time of a whole call of tune() with one trial left."""
    started = time.perf_counter()
    tt.tune(
        _train,
        SPACE,
        minimize="loss",
        trials=trials,
        max_steps=reports,
        workers=1,
        name=NAME,
        store=path,
        progress=False,
    )
    return time.perf_counter() - started


def _train(trial: tt.Trial) -> float:  # noqa: ARG001 (the protocol's)
    return 0.0


def studies_seconds(path: Path) -> float:
    """Return the time to open the store and list its studies."""
    started = time.perf_counter()
    with open_store(path, create=False) as store:
        store.studies()
    return time.perf_counter() - started


def command_seconds(path: Path) -> float:
    """Return the time of the command `thriftune list`, with the start of Python."""
    command = [str(Path(sys.executable).with_name("thriftune")), "list", "--json", "--store", str(path)]
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def measure(options: argparse.Namespace) -> list[Row]:
    """Return the rows of resuming and listing."""
    trials, reports, times = (10, 5, 2) if options.quick else (1000, 100, 5)
    with scratch() as folder:
        ended, killed = folder / "ended" / "studies.db", folder / "killed" / "studies.db"
        for path in (ended, killed):
            say(f"writing {trials:,} trials of {reports} reports; the driver was {path.parent.name}")
            entries = make(path, trials, reports, killed=path is killed)

        def row(what: str, bar: float | None, measure_seconds: Callable[[], float]) -> Row:
            say(f"{what}: {times} times")
            durations = [measure_seconds() for _ in range(times)]
            middle = median(durations)
            return Row(
                what,
                f"{middle:.3f} s ({min(durations):.3f} to {max(durations):.3f}; {entries:,} entries)",
                bar=f"under {bar:g} s" if bar else "",
                met=None if options.quick or bar is None else middle < bar,
                data={"seconds": durations, "entries": entries, "bytes": killed.stat().st_size},
            )

        def tune_copy_seconds() -> float:
            copy = folder / "copy"
            shutil.copytree(killed.parent, copy)
            try:
                return in_new_process(tune_seconds, copy / killed.name, trials + 1, reports)
            finally:
                shutil.rmtree(copy)

        return [
            row(
                "resume: until the next trial is placed",
                RESUME_BAR_SECONDS,
                lambda: in_new_process(resume_seconds, killed),
            ),
            row("resume: a whole tune() with one no-op trial left", None, tune_copy_seconds),
            row("list: store.studies()", LIST_BAR_SECONDS, lambda: in_new_process(studies_seconds, ended)),
            row("list: the command", LIST_BAR_SECONDS, lambda: command_seconds(ended)),
            row(
                "list: the command, after the driver was killed", LIST_BAR_SECONDS, lambda: command_seconds(killed)
            ),
        ]


if __name__ == "__main__":
    raise SystemExit(main(measure))
