"""What does the machine draw? RAPL, NVML, or a program of the user's.

RAPL is the processors' own meter, which Linux shows under /sys/class/powercap, since 2020 to root alone. It starts
again from 0 after some 260,000 joules, half an hour at 150 W, and has to be read more often than that. NVML is
the meter of NVIDIA's cards: where its Python package is installed and the cards count joules (Volta and later)
it is read in place, elsewhere nvidia-smi is asked for the watts.

Programs take long, and training waits for them: a thread or a process of ours beside it would change how training
code may fork, and look like something that it left behind. So they are asked seldom, and the last answer is
reckoned on in between.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

_CARDS_SECONDS = 0.05  # asking takes some milliseconds, and a window ends where the next begins
_PATIENCE_SECONDS = 1.0  # with a program that is asked while training waits
_ASKED_EVERY_SECONDS = 5.0
_WAITS_PER_ASKING = 50  # one that takes 0.5 s is asked every 25 s, so that training stands still for 2 % of them
_FIRST_SPAN_SECONDS = 0.5  # over less, joules say little about power
_STILL_SECONDS = 10.0  # a meter that has not risen for so long is not believed,
_AT_WORK_SHARE = 0.1  # if for such a part of them this process was at work


class MeterFailed(Exception):
    """A meter cannot be read; the message says which one, and why."""


class Meter(Protocol):
    name: str

    def joules(self) -> float:
        """What the machine has drawn since some start; never less than before. Raises MeterFailed."""


class _Rapl:
    """The sum of a machine's processors (packages)."""

    name = "RAPL"

    def __init__(self, packages: Sequence[Path]) -> None:
        self._last = {package: _number(package / "energy_uj") for package in packages}
        self._microjoules = 0

    def joules(self) -> float:
        for package, last in self._last.items():
            now = self._last[package] = _number(package / "energy_uj")
            turned = _number(package / "max_energy_range_uj") if now < last else 0
            self._microjoules += max(0, now - last + turned)
        return self._microjoules / 1e6


def rapl(root: Path) -> Meter | None:
    """None: there is no RAPL. Beside the packages, it shows parts of them, and at times the board around them."""
    packages = []
    for domain in sorted(root.glob("intel-rapl:*")):
        try:
            if (domain / "name").read_text().startswith("package"):
                packages.append(domain)
        except OSError:
            continue
    return _Rapl(packages) if packages else None


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except PermissionError:
        raise MeterFailed(f"RAPL: {path} is for root alone (chmod a+r lets others read it)") from None
    except (OSError, ValueError) as error:
        raise MeterFailed(f"RAPL: {path} cannot be read ({error})") from None


class _Nvml:
    """Cards that count joules themselves (Volta and later), through NVIDIA's Python package."""

    name = "NVML"

    def __init__(self, library: Any) -> None:
        library.nvmlInit()
        self._library = library
        self._cards = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
        if not self._cards:
            raise MeterFailed("NVML: no cards")
        self._said, self._said_at = 0.0, -math.inf

    def joules(self) -> float:
        now = time.monotonic()
        if now - self._said_at >= _CARDS_SECONDS:
            try:
                millijoules = map(self._library.nvmlDeviceGetTotalEnergyConsumption, self._cards)
                self._said, self._said_at = float(sum(millijoules)) / 1e3, now
            except Exception as error:  # the library's own
                raise MeterFailed(f"NVML: {error}") from error
        return self._said


def cards() -> Meter | None:
    """None: there are no cards of NVIDIA's."""
    import shutil
    from importlib import import_module

    try:
        meter = _Nvml(import_module("pynvml"))
        meter.joules()
    except Exception:  # not installed, no driver, or cards that do not count
        program = shutil.which("nvidia-smi")
        question = ("--query-gpu=power.draw", "--format=csv,noheader,nounits")
        return _Asked("NVML", (program, *question), _all_watts, in_watts=True) if program else None
    return meter


def command_meter(command: Sequence[str]) -> Meter:
    """A program that prints the joules so far."""
    return _Asked(Path(command[0]).name, command, _one_number)


class _Asked:
    """A program that says the joules so far or the watts now: asked now and then, reckoned on in between."""

    def __init__(
        self, name: str, command: Sequence[str], parse: Callable[[str], float], *, in_watts: bool = False
    ) -> None:
        self.name = name
        self._command = command
        self._folder = Path.cwd()  # a trial may go elsewhere, and the program's arguments may be file names
        self._parse = parse
        self._in_watts = in_watts
        self._known = self._said = self._watts = 0.0
        self._at = time.monotonic()
        self._risen_at, self._worked_before = self._at, _cpu_seconds()  # when it last rose
        self._answer = self._ask()
        if in_watts:
            self._watts = self._answer
        else:
            self._due = self._at + _FIRST_SPAN_SECONDS

    def joules(self) -> float:
        now = time.monotonic()
        if now >= self._due:
            before, self._answer = self._answer, self._ask()
            seconds = now - self._at
            if self._in_watts:
                self._known += (before + self._answer) / 2 * seconds
                self._watts = self._answer
            else:
                self._check_rise(before, now)
                drawn = self._answer - before
                self._known += drawn
                self._watts = drawn / seconds
            self._at = now
        self._said = max(self._said, self._known + self._watts * (now - self._at))
        return self._said

    def _check_rise(self, before: float, now: float) -> None:
        """A figure that falls, or stands still while there is work, is not that of joules so far."""
        worked = _cpu_seconds()
        if self._answer < before:
            raise MeterFailed(
                f"the meter {self._command[0]} has fallen, from {before:.12g} to {self._answer:.12g}"
            )
        if self._answer > before:
            self._risen_at, self._worked_before = now, worked
        still_seconds = now - self._risen_at
        if still_seconds >= _STILL_SECONDS and worked - self._worked_before >= _AT_WORK_SHARE * still_seconds:
            raise MeterFailed(f"the meter {self._command[0]} has not risen for {_STILL_SECONDS:g} seconds")

    def _ask(self) -> float:
        asked_at = time.monotonic()
        text = _output(self._command, self._folder)
        took = time.monotonic() - asked_at
        self._due = asked_at + max(_ASKED_EVERY_SECONDS, _WAITS_PER_ASKING * took)
        try:
            return self._parse(text)
        except ValueError:
            raise MeterFailed(f"{self._command[0]}: printed {text[:80]!r}, not a number") from None


def _cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _one_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _all_watts(text: str) -> float:
    """Of the cards that say; the others have a word in brackets."""
    watts = [_one_number(line) for line in text.splitlines() if not line.startswith("[")]
    if not watts:
        raise ValueError(text)
    return sum(watts)


def _output(command: Sequence[str], folder: Path) -> str:
    """What the program prints, within a second; its helpers end with it."""
    import signal
    import subprocess

    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise MeterFailed(f"{command[0]}: cannot be run ({error})") from None
    with process:
        try:
            printed, complaint = process.communicate(timeout=_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise MeterFailed(f"{command[0]}: took over {_PATIENCE_SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        why = complaint.strip() or printed.strip()
        raise MeterFailed(f"{command[0]}: failed with status {process.returncode} ({why[:200]})")
    return printed
