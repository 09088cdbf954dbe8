"""An engine whose trials replay learning curves on a virtual clock."""

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
    """The reports of a trial: their steps, their metrics, and the seconds since the report before.

    `error`: the error with which the trial fails after the last report; None if it completes.
    """

    steps: Sequence[int]  # strictly increasing, from 1
    metrics: Sequence[Metrics]
    seconds: Sequence[float]  # since the report before
    error: str | None = None


class VirtualClock:
    """A clock that its user sets."""

    def __init__(self, start: float = 0.0) -> None:
        self.time = start

    def now(self) -> float:
        return self.time


class _SimulatedAttempt:
    """The state of one attempt; `reported` and `last` count reports of its curve."""

    __slots__ = (
        "asked_to_end", "curve", "ended", "first", "last", "machine", "metrics", "next_at", "number",
        "report_number", "reported", "reported_at", "save_every", "saved_at", "saves", "seconds", "started_at",
        "steps", "trial", "unsaved", "workers",
    )  # fmt: skip

    def __init__(self, run: Run, machine: str, curve: Curve, pace: float, now: float) -> None:
        self.trial, self.number, self.workers, self.started_at = run.trial, run.attempt, run.workers, now
        self.machine = machine
        self.curve = curve
        self.steps, self.metrics, self.seconds = curve.steps, curve.metrics, curve.seconds  # for quick access
        if pace != 1.0:
            self.seconds = [pace * seconds for seconds in curve.seconds]
        self.first = bisect_right(curve.steps, run.resume_step)  # number of reports before this attempt
        self.reported = self.first  # number of reports, those of earlier attempts included
        self.last = len(curve.steps) if run.max_steps is None else bisect_right(curve.steps, run.max_steps)
        self.report_number = 0  # number of the attempt's last report
        self.reported_at = -math.inf
        self.save_every, self.saved_at = math.inf if run.save_every is None else run.save_every, now
        self.next_at = math.inf  # time of the next report
        self.saves = True  # whether a checkpoint is saved before the next report
        self.unsaved = False  # whether the last report came without a checkpoint
        self.asked_to_end = False  # if set, the attempt ends after its next report
        self.ended = False

    def seconds_taken(self) -> float:
        return sum(self.seconds[self.first : self.reported], 0.0)


class SimulatedEngine:
    """An engine on a virtual clock; trials replay the curves of their configurations.

    A trial saves a checkpoint at its last step, when it is asked to end, and otherwise as often as its run says.
    It reports a step after the step's checkpoint is saved. If it is asked to end at the moment of a report, it
    does not begin another step.

    - `start_seconds`: from the start of a trial to its first step.
    - `restart_seconds`: from the start of an attempt that resumes from a checkpoint to its first step.
    - `save_seconds`: to write a checkpoint; None if trials never save.
    - `pace`: returns the factor by which this run's steps take longer on this machine than its curve says.
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
        self._curve_of: dict[int, Curve] = {}  # by trial, paused and ended trials included
        self._attempts: dict[tuple[int, int], _SimulatedAttempt] = {}  # by trial and number, all that run
        # A heap by time, then by order of scheduling: an attempt at the time of its next report, or an event.
        self._due: list[tuple[float, int, _SimulatedAttempt | Event]] = []
        self._scheduled = 0  # number of entries ever put into the heap

    def recover(self) -> list[Event]:
        return []

    def open(self) -> None: ...

    def start(self, run: Run, workers: Mapping[str, int]) -> None:
        machine = next(iter(workers))
        curve = self._curve_of.get(run.trial)
        if curve is None or curve.error is not None:  # a retry may get another curve
            curve = self._curve_of[run.trial] = self._curves(run.config)
            if not isinstance(curve, Curve):
                raise SettingError(f"the function to simulate returned {curve!r}; it must return a Curve")
        now = self._clock.time
        attempt = _SimulatedAttempt(run, machine, curve, self._pace(run, machine), now)
        self._attempts[run.trial, run.attempt] = attempt
        first_step_at = now + (self._restart_seconds if run.resume_step else self._start_seconds)
        attempt.saved_at = first_step_at
        if attempt.reported < attempt.last:
            self._schedule_report(attempt, self._begin_step(attempt, first_step_at))
        else:
            self._complete(attempt, first_step_at)

    def request_end(self, trial: int, attempt: int) -> None:
        running = self._attempts.get((trial, attempt))
        if running is None or running.asked_to_end:
            return
        running.asked_to_end = True
        now = self._clock.time
        if running.reported_at == now:
            if running.unsaved and self._saves:
                now += self._save_seconds
                self._schedule(now, self._report_saved(running, now))
            self._end(running, Ended(now, trial, attempt, running.seconds_taken(), cut=True))
        elif not running.saves and self._saves:  # the next report is the last one, so it needs a checkpoint
            running.saves = True
            self._schedule_report(running, running.next_at + self._save_seconds)

    def acknowledge_report(self, trial: int, attempt: int, number: int) -> None: ...

    def give_notice(self, trial: int, attempt: int, seconds_left: float) -> None: ...

    def set_knobs(self, trial: int, attempt: int, setting: Mapping[str, Any]) -> None: ...

    def kill(self, trial: int, attempt: int) -> None:
        running = self._attempts.get((trial, attempt))
        if running is not None:
            self._end(running, Killed(self._clock.time, trial, attempt))

    def machine_lost(self, machine: str) -> list[Event]:
        for key, attempt in list(self._attempts.items()):
            if attempt.machine == machine:
                attempt.ended = True
                self.worker_seconds += attempt.workers * (self._clock.time - attempt.started_at)
                del self._attempts[key]
        return []  # no report is outstanding, and the loss of the machine implies that of its attempts

    def wait(self, timeout: float | None) -> list[Event]:
        """Set the clock to the next event, at most `timeout` seconds ahead, and return that event."""
        clock, due = self._clock, self._due
        while due:
            due_at, _, entry = due[0]
            if timeout is not None and due_at > clock.time + timeout:
                break
            if not isinstance(entry, _SimulatedAttempt):
                heappop(due)
                clock.time = due_at
                return [entry]
            if entry.next_at == due_at and not entry.ended:
                clock.time = due_at
                return [self._report(entry, due_at)]
            heappop(due)
        if timeout is not None:
            clock.time += timeout
        return []

    def _report(self, attempt: _SimulatedAttempt, now: float) -> Event:
        """Report a step of the attempt that is first in the heap, and begin its next step or end it."""
        i, saved = attempt.reported, attempt.saves
        reported = attempt.reported = i + 1
        attempt.reported_at = now
        if saved:
            attempt.saved_at = now
        attempt.unsaved = not saved
        number = attempt.report_number = attempt.report_number + 1
        event = Reported(now, attempt.trial, attempt.number, number, attempt.steps[i], attempt.metrics[i], saved)
        if reported < attempt.last and not attempt.asked_to_end:
            if not attempt.save_every and not self._save_seconds and self._saves:  # the usual case, made quick
                attempt.next_at = now + attempt.seconds[reported]
            else:
                attempt.next_at = self._begin_step(attempt, now)
            self._scheduled += 1
            heapreplace(self._due, (attempt.next_at, self._scheduled, attempt))
            return event
        heappop(self._due)
        if reported < attempt.last:
            self._end(attempt, Ended(now, attempt.trial, attempt.number, attempt.seconds_taken(), cut=True))
        else:
            self._complete(attempt, now)
        return event

    def _report_saved(self, attempt: _SimulatedAttempt, now: float) -> Reported:
        """Return another report of the attempt's last step, now with a checkpoint."""
        attempt.report_number += 1
        step, metrics = attempt.steps[attempt.reported - 1], attempt.metrics[attempt.reported - 1]
        return Reported(now, attempt.trial, attempt.number, attempt.report_number, step, metrics, saved=True)

    def _begin_step(self, attempt: _SimulatedAttempt, now: float) -> float:
        """Decide whether the step that begins now saves a checkpoint, and return the time of its report."""
        end = now + attempt.seconds[attempt.reported]
        due = end - attempt.saved_at >= attempt.save_every or attempt.reported + 1 == attempt.last
        attempt.saves = due and self._saves
        return end + self._save_seconds if attempt.saves else end

    def _schedule_report(self, attempt: _SimulatedAttempt, report_at: float) -> None:
        attempt.next_at = report_at
        self._schedule(report_at, attempt)

    def _complete(self, attempt: _SimulatedAttempt, now: float) -> None:
        """End an attempt that has done all of its steps; it fails if its curve ends with an error."""
        trial, number, curve = attempt.trial, attempt.number, attempt.curve
        if curve.error is not None and attempt.last == len(curve.steps):
            self._end(attempt, Failed(now, trial, number, "raised", curve.error))
        else:
            self._end(attempt, Ended(now, trial, number, attempt.seconds_taken()))

    def _end(self, attempt: _SimulatedAttempt, event: Event) -> None:
        attempt.ended = True
        del self._attempts[attempt.trial, attempt.number]
        self.worker_seconds += attempt.workers * (event.at - attempt.started_at)
        self._schedule(event.at, event)

    def _schedule(self, due_at: float, entry: _SimulatedAttempt | Event) -> None:
        self._scheduled += 1
        heappush(self._due, (due_at, self._scheduled, entry))

    def work_seconds(self, trial: int, step: int) -> float:
        """Return the seconds of a trial's steps up to `step` by its curve; 0 if the trial was never started."""
        curve = self._curve_of.get(trial)
        return 0.0 if curve is None else sum(curve.seconds[: bisect_right(curve.steps, step)], 0.0)

    def wake(self) -> None: ...

    def status(self) -> list[WorkerStatus]:
        return [WorkerStatus("simulated", None, trial) for trial, _ in self._attempts]

    def close(self) -> None: ...
