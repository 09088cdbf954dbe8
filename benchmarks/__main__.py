"""Run the benchmarks of speed and size, one after the other."""

from __future__ import annotations

import argparse

from benchmarks import footprint, large_store, memory, report_cost, throughput
from benchmarks.common import Row, main, say


def measure(options: argparse.Namespace) -> list[Row]:
    """Return the rows of all benchmarks of speed and size."""
    rows = []
    for benchmark in (throughput, report_cost, large_store, memory, footprint):
        say(f"--- {benchmark.__name__.rpartition('.')[2]}")
        rows += benchmark.measure(options)
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
