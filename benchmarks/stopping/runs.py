"""Which races are missing, and how are they run? Each method's workers in its own environment, one thread each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import peers
from benchmarks.common import say
from benchmarks.stopping import methods, results

WORKER = Path(__file__).with_name("race_worker.py")


def complete(
    names: Sequence[str],
    tables: Sequence[str],
    seeds: Sequence[int],
    workers: Sequence[int],
    folder: Path,
    jobs: int = 1,
) -> None:
    """Runs what is not in the results yet, method by method, `jobs` processes at a time."""
    for name in names:
        there = results.read(results.file_of(folder, name))
        wanted = results.cases(tables, seeds, workers)
        missing = sum(case not in there for case in wanted)
        if not missing:
            continue
        say(f"{name}: {missing} of {len(wanted)} runs to do")
        entry = methods.find(name)
        python = peers.python(entry.peer) if entry.peer else sys.executable
        # -P: the names of our modules shall not be found by the peer's imports
        command = [str(python), "-P", str(WORKER), "--method", name, "--tables", ",".join(tables)]
        command += ["--seeds", ",".join(map(str, seeds)), "--workers", ",".join(map(str, workers))]
        command += ["--results", str(folder)]
        running = [subprocess.Popen([*command, "--share", f"{i}/{jobs}"], stdout=sys.stderr) for i in range(jobs)]
        try:
            failed = [process.returncode for process in running if process.wait()]
        finally:
            for process in running:
                process.terminate()
        if failed:
            say(f"{name}: {len(failed)} of its workers failed; what they finished counts")
