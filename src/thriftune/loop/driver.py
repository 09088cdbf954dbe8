"""Who turns the crank? Brings events to the conductor, records what it says, and only then carries it out."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Protocol, Self

from thriftune.clouds.protocol import Cloud
from thriftune.common.clock import Clock
from thriftune.common.command_hints import show_hint
from thriftune.engines.protocol import Engine, WorkerStatus
from thriftune.errors import StoreFull
from thriftune.loop.callbacks import Callbacks
from thriftune.loop.conductor import Conductor
from thriftune.loop.failures import failure_text
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.summary import summarize
from thriftune.store.protocol import Store
from thriftune.training.run import Run
from thriftune.training.saved_steps import known_saves

_MAILBOX_SECONDS = 0.5
"""How often the driver looks for requests of other processes."""

_SUMMARY_SECONDS = 0.02
"""At most so far is the summary of the study behind its log: not at all, but for a storm of short trials."""

_SYNC_SECONDS = 0.01
"""Turns closer together than this share one sync to disk. A killed driver loses nothing by it; a power cut, which
ends the trials of this machine as well, at most so much."""

_STORE_RETRY_SECONDS = 1.0

_FAILURES_TOLD = 3
"""In one drive; the rest are counted, and can be looked up."""


class View(Protocol):
    """Shows a person how the study stands. Called often; decides itself how much to draw."""

    def update(self, history: History, doing: Callable[[], Sequence[WorkerStatus]], now: float) -> None:
        """`doing` is asked only where it is drawn: there may be a thousand workers."""

    def say(self, message: str) -> None: ...

    def note(self, message: str) -> None:
        """Says it, unless only what must be said is to be."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Driver:
    """Drives one study to its end, to a request to stop, or to an error of the store."""

    def __init__(
        self,
        store: Store,
        conductor: Conductor,
        engine: Engine,
        cloud: Cloud,
        clock: Clock,
        view: View,
        callbacks: Callbacks | None = None,
    ) -> None:
        self._store = store
        self._conductor = conductor
        self._engine = engine
        self._cloud = cloud
        self._clock = clock
        self._view = view
        self._callbacks = callbacks if callbacks is not None and callbacks.during else None
        self._callback_error: Exception | None = None  # the first; none is called after it
        self._interrupted: str | None = None
        self._looked_at = float("-inf")  # when the mailbox was last looked into
        self._summarized_at = float("-inf")
        self._synced_at = float("-inf")
        self._unsynced = False
        self._failures_told = 0
        self._warnings_said: set[str] = set()  # in this drive; many trials may have the same
        self._said_how_measured = False

    @property
    def _spec(self) -> Spec:
        return self._conductor.spec

    @property
    def _history(self) -> History:
        return self._conductor.history

    def run(self) -> str | None:
        """Until nothing is left to do, which returns None, or until it has to stop, which returns why.

        The study must be locked by the caller (Store.drive). An error in a callback stops the study as Ctrl-C
        does, and is then raised.
        """
        try:
            self._store.take_requests(self._spec.name)  # those of before this drive are not for it
            # First what the last driver's workers had still to say; only then is their time over.
            self._turn(self._engine.recover(), self._clock.now())
            self._engine.open()
            now = self._clock.now()
            started = ev.DriverStarted(now, os.getpid(), socket.gethostname())
            with self._signals():
                self._turn([started, *self._after_last_words(self._cloud.open(now))], now)
                self._loop()
            halted = self._conductor.halted if self._history.finish_reason is None else None
            now = self._clock.now()
            self._turn([*self._cloud.close(now), ev.DriverStopped(now)], now, last=True)
            if self._callback_error is not None:
                raise self._callback_error
            return halted
        finally:
            self._engine.close()

    def _loop(self) -> None:
        history = self._history
        while history.finish_reason is None and (history.running or not self._conductor.halted):
            self._view.update(history, self._engine.status, self._clock.now())
            events = self._engine.wait(self._patience())
            now = self._clock.now()
            if now - self._looked_at >= _MAILBOX_SECONDS:
                self._looked_at = now
                if "stop" in self._store.take_requests(self._spec.name):
                    self._interrupted = "thriftune stop"
            if self._interrupted and history.stop_requested_by is None:
                events.append(ev.StopRequested(now, self._interrupted))
            self._turn([*events, *self._after_last_words(self._cloud.poll_events(now))], now)
        self._view.update(history, list, self._clock.now())

    def _after_last_words(self, told: list[ev.Event]) -> list[ev.Event]:
        """What trials had said on a machine counts before its loss, which ends them: whether they are to blame for
        it is told by how the machine was lost, and not by the engine."""
        lost = [event.machine for event in told if isinstance(event, ev.MachineLost)]
        said = (event for machine in lost for event in self._engine.machine_lost(machine))
        return [*(event for event in said if not isinstance(event, ev.Lost)), *told]

    def _patience(self) -> float:
        now = self._clock.now()
        patience = _SYNC_SECONDS if self._unsynced else _MAILBOX_SECONDS
        times = (self._conductor.wake_at(now), self._cloud.next_event_at())
        return min([patience, *(max(0.0, at - now) for at in times if at is not None)])

    def _turn(self, events: list[ev.Event], now: float, *, last: bool = False) -> None:
        """One turn: take in, record, carry out."""
        while events or not last:
            before, ended = self._history.entries, len(self._history.ended)
            log = self._conductor.handle(events, now)
            if log:
                self._record(before, log, now, last)
            self._sync_if_due(log, now, last)
            events = self._carry_out(log, now)
            if log and self._callbacks is not None:  # after what trials wait for
                self._call_back(self._callbacks, log, ended)
            if not events:
                return

    def _call_back(self, callbacks: Callbacks, log: list[ev.Event], ended: int) -> None:
        """Call the user's functions. `ended`: how many trials had ended before what is in the log."""
        try:
            callbacks.tell(log, self._history.ended[ended:], self._history)
            self._looked_at = float("-inf")  # one may have asked the study to stop
        except Exception as error:
            self._callback_error, self._callbacks = error, None
            self._interrupted = self._interrupted or f"an error in a callback ({type(error).__name__})"

    def _record(self, before: int, log: list[ev.Event], now: float, last: bool) -> None:
        due = last or self._history.finish_reason is not None or now - self._summarized_at >= _SUMMARY_SECONDS
        summary = None
        if due:
            summary, self._summarized_at = summarize(self._history, now), now
        self._when_there_is_room(lambda: self._store.append(self._spec.name, before, log, summary))

    def _when_there_is_room(self, write: Callable[[], None]) -> None:
        """Call `write`; with disk_full="go_on", repeat it while the disk is full. Other errors are raised."""
        while True:
            try:
                return write()
            except StoreFull as error:
                # Nothing is lost meanwhile: what trials said is in their spools, and they wait for a full disk.
                if self._spec.disk_full == "stop" or self._interrupted:
                    raise
                self._view.say(f"{error}. Trying again.")
                time.sleep(_STORE_RETRY_SECONDS)

    def _sync_if_due(self, log: list[ev.Event], now: float, last: bool) -> None:
        self._unsynced = self._unsynced or bool(log)
        # A machine that is rented is billed on, whatever becomes of this one.
        outlasts_us = any(isinstance(entry, (ev.Rent, ev.Release)) for entry in log)
        if self._unsynced and (last or outlasts_us or now - self._synced_at >= _SYNC_SECONDS):
            self._when_there_is_room(self._store.sync)
            self._unsynced, self._synced_at = False, now

    def _carry_out(self, log: list[ev.Event], now: float) -> list[ev.Event]:
        """What the engine and the cloud are to do; returns what they answer at once."""
        answers: list[ev.Event] = []
        turned: dict[int, None] = {}
        for entry in log:
            match entry:
                case ev.Place(trial=trial, machine=machine) if machine != ev.OUTSIDE:
                    run = make_run(self._spec, self._history, trial, measured=self._conductor.tunes)
                    self._engine.start(run, entry.workers or {machine: 1})
                case ev.Move() | ev.Pause() | ev.Stop():
                    self._engine.request_end(entry.trial, entry.attempt)
                case ev.Kill():
                    self._engine.kill(entry.trial, entry.attempt)
                case ev.UsageMeasured() | ev.SetKnobs():
                    turned[entry.trial] = None
                    self._say_how_measured(entry)
                case ev.Rent():
                    answers += self._cloud.rent(entry.machine, entry.offer, entry.max_price, now)
                case ev.Release():
                    answers += self._engine.machine_lost(entry.machine)  # nothing runs there, but may be kept warm
                    answers += self._cloud.release(entry.machine, now)
                case ev.GiveUp(trial=trial):
                    self._say_failed(trial)
                case ev.Warned(message=message, once=True):
                    self._view.say(message)
                case ev.Warned() | ev.DiskFull():
                    what = entry.message if isinstance(entry, ev.Warned) else entry.error
                    if what not in self._warnings_said:
                        self._warnings_said.add(what)
                        self._view.say(f"trial {entry.trial}: {what}")
                case _:
                    pass
        for trial_id in turned:
            record = self._history.trials[trial_id]
            self._engine.set_knobs(trial_id, record.attempts, record.knob_setting)
        if self._spec.judged:  # after what was decided because of it
            for entry in log:
                if type(entry) is ev.Reported:
                    self._engine.acknowledge_report(entry.trial, entry.attempt, entry.number)
        return answers

    def _say_how_measured(self, entry: ev.UsageMeasured | ev.SetKnobs) -> None:
        """Once: not every machine can count the same."""
        if isinstance(entry, ev.UsageMeasured) and not self._said_how_measured:
            self._said_how_measured = True
            self._view.note(f"how trials use their machine is measured: {entry.kind}; energy by {entry.meter}")

    def _say_failed(self, trial: int) -> None:
        """The first few, as they happen: often every trial fails for the same reason, and at once."""
        if self._failures_told >= _FAILURES_TOLD:
            return
        self._failures_told += 1
        how = show_hint(self._spec.name, self._store.url, trial)
        more = f" ({how} tells more)" if how else ""
        why, *output = failure_text(self._history.trials[trial]).split("\n", 1)
        self._view.say("\n".join([f"trial {trial} failed: {why}{more}", *output]))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM stop cleanly; a second Ctrl-C stops now."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupted(number: int, _frame: FrameType | None) -> None:
            if self._interrupted and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._interrupted = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
            self._engine.wake()
            if self._history.running:
                self._view.say("stopping after each trial's next step; Ctrl-C again to stop now")

        before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def record(store: Store, history: History, name: str, events: Iterable[ev.Event]) -> list[ev.Event]:
    """Add to the study's log what is new of these events, and return it. Called by who has the study's lock.

    For what users say between drives, which leads to no decision at once.
    """
    before = history.entries
    log = [event for event in events if history.apply(event)]
    if log:
        store.append(name, before, log, summarize(history, history.last_at))
        store.sync()
    return log


def make_run(spec: Spec, history: History, trial_id: int, *, measured: bool = False) -> Run:
    trial = history.trials[trial_id]
    return Run(
        trial=trial.id,
        attempt=trial.attempts,
        config=trial.config,
        resume_step=trial.resume_step,
        objectives=tuple(objective.metric for objective in spec.objectives),
        max_steps=spec.max_steps,
        seed=(spec.seed * 1_000_003 + trial.id) % 2**32,
        folder=f"{spec.storage}/trials/{trial.id}",
        keep=spec.keep,
        judged=spec.judged,
        workers=sum(trial.workers.values()) or 1,
        save_every=trial.save_every,
        system=trial.knob_setting if measured else None,
        names=spec.space.names,
        asked_of=sorted({name for each in spec.space.parameters for name in each.when or {}}),
        options={name: values[0] for name, values in (spec.system or {}).get("options", {}).items()},
        saves=known_saves(trial, spec.objectives, spec.constraints),
    )
