"""Nowhere: trials replay learning curves on a virtual clock."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Any

from thriftune.engines.protocol import WorkerStatus
from thriftune.errors import SettingError
from thriftune.state.events import Config, Ended, Event, Failed, Killed, Metrics, Reported
from thriftune.training.run import Run


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
        "curve", "done", "first", "last", "machine", "metrics", "next_at", "number", "over", "reported_at",
        "reports", "save_every", "saved_at", "saves", "seconds", "since", "steps", "told", "trial", "unsaved",
        "workers",
    )  # fmt: skip

    def __init__(self, run: Run, machine: str, curve: Curve, pace: float, now: float) -> None:
        self.trial, self.number, self.workers, self.since = run.trial, run.attempt, run.workers, now
        self.machine = machine
        self.curve = curve
        self.steps, self.metrics, self.seconds = curve.steps, curve.metrics, curve.seconds  # at hand for each step
        if pace != 1.0:
            self.seconds = [pace * seconds for seconds in curve.seconds]
        self.first = bisect_right(curve.steps, run.resume_step)  # reports of the curve that lie behind it
        self.done = self.first  # the same, by now
        self.last = len(curve.steps) if run.max_steps is None else bisect_right(curve.steps, run.max_steps)
        self.reports = 0
        self.reported_at = -math.inf
        self.save_every, self.saved_at = math.inf if run.save_every is None else run.save_every, now
        self.next_at = math.inf  # when its next step is told of
        self.saves = True  # that step's state
        self.unsaved = False  # the state of the last step that it told of is not
        self.told = False  # to end after its next step
        self.over = False

    def seconds_taken(self) -> float:
        return sum(self.seconds[self.first : self.done], 0.0)


class SimulatedEngine:
    """A trial saves its state at its last step, when it is told to end, and else as often as its run says; then it
    tells of the step. Told to end just when it has told of a step, it does not begin another one.

    - `start_seconds`: what it costs to begin a trial; `restart_seconds`: to take one up from its checkpoint.
    - `save_seconds`: to save; None: trials never do.
    - `pace`: how long a step takes for this run on this machine, over what its curve says.
    """

    def __init__(
        self,
        curves: Callable[[Config], Curve],
        clock: VirtualClock,
        restart_seconds: float = 0.0,
        *,
        start_seconds: float = 0.0,
        save_seconds: float | None = 0.0,
        pace: Callable[[Run, str], float] = lambda _run, _machine: 1.0,
    ) -> None:
        self._curves = curves
        self._clock = clock
        self._restart_seconds, self._start_seconds, self._save_seconds = (
            restart_seconds,
            start_seconds,
            save_seconds or 0.0,
        )
        self._saves = save_seconds is not None
        self._pace = pace
        self.worker_seconds = 0.0  # of all attempts that have ended, from their start to their end
        self._curve_of: dict[int, Curve] = {}  # by trial, also of one that is set aside
        self._attempts: dict[tuple[int, int], _Attempt] = {}
        self._due: list[tuple[float, int, _Attempt | Event]] = []  # a heap: who has a step done, or what comes
        self._count = 0  # of what was ever due: of things at the same time, the earlier one comes first

    def recover(self) -> list[Event]:
        return []

    def open(self) -> None: ...

    def start(self, run: Run, workers: Mapping[str, int]) -> None:
        machine = next(iter(workers))
        curve = self._curve_of.get(run.trial)
        if curve is None or curve.error is not None:  # a retry may do otherwise
            curve = self._curve_of[run.trial] = self._curves(run.config)
            if not isinstance(curve, Curve):
                raise SettingError(f"the function to simulate returned {curve!r}; it must return a Curve")
        now = self._clock.time
        attempt = _Attempt(run, machine, curve, self._pace(run, machine), now)
        self._attempts[run.trial, run.attempt] = attempt
        at = now + (self._restart_seconds if run.resume_step else self._start_seconds)
        attempt.saved_at = at
        if attempt.done < attempt.last:
            self._schedule_step(attempt, at)
        else:
            self._come_to_end(attempt, at)

    def request_end(self, trial: int, attempt: int) -> None:
        found = self._attempts.get((trial, attempt))
        if found is None or found.told:
            return
        found.told = True
        now = self._clock.time
        if found.reported_at == now:
            if found.unsaved and self._saves:
                now += self._save_seconds
                self._schedule(now, self._saved_late(found, now))
            self._end(found, Ended(now, trial, attempt, found.seconds_taken(), cut=True))
        elif not found.saves and self._saves:  # it will
            found.saves = True
            self._push(found, found.next_at + self._save_seconds)

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None: ...

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None: ...

    def kill(self, trial: int, attempt: int) -> None:
        found = self._attempts.get((trial, attempt))
        if found is not None:
            self._end(found, Killed(self._clock.time, trial, attempt))

    def machine_lost(self, machine: str) -> list[Event]:
        for key, attempt in list(self._attempts.items()):
            if attempt.machine == machine:
                attempt.over = True
                self.worker_seconds += attempt.workers * (self._clock.time - attempt.since)
                del self._attempts[key]
        return []  # what they had said was told when they said it; that they are lost, the machine's loss says

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
            if first.next_at == at and not first.over:
                clock.time = at
                return [self._step(first, at)]
            heappop(due)
        if timeout is not None:
            clock.time += timeout
        return []

    def _step(self, attempt: _Attempt, at: float) -> Event:
        """Of the attempt that is first in the heap. Its next step, if there is one, takes that place."""
        i, saved = attempt.done, attempt.saves
        done = attempt.done = i + 1
        attempt.reported_at = at
        if saved:
            attempt.saved_at = at
        attempt.unsaved = not saved
        number = attempt.reports = attempt.reports + 1
        event = Reported(at, attempt.trial, attempt.number, number, attempt.steps[i], attempt.metrics[i], saved)
        if done < attempt.last and not attempt.told:
            if not attempt.save_every and not self._save_seconds and self._saves:  # as in most simulations
                attempt.next_at = at + attempt.seconds[done]
            else:
                attempt.next_at = self._next_at(attempt, at)
            self._count += 1
            heapreplace(self._due, (attempt.next_at, self._count, attempt))
            return event
        heappop(self._due)
        if done < attempt.last:
            self._end(attempt, Ended(at, attempt.trial, attempt.number, attempt.seconds_taken(), cut=True))
        else:
            self._come_to_end(attempt, at)
        return event

    def _saved_late(self, attempt: _Attempt, at: float) -> Reported:
        """Its last step, told again with its state."""
        attempt.reports += 1
        step, metrics = attempt.steps[attempt.done - 1], attempt.metrics[attempt.done - 1]
        return Reported(at, attempt.trial, attempt.number, attempt.reports, step, metrics, saved=True)

    def _next_at(self, attempt: _Attempt, at: float) -> float:
        """When the step that begins now is told of, after its save if there is to be one."""
        end = at + attempt.seconds[attempt.done]
        due = end - attempt.saved_at >= attempt.save_every or attempt.done + 1 == attempt.last
        attempt.saves = due and self._saves
        return end + self._save_seconds if attempt.saves else end

    def _schedule_step(self, attempt: _Attempt, at: float) -> None:
        self._push(attempt, self._next_at(attempt, at))

    def _push(self, attempt: _Attempt, at: float) -> None:
        attempt.next_at = at
        self._schedule(at, attempt)

    def _come_to_end(self, attempt: _Attempt, at: float) -> None:
        trial, number, curve = attempt.trial, attempt.number, attempt.curve
        if curve.error is not None and attempt.last == len(curve.steps):
            self._end(attempt, Failed(at, trial, number, "raised", curve.error))
        else:
            self._end(attempt, Ended(at, trial, number, attempt.seconds_taken()))

    def _end(self, attempt: _Attempt, event: Event) -> None:
        attempt.over = True
        del self._attempts[attempt.trial, attempt.number]
        self.worker_seconds += attempt.workers * (event.at - attempt.since)
        self._schedule(event.at, event)

    def _schedule(self, at: float, what: _Attempt | Event) -> None:
        self._count += 1
        heappush(self._due, (at, self._count, what))

    def work_seconds(self, trial: int, step: int) -> float:
        """How long a trial takes to that step, by its curve; 0 of one that never was started."""
        curve = self._curve_of.get(trial)
        return 0.0 if curve is None else sum(curve.seconds[: bisect_right(curve.steps, step)], 0.0)

    def wake(self) -> None: ...

    def status(self) -> list[WorkerStatus]:
        return [WorkerStatus("simulated", None, trial) for trial, _ in self._attempts]

    def close(self) -> None: ...
