"""A study in an object store whose drivers and workers are killed, on machines that are folders of this one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, say
from benchmarks.object_store.kills_account import Count, Held, StudyObjects, Witness, judge
from benchmarks.object_store.kills_study import BUSY, LIFE, STATE_BYTES, STEP_SECONDS, TAKEN_OVER, WITNESS
from thriftune.common.user_cache import FOLDER_VARIABLE

STALLED_SECONDS = 120.0
"""A study hangs if nothing happens for this long."""

EARLY_SHARE = 0.15
"""The share of kills of drivers that may come before the first step of a trial."""

LONGEST_UPLOAD_SECONDS = 0.04
"""Workers are killed at most this long after they have saved. An upload takes about that time."""

LONGEST_SHIPMENT_SECONDS = 0.004
"""Drivers are killed at most this long after they have begun to ship entries."""

LONGEST_TRAINING_SECONDS = 2.0
"""Driver and workers are killed together at most this long after a worker has saved."""

_POLL_SECONDS = 0.001


@dataclass(frozen=True)
class Sizes:
    """How large the studies of the benchmark are, and how long a driver without a heartbeat lives for others."""

    trials: int
    steps: int
    step_seconds: float
    state_bytes: int
    lifetime_seconds: float


class Hangs(Exception):
    """The study does not get on. The message says what its driver has printed."""


class StudyUnderKills:
    """A study in other processes. `url`: of its store; it has no other study."""

    def __init__(self, folder: Path, url: str, sizes: Sizes, rng: random.Random, count: Count) -> None:
        folder.mkdir()
        self._folder, self._url, self._sizes = folder, url, sizes
        self._rng, self._count = rng, count
        self._objects = StudyObjects(url)
        self._witness = Witness(folder / "witness")
        self._held: list[Held] = []
        self._forgiven: set[int] = set()  # reports that were lost with a disk, and that nothing held
        self._machine = self._life = 0

    def run(self, kinds: list[str]) -> None:
        """Run the study to its end, send it kills of these kinds, and judge it."""
        count, kinds = self._count, list(kinds)
        count.studies += 1
        driver = self._start()
        try:
            while True:
                while driver.poll() is None and kinds:
                    kind = kinds[0]
                    sent, driver = self._send(kind, driver)
                    if sent:
                        kinds.pop(0)
                        count.kills[kind] += 1
                self._wait(driver, lambda: False)
                if driver.returncode == 0:
                    break
                if driver.returncode != -signal.SIGKILL:
                    raise Hangs(f"its driver ended with status {driver.returncode}:\n{self._errors(self._life)}")
                driver = self._start()
        except Hangs as error:
            count.unfinished += 1
            say(f"the study in {self._folder} does not finish: {error}")
            return
        finally:
            self._kill_machine()
        self._kill_machine()
        for problem in judge(
            self._lines(), self._held, self._forgiven, self._url, self._sizes.trials, self._sizes.steps, count
        ):
            say(f"{self._folder.name}: {problem}")

    # --- kills --------------------------------------------------------------------------------------------

    def _send(self, kind: str, driver: subprocess.Popen[bytes]) -> tuple[bool, subprocess.Popen[bytes]]:
        """Send a kill at the next moment of its kind. Return whether it was sent, and the driver from now on."""
        match kind:
            case "worker":
                return self._kill_worker(driver), driver
            case "driver" | "driver and disk":
                if not self._kill_driver(driver):
                    return False, driver
            case "driver and workers" | "machine":
                if not self._wait_for_save(driver, LONGEST_TRAINING_SECONDS):
                    return False, driver
                self._kill_machine()
                driver.wait()
            case "pause":
                return self._pause(driver)
            case "race":
                return self._race(driver)
            case _:
                raise ValueError(kind)
        if kind in ("driver and disk", "machine"):
            self._lose_machine()
            return True, self._start()
        self._remember()
        return True, self._start()

    def _kill_worker(self, driver: subprocess.Popen[bytes]) -> bool:
        line = self._wait_for_save(driver, LONGEST_UPLOAD_SECONDS)
        if line is None or driver.poll() is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(line["pid"], signal.SIGKILL)
            held = self._remember()
            self._count.cut_uploads += held.positions.get(line["trial"], 0) < line["position"]
            return True
        return False

    def _kill_driver(self, driver: subprocess.Popen[bytes]) -> bool:
        """Kill a driver while it ships entries of its log."""
        if self._rng.random() > EARLY_SHARE:
            life = self._life
            self._wait(
                driver, lambda: any(each["life"] == life and each["what"] == "did" for each in self._lines())
            )
        mark = self._mark
        self._wait(driver, mark.exists)
        time.sleep(self._rng.uniform(0.0, LONGEST_SHIPMENT_SECONDS))
        if driver.poll() is not None:
            return False
        driver.kill()
        driver.wait()
        self._count.cut_shipments += mark.exists()
        mark.unlink(missing_ok=True)
        return True

    def _lose_machine(self) -> None:
        """End all processes of the machine, and remove its disk. Another machine is used from now on."""
        self._kill_machine()
        self._remember()
        self._forgive(self._life)
        shutil.rmtree(self._disk)
        self._count.disks += 1
        self._machine += 1

    def _pause(self, driver: subprocess.Popen[bytes]) -> tuple[bool, subprocess.Popen[bytes]]:
        """Stop a driver until another machine has taken its study over, and let it go on then."""
        if self._wait_for_save(driver, LONGEST_TRAINING_SECONDS) is None or driver.poll() is not None:
            return False, driver
        driver.send_signal(signal.SIGSTOP)
        paused, machine = self._life, self._machine
        try:
            self._remember()
            self._machine += 1
            other = self._start()
            life = self._life
            self._wait(other, lambda: any(each["life"] == life for each in self._lines()))
        finally:
            driver.send_signal(signal.SIGCONT)
        self._wait(driver, lambda: False)
        if driver.returncode != TAKEN_OVER:
            self._count.not_stopped += 1
            say(f"a driver that was taken over ended with {driver.returncode}: {self._errors(paused)}")
        self._kill_machine(machine)
        self._forgive(paused)  # its workers have gone on for a while
        self._count.takeovers += 1
        return True, other

    def _race(self, driver: subprocess.Popen[bytes]) -> tuple[bool, subprocess.Popen[bytes]]:
        """Lose the driver's machine, and have two others resume the study at the same moment."""
        if self._wait_for_save(driver, LONGEST_TRAINING_SECONDS) is None or driver.poll() is not None:
            return False, driver
        self._lose_machine()
        driver.wait()
        time.sleep(self._sizes.lifetime_seconds)
        drivers = {self._life + 1: self._spawn()}
        first = self._machine
        self._machine += 1
        drivers[self._life + 1] = self._spawn()
        first_driver, second = drivers.values()
        self._wait(first_driver, lambda: second.poll() is not None)
        lost = {life for life, each in drivers.items() if each.poll() in (BUSY, TAKEN_OVER)}
        if len(lost) != 1:
            statuses = [each.poll() for each in drivers.values()]
            self._count.not_stopped += 1
            raise Hangs(f"of two drivers that have begun at once, one must end; their statuses are {statuses}")
        (loser,) = lost
        winner, other = next((life, each) for life, each in drivers.items() if life != loser)
        self._kill_machine(self._machine if winner < loser else first)
        self._machine = first if winner < loser else self._machine
        self._forgiven |= {each["tag"] for each in self._lines() if "tag" in each and each["life"] == loser}
        self._count.races += 1
        return True, other

    def _remember(self) -> Held:
        held = self._objects.hold(len(self._lines()))
        held.lines = len(self._lines())
        self._held.append(held)
        return held

    def _forgive(self, life: int) -> None:
        """Expect no reports of drivers until this one that neither a log nor a manifest has held."""
        held = {tag for each in self._held for tag in each.tags}
        told = {each["tag"] for each in self._lines() if each["what"] == "reported" and each["life"] <= life}
        self._forgiven |= told - held

    # --- processes ----------------------------------------------------------------------------------------

    @property
    def _disk(self) -> Path:
        return self._folder / f"machine{self._machine}"

    @property
    def _mark(self) -> Path:
        return self._folder / f"shipping{self._life}"

    def _errors(self, life: int) -> str:
        return (self._folder / f"errors{life}").read_text()

    def _start(self) -> subprocess.Popen[bytes]:
        """Start a driver on the present machine, again and again while the last one seems to live."""
        give_up_at = time.monotonic() + STALLED_SECONDS
        while True:
            driver = self._spawn()
            life = self._life
            # A driver that is refused ends before its trials begin.
            while driver.poll() is None and not any(each["life"] == life for each in self._lines()):
                if self._mark.exists():
                    return driver
                time.sleep(_POLL_SECONDS)
            if driver.poll() != BUSY:
                return driver
            if time.monotonic() > give_up_at:
                raise Hangs(f"it is refused: {self._errors(life)}")
            time.sleep(self._sizes.lifetime_seconds / 10)

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._life += 1
        disk = self._disk
        disk.mkdir(exist_ok=True)
        settings = {
            "store": self._url,
            "trials": self._sizes.trials,
            "steps": self._sizes.steps,
            "lifetime_seconds": self._sizes.lifetime_seconds,
            "mark": str(self._mark),
            "resume": self._objects.study() is not None and self._machine > 0,
        }
        environment = {
            **os.environ,
            "HOME": str(disk),
            "TMPDIR": str(disk),
            FOLDER_VARIABLE: str(disk / "cache"),
            WITNESS: str(self._witness.path),
            LIFE: str(self._life),
            STATE_BYTES: str(self._sizes.state_bytes),
            STEP_SECONDS: str(self._sizes.step_seconds),
        }
        command = [sys.executable, "-m", "benchmarks.object_store.kills_study", json.dumps(settings)]
        with (self._folder / f"errors{self._life}").open("w") as errors:
            return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=errors, stderr=errors)

    def _kill_machine(self, machine: int | None = None) -> None:
        """Kill all processes of a machine, by default the present one, and wait until they have ended."""
        home = f"HOME={self._folder / f'machine{self._machine if machine is None else machine}'}\0".encode()
        while True:
            found = [
                int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and _has(each, home)
            ]
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not found:
                return
            time.sleep(_POLL_SECONDS)

    # --- waiting ------------------------------------------------------------------------------------------

    def _has_trained(self, life: int) -> bool:
        return any(each["life"] == life and each["what"] == "did" for each in self._lines())

    def _lines(self) -> list[dict[str, Any]]:
        return self._witness.lines()

    def _wait_for_save(self, driver: subprocess.Popen[bytes], most_seconds: float) -> dict[str, Any] | None:
        """Wait until a trial has saved, and then at most this long.

        Return the last line that tells so; None if the driver has ended.
        """
        before = len(self._lines())
        found: list[dict[str, Any]] = []

        def saved() -> bool:
            found[:] = [each for each in self._lines()[before:] if each["what"] == "saved"]
            return bool(found)

        self._wait(driver, saved)
        if not found:
            return None
        time.sleep(self._rng.uniform(0.0, most_seconds))
        return found[-1]

    def _wait(self, driver: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
        """Wait until the condition holds or the driver has ended. Raises Hangs if nothing happens any more."""
        size, since = -1, time.monotonic()
        while driver.poll() is None and not condition():
            now = len(self._lines())
            if now != size:
                size, since = now, time.monotonic()
            if time.monotonic() - since > STALLED_SECONDS:
                raise Hangs(f"nothing has happened for {STALLED_SECONDS:g} s:\n{self._errors(self._life)}")
            time.sleep(_POLL_SECONDS)


def _has(process: Path, text: bytes) -> bool:
    """Return whether the process has this text in its environment, which its descendants inherit."""
    try:
        return text in (process / "environ").read_bytes()
    except OSError:
        return False
