"""Delete the garbage of a study's checkpoints in the object store, on a thread of its own.

Only the study's driver does so, since it alone knows which attempts run. All is collected once when a drive
begins, which finds what crashes have left, and then each trial's after its checkpoints have changed. The work
waits while the store cannot be used.

A shipped log may lack the last seconds. If this machine is lost with its disk, the next drive needs the
checkpoints that the shipped log knows, and the reports in the manifests of later ones. So nothing is deleted
before the entries that make it garbage are shipped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from thriftune.errors import CheckpointError, StoreConflict, ThriftuneError
from thriftune.loop.garbage import WantedCheckpoints, garbage, may_have_garbage
from thriftune.object_store.protocol import ObjectMissing, ObjectStore
from thriftune.training.checkpoint_objects import trial_prefix
from thriftune.training.stored_checkpoints import StoredCheckpoints

_PAUSE_SECONDS = 2.0
"""The time between two rounds, so that a trial that saves often costs few requests."""

_RETRY_SECONDS = 15.0
"""The time until the next try after the store could not be reached."""

_TRIALS = "trials/"
_NOTHING_WANTED = WantedCheckpoints(0, frozenset(), "", frozenset())
_MOST_CACHED = 10_000

Health = Callable[[ThriftuneError | None], object]


class GarbageCollector:
    """Deletes garbage in the background. All methods return at once, except close()."""

    def __init__(
        self,
        open_store: Callable[[], ObjectStore],
        health: Health = lambda _: None,
        check: Callable[[], object] = lambda: None,
        ship_now: Callable[[], object] = lambda: None,
    ) -> None:
        """Create it.

        - `open_store`: called for each round.
        - `check`: called before something is deleted; raises StoreConflict if another drive has taken over.
        - `ship_now`: called before each round. Returns once the next drive would know what this one wants to keep,
          should this machine be lost with its disk; raises what `check` or the store raises.
        - `health`: called on the thread with the error that made a round fail, or None after a round without.
        """
        self._open_store = open_store
        self._health = health
        self._check = check
        self._ship_now = ship_now
        self._all: dict[int, WantedCheckpoints] | None = None  # what a sweep over all trials is to keep
        self._unknown = _NOTHING_WANTED  # what a sweep keeps of a trial that the log does not know
        self._due: dict[int, WantedCheckpoints] = {}  # by trial: the newest of each
        self._parts: dict[tuple[int, str], Collection[str] | None] = {}  # of manifests that were read, by name
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def sweep(self, wanted: Iterable[WantedCheckpoints], unknown: WantedCheckpoints) -> None:
        """Collect the garbage of all trials. `unknown`: what to keep of each trial that the log does not know."""
        with self._changed:
            self._all, self._unknown = {each.trial: each for each in wanted}, unknown
            self._wake()

    def submit(self, wanted: WantedCheckpoints) -> None:
        """Collect the garbage of a trial whose checkpoints have changed."""
        with self._changed:
            self._due[wanted.trial] = wanted
            self._wake()

    @property
    def has_due(self) -> bool:
        """Return whether a trial waits for the next round."""
        return bool(self._due)

    def close(self, seconds: float) -> None:
        """Wait until all is collected, but at most this long. The next drive collects the rest."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    def _wake(self) -> None:
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._work, name="thriftune-garbage", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        pause = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing, pause)
                self._changed.wait_for(lambda: self._closing or self._due or self._all is not None)
                if not self._due and self._all is None:
                    return
                everything, self._all = self._all, None
                due, self._due = self._due, {}
            try:
                error = self._collect(everything, due)
            except StoreConflict:  # all objects belong to another drive now
                return
            pause = _PAUSE_SECONDS if error is None else _RETRY_SECONDS
            self._health(error)
            if error is not None:
                with self._changed:
                    if self._closing:
                        return
                    self._all = everything if self._all is None else self._all
                    self._due = due | self._due

    def _collect(
        self, everything: dict[int, WantedCheckpoints] | None, due: dict[int, WantedCheckpoints]
    ) -> ThriftuneError | None:
        """Collect the garbage; return the error of a store that cannot be used now. Raises StoreConflict."""
        try:
            self._ship_now()
            objects = self._open_store()
            if everything is not None:
                for trial, keys in _by_trial(each.key for each in objects.list_objects(_TRIALS)):
                    unknown = replace(self._unknown, trial=trial)
                    self._collect_trial(objects, everything.get(trial, unknown), keys)
            for trial, wanted in due.items():
                prefix = trial_prefix(trial)
                keys = [each.key.removeprefix(prefix) for each in objects.list_objects(prefix)]
                self._collect_trial(objects, wanted, keys)
        except StoreConflict:
            raise
        except ThriftuneError as error:
            return error
        return None

    def _collect_trial(self, objects: ObjectStore, wanted: WantedCheckpoints, keys: list[str]) -> None:
        stored = StoredCheckpoints(objects, wanted.trial)
        parts: dict[str, Collection[str] | None] = {}
        if not may_have_garbage(keys, wanted):  # so thousands of manifests are not read when a drive begins
            parts = dict.fromkeys(wanted.names)  # all parts stay
        for name in wanted.names - parts.keys():
            try:
                parts[name] = self._parts_of(stored, wanted.trial, name)
            except ObjectMissing:
                continue
        prefix = trial_prefix(wanted.trial)
        for group in garbage(keys, wanted, parts):  # manifests first: a torn checkpoint is never seen as complete
            if group:
                self._check()
                objects.delete(prefix + key for key in group)

    def _parts_of(self, stored: StoredCheckpoints, trial: int, name: str) -> Collection[str] | None:
        """Return the parts that a manifest names; None if it is damaged. A manifest never changes."""
        if len(self._parts) > _MOST_CACHED:
            self._parts.clear()
        if (trial, name) not in self._parts:
            try:
                self._parts[trial, name] = stored.manifest(name).parts
            except CheckpointError:
                self._parts[trial, name] = None
        return self._parts[trial, name]


def _by_trial(keys: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield each trial of a listing in order, and the keys of its checkpoints below their prefix."""
    split = (key.split("/", 3) for key in keys)
    checkpoints = (each for each in split if len(each) == 4 and each[2] == "checkpoints" and each[1].isdigit())
    for trial, group in groupby(checkpoints, lambda each: int(each[1])):
        yield trial, [each[3] for each in group]
