"""How many joules did that take? By the best meter there is: the user's own, RAPL and NVML, or else an estimate.

Meters are of a whole machine. Of what they say, a process gets its part of the CPU time that was used meanwhile,
so that the parts of all trials, and of whatever else runs there, add up to what was drawn.

Without a meter: 3.5 W for a core at work and 0.74 W for one that is kept idle, the averages that Cloud Carbon
Footprint gives for a vCPU at full load and at rest (cloudcarbonfootprint.org/docs/methodology, "Compute").
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from thriftune.errors import SettingError
from thriftune.system.meters import Meter, MeterFailed, cards, command_meter, rapl
from thriftune.system.perf_events import TASK_CLOCK, Events

BUSY_CORE_WATTS = 3.5
IDLE_CORE_WATTS = 0.74


class Energy:
    """What this process, with those it started, has used since the last take().

    `command` is a program with its arguments (no shell) that prints one number: the joules that the machine has
    drawn so far, since any start. It is asked at most every 5 seconds, and less often the longer it takes;
    in between, the power that it last showed goes on, and the next answer puts right what was said too much or
    too little. If it fails, takes over a second or prints anything else, the estimate is used from then on; so it
    is if the number falls, or stays the same for 10 seconds of work.

    `problem` says so, and why a meter that is there cannot be used. With NVML and without RAPL, only what the
    cards draw is counted.
    """

    def __init__(self, command: Sequence[str] | None = None, *, root: Path = Path("/sys/class/powercap")) -> None:
        """`root`: where Linux shows RAPL."""
        if command is not None and (isinstance(command, str) or not command):
            raise SettingError(
                f"energy command: {command!r} is not a program with its arguments; "
                'give a list of texts, such as ["my-meter", "--joules"]'
            )
        self.problem: str | None = None
        self._meters: dict[Meter, float] = {}  # what each has said
        failures = []
        finds: list[Callable[[], Meter | None]] = [partial(rapl, root), cards]
        for find in finds if command is None else [partial(command_meter, command)]:
            try:
                meter = find()
                if meter is not None:
                    self._meters[meter] = meter.joules()
            except MeterFailed as failed:
                failures.append(failed)
        self._note(failures)
        self._clock = Events([TASK_CLOCK])
        self._usage_before = _usage_seconds()
        self._at, self._used, self._busy = time.monotonic(), self._used_seconds(), _busy_seconds()

    @property
    def source(self) -> str:
        """What is believed: "RAPL", "NVML", "RAPL and NVML", the command's name, or "estimate"."""
        return " and ".join(meter.name for meter in self._meters) or "estimate"

    @property
    def estimated(self) -> bool:
        return not self._meters

    def take(self, cores: float) -> float:
        """Joules since the last take() or the start. `cores`: this trial's share of the machine's cores.

        What a command counts in its first half second comes with the take() after that.
        """
        drawn = self._drawn()
        now, used, busy = time.monotonic(), self._used_seconds(), _busy_seconds()
        seconds, own = now - self._at, used - self._used
        everybodys = max(own, busy - self._busy)  # the latter is in hundredths of a second
        self._at, self._used, self._busy = now, used, busy
        if self._meters:
            return drawn * own / everybodys if everybodys > 0 else 0.0
        return estimate(own, seconds, cores)

    def close(self) -> None:
        self._clock.close()

    def _drawn(self) -> float:
        """By the whole machine since it was last asked; a meter that fails is given up."""
        drawn = 0.0
        failures = []
        for meter, before in list(self._meters.items()):
            try:
                self._meters[meter] = meter.joules()
                drawn += self._meters[meter] - before
            except MeterFailed as failed:
                del self._meters[meter]
                failures.append(failed)
        self._note(failures)
        return drawn

    def _note(self, failures: list[MeterFailed]) -> None:
        if failures:
            instead = "joules are estimated from CPU time" if self.estimated else f"only {self.source} is counted"
            self.problem = f"{'; '.join(map(str, failures))}; {instead}"

    def _used_seconds(self) -> float:
        """CPU time of this process and those it started, since this was made.

        getrusage has all threads, but of the children only those that have ended; the kernel's task clock has the
        children that run, but not the threads that are older than it, and is not to be had everywhere. Neither
        says too much.
        """
        return max(_usage_seconds() - self._usage_before, self._clock.read().get(TASK_CLOCK.name, 0.0))


def estimate(cpu_seconds: float, seconds: float, cores: float) -> float:
    """Joules of so much CPU time in so many seconds, in which `cores` were kept."""
    return BUSY_CORE_WATTS * cpu_seconds + IDLE_CORE_WATTS * max(0.0, cores * seconds - cpu_seconds)


def _usage_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _busy_seconds() -> float:
    """CPU time of everything on the machine; 0 where the kernel does not say."""
    try:
        with Path("/proc/stat").open("rb") as lines:
            user, nice, system, _idle, _waiting, hard, soft = map(int, lines.readline().split()[1:8])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + hard + soft) / os.sysconf("SC_CLK_TCK")
