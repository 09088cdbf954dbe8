"""The other processes of the store's tests: `python -m tests.store.child TASK PATH NAME`.

Each prints a line when it is under way, so that the test knows when to look, or to kill.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.store.conformance import reports
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store


def say(what: object) -> None:
    print(what, flush=True)


def drive(store: Store, name: str) -> None:
    """Drive the study until killed."""
    with store.drive(name):
        say("driving")
        time.sleep(600)


def drive_and_exec(store: Store, name: str) -> None:
    """Drive the study while a program that it started runs. The program must not keep the lock."""
    with store.drive(name):
        say(subprocess.Popen(["sleep", "600"], close_fds=False).pid)
        time.sleep(600)


def drive_and_fork(store: Store, name: str) -> None:
    """Drive the study with a forked child, which must not keep the lock."""
    with store.drive(name):
        if child := os.fork():
            say(child)
        time.sleep(600)


def write(store: Store, name: str) -> None:
    """Drive the study and append batches of three until killed; print how many entries are confirmed."""
    with store.drive(name):
        number = store.length(name)
        while True:
            store.append(name, number, reports(number + 1, number + 3), {"entries": number + 3})
            number += 3
            say(number)


def create(store: Store, name: str) -> None:
    """Create studies with three first entries until killed; print which are confirmed."""
    for number in itertools.count():
        store.create(f"{name}{number}", {}, 1.0, reports(1, 3))
        say(number)


def write_some(store: Store, name: str) -> None:
    """Append 500 batches."""
    with store.drive(name):
        for number in range(0, 2000, 4):
            store.append(name, number, reports(number + 1, number + 4))
    say("done")


def follow(store: Store, name: str) -> None:
    """Read the growing log until the summary says to end; print the number of entries."""
    say("following")
    seen = 0
    while True:
        ending = store.studies()[0].summary.get("ending", False)
        fresh = store.read(name, seen)
        assert fresh == reports(seen + 1, seen + len(fresh))
        seen += len(fresh)
        if ending and not fresh:
            say(seen)
            return


def look(store: Store, name: str) -> None:
    """Read who drives the study, without pause, until killed."""
    say("looking")
    while True:
        store.driver(name)


TASKS = {
    task.__name__: task
    for task in (drive, drive_and_exec, drive_and_fork, write, create, write_some, follow, look)
}

if __name__ == "__main__":
    task, path, name = sys.argv[1:]
    with open_store(Path(path)) as store:
        TASKS[task](store, name)
