"""Uploads the checkpoints of an attempt in the background, while training goes on.

A snapshot is a local folder with a state that was saved. At most one snapshot is being uploaded, and one waits. A
newer one replaces the one that waits. The parts of a snapshot are read, hashed and uploaded in parallel, and parts
that the checkpoint before has already are not uploaded again. The manifest is created last. Then the checkpoint
counts, and CheckpointSaved is sent.
"""

from __future__ import annotations

import _thread  # not threading: code that joins every thread it finds must not wait for the uploads
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from thriftune.common.clock import wall_time
from thriftune.errors import CheckpointError, SettingError
from thriftune.object_store.protocol import ObjectStore
from thriftune.state.events import CheckpointSaved, Event, Warned
from thriftune.training import checkpoint_objects as layout
from thriftune.training.checkpoint_objects import Manifest, StoredFile
from thriftune.training.parallel import for_each
from thriftune.training.patient_store import GaveUp, PatientStore
from thriftune.training.run import EndTrial, Run
from thriftune.training.snapshots import Part, Snapshot
from thriftune.training.stored_checkpoints import TRANSFERS

MOST_REPORTS = 50_000
"""The most reports that one manifest carries, about 7 MB. The newest ones count."""

_POLL_SECONDS = 0.2
"""How often to look whether the time that is left has changed."""

_CLOSE_SECONDS = 2.0
"""How long to wait for the upload thread to end after the last upload."""

_LEAST_MEASURED_SHARE = 0.1
"""An upload of less than this part of a snapshot's bytes says little about the time that all of them need."""


class Measured(NamedTuple):
    """The bytes that an upload has sent, and the seconds it took."""

    sent_bytes: int
    seconds: float


_last_measured: dict[str, Measured] = {}
"""The last upload of this process that says how fast the machine is, by the URL of the study's objects."""


def expected_seconds(size: int, measured: Measured | None) -> float | None:
    """Return how long an upload of all parts of a state takes; None if no upload was measured."""
    if measured is None:
        return None
    return measured.seconds * max(1.0, size / max(measured.sent_bytes, 1))


@dataclass(slots=True)
class _Progress:
    """What is uploaded of a checkpoint that has no manifest yet."""

    keys: dict[Part, str] = field(default_factory=dict)  # of the parts that are in the store
    by_hash: dict[str, str] = field(default_factory=dict)  # the keys of parts that may be reused
    sent_bytes: int = 0


class Uploads:
    """The upload thread of an attempt. It starts with the first snapshot."""

    def __init__(
        self,
        run: Run,
        open_store: Callable[[], ObjectStore],
        send: Callable[[Event], object],
        *,
        part_bytes: int = layout.PART_BYTES,
    ) -> None:
        """`send`: sends an event of the attempt. `part_bytes`: the size of parts, for tests."""
        self._run = run
        self._send = send
        self._part_bytes = part_bytes
        self._pid = os.getpid()
        # Re-entrant, since a signal handler may submit a snapshot while it is held.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: Snapshot | None = None
        self._uploading: Snapshot | None = None
        self._closing = False
        self._thread_runs = False
        self._replaced = False  # a snapshot was replaced during the upload in progress, and not for an outage
        self._said_replaced = False
        self._number = 0  # of the attempt's last checkpoint
        # The keys of all parts that are safe from garbage collection, by hash: those of the newest checkpoint, or
        # of the one that was restored, and those that were uploaded since.
        self._known: dict[str, str] = {}
        self._carried: list[str] = []  # reports of a snapshot that was not uploaded, for the next manifest
        self._store = PatientStore(
            open_store,
            self._warn_of_outage,
            self._pause,
            meanwhile="training goes on, and the newest checkpoint waits on this machine",
            afterwards="checkpoints are uploaded again",
        )

    def reuse_parts_of(self, manifest: Manifest) -> None:
        """Do not upload the parts of this checkpoint again. Called after it was restored."""
        self._known = {layout.part_hash(part): part for part in manifest.parts}

    def submit(self, snapshot: Snapshot) -> None:
        """Upload a snapshot as soon as possible, and remove its folder then. Does not wait.

        It replaces a snapshot that waits for an earlier one.
        """
        if os.getpid() != self._pid:
            raise SettingError(
                "a forked child of the training function cannot save; call save() in the training function"
            )
        with self._changed:
            replaced, self._waiting = self._waiting, snapshot
            if replaced is not None:
                self._replaced = True
                snapshot.reports = [*replaced.reports, *snapshot.reports][-MOST_REPORTS:]
            if not self._thread_runs:
                self._thread_runs = True
                _thread.start_new_thread(self._upload_all, ())
            self._changed.notify_all()
        if replaced is not None:
            shutil.rmtree(replaced.folder, ignore_errors=True)

    @property
    def busy(self) -> bool:
        """Whether a snapshot is being uploaded or waits."""
        return self._waiting is not None or self._uploading is not None

    def wait(self, seconds: float, time_left: Callable[[], float | None] = lambda: None) -> bool:
        """Wait until all snapshots are uploaded; return False if they are not within this time.

        `time_left`: the seconds that the machine still has; None if it is not to be preempted.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while self.busy and self._thread_runs:
                machine_has = time_left()
                left = deadline - time.monotonic() if machine_has is None else machine_has
                if left <= 0.0:
                    break
                self._changed.wait(min(left, _POLL_SECONDS))
            return not self.busy

    def expected_seconds(self, size: int) -> float | None:
        """Return how long the upload of a state of this size takes on this machine; None if it is not known."""
        return expected_seconds(size, _last_measured.get(self._run.objects))

    def close(self) -> None:
        """End the upload thread, and close its connections. Snapshots that are not uploaded are lost."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            while self._thread_runs and (left := deadline - time.monotonic()) > 0.0:
                self._changed.wait(left)

    # --- the upload thread ------------------------------------------------------------------------------

    def _upload_all(self) -> None:
        """Upload snapshots until close() is called."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread handles all signals
        try:
            while (snapshot := self._next()) is not None:
                try:
                    self._upload(snapshot)
                except GaveUp:
                    self._hand_over(snapshot)
                except EndTrial:  # the attempt has ended
                    return
                except Exception as error:  # such as a file of the snapshot that cannot be read
                    own = f"{self._name}/"  # parts that may not be what their hash says
                    self._known = {digest: key for digest, key in self._known.items() if not key.startswith(own)}
                    self._hand_over(snapshot)
                    self._warn(f"the checkpoint of step {snapshot.step} could not be uploaded: {_text_of(error)}")
                shutil.rmtree(snapshot.folder, ignore_errors=True)
        except EndTrial:
            pass
        finally:
            self._store.close()
            with self._changed:
                self._uploading = None
                self._thread_runs = False
                self._changed.notify_all()

    def _next(self) -> Snapshot | None:
        """Wait for the next snapshot and return it; None after close()."""
        with self._changed:
            self._uploading = None
            self._changed.notify_all()
            while self._waiting is None and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            self._uploading, self._waiting = self._waiting, None
            assert self._uploading is not None
            self._uploading.reports = [*self._carried, *self._uploading.reports][-MOST_REPORTS:]
            self._carried = []
            return self._uploading

    def _pause(self, seconds: float) -> bool:
        """Wait before the next try; return True if the snapshot is not wanted any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting is not None, seconds)
            return self._closing or self._waiting is not None

    def _hand_over(self, snapshot: Snapshot) -> None:
        """Add the reports of a snapshot that is not uploaded to the next one."""
        self._carried = [*snapshot.reports]

    def _upload(self, snapshot: Snapshot) -> None:
        started = time.monotonic()
        self._number += 1
        progress = _Progress(by_hash=self._known)
        manifest = self._store.call(lambda objects: self._store_checkpoint(objects, snapshot, progress))
        seconds = time.monotonic() - started
        if progress.sent_bytes >= _LEAST_MEASURED_SHARE * snapshot.size or self._run.objects not in _last_measured:
            _last_measured[self._run.objects] = Measured(progress.sent_bytes, seconds)
        self._known = {layout.part_hash(part): part for part in manifest.parts}
        run = self._run
        saved = manifest.name, manifest.step, manifest.partial, manifest.size, seconds
        self._send(CheckpointSaved(wall_time(), run.trial, run.attempt, *saved))
        with self._changed:
            replaced, self._replaced = self._replaced, False
        if replaced:
            self._say_replaced()

    def _store_checkpoint(self, objects: ObjectStore, snapshot: Snapshot, progress: _Progress) -> Manifest:
        """Upload the missing parts, then the manifest. Called with the same progress again after errors."""
        parts = [part for part in snapshot.parts(self._part_bytes) if part not in progress.keys]
        for_each(lambda part: self._upload_part(objects, snapshot, part, progress), parts, TRANSFERS)
        snapshot.check_unchanged()
        while True:
            manifest = self._manifest(snapshot, progress)
            if objects.create(layout.manifest_key(self._run.trial, manifest.name), layout.encode(manifest)):
                return manifest
            self._number += 1  # another worker of this attempt has used the name

    def _upload_part(self, objects: ObjectStore, snapshot: Snapshot, part: Part, progress: _Progress) -> None:
        # Many parts are unchanged, so a part is hashed before it is read into memory as a whole.
        digest = snapshot.hash(part)
        key = progress.by_hash.get(digest)
        if key is None:
            data = snapshot.read(part)
            key = f"{self._name}/{digest}"
            objects.put(layout.part_key(self._run.trial, key), data)
            with self._changed:
                progress.by_hash[digest] = key
                progress.sent_bytes += len(data)
        progress.keys[part] = key

    @property
    def _name(self) -> str:
        return layout.checkpoint_name(self._run.attempt, self._run.drive, self._number)

    def _manifest(self, snapshot: Snapshot, progress: _Progress) -> Manifest:
        keys: dict[str, list[str]] = {name: [] for name in sorted(snapshot.files)}
        for part in snapshot.parts(self._part_bytes):  # in order
            keys[part.file].append(progress.keys[part])
        files = {name: StoredFile(snapshot.files[name], tuple(parts)) for name, parts in keys.items()}
        return Manifest(
            self._name,
            self._run.trial,
            self._run.attempt,
            snapshot.step,
            snapshot.partial,
            snapshot.saved_at,
            files,
            tuple(snapshot.reports),
            snapshot.command_state,
            snapshot.first_step,
        )

    # --- what the user is told --------------------------------------------------------------------------

    def _say_replaced(self) -> None:
        if not self._said_replaced:
            self._said_replaced = True
            self._warn(
                "checkpoints are saved faster than they can be uploaded: some of them are skipped, and the newest "
                "is uploaded; save less often, such as at every tenth step",
                once=True,
            )

    def _warn_of_outage(self, message: str) -> None:
        """Warn that the store does not work, or works again: that is why snapshots were replaced until now."""
        with self._changed:
            self._replaced = False
        self._warn(message)

    def _warn(self, message: str, *, once: bool = False) -> None:
        self._send(Warned(wall_time(), self._run.trial, self._run.attempt, message, once=once))


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, (CheckpointError, OSError)) else f"{type(error).__name__}: {error}"
