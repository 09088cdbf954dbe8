"""Drive a study: bring events to the conductor, record its decisions, and then carry them out."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, Self

from thriftune.clouds.protocol import Cloud
from thriftune.common.clock import Clock
from thriftune.common.command_hints import show_hint
from thriftune.engines.protocol import Engine, WorkerStatus
from thriftune.errors import StoreFull
from thriftune.loop.callbacks import Callbacks
from thriftune.loop.conductor import Conductor
from thriftune.loop.failures import failure_text
from thriftune.loop.kept_checkpoints import resumable
from thriftune.loop.preemption_notices import noticed_attempts
from thriftune.loop.signals import stop_on_signals
from thriftune.loop.study_checkpoints import StudyCheckpoints
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec, data_sources
from thriftune.state.summary import summarize
from thriftune.store.protocol import LogShipping, Store
from thriftune.training.run import Run
from thriftune.training.saved_steps import known_saves

_REQUESTS_SECONDS = 0.5
"""Look this often for requests of other processes, such as `thriftune stop`."""

_SUMMARY_SECONDS = 0.02
"""Write the summary at most this often. It may be this much older than the log."""

_SYNC_SECONDS = 0.01
"""Commits closer together than this share one sync to disk. A killed driver loses nothing by it. A power cut loses
at most the events of this time, and ends the trials of this machine as well."""

_STORE_RETRY_SECONDS = 1.0

_FAILURES_SHOWN = 3
"""Failed trials that one drive shows as they fail. Often every trial fails for the same reason."""


class View(Protocol):
    """Shows a person how the study stands."""

    def update(self, history: History, status: Callable[[], Sequence[WorkerStatus]], now: float) -> None:
        """Draw the study. Called after every cycle; draws only when the picture is due.

        `status` may be slow with a thousand workers, so call it only when drawing.
        """

    def say(self, message: str) -> None:
        """Show a message, even with --quiet."""

    def note(self, message: str) -> None:
        """Like say(), but silenced by --quiet."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Driver:
    """Drives one study until nothing is left, a stop is requested, or the store fails."""

    def __init__(
        self,
        store: Store,
        conductor: Conductor,
        engine: Engine,
        cloud: Cloud,
        clock: Clock,
        view: View,
        callbacks: Callbacks | None = None,
        *,
        drive: str = "",
        checkpoints: StudyCheckpoints | None = None,
        shipping: LogShipping | None = None,
    ) -> None:
        """`drive`: the id of this drive. `checkpoints`: of a study that keeps them in an object store."""
        self._store = store
        self._shipping = shipping
        self._conductor = conductor
        self._engine = engine
        self._cloud = cloud
        self._clock = clock
        self._view = view
        self._callbacks = callbacks if callbacks is not None and callbacks.during else None
        self._drive = drive
        self._checkpoints = checkpoints
        self._callback_error: Exception | None = None  # the first error; no callback is called after it
        self._interrupted: str | None = None  # what asks the study to stop: Ctrl-C, a signal, a command
        self._requests_read_at = float("-inf")
        self._summarized_at = float("-inf")
        self._synced_at = float("-inf")
        self._unsynced = False  # the store has commits that are not synced to disk
        self._failures_shown = 0
        self._warnings_shown: set[str] = set()  # many trials may have the same warning
        self._meter_shown = False

    @property
    def _spec(self) -> Spec:
        return self._conductor.spec

    @property
    def _history(self) -> History:
        return self._conductor.history

    def run(self) -> str | None:
        """Drive the study. Return None when nothing is left to do, else why it had to stop.

        The caller holds the study's lock (Store.drive). An error in a callback stops the study as Ctrl-C does, and
        is then raised.
        """
        try:
            self._store.take_requests(self._spec.name)  # drops requests that were meant for an earlier driver
            # Reports that the last driver's workers made come first: starting this driver ends those attempts.
            self._process(self._with_found(self._engine.recover()), self._clock.now())
            if self._checkpoints is not None and self._history.running:
                self._process(self._checkpoints.left_by_killed_driver(self._history), self._clock.now())
            self._engine.open()
            now = self._clock.now()
            started = ev.DriverStarted(now, os.getpid(), socket.gethostname(), self._drive)
            with stop_on_signals(self._stop_on_signal):
                if self._checkpoints is not None:
                    self._checkpoints.sweep(self._history)
                self._process([started, *self._with_last_reports(self._cloud.open(now))], now)
                self._loop()
            halted = self._conductor.halted if self._history.finish_reason is None else None
            now = self._clock.now()
            self._process([*self._cloud.close(now), ev.DriverStopped(now)], now, last=True)
            if self._checkpoints is not None:
                self._checkpoints.wait_for_garbage(self._history)
            self._engine.wait(0.0)  # tells the engine that all events are recorded, so it need not keep them
            if self._callback_error is not None:
                raise self._callback_error
            return halted
        finally:
            self._engine.close()
            if self._checkpoints is not None:
                self._checkpoints.close()
                self._show_messages(self._checkpoints)

    def _loop(self) -> None:
        history = self._history
        while history.finish_reason is None and (history.running or not self._conductor.halted):
            self._view.update(history, self._engine.status, self._clock.now())
            events = self._engine.wait(self._seconds_to_wait())
            now = self._clock.now()
            if now - self._requests_read_at >= _REQUESTS_SECONDS:
                self._requests_read_at = now
                if self._shipping is not None:
                    self._shipping.raise_if_lost()
                if "stop" in self._store.take_requests(self._spec.name):
                    self._interrupted = "thriftune stop"
            if self._interrupted and history.stop_requested_by is None:
                events.append(ev.StopRequested(now, self._interrupted))
            self._process(self._with_found([*events, *self._with_last_reports(self._cloud.poll_events(now))]), now)
            if self._checkpoints is not None:
                self._checkpoints.collect(history)
                self._show_messages(self._checkpoints)
        self._view.update(history, list, self._clock.now())

    def _with_last_reports(self, events: list[ev.Event]) -> list[ev.Event]:
        """Put what trials reported on machines that are lost before the loss, which ends these trials.

        The engine's Lost events are dropped: how the machine was lost decides whether a trial is to blame.
        """
        lost = [event.machine for event in events if isinstance(event, ev.MachineLost)]
        last = (event for machine in lost for event in self._engine.machine_lost(machine))
        return [*(event for event in last if not isinstance(event, ev.Lost)), *events]

    def _with_found(self, events: list[ev.Event]) -> list[ev.Event]:
        """Put what lost attempts have saved in the object store before their ends."""
        return events if self._checkpoints is None else self._checkpoints.with_found(events, self._history)

    def _show_messages(self, checkpoints: StudyCheckpoints) -> None:
        for message in checkpoints.take_messages():
            self._view.say(message)

    def _seconds_to_wait(self) -> float:
        now = self._clock.now()
        longest = _SYNC_SECONDS if self._unsynced else _REQUESTS_SECONDS
        times = (self._conductor.wake_at(now), self._cloud.next_event_at())
        return min([longest, *(max(0.0, at - now) for at in times if at is not None)])

    def _process(self, events: list[ev.Event], now: float, *, last: bool = False) -> None:
        """Run cycles of the loop: decide, record, carry out; until carrying out causes no further events."""
        while events or not last:
            entries, ended = self._history.entries, len(self._history.ended)
            log = self._conductor.handle(events, now)
            if log:
                self._record(entries, log, now, last)
            self._sync_if_due(log, now, last)
            events = self._carry_out(log, now)
            if log and self._checkpoints is not None:
                self._checkpoints.take_in(log, self._history)
            if log and self._callbacks is not None:  # only now, as trials wait for the above
                self._call_back(self._callbacks, log, ended)
            if not events:
                return

    def _call_back(self, callbacks: Callbacks, log: list[ev.Event], ended: int) -> None:
        """Call the user's functions. `ended`: how many trials had ended before the entries of this log."""
        try:
            callbacks.call(log, self._history.ended[ended:], self._history)
            self._requests_read_at = float("-inf")  # a callback may have requested a stop
        except Exception as error:
            self._callback_error, self._callbacks = error, None
            self._interrupted = self._interrupted or f"an error in a callback ({type(error).__name__})"

    # --- recording ----------------------------------------------------------------------------------------

    def _record(self, entries: int, log: list[ev.Event], now: float, last: bool) -> None:
        """Append the log to the store, after its first `entries` entries."""
        due = last or self._history.finish_reason is not None or now - self._summarized_at >= _SUMMARY_SECONDS
        summary = None
        if due:
            summary, self._summarized_at = summarize(self._history, now), now
        self._retry_while_full(lambda: self._store.append(self._spec.name, entries, log, summary))

    def _retry_while_full(self, write: Callable[[], None]) -> None:
        """Call `write`. With disk_full="go_on", repeat it while the disk is full. Raise its other errors."""
        while True:
            try:
                return write()
            except StoreFull as error:
                # Nothing is lost meanwhile: reports are in the spool files of trials, which wait for disk space.
                if self._spec.disk_full == "stop" or self._interrupted:
                    raise
                self._view.say(f"{error}. Trying again.")
                time.sleep(_STORE_RETRY_SECONDS)

    def _sync_if_due(self, log: list[ev.Event], now: float, last: bool) -> None:
        self._unsynced = self._unsynced or bool(log)
        # A rented machine costs money until it is released, even if this machine loses power.
        rents_or_releases = any(isinstance(entry, (ev.Rent, ev.Release)) for entry in log)
        if self._unsynced and (last or rents_or_releases or now - self._synced_at >= _SYNC_SECONDS):
            self._retry_while_full(self._store.sync)
            self._unsynced, self._synced_at = False, now
        if self._shipping is not None:
            self._ship_early(self._shipping, log, rents_or_releases)

    def _ship_early(self, shipping: LogShipping, log: list[ev.Event], rents_or_releases: bool) -> None:
        """Ship at once what another machine must know if this one is lost with its disk.

        It finds the checkpoints of attempts that its log has. So trials start when the log has this drive, and
        each attempt is shipped while its worker starts, long before its first checkpoint is complete.
        """
        if rents_or_releases:
            shipping.wait_until_shipped()
        elif any(isinstance(entry, ev.DriverStarted) for entry in log):
            shipping.wait_until_shipped("the study has started here", "the checkpoints that this driver makes")
        elif any(isinstance(entry, ev.Place) for entry in log):
            shipping.ship_soon()

    # --- carrying out -------------------------------------------------------------------------------------

    def _carry_out(self, log: list[ev.Event], now: float) -> list[ev.Event]:
        """Have the engine and the cloud carry out the decisions. Return the events that they cause at once."""
        caused: list[ev.Event] = []
        knobs_changed: dict[int, None] = {}
        for entry in log:
            match entry:
                case ev.Place(trial=trial, machine=machine) if machine != ev.OUTSIDE:
                    run = self._make_run(trial)
                    self._engine.start(run, entry.workers or {machine: 1})
                case ev.Move() | ev.Pause() | ev.Stop():
                    self._engine.request_end(entry.trial, entry.attempt)
                case ev.MachineNotice():
                    for each in noticed_attempts(entry, self._history, now):
                        self._engine.give_notice(*each)
                case ev.Kill():
                    self._engine.kill(entry.trial, entry.attempt)
                case ev.UsageMeasured() | ev.SetKnobs():
                    knobs_changed[entry.trial] = None
                    self._show_meter(entry)
                case ev.Rent():
                    caused += self._cloud.rent(entry.machine, entry.offer, entry.max_price, now)
                case ev.Release():
                    caused += self._engine.machine_lost(entry.machine)  # ends its warm workers
                    caused += self._cloud.release(entry.machine, now)
                case ev.GiveUp(trial=trial):
                    self._show_failure(trial)
                case ev.Warned(message=message, once=True):
                    self._view.say(message)
                case ev.Warned() | ev.DiskFull():
                    warning = entry.message if isinstance(entry, ev.Warned) else entry.error
                    if warning not in self._warnings_shown:
                        self._warnings_shown.add(warning)
                        self._view.say(f"trial {entry.trial}: {warning}")
                case _:
                    pass
        for trial_id in knobs_changed:
            record = self._history.trials[trial_id]
            if sum(record.workers.values()) <= 1:
                self._engine.set_knobs(trial_id, record.attempts, record.knob_setting)
        if self._spec.judged:  # last: a trial that goes on here was not ended above
            for entry in log:
                if type(entry) is ev.Reported:
                    self._engine.acknowledge_report(entry.trial, entry.attempt, entry.number)
        return caused

    def _make_run(self, trial: int) -> Run:
        run = make_run(self._spec, self._history, trial, measured=self._conductor.tunes)
        if self._checkpoints is None:
            return replace(run, drive=self._drive)
        given = resumable(self._history.trials[trial], self._spec.keep)
        self._checkpoints.give(self._history.trials[trial], given)
        names = tuple((each.name, each.step) for each in given)
        return replace(run, drive=self._drive, objects=self._checkpoints.url, checkpoints=names)

    def _show_meter(self, entry: ev.UsageMeasured | ev.SetKnobs) -> None:
        """Note once how usage is measured, as machines differ in what they can count."""
        if isinstance(entry, ev.UsageMeasured) and not self._meter_shown:
            self._meter_shown = True
            energy = "estimated" if entry.meter == "estimate" else f"measured by {entry.meter}"
            self._view.note(
                f"thriftune measures how trials use their machine ({entry.kind}; energy {energy}), "
                "and tunes it between steps: see docs/system.md"
            )

    def _show_failure(self, trial: int) -> None:
        if self._failures_shown >= _FAILURES_SHOWN:
            return
        self._failures_shown += 1
        command = show_hint(self._spec.name, self._store.url, trial)
        more = f" ({command} tells more)" if command else ""
        why, *output = failure_text(self._history.trials[trial]).split("\n", 1)
        self._view.say("\n".join([f"trial {trial} failed: {why}{more}", *output]))

    def _stop_on_signal(self, name: str) -> bool:
        """Stop cleanly because of a signal. Return whether it is the first one."""
        if self._interrupted and name == "Ctrl-C":
            return False
        self._interrupted = name
        self._engine.wake()
        if self._history.running:
            self._view.say("stopping after each trial's next step; Ctrl-C again to stop now")
        return True


def record(store: Store, history: History, name: str, events: Iterable[ev.Event]) -> list[ev.Event]:
    """Add the events that are new to the study's log. Return them.

    Called by the holder of the study's lock, for what users do between drives and what needs no decision.
    """
    before = history.entries
    log = [event for event in events if history.apply(event)]
    if log:
        store.append(name, before, log, summarize(history, history.last_at))
        store.sync()
    return log


def make_run(spec: Spec, history: History, trial_id: int, *, measured: bool = False) -> Run:
    """Return what a worker needs to know to run the trial's next attempt."""
    trial = history.trials[trial_id]
    return Run(
        trial=trial.id,
        attempt=trial.attempts,
        config=trial.config,
        resume_step=trial.resume_step,
        resume_partial=trial.resume_partial,
        objectives=tuple(objective.metric for objective in spec.objectives),
        max_steps=spec.max_steps,
        seed=(spec.seed * 1_000_003 + trial.id) % 2**32,
        folder=f"{spec.storage}/trials/{trial.id}",
        keep=spec.keep,
        judged=spec.judged,
        workers=sum(trial.workers.values()) or 1,
        save_every=trial.save_every,
        system=trial.knob_setting if measured and sum(trial.workers.values()) <= 1 else None,
        parameter_names=spec.space.names,
        condition_parameters=sorted({name for each in spec.space.parameters for name in each.when or {}}),
        options={name: values[0] for name, values in (spec.system or {}).get("options", {}).items()},
        known_saves=known_saves(trial, spec.objectives, spec.constraints),
        data=data_sources(spec),
    )
