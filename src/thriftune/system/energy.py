"""Measure the energy of a worker process with RAPL, or estimate it from CPU time.

RAPL counts the joules that the machine's processors use. Linux shows the counters under /sys/class/powercap. Since
2020, only root may read them. Each process gets a part of these joules, in proportion to its CPU time, so that the
parts of all processes add up.

The estimate assumes 3.5 W for a busy core and 0.74 W for an idle one. These are the averages that Cloud Carbon
Footprint gives for a vCPU at full load and at rest (cloudcarbonfootprint.org/docs/methodology, "Compute").
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path

BUSY_CORE_WATTS = 3.5
IDLE_CORE_WATTS = 0.74
NO_METER = ("", "estimate")
"""The values of UsageMeasured.meter for joules that were not measured."""


class EnergyMeter:
    """Measures the joules of this process, and of its child processes that have ended.

    - `source`: "RAPL", or "estimate" where RAPL is missing or has failed.
    - `problem`: the reason why RAPL is not used although the machine has it; None if there is none.
    """

    def __init__(self, *, root: Path = Path("/sys/class/powercap")) -> None:
        """Start to measure. `root`: the folder in which Linux shows RAPL."""
        self.problem: str | None = None
        self._rapl: Rapl | None = None
        try:
            self._rapl = Rapl.find(root)
        except RaplFailed as failed:
            self._give_up(failed)
        self._taken_at, self._used, self._busy = time.monotonic(), _used_seconds(), busy_seconds()

    @property
    def source(self) -> str:
        return "estimate" if self._rapl is None else "RAPL"

    def take(self, cores: float) -> float:
        """Return the joules since the last take(), or since the start.

        `cores`: the number of cores that the trial may use.
        """
        machine_joules = 0.0
        if self._rapl is not None:
            try:
                machine_joules = self._rapl.take()
            except RaplFailed as failed:
                self._rapl = None
                self._give_up(failed)
        now, used, busy = time.monotonic(), _used_seconds(), busy_seconds()
        seconds, own = now - self._taken_at, used - self._used
        total = max(own, busy - self._busy)  # busy_seconds() counts in hundredths of a second
        self._taken_at, self._used, self._busy = now, used, busy
        if self._rapl is not None:
            return machine_joules * own / total if total > 0 else 0.0
        return estimate(own, seconds, cores)

    def _give_up(self, failed: RaplFailed) -> None:
        self.problem = f"{failed}; joules are estimated from CPU time"


def estimate(cpu_seconds: float, seconds: float, cores: float) -> float:
    """Return the estimated joules of a process.

    The process had `cores` cores for `seconds` of wall time, and used `cpu_seconds` of their CPU time.
    """
    return BUSY_CORE_WATTS * cpu_seconds + IDLE_CORE_WATTS * max(0.0, cores * seconds - cpu_seconds)


class RaplFailed(Exception):
    """Raised if RAPL cannot be read. The message says why."""


class Rapl:
    """The energy counters of the machine's processors (packages).

    A counter starts again from 0 after about 260,000 joules, which is half an hour at 150 W. take() must be called
    more often than that.
    """

    def __init__(self, packages: Sequence[Path]) -> None:
        self._last = {package: _read_number(package / "energy_uj") for package in packages}

    @staticmethod
    def find(root: Path) -> Rapl | None:
        """Return the machine's RAPL, or None if it has none.

        RAPL also shows parts of packages. They are ignored, because the packages include them.
        """
        packages = []
        for domain in sorted(root.glob("intel-rapl:*")):
            try:
                if (domain / "name").read_text().startswith("package"):
                    packages.append(domain)
            except OSError:
                continue
        return Rapl(packages) if packages else None

    def take(self) -> float:
        """Return the joules of all packages since the last take(), or since the start."""
        microjoules = 0
        for package, last in self._last.items():
            now = self._last[package] = _read_number(package / "energy_uj")
            restarted = _read_number(package / "max_energy_range_uj") if now < last else 0
            microjoules += max(0, now - last + restarted)
        return microjoules / 1e6


def _read_number(path: Path) -> int:
    try:
        return int(path.read_text())
    except PermissionError:
        raise RaplFailed(f"RAPL: only root may read {path} (chmod a+r lets others read it)") from None
    except (OSError, ValueError) as error:
        raise RaplFailed(f"RAPL: {path} cannot be read ({error})") from None


def _used_seconds() -> float:
    """Return the CPU seconds of this process and of its ended child processes."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def busy_seconds() -> float:
    """Return the CPU seconds of all processes of the machine since it booted.

    Returns 0 if the kernel does not report them.
    """
    try:
        with Path("/proc/stat").open("rb") as lines:
            user, nice, system, _idle, _waiting, hard, soft = map(int, lines.readline().split()[1:8])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + hard + soft) / os.sysconf("SC_CLK_TCK")
