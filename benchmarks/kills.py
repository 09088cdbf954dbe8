"""Send signals to drivers, keepers and workers at random moments; count the reports that are lost or doubled.

Studies of every stopping rule run on this machine and on stand-in nodes of a Ray cluster. Their trials report from
three threads at a time, and write down each report that `report()` returned from. A signal is SIGKILL, SIGTERM, or
SIGSTOP with SIGCONT a moment later. It goes to the driver, to the process of a trial (a worker), or to one of the
processes between them (a keeper). A driver that has ended is started again until its study is done.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Row, main, say, scratch
from benchmarks.kills_study import INTERRUPTED, NAME, TAG
from thriftune.state import events as ev
from thriftune.stopping import STOPPERS
from thriftune.store.opening import open_store

SIGNALS = {"local": 400, "ray": 126}
"""Signals in all, by engine."""

LONGEST_WAIT_SECONDS = 0.8
STOPPED_SECONDS = 0.3
PATIENCE_SECONDS = 300.0

KINDS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
ENDINGS = (0, INTERRUPTED, -signal.SIGKILL, -signal.SIGTERM, signal.SIGTERM)
"""How a driver may end. Before it has a handler for SIGTERM, that ends it by default, or by Ray's own handler."""

TARGETS = ("driver", "keeper", "worker")
MOSTLY = 0.9
"""The share of signals that are sent only while a trial runs."""


@dataclass
class Count:
    """Counts the signals and reports in the studies of one rule on one engine."""

    signals: Counter[str] = field(default_factory=Counter)  # by target
    reports: int = 0  # that returned in a trial
    lost: int = 0  # of them, those that are not in the log
    doubled: int = 0  # entries of the log that repeat another one


class Killed:
    """One study, in processes of its own, to which signals are sent."""

    def __init__(self, folder: Path, rule: str, address: str | None, dice: random.Random) -> None:
        folder.mkdir()
        self._store, self._witness, self._errors = folder / "studies.db", folder / "witness", folder / "errors"
        self._dice = dice
        self._mark = f"KILLS_MARK={os.urandom(8).hex()}"
        name, _, value = self._mark.partition("=")
        variables = {"KILLS_WITNESS": str(self._witness), name: value}
        given = {"store": str(self._store), "rule": rule, "address": address, "variables": variables}
        self._command = [sys.executable, "-m", "benchmarks.kills_study", json.dumps(given)]
        self._environment = {**os.environ, **variables}

    def run(self, count: Count, most: int) -> None:
        """Run the study to its end, and send it at most `most` signals."""
        sent, moved_at, before = 0, time.monotonic(), -1
        while True:
            with self._errors.open("w") as errors:
                driver = subprocess.Popen(self._command, env=self._environment, cwd=ROOT, stderr=errors)
            try:
                while driver.poll() is None:
                    lines = len(self._said())
                    if lines != before:
                        moved_at, before = time.monotonic(), lines
                    if time.monotonic() - moved_at > PATIENCE_SECONDS:
                        raise SystemExit(f"the study does not go on:\n{self._errors.read_text()}")
                    time.sleep(self._dice.uniform(0.0, LONGEST_WAIT_SECONDS))
                    if sent < most:
                        sent += self._send_one(driver, count)
            finally:
                if driver.poll() is None:
                    driver.kill()
                driver.wait()
            if driver.returncode not in ENDINGS:
                raise SystemExit(f"the driver ended with status {driver.returncode}:\n{self._errors.read_text()}")
            if driver.returncode == 0:
                break
        self._check(count)

    def _send_one(self, driver: subprocess.Popen[bytes], count: Count) -> int:
        """Send a signal to a process of the study, if one of the kind that was drawn is there; return 1 if so."""
        there = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
        there = sorted(pid for pid in there if pid != driver.pid and _has(pid, self._mark))
        trained = {line["pid"] for line in self._said()}
        # Most signals wait for a trial: until one begins there is but the driver to hit.
        if trained.isdisjoint(there) and self._dice.random() < MOSTLY:
            return 0
        target = self._dice.choice(TARGETS)
        if target == "driver":
            there = [driver.pid] if driver.poll() is None else []
        elif target == "worker":
            there = [pid for pid in there if pid in trained]
        else:  # a driver gives up if its keepers end thrice before a trial begins
            there = [] if trained.isdisjoint(there) else [pid for pid in there if pid not in trained]
        kind = self._dice.choice(KINDS)
        with contextlib.suppress(ProcessLookupError, IndexError):
            pid = self._dice.choice(there)
            os.kill(pid, kind)
            count.signals[target] += 1
            if kind is signal.SIGSTOP:
                time.sleep(self._dice.uniform(0.0, STOPPED_SECONDS))
                os.kill(pid, signal.SIGCONT)
            return 1
        return 0

    def _said(self) -> list[dict[str, Any]]:
        """Return the lines that trials have written; a kill may have cut the last one of a process."""
        lines = self._witness.read_text().split("\n") if self._witness.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def _check(self, count: Count) -> None:
        """Compare what trials wrote down with what the log has."""
        with open_store(self._store, create=False) as store:
            reports = [entry for entry in store.read(NAME) if isinstance(entry, ev.Reported)]
        tags = Counter(
            (each.trial, each.attempt, int(each.metrics[TAG])) for each in reports if TAG in each.metrics
        )
        numbers = Counter((each.trial, each.attempt, each.number) for each in reports)
        safe = [(line["trial"], line["attempt"], line["tag"]) for line in self._said() if "tag" in line]
        count.reports += len(safe)
        count.lost += sum(each not in tags for each in safe)
        count.doubled += sum(n - 1 for n in tags.values()) + sum(n - 1 for n in numbers.values())


def _has(pid: int, mark: str) -> bool:
    """Return whether the process has the mark in its environment, which descendants inherit."""
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def run_rule(folder: Path, rule: str, address: str | None, signals: int, dice: random.Random) -> Count:
    """Run studies of a rule, one after the other, until this number of signals was sent."""
    count, studies = Count(), 0
    while (left := signals - count.signals.total()) > 0:
        studies += 1
        Killed(folder / f"{'ray' if address else 'local'}-{rule}-{studies}", rule, address, dice).run(count, left)
    say(f"{'ray' if address else 'local'}, {rule}: {studies} studies, {count}")
    return count


def measure(options: argparse.Namespace) -> list[Row]:
    dice = random.Random(options.seed)
    rules = ["asha"] if options.quick else list(STOPPERS)
    with scratch() as folder:
        each = 6 if options.quick else -(-SIGNALS["local"] // len(rules))
        found = [run_rule(folder, rule, None, each, dice) for rule in rules]
        rows = _rows("local", rules, found, judged=not options.quick)
        if not options.quick:
            from tests.support.ray_clusters import nodes

            each = -(-SIGNALS["ray"] // len(rules))
            with nodes(1, 1) as cluster:
                found = [run_rule(folder, rule, cluster.address, each, dice) for rule in rules]
            rows += _rows("ray", rules, found, judged=True)
    return rows


def _rows(engine: str, rules: Sequence[str], found: Sequence[Count], *, judged: bool) -> list[Row]:
    signals = sum((count.signals for count in found), Counter[str]())
    reports, lost = sum(count.reports for count in found), sum(count.lost for count in found)
    doubled = sum(count.doubled for count in found)
    to = ", ".join(f"{number} to {target}s" for target, number in sorted(signals.items()))
    figure = f"{lost} lost and {doubled} doubled of {reports:,}; {signals.total()} signals: {to}"
    data = {rule: vars(count) for rule, count in zip(rules, found, strict=True)}
    met = lost == doubled == 0 if judged else None
    return [
        Row(f"{engine}, {len(rules)} rules: reports of threads, whatever is killed", figure, "0 and 0", met, data)
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=11, help="of the moments, targets and kinds of signals")


if __name__ == "__main__":
    raise SystemExit(main(measure, further=_options))
