"""Measure studies whose log is shipped to an object store: rclone's S3 server on loopback.

- The restart of a driver on another machine, from the shipped log of 1,000 trials with 100 reports each.
- What shipping costs a running study of trials that do nothing, beside the same study in a local store.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import thriftune as tt
from benchmarks.common import Row, in_new_process, main, say, scratch
from benchmarks.large_store import NAME, _conductor, make
from tests.support.object_servers import ACCESS_KEY, REGION, SECRET_KEY, Servers
from thriftune.clouds.local import LocalCloud
from thriftune.results.loading import load_history, load_spec
from thriftune.state import events as ev
from thriftune.store.opening import open_store

RESTART_BAR_SECONDS = 5.0
_BUCKET = "studies"


@contextlib.contextmanager
def _s3_server(folder: Path) -> Iterator[str]:
    """Run rclone's S3 server, and yield the URL of an empty bucket. Sets the credentials for this process."""
    os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    servers = Servers(folder)
    try:
        endpoint = servers.rclone()
        (folder / "rclone" / _BUCKET).mkdir()
        yield f"s3://{_BUCKET}?endpoint={endpoint}&region={REGION}"
    finally:
        servers.stop()


def upload(path: Path, url: str) -> int:
    """Copy the study of a local store to the object store. Return the number of entries in its log."""
    with open_store(path) as local, open_store(url) as store:
        store.create(NAME, local.spec(NAME), time.time(), local.read(NAME))
        return store.length(NAME)


def restart_seconds(url: str, cache: Path) -> tuple[float, float]:
    """Return the time from opening the store until the next trial is placed on a new machine, and its CPU time."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    started, cpu_at_start = time.perf_counter(), time.process_time()
    with open_store(url) as store, store.drive(NAME):
        spec = load_spec(store, NAME)
        conductor = _conductor(spec, load_history(store, spec))
        before, now = conductor.history.entries, time.time()
        log = conductor.handle([ev.DriverStarted(now, 1, "here"), *LocalCloud(1).open(now)], now)
        store.append(NAME, before, log)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_at_start
    if not any(isinstance(entry, ev.Place) for entry in log):
        raise AssertionError("the restarted study placed no trial")
    return seconds, cpu_seconds


def show_seconds(url: str, cache: Path) -> float:
    """Return the time to load the study from another machine, as `thriftune show` does."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    started = time.perf_counter()
    with open_store(url) as store:
        history = load_history(store, load_spec(store, NAME))
    assert history.trials
    return time.perf_counter() - started


def train(trial: tt.Trial) -> None:
    for step in trial.steps():
        trial.report(loss=trial["lr"] / step)


def study_seconds(store: str, cache: Path, trials: int) -> float:
    """Return the time from the first to the last trial of a study whose trials do nothing but report ten times."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    result = tt.tune(
        train,
        {"lr": tt.Float(1e-4, 1e-1, log=True)},
        minimize="loss",
        searcher="random",
        stopping="none",
        system="off",
        trials=trials,
        max_steps=10,
        workers=2,
        store=store,
        progress=False,
    )
    return result.seconds


def measure(options: argparse.Namespace) -> list[Row]:
    trials, reports, repeats = (100, 10, 1) if options.quick else (1000, 100, 3)
    noop_trials = 100 if options.quick else 1000
    with scratch() as folder, _s3_server(folder) as url:
        os.environ["XDG_CACHE_HOME"] = str(folder / "own")
        say("making the log")
        make(folder / "studies.db", trials, reports, killed=True)
        entries = upload(folder / "studies.db", url)
        caches = iter(folder / f"cache{number}" for number in range(1000))
        shows = [in_new_process(show_seconds, url, next(caches)) for _ in range(repeats)]
        timed = [in_new_process(restart_seconds, url, next(caches)) for _ in range(repeats)]
        local: list[float] = []
        shipped: list[float] = []
        for repeat in range(repeats):
            say(f"studies, pass {repeat + 1} of {repeats}")
            for times, store in ((local, str(folder / f"local{repeat}.db")), (shipped, url)):
                times.append(in_new_process(study_seconds, store, next(caches), noop_trials))
    restarts, cpu_seconds = [wall for wall, _ in timed], [cpu for _, cpu in timed]
    ratio = median(shipped) / median(local)
    return [
        Row(
            "restart on another machine: until the next trial is placed",
            f"{median(restarts):.2f} s ({min(restarts):.2f} to {max(restarts):.2f}; {median(cpu_seconds):.2f} s "
            f"of the driver's CPU; {entries:,} entries)",
            bar=f"under {RESTART_BAR_SECONDS:g} s",
            met=None if options.quick else median(restarts) < RESTART_BAR_SECONDS,
            data={"seconds": restarts, "cpu_seconds": cpu_seconds, "entries": entries},
        ),
        Row(
            "load the study on another machine",
            f"{median(shows):.2f} s ({min(shows):.2f} to {max(shows):.2f})",
            data={"seconds": shows},
        ),
        Row(
            f"{noop_trials} trials that do nothing: time with shipping, as a multiple of that without",
            f"{ratio:.2f} ({median(shipped):.2f} s against {median(local):.2f} s)",
            data={"shipped": shipped, "local": local},
        ),
    ]


if __name__ == "__main__":
    raise SystemExit(main(measure))
