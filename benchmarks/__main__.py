"""Every benchmark that takes minutes, one after the other; how good the search is: python -m benchmarks.search."""

from __future__ import annotations

import argparse

from benchmarks import footprint, large_store, memory, report_cost, throughput
from benchmarks.common import Row, main, say


def measure(options: argparse.Namespace) -> list[Row]:
    rows = []
    for benchmark in (throughput, report_cost, large_store, memory, footprint):
        say(f"--- {benchmark.__name__.rpartition('.')[2]}")
        rows += benchmark.measure(options)
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
