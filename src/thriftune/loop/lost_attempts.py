"""Find what lost attempts have stored and the log does not know: checkpoints, and the reports in their manifests.

The last messages of a worker may be lost with its machine, but not what it has uploaded. Only the manifests of the
very attempt that ends are read: an attempt that was believed dead may go on uploading, under its own name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from thriftune.errors import CheckpointError
from thriftune.object_store.protocol import ObjectMissing, ObjectStore, ObjectStoreError
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord
from thriftune.training.checkpoint_objects import Manifest, attempt_prefix
from thriftune.training.messages import from_line
from thriftune.training.stored_checkpoints import StoredCheckpoints

_THREADS = 8
"""How many attempts are looked up at the same time."""

_CRASHES = ("signal", "memory")
"""Kinds of failures at which a worker may have died before it sent its last events."""


class LostAttempt(NamedTuple):
    """An attempt that ends. `last`: the number of its last checkpoint that the log knows; 0 without one."""

    trial: int
    attempt: int
    drive: str
    last: int


class NotAnswered(Exception):
    """The store has not answered in time, or it cannot be used. The message says why."""


def lost_attempt(trial: TrialRecord, drive: str) -> LostAttempt:
    """Return the running attempt of a trial, which is lost. `drive`: the id of the drive that started it."""
    last = trial.checkpoints[-1] if trial.checkpoints else None
    number = last.number if last is not None and last.attempt == trial.attempts else 0
    return LostAttempt(trial.id, trial.attempts, drive, number)


def ending_trials(event: ev.Event, history: History) -> list[int]:
    """Return the trials whose running attempts an event ends without their last messages."""
    match event:
        case ev.Lost() | ev.Killed():
            ended = [event.trial]
        case ev.Failed(kind=kind) if kind in _CRASHES:
            ended = [event.trial]
        case ev.MachineLost(machine=machine) if machine in history.machines:
            ended = sorted(history.machines[machine].running)
        case _:
            return []
    attempt: int | None = getattr(event, "attempt", None)
    return [each for each in ended if each in history.running and attempt in (None, history.trials[each].attempts)]


def unknown_manifests(objects: ObjectStore, lost: LostAttempt) -> list[Manifest]:
    """Return the manifests of an attempt after the last one that the log knows, in order, without damaged ones.

    An earlier one that the log does not know arrived after its upload was given up. A later one has its reports.
    """
    stored = StoredCheckpoints(objects, lost.trial)
    prefix = attempt_prefix(lost.attempt, lost.drive)
    found = []
    for name in stored.names():
        if name.startswith(prefix) and int(name.removeprefix(prefix)) > lost.last:
            try:
                found.append(stored.manifest(name))
            except (CheckpointError, ObjectMissing):
                continue
    return found


def events_of(manifest: Manifest) -> Iterator[ev.Event]:
    """Yield the reports that a manifest has, and then the event of its checkpoint."""
    own = manifest.trial, manifest.attempt
    for line in manifest.reports:
        try:
            event = from_line(line.encode())
        except ValueError:  # of a later version of thriftune
            continue
        if isinstance(event, ev.Reported) and (event.trial, event.attempt) == own:
            yield event
    yield ev.CheckpointSaved(
        manifest.saved_at, *own, manifest.name, manifest.step, manifest.partial, manifest.size
    )


def look_up(
    open_store: Callable[[], ObjectStore], lost: Sequence[LostAttempt], seconds: float
) -> dict[int, list[Manifest]]:
    """Return the unknown manifests of these attempts, by trial. Waits at most this long.

    Raises NotAnswered if the store has not answered for all of them. Its `args[1]` is what it has answered.
    """
    todo: SimpleQueue[LostAttempt] = SimpleQueue()
    for each in lost:
        todo.put(each)
    answers: SimpleQueue[tuple[int, list[Manifest] | ObjectStoreError]] = SimpleQueue()

    def work() -> None:
        while True:
            try:
                each = todo.get_nowait()
            except Empty:
                return
            try:
                answers.put((each.trial, unknown_manifests(open_store(), each)))
            except ObjectStoreError as error:
                answers.put((each.trial, error))
                return

    # Daemons, since a request to a store that does not answer may take minutes.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_THREADS, len(lost)))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    found: dict[int, list[Manifest]] = {}
    while len(found) < len(lost):
        try:
            trial, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise NotAnswered(f"no answer within {seconds:g} s", found) from None
        if isinstance(answer, ObjectStoreError):
            raise NotAnswered(str(answer), found) from answer
        found[trial] = answer
    return found


def before_endings(
    events: Iterable[ev.Event], found: Mapping[int, Iterable[Manifest]], ends: Callable[[ev.Event], list[int]]
) -> list[ev.Event]:
    """Return the events, with what was found of each trial right before the event that ends its attempt."""
    left = dict(found)
    merged: list[ev.Event] = []
    for event in events:
        for trial in ends(event):
            merged += (each for manifest in left.pop(trial, ()) for each in events_of(manifest))
        merged.append(event)
    return merged
