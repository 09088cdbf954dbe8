"""Nowhere: trials replay learning curves on a virtual clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

from thriftune.engines import Doing
from thriftune.errors import SettingError
from thriftune.events import Config, Ended, Event, Failed, Killed, Metrics, Reported
from thriftune.trial import Run


@dataclass(frozen=True, slots=True)
class Curve:
    """What a trial of some configuration does: at which steps it reports what, and how long it takes to each.

    `error`: how it fails after the last of these; None: it ends well.
    """

    steps: Sequence[int]  # rising, from 1
    metrics: Sequence[Metrics]
    seconds: Sequence[float]  # since the report before
    error: str | None = None


class VirtualClock:
    """Stands still until it is told to go on."""

    def __init__(self, start: float = 0.0) -> None:
        self.time = start

    def now(self) -> float:
        return self.time


class _Attempt:
    __slots__ = (
        "curve", "done", "first", "last", "metrics", "number",
        "seconds", "since", "steps", "told", "trial", "workers",
    )  # fmt: skip

    def __init__(self, run: Run, curve: Curve, pace: float, now: float) -> None:
        self.trial, self.number, self.workers, self.since = run.trial, run.attempt, run.workers, now
        self.curve = curve
        self.steps, self.metrics, self.seconds = curve.steps, curve.metrics, curve.seconds  # at hand for each step
        if pace != 1.0:
            self.seconds = [pace * seconds for seconds in curve.seconds]
        self.first = bisect_right(curve.steps, run.resume_step)  # reports of the curve that lie behind it
        self.done = self.first  # the same, by now
        self.last = len(curve.steps) if run.max_steps is None else bisect_right(curve.steps, run.max_steps)
        self.told = False

    def seconds_taken(self) -> float:
        return sum(self.seconds[self.first : self.done], 0.0)


class SimulatedEngine:
    """Every step is saved, and told of at once; a trial that is told to end after a step ends right then.

    - `restart_seconds`: what it costs to take a trial up again from its checkpoint; `start_seconds`: to begin one.
    - `end_seconds`: from the last step of an attempt to its end, to save.
    - `pace`: how long a step takes with so many workers, over that with one.
    """

    def __init__(
        self,
        curves: Callable[[Config], Curve],
        clock: VirtualClock,
        restart_seconds: float = 0.0,
        *,
        start_seconds: float = 0.0,
        end_seconds: float = 0.0,
        pace: Callable[[int], float] = lambda _workers: 1.0,
    ) -> None:
        self._curves = curves
        self._clock = clock
        self._restart_seconds, self._start_seconds, self._end_seconds = restart_seconds, start_seconds, end_seconds
        self._pace = pace
        self.worker_seconds = 0.0  # of all attempts that have ended, from their start to their end
        self._curve_of: dict[int, Curve] = {}  # by trial, also of one that is set aside
        self._attempts: dict[tuple[int, int], _Attempt] = {}
        self._due: list[tuple[float, int, _Attempt | Event]] = []  # a heap: who has a step done, or what comes
        self._count = 0  # of what was ever due: of things at the same time, the earlier one comes first

    def recover(self) -> list[Event]:
        return []

    def open(self) -> None: ...

    def start(self, run: Run, machine: str) -> None:  # noqa: ARG002 (all are alike)
        curve = self._curve_of.get(run.trial)
        if curve is None:
            curve = self._curve_of[run.trial] = self._curves(run.config)
            if not isinstance(curve, Curve):
                raise SettingError(f"the function to simulate returned {curve!r}; it must return a Curve")
        attempt = self._attempts[run.trial, run.attempt] = _Attempt(
            run, curve, self._pace(run.workers), self._clock.time
        )
        at = self._clock.time + (self._restart_seconds if run.resume_step else self._start_seconds)
        if attempt.done < attempt.last:
            self._schedule(at + attempt.seconds[attempt.done], attempt)
        else:
            self._come_to_end(attempt, at)

    def tell_to_end(self, trial: int, attempt: int) -> None:
        """It has just told of a step: it does not begin another one."""
        found = self._attempts.get((trial, attempt))
        if found is not None and not found.told:
            found.told = True
            at = self._clock.time + self._end_seconds
            self._end(found, Ended(at, trial, attempt, found.seconds_taken(), cut=True))

    def answer(self, trial: int, attempt: int, number: int) -> None: ...

    def kill(self, trial: int, attempt: int) -> None:
        found = self._attempts.get((trial, attempt))
        if found is not None:
            found.told = True
            self._end(found, Killed(self._clock.time, trial, attempt))

    def wait(self, timeout: float | None) -> list[Event]:
        """The next thing that happens, and the clock goes on to it; at most by `timeout`."""
        clock, due = self._clock, self._due
        while due:
            at, _, first = due[0]
            if timeout is not None and at > clock.time + timeout:
                break
            if not isinstance(first, _Attempt):
                heappop(due)
                clock.time = at
                return [first]
            if not first.told:
                clock.time = at
                return [self._step(first, at)]
            heappop(due)
        if timeout is not None:
            clock.time += timeout
        return []

    def _step(self, attempt: _Attempt, at: float) -> Event:
        """Of the attempt that is first in the heap. Its next step, if there is one, takes that place."""
        i = attempt.done
        done = attempt.done = i + 1
        if done < attempt.last:
            self._count += 1
            heapreplace(self._due, (at + attempt.seconds[done], self._count, attempt))
        else:
            heappop(self._due)
            self._come_to_end(attempt, at)
        number = done - attempt.first
        return Reported(at, attempt.trial, attempt.number, number, attempt.steps[i], attempt.metrics[i], True)

    def _come_to_end(self, attempt: _Attempt, at: float) -> None:
        trial, number, curve = attempt.trial, attempt.number, attempt.curve
        if curve.error is not None and attempt.last == len(curve.steps):
            self._end(attempt, Failed(at, trial, number, "raised", curve.error))
        else:
            self._end(attempt, Ended(at + self._end_seconds, trial, number, attempt.seconds_taken()))

    def _end(self, attempt: _Attempt, event: Event) -> None:
        del self._attempts[attempt.trial, attempt.number]
        self.worker_seconds += attempt.workers * (event.at - attempt.since)
        self._schedule(event.at, event)

    def _schedule(self, at: float, what: _Attempt | Event) -> None:
        self._count += 1
        heappush(self._due, (at, self._count, what))

    def wake(self) -> None: ...

    def doing(self) -> list[Doing]:
        return [Doing("simulated", None, trial) for trial, _ in self._attempts]

    def close(self) -> None: ...
