"""Measure the time of one trial.report() in the training process.

When report() returns, the report is durable: it is in the worker's spool file, which a later driver reads. The
training function measures the time, in a study with 2 workers. It reports with a millisecond between reports, as
in training, and without a pause. Without a pause, reports also wait for the driver.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import thriftune as tt
from benchmarks.common import Row, main, say, scratch

BAR_MICROSECONDS = 200.0


def times_of(reports: int, pause: float, save_bytes: int | None) -> list[float]:
    """Return the microseconds of each report of two trials that run at the same time.

    - `pause`: seconds between two reports.
    - `save_bytes`: size of the checkpoint of each report; None for no checkpoint.
    """
    with scratch() as folder:

        def train(trial: tt.Trial) -> None:
            state = b"x" * (save_bytes or 0)

            def write_state(checkpoint: Path) -> None:
                (checkpoint / "state").write_bytes(state)

            save: Callable[[Path], object] | None = None if save_bytes is None else write_state
            durations = []
            for number in range(reports):
                loss = 1.0 / (number + 1)
                started = time.perf_counter_ns()
                trial.report(loss=loss, save=save)
                durations.append((time.perf_counter_ns() - started) / 1000)
                if pause:
                    time.sleep(pause)
            (trial.folder / "durations.json").write_text(json.dumps(durations))

        space = {"lr": tt.Float(1e-4, 1e-1, log=True)}
        store = folder / "studies.db"
        tt.tune(
            train, space, minimize="loss", trials=2, workers=2, seed=0, name="cost", store=store, progress=False
        )
        files = sorted(folder.rglob("durations.json"))
        return [duration for file in files for duration in json.loads(file.read_text())]


def measure(options: argparse.Namespace) -> list[Row]:
    """Return a row for each way to report."""
    many, few = (50, 5) if options.quick else (5000, 300)
    rows = []
    for what, reports, pause, save_bytes in (
        ("one report, with a millisecond between reports", many, 0.001, None),
        ("one report, without a pause", many, 0.0, None),
        ("one report with a checkpoint of 1 KB, with a millisecond between reports", few, 0.001, 1024),
    ):
        say(f"{what}: {reports} reports in each of 2 trials")
        durations = times_of(reports, pause, save_bytes)
        middle, slow = median(durations), quantiles(durations, n=10)[-1]
        has_bar = save_bytes is None
        rows.append(
            Row(
                f"{what}, median",
                f"{middle:,.0f} us (p90 {slow:,.0f} us, {len(durations):,} reports)",
                bar=f"under {BAR_MICROSECONDS:g} us" if has_bar else "",
                met=None if options.quick or not has_bar else middle < BAR_MICROSECONDS,
                data={"median_microseconds": middle, "p90_microseconds": slow, "reports": len(durations)},
            )
        )
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
