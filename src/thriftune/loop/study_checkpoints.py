"""The driver's part in a study whose checkpoints are in an object store.

It remembers which checkpoints each attempt was given, reads what lost attempts have stored, and collects garbage.
The loop never waits for the store, except a few seconds for what a lost attempt has stored. Messages for the user
come from take_messages(), since threads must not use the view.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue

from thriftune.common.formatting import plural
from thriftune.errors import ThriftuneError
from thriftune.loop.garbage import WantedCheckpoints
from thriftune.loop.garbage_collector import GarbageCollector
from thriftune.loop.kept_checkpoints import kept_checkpoints
from thriftune.loop.lost_attempts import (
    LostAttempt,
    NotAnswered,
    before_endings,
    ending_trials,
    look_up,
    lost_attempt,
)
from thriftune.object_store.protocol import ObjectStore
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import StoredCheckpoint, TrialRecord
from thriftune.store.protocol import LogShipping
from thriftune.training.checkpoint_objects import Manifest

_LOOK_UP_SECONDS = 5.0
"""The longest wait for what lost attempts have stored. After it, the store is not asked again for a while."""

_AT_START_SECONDS = 20.0
"""The same for all attempts of a driver that was killed, before the next driver starts trials."""

_SKIP_SECONDS = 60.0

_CLOSE_SECONDS = 10.0
"""How long a driver that ends waits for its garbage; the next one collects the rest."""

_ENDINGS = (ev.Ended, ev.Failed, ev.Killed, ev.Lost)


class StudyCheckpoints:
    """The checkpoints of one study in an object store, for its driver."""

    def __init__(
        self,
        url: str,
        open_store: Callable[[str], ObjectStore],
        spec: Spec,
        drive: str,
        shipping: LogShipping | None = None,
    ) -> None:
        """Create it.

        - `url`: of the study. `open_store`: opens an object store by its URL, for days.
        - `drive`: the id of this drive.
        - `shipping`: ships the log; None if it is not shipped.
        """
        self.url = url
        self._open_store = open_store
        self._objects: ObjectStore | None = None  # opened when it is first used
        self._spec = spec
        self._drive = drive
        self._given: dict[
            int, tuple[int, frozenset[str]]
        ] = {}  # by trial: its last attempt, and what it was given
        self._changed: dict[int, None] = {}  # trials whose garbage is to be collected
        self._messages: SimpleQueue[str] = SimpleQueue()
        self._is_down = False  # the garbage collector could not use the store
        self._skip_until = float("-inf")  # in monotonic seconds: the store has not answered
        hooks = () if shipping is None else (shipping.check, shipping.ship_now)
        self._collector = GarbageCollector(self._opened, self._note_health, *hooks)

    def _opened(self) -> ObjectStore:
        if self._objects is None:
            self._objects = self._open_store(self.url)
        return self._objects

    def give(self, trial: TrialRecord, checkpoints: Iterable[StoredCheckpoint]) -> None:
        """Keep these checkpoints while the attempt of the trial runs that starts now."""
        self._given[trial.id] = trial.attempts, frozenset(each.name for each in checkpoints)

    # --- lost attempts ------------------------------------------------------------------------------------

    def with_found(self, events: list[ev.Event], history: History) -> list[ev.Event]:
        """Return the events, with what lost attempts have stored before the events that end them."""
        ending = list(dict.fromkeys(trial for event in events for trial in ending_trials(event, history)))
        if not ending:
            return events
        found = self._found(history, ending, _LOOK_UP_SECONDS)
        return before_endings(events, found, lambda event: ending_trials(event, history))

    def left_by_killed_driver(self, history: History) -> list[ev.Event]:
        """Return what the attempts of a killed driver have stored, before the next driver starts."""
        running = [each for each in history.running if history.trials[each].machine != ev.OUTSIDE]
        found = self._found(history, running, _AT_START_SECONDS) if running else {}
        ends: list[ev.Event] = [ev.Lost(0.0, trial, history.trials[trial].attempts, "") for trial in found]
        merged = before_endings(ends, found, lambda event: ending_trials(event, history))
        return [event for event in merged if not isinstance(event, ev.Lost)]

    def _found(self, history: History, trials: Sequence[int], seconds: float) -> dict[int, list[Manifest]]:
        drive = history.driver.drive if history.driver is not None else ""
        if not drive or time.monotonic() < self._skip_until:
            return {}
        lost: list[LostAttempt] = [lost_attempt(history.trials[each], drive) for each in trials]
        try:
            return look_up(self._opened, lost, seconds)
        except NotAnswered as error:
            self._skip_until = time.monotonic() + _SKIP_SECONDS
            why, found = error.args
            missing = [each for each in trials if each not in found]
            which = f"trial {missing[0]}" if len(missing) == 1 else plural(len(missing), "trial")
            self._messages.put(
                f"the object store could not tell what the lost {which} had saved last ({why}); the study goes on "
                "from the last checkpoints that it knows"
            )
            partly: dict[int, list[Manifest]] = found
            return partly

    # --- garbage ------------------------------------------------------------------------------------------

    def sweep(self, history: History) -> None:
        """Collect the garbage of the whole study in the background. Called when the drive begins."""
        unknown = WantedCheckpoints(-1, frozenset(), self._drive, frozenset(history.drive_ids))
        self._collector.sweep((self._wanted(trial, history) for trial in history.trials), unknown)

    def take_in(self, log: Iterable[ev.Event], history: History) -> None:
        """Note the trials whose checkpoints these recorded events have changed, and collect their garbage."""
        for event in log:
            if isinstance(event, (*_ENDINGS, ev.CheckpointSaved)):
                self._changed[event.trial] = None
            elif isinstance(event, (ev.MachineLost, ev.MachineReleased)):
                self._changed |= dict.fromkeys(each for each in self._given if each not in history.running)
        self.collect(history)

    def collect(self, history: History) -> None:
        """Collect the garbage of all changed trials, unless the collector still has what it got last.

        Called often. What to keep follows from all reports of a trial, so it is not found out for each checkpoint.
        """
        if not self._collector.has_due:
            self._submit_changed(history)

    def _submit_changed(self, history: History) -> None:
        changed, self._changed = self._changed, {}
        for trial in changed:
            if trial not in history.running:
                self._given.pop(trial, None)
            self._collector.submit(self._wanted(history.trials[trial], history))

    def _wanted(self, trial: TrialRecord, history: History) -> WantedCheckpoints:
        spec = self._spec
        earlier = frozenset(history.drive_ids - {self._drive})
        kept = kept_checkpoints(trial, spec.keep, spec.objectives, spec.constraints)
        names = frozenset(each.name for each in kept)
        if trial.machine is None:
            return WantedCheckpoints(trial.id, names, self._drive, earlier, trial.attempts)
        attempt, given = self._given.get(trial.id, (0, frozenset()))
        names |= given if attempt == trial.attempts else frozenset()
        own = (each.name for each in reversed(trial.checkpoints) if each.attempt == trial.attempts)
        newest = next(own, "")
        names |= {newest} - {""}
        return WantedCheckpoints(trial.id, names, self._drive, earlier, trial.attempts, True, newest)

    # --- messages -----------------------------------------------------------------------------------------

    def take_messages(self) -> list[str]:
        """Return what to tell the user since the last call."""
        messages = []
        while True:
            try:
                messages.append(self._messages.get_nowait())
            except Empty:
                return messages

    def _note_health(self, error: ThriftuneError | None) -> None:
        if error is not None and not self._is_down:
            self._messages.put(f"{error}. Old checkpoints stay until the object store can be used again.")
        if error is None and self._is_down:
            self._messages.put("the object store can be used again")
        self._is_down = error is not None

    def wait_for_garbage(self, history: History) -> None:
        """Wait some seconds until all garbage is collected. Called when the drive ends in good order."""
        self._submit_changed(history)
        self._collector.close(_CLOSE_SECONDS)

    def close(self) -> None:
        """Collect no more garbage."""
        self._collector.close(0.0)
