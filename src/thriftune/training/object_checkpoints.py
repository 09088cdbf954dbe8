"""Saves and restores a live trial's state in an object store, through local scratch."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from thriftune.common.clock import wall_time
from thriftune.errors import CheckpointError
from thriftune.object_store.protocol import ObjectMissing, ObjectStore, ObjectStoreError
from thriftune.object_store.retries import RETRY_SECONDS
from thriftune.state.events import Reported, Warned
from thriftune.training.checkpoint_files import DiskFullError
from thriftune.training.checkpoint_objects import Manifest
from thriftune.training.checkpoint_uploads import MOST_REPORTS, Uploads
from thriftune.training.messages import to_line
from thriftune.training.patient_store import GaveUp, PatientStore
from thriftune.training.run import EndTrial, Run
from thriftune.training.snapshots import Snapshot, state_files, write_state
from thriftune.training.stored_checkpoints import StoredCheckpoints
from thriftune.training.trial_checkpoints import Restored, Send, Share

_POLL_SECONDS = 0.2
"""How often to look whether the attempt is to end while the store does not answer."""

_UPLOAD_RETRY_SECONDS = 5.0
"""How long a request of an upload is retried before the user is told. Uploads begin again until they succeed."""


_opened_urls: set[str] = set()
"""The URLs that attempts in this process have opened. Opening one takes ten milliseconds."""


class ObjectCheckpoints:
    """The TrialCheckpoints of a trial whose checkpoints are in an object store."""

    def __init__(self, run: Run, send: Send, stops: Callable[[], bool]) -> None:
        """`stops`: returns whether the attempt is to end; asked while restore waits for the store."""
        self._run = run
        self._send = send
        self._stops = stops
        self._pid = os.getpid()
        if run.objects not in _opened_urls:
            with contextlib.suppress(ObjectStoreError):  # such as credentials that are not valid yet
                self._open_store()  # a wrong URL or a missing package must fail the attempt at once
            _opened_urls.add(run.objects)
        remove_scratch(run)
        # Random, so that a lost attempt that still runs does not write into the folder of this one.
        self.scratch = _scratch_of(run) / f"{run.rank}-{os.urandom(6).hex()}"
        self._uploads = Uploads(run, lambda: self._open_store(_UPLOAD_RETRY_SECONDS), send)
        self._reports: deque[bytes] = deque(maxlen=MOST_REPORTS)  # since the last snapshot that was submitted
        self._saved: Snapshot | None = None  # the last saved state, until it is submitted
        self._restored: Manifest | None = None  # the checkpoint in _restored_folder
        self._restored_folder: Path | None = None  # removed by the next save
        self._size: int | None = None  # of the last saved or restored state
        self._write_seconds = 0.0  # that the last save function took

    def _open_store(self, retry_seconds: float = RETRY_SECONDS) -> ObjectStore:
        from thriftune.object_store.opening import open_objects  # late: imports obstore

        return open_objects(self._run.objects, retry_seconds=retry_seconds)

    # --- saving -----------------------------------------------------------------------------------------

    def save(self, step: int, write: Callable[[Path], object], *, partial: bool = False) -> bool:
        started = time.monotonic()
        folder = self.new_folder()
        write_state(folder, step, write)
        self.take(folder, step, partial=partial)
        self._write_seconds = time.monotonic() - started
        if partial:
            self.submit()
        return False

    def new_folder(self) -> Path:
        """Return the path of a new folder in scratch, which does not exist yet."""
        self._remove_restored()
        return self.scratch / os.urandom(6).hex()

    def take(
        self,
        folder: Path,
        step: int,
        *,
        partial: bool = False,
        command_state: bool = False,
        first_step: int | None = None,
    ) -> None:
        """Take a folder of scratch as the state that was saved last. Raises CheckpointError if it has no file.

        The other arguments are as in Manifest.
        """
        files = state_files(folder, step)
        snapshot = Snapshot(
            step, partial, folder, files, wall_time(), command_state=command_state, first_step=first_step
        )
        replaced, self._saved = self._saved, snapshot
        if replaced is not None:  # its report could not be sent
            shutil.rmtree(replaced.folder, ignore_errors=True)
        self._size = snapshot.size

    def submit(self) -> None:
        snapshot, self._saved = self._saved, None
        if snapshot is None:
            return
        reports: list[str] = []
        with contextlib.suppress(IndexError):
            while True:  # other threads may add reports
                reports.append(self._reports.popleft().decode().rstrip("\n"))
        snapshot.reports = reports
        self._uploads.submit(snapshot)

    def reported(self, report: Reported, number: int) -> None:
        values = report.at, report.trial, report.attempt, number, report.step, report.metrics, report.saved
        self._reports.append(to_line(Reported(*values)))
        saved = self._saved
        if saved is not None and saved.step == report.step and not saved.partial:
            self.submit()

    # --- restoring --------------------------------------------------------------------------------------

    def find(self, share: Share) -> Restored:
        if self._run.rank == 0:
            manifest = self._find([name for name, _ in self._run.checkpoints], stops=self._stops)
            share("checkpoint", manifest.name if manifest else "")
        else:
            name = share("checkpoint", "")
            manifest = self._find([name], stops=lambda: False) if name else None
            if name and manifest is None:
                raise CheckpointError(
                    f"worker {self._run.rank} cannot fetch checkpoint {name}, which worker 0 has fetched"
                )
        if manifest is None:
            return Restored()
        self._size = manifest.size
        self._uploads.reuse_parts_of(manifest)
        return Restored(
            manifest.step, self._restored_folder, manifest.partial, manifest.command_state, manifest.first_step
        )

    def _find(self, names: Sequence[str], stops: Callable[[], bool]) -> Manifest | None:
        """Fetch the first of these checkpoints that is intact, and return its manifest."""

        def wait(seconds: float) -> bool:
            until = time.monotonic() + seconds
            while not stops() and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
            return stops()

        store = PatientStore(
            self._open_store,
            self._warn,
            wait,
            meanwhile="the trial waits for its checkpoint",
            afterwards="the trial goes on",
        )
        flaws: list[str] = []
        try:
            for name in names:
                if (
                    self._restored_folder is not None
                    and self._restored is not None
                    and self._restored.name == name
                ):
                    return self._restored  # restore() is called again
                found = store.call(lambda objects, name=name: self._fetch(objects, name, flaws))  # type: ignore[misc]
                if found is not None:
                    self._warn_of(flaws, f"using checkpoint {name}, of step {found.step}")
                    return found
        except GaveUp:
            raise EndTrial from None
        finally:
            store.close()
        self._warn_of(flaws, "no other checkpoint exists, so the trial starts from the beginning")
        return None

    def _fetch(self, objects: ObjectStore, name: str, flaws: list[str]) -> Manifest | None:
        """Fetch a checkpoint; without success, add its flaw and return None."""
        stored = StoredCheckpoints(objects, self._run.trial)
        folder = self.new_folder()
        try:
            manifest = stored.manifest(name)
            stored.fetch(manifest, folder)
        except DiskFullError:
            raise
        except ObjectMissing:
            flaws.append(f"checkpoint {name} is not in the object store any more")
        except ObjectStoreError:
            raise
        except CheckpointError as error:
            flaws.append(str(error))
        else:
            self._restored, self._restored_folder = manifest, folder
            return manifest
        return None

    def _warn_of(self, flaws: Sequence[str], instead: str) -> None:
        for flaw in flaws:
            self._warn(f"{flaw}; {instead}")

    def _warn(self, message: str) -> None:
        if self._run.rank == 0:
            self._send(Warned(wall_time(), self._run.trial, self._run.attempt, message))

    def _remove_restored(self) -> None:
        folder, self._restored_folder = self._restored_folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    # --- the end ----------------------------------------------------------------------------------------

    def seconds_needed(self) -> float | None:
        if self._size is None:
            return None
        upload = self._uploads.expected_seconds(self._size)
        if upload is None:
            return None
        return self._write_seconds + upload * (2.0 if self._uploads.busy else 1.0)

    def finish(self, seconds: float, time_left: Callable[[], float | None]) -> None:
        self.submit()
        if self._uploads.wait(seconds, time_left):
            return
        why = f"within {seconds:g} s" if time_left() is None else "before the machine was preempted"
        self._warn(f"the last checkpoint could not be uploaded {why}; the trial resumes from the one before")

    def close(self) -> None:
        self._uploads.close()
        if os.getpid() == self._pid:
            shutil.rmtree(self.scratch, ignore_errors=True)
            with contextlib.suppress(OSError):  # another worker's scratch is there
                self.scratch.parent.rmdir()


def remove_scratch(run: Run) -> None:
    """Remove what workers of this rank that were killed have left in the scratch of their trial."""
    scratch = _scratch_of(run)
    for leftover in scratch.glob(f"{run.rank}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with contextlib.suppress(OSError):  # there is none, or another worker's
        scratch.rmdir()


def _scratch_of(run: Run) -> Path:
    return Path(run.folder) / "scratch"
