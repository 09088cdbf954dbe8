"""What does one trial.report() cost the training process?

On return it is durable: in the worker's spool file, which the next driver reads, and on its way to this one.
Measured inside the training function, in the workers of a study with 2 of them. Once with a millisecond's pause
between reports, as training has it, and once one right after the other, where reports also wait for the driver.
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
    """Microseconds of each report, over two trials that run side by side."""
    with scratch() as folder:

        def train(trial: tt.Trial) -> None:
            state = b"x" * (save_bytes or 0)

            def save(into: Path) -> None:
                (into / "state").write_bytes(state)

            keep: Callable[[Path], object] | None = None if save_bytes is None else save
            took = []
            for number in range(reports):
                loss = 1.0 / (number + 1)
                started = time.perf_counter_ns()
                trial.report(loss=loss, save=keep)
                took.append((time.perf_counter_ns() - started) / 1000)
                if pause:
                    time.sleep(pause)
            (trial.folder / "took.json").write_text(json.dumps(took))

        space = {"lr": tt.Float(1e-4, 1e-1, log=True)}
        store = folder / "studies.db"
        tt.tune(
            train, space, minimize="loss", trials=2, workers=2, seed=0, name="cost", store=store, progress=False
        )
        files = sorted(folder.rglob("took.json"))
        return [took for file in files for took in json.loads(file.read_text())]


def measure(options: argparse.Namespace) -> list[Row]:
    many, few = (50, 5) if options.quick else (5000, 300)
    rows = []
    for what, reports, pause, save_bytes in (
        ("one report, a millisecond apart", many, 0.001, None),
        ("one report, back to back", many, 0.0, None),
        ("one report with a checkpoint of 1 KB, a millisecond apart", few, 0.001, 1024),
    ):
        say(f"{what}: {reports} reports in each of 2 trials")
        took = times_of(reports, pause, save_bytes)
        middle, slow = median(took), quantiles(took, n=10)[-1]
        has_bar = save_bytes is None
        rows.append(
            Row(
                f"{what}, median",
                f"{middle:,.0f} us (p90 {slow:,.0f} us, {len(took):,} reports)",
                bar=f"under {BAR_MICROSECONDS:g} us" if has_bar else "",
                met=None if options.quick or not has_bar else middle < BAR_MICROSECONDS,
                data={"median_microseconds": middle, "p90_microseconds": slow, "reports": len(took)},
            )
        )
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
