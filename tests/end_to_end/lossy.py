"""What was lost, and what was done twice? Runs the study of ray_study.py, and does its accounts afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import thriftune as tt
from tests import ROOT
from tests.end_to_end.ray_study import NAME
from thriftune.errors import ThriftuneError
from thriftune.state import events as ev
from thriftune.state.trial_record import State
from thriftune.store.opening import open_store

PATIENCE_SECONDS = 90.0
_REPOSITORY = ROOT


class Lossy:
    """One study, in processes of its own. Its mark is in the environment of whatever runs for it on any node."""

    def __init__(
        self,
        folder: Path,
        address: str,
        *,
        trials: int,
        steps: int,
        step_seconds: float,
        save_every: int,
        ray: Mapping[str, Any] | None = None,
        progress: bool = False,
        storage: str | None = None,
        witnesses: Path | None = None,
    ) -> None:
        """Prepare the study.

        `witnesses`: a folder that all nodes see, for what trials write; None: they write to their own folders.
        """
        self.folder = folder
        self._witnesses = witnesses
        self.store = folder / "studies.db"
        self.trials, self.steps = trials, steps
        self.mark = os.urandom(8).hex()
        values = {"SAVE_EVERY": str(save_every), "STEP_SECONDS": str(step_seconds), "MARK": self.mark}
        values["WITNESSES"] = str(witnesses or "")
        given = {
            "store": str(self.store),
            "address": address,
            "trials": trials,
            "steps": steps,
            "progress": progress,
            "storage": storage,
            "variables": {f"TEST_{name}": value for name, value in values.items()},
            "ray": dict(ray or {}),
        }
        self.script = [sys.executable, "-m", "tests.end_to_end.ray_study", json.dumps(given)]
        self.resume = [sys.executable, "-m", "thriftune", "resume", NAME, "--store", str(self.store)]

    def start(self, command: list[str] | None = None) -> subprocess.Popen[str]:
        with (self.folder / "errors").open("a") as errors:
            return subprocess.Popen(
                command or self.script, cwd=_REPOSITORY, stdout=subprocess.DEVNULL, stderr=errors, text=True
            )

    def errors(self) -> str:
        """Return the standard error of its drivers."""
        return (self.folder / "errors").read_text()

    def log(self) -> list[ev.Event]:
        """Return the entries so far; none if there is no study yet."""
        try:
            with open_store(self.store, create=False) as store:
                return list(store.read(NAME))
        except ThriftuneError:
            return []

    def lines(self, trial: int) -> list[dict[str, Any]]:
        """Return what a trial wrote. A kill may cut a line, and the next attempt then writes on after it."""
        path = self.store.with_name("studies.db.files") / NAME / "trials" / str(trial) / "witness"
        if self._witnesses is not None:
            path = self._witnesses / str(trial)
        lines = path.read_text().split("\n") if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def steps_done(self) -> int:
        return sum(line["what"] == "did" for trial in range(self.trials) for line in self.lines(trial))

    def until(self, done: Callable[[], object], driver: subprocess.Popen[str], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            assert driver.poll() is None, f"its driver has ended, and not {what}: {self.errors()}"
            assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}\n{self.errors()}"
            time.sleep(0.02)

    def wait(self, driver: subprocess.Popen[str]) -> None:
        """To its good end."""
        try:
            status = driver.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.errors()}\n{self.log()[-20:]}") from None
        assert status == 0, self.errors()

    def busiest(self) -> tuple[str, int]:
        """The machine on which most trials are, and how many."""
        history = tt.load(NAME, self.store).history
        counts = Counter(history.trials[trial].machine for trial in history.running)
        machine, count = max(counts.items(), key=lambda item: item[1])
        assert machine is not None
        return machine, count


@dataclass
class Account:
    """Of a study that has ended. Each list names trial and step, and is empty if all is well."""

    steps_done: int = 0  # as trials wrote them down, those that were done again included
    reports: int = 0  # in the log
    repeated: list[tuple[int, int]] = field(default_factory=list)  # done again, for want of a checkpoint
    beyond: list[tuple[int, int]] = field(default_factory=list)  # done again, although a checkpoint had it
    unrecorded: list[tuple[int, int]] = field(default_factory=list)  # reported by a trial, and not in the log
    missing: list[tuple[int, int]] = field(default_factory=list)  # never done
    run_again: list[int] = field(default_factory=list)  # trials that were placed after they had ended
    unwell: list[str] = field(default_factory=list)  # trials that did not end as completed, or have failed

    @property
    def nothing_lost(self) -> bool:
        return not (self.unrecorded or self.missing or self.run_again or self.unwell)


def account(study: Lossy) -> Account:
    """What trials wrote down against what the log has."""
    found = Account()
    history = tt.load(NAME, study.store).history
    history.validate()
    log = study.log()
    recorded = {(e.trial, e.attempt, e.step) for e in log if isinstance(e, ev.Reported)}
    found.reports = sum(isinstance(entry, ev.Reported) for entry in log)
    assert found.reports == len(recorded), "a report is in the log twice"
    ended: set[int] = set()
    for entry in log:
        if isinstance(entry, ev.Place) and entry.trial in ended:
            found.run_again.append(entry.trial)
        elif isinstance(entry, ev.Ended) and not entry.cut:
            ended.add(entry.trial)
    for trial in history.trials:
        if trial.state is not State.COMPLETED or trial.failures:
            found.unwell.append(f"trial {trial.id}: {trial.state}, {trial.failures} failures: {trial.error}")
        if [report.step for report in trial.reports] != list(range(1, study.steps + 1)):
            found.unwell.append(f"trial {trial.id}: its reports are of steps {[r.step for r in trial.reports]}")
        _count(trial.id, study.lines(trial.id), recorded, study.steps, found)
    if len(history.trials) != study.trials:
        found.unwell.append(f"{len(history.trials)} trials instead of {study.trials}")
    return found


def _count(
    trial: int, lines: list[dict[str, Any]], recorded: set[tuple[int, int, int]], steps: int, found: Account
) -> None:
    done: set[int] = set()
    saved = 0
    for line in lines:
        if line["what"] == "did":
            step = line["step"]
            found.steps_done += 1
            if step in done:
                found.repeated.append((trial, step))
            if step <= saved:
                found.beyond.append((trial, step))
            done.add(step)
        elif line["what"] == "reported":
            if (trial, line["attempt"], line["step"]) not in recorded:
                found.unrecorded.append((trial, line["step"]))
            if line["saved"]:
                saved = line["step"]
    found.missing += [(trial, step) for step in range(1, steps + 1) if step not in done]
