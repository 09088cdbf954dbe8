"""Send signals to drivers, supervisors and workers at random times; count the reports that are lost or doubled.

Studies of every stopping rule run on this machine and on stand-in nodes of a Ray cluster. Their trials report from
three threads at a time, and write down each report whose `report()` returned. A signal is SIGKILL, SIGTERM, or
SIGSTOP with SIGCONT a moment later. It goes to the driver, to the process of a trial (a worker), or to one of the
processes between them (the supervisor, its watchdog or a reaper; all are called supervisors here). A driver that
has ended is started again until its study is done.
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
"""Number of signals, by engine."""

LONGEST_WAIT_SECONDS = 0.8
"""The longest wait between two signals; a trial takes about a second, so it may get several."""

STOPPED_SECONDS = 0.3
"""The longest time between SIGSTOP and SIGCONT."""

STALLED_SECONDS = 300.0
"""The benchmark fails if the trials of a study write no line for this long."""

KINDS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
EXIT_STATUSES = (0, INTERRUPTED, -signal.SIGKILL, -signal.SIGTERM, signal.SIGTERM)
"""A driver may end with these. Before it handles SIGTERM, the signal ends it by default, or by Ray's handler."""

TARGETS = ("driver", "supervisor", "worker")

SHARE_DURING_TRIALS = 0.9
"""The share of signals that are sent only while a trial runs. Before that, only the driver gets signals."""


@dataclass
class Count:
    """The signals and reports in the studies of one rule on one engine."""

    signals: Counter[str] = field(default_factory=Counter)  # by target
    reports: int = 0  # reports whose report() returned in a trial
    lost: int = 0  # those of `reports` that are not in the log
    doubled: int = 0  # entries of the log that repeat another one


class StudyUnderSignals:
    """A study in other processes, to which signals are sent."""

    def __init__(self, folder: Path, rule: str, address: str | None, rng: random.Random) -> None:
        folder.mkdir()
        self._store, self._witness, self._errors = folder / "studies.db", folder / "witness", folder / "errors"
        self._rng = rng
        self._mark = f"KILLS_MARK={os.urandom(8).hex()}"
        name, _, value = self._mark.partition("=")
        variables = {"KILLS_WITNESS": str(self._witness), name: value}
        settings = {"store": str(self._store), "rule": rule, "address": address, "variables": variables}
        self._command = [sys.executable, "-m", "benchmarks.kills_study", json.dumps(settings)]
        self._environment = {**os.environ, **variables}

    def run(self, count: Count, most: int) -> None:
        """Run the study to its end, and send it at most `most` signals."""
        sent, last_line_at, line_count = 0, time.monotonic(), -1
        while True:
            with self._errors.open("w") as errors:
                driver = subprocess.Popen(self._command, env=self._environment, cwd=ROOT, stderr=errors)
            try:
                while driver.poll() is None:
                    lines = len(self._witness_lines())
                    if lines != line_count:
                        last_line_at, line_count = time.monotonic(), lines
                    if time.monotonic() - last_line_at > STALLED_SECONDS:
                        raise SystemExit(f"the study hangs; its driver printed:\n{self._errors.read_text()}")
                    time.sleep(self._rng.uniform(0.0, LONGEST_WAIT_SECONDS))
                    if sent < most:
                        sent += self._send_one(driver, count)
            finally:
                if driver.poll() is None:
                    driver.kill()
                driver.wait()
            if driver.returncode not in EXIT_STATUSES:
                raise SystemExit(f"the driver ended with status {driver.returncode}:\n{self._errors.read_text()}")
            if driver.returncode == 0:
                break
        self._check(count)

    def _send_one(self, driver: subprocess.Popen[bytes], count: Count) -> int:
        """Send a signal to a random process of the study. Return 1, or 0 if none was sent.

        None is sent if the study has no process of the target that was drawn.
        """
        processes = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
        processes = sorted(pid for pid in processes if pid != driver.pid and _has_mark(pid, self._mark))
        workers = {line["pid"] for line in self._witness_lines()}
        if workers.isdisjoint(processes) and self._rng.random() < SHARE_DURING_TRIALS:
            return 0
        target = self._rng.choice(TARGETS)
        if target == "driver":
            processes = [driver.pid] if driver.poll() is None else []
        elif target == "worker":
            processes = [pid for pid in processes if pid in workers]
        else:  # a driver gives up if its supervisor ends three times before a trial begins
            no_trial_runs = workers.isdisjoint(processes)
            processes = [] if no_trial_runs else [pid for pid in processes if pid not in workers]
        kind = self._rng.choice(KINDS)
        with contextlib.suppress(ProcessLookupError, IndexError):
            pid = self._rng.choice(processes)
            os.kill(pid, kind)
            count.signals[target] += 1
            if kind is signal.SIGSTOP:
                time.sleep(self._rng.uniform(0.0, STOPPED_SECONDS))
                os.kill(pid, signal.SIGCONT)
            return 1
        return 0

    def _witness_lines(self) -> list[dict[str, Any]]:
        """Return the complete lines that trials have written. A kill may cut the last line of a process."""
        lines = self._witness.read_text().split("\n") if self._witness.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def _check(self, count: Count) -> None:
        """Compare the reports that trials wrote down with the log, and add to the counts."""
        with open_store(self._store, create=False) as store:
            reports = [entry for entry in store.read(NAME) if isinstance(entry, ev.Reported)]
        tags = Counter(
            (each.trial, each.attempt, int(each.metrics[TAG])) for each in reports if TAG in each.metrics
        )
        numbers = Counter((each.trial, each.attempt, each.number) for each in reports)
        returned = [
            (line["trial"], line["attempt"], line["tag"]) for line in self._witness_lines() if "tag" in line
        ]
        count.reports += len(returned)
        count.lost += sum(each not in tags for each in returned)
        count.doubled += sum(n - 1 for n in tags.values()) + sum(n - 1 for n in numbers.values())


def _has_mark(pid: int, mark: str) -> bool:
    """Return whether the process has the mark in its environment, which its descendants inherit."""
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def run_rule(folder: Path, rule: str, address: str | None, signals: int, rng: random.Random) -> Count:
    """Run studies with a stopping rule, one after the other, until `signals` signals were sent."""
    count, studies = Count(), 0
    while (left := signals - count.signals.total()) > 0:
        studies += 1
        study_folder = folder / f"{'ray' if address else 'local'}-{rule}-{studies}"
        StudyUnderSignals(study_folder, rule, address, rng).run(count, left)
    say(f"{'ray' if address else 'local'}, {rule}: {studies} studies, {count}")
    return count


def measure(options: argparse.Namespace) -> list[Row]:
    """Return a row for each engine. With --quick, run few signals on this machine only."""
    rng = random.Random(options.seed)
    rules = ["asha"] if options.quick else list(STOPPERS)
    with scratch() as folder:
        each = 6 if options.quick else -(-SIGNALS["local"] // len(rules))
        counts = [run_rule(folder, rule, None, each, rng) for rule in rules]
        rows = _rows("local", rules, counts, judged=not options.quick)
        if not options.quick:
            from tests.support.ray_clusters import nodes

            each = -(-SIGNALS["ray"] // len(rules))
            with nodes(1, 1) as cluster:
                counts = [run_rule(folder, rule, cluster.address, each, rng) for rule in rules]
            rows += _rows("ray", rules, counts, judged=True)
    return rows


def _rows(engine: str, rules: Sequence[str], counts: Sequence[Count], *, judged: bool) -> list[Row]:
    signals = sum((count.signals for count in counts), Counter[str]())
    reports, lost = sum(count.reports for count in counts), sum(count.lost for count in counts)
    doubled = sum(count.doubled for count in counts)
    by_target = ", ".join(f"{number} to {target}s" for target, number in sorted(signals.items()))
    figure = f"{lost} lost and {doubled} doubled of {reports:,}; {signals.total()} signals: {by_target}"
    data = {rule: vars(count) for rule, count in zip(rules, counts, strict=True)}
    met = lost == doubled == 0 if judged else None
    return [
        Row(
            f"{engine}, {len(rules)} rules: reports of several threads under signals", figure, "0 and 0", met, data
        )
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=11, help="seed of the times, targets and kinds of signals")


if __name__ == "__main__":
    raise SystemExit(main(measure, further=_options))
