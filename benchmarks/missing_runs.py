"""Start worker processes that do the missing runs of a method, in its own environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import peers
from benchmarks.common import say
from benchmarks.run_files import Case, Entry, Keys, read


def do_missing_runs(
    entry: Entry, cases: Sequence[Case], file: Path, keys: Keys, worker: Path, arguments: Sequence[str], jobs: int
) -> None:
    """Run `worker` in `jobs` processes, each of which does a share of the runs that are not in the file yet.

    `arguments` are the worker's command-line arguments, without --method and --share.
    """
    finished = read(file, keys)
    missing = sum(case not in finished for case in cases)
    if not missing:
        return
    say(f"{entry.name}: {missing} of {len(cases)} runs to do")
    python = peers.python(entry.peer) if entry.peer else sys.executable
    # With -P, the peer's imports cannot find our modules by accident.
    command = [str(python), "-P", str(worker), "--method", entry.name, *arguments]
    processes = [subprocess.Popen([*command, "--share", f"{i}/{jobs}"], stdout=sys.stderr) for i in range(jobs)]
    try:
        failed = [process.returncode for process in processes if process.wait()]
    finally:
        for process in processes:
            process.terminate()
    if failed:
        say(f"{entry.name}: {len(failed)} of its workers failed; the runs that they finished count")
