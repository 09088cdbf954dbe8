"""Ship a study's log and files to an object store while the study runs, in a thread of its driver.

The local store stays the first place of everything. If the object store cannot be reached, the study goes on, and
the thread ships later what has come together meanwhile.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from thriftune.errors import StoreConflict
from thriftune.object_store.below import ObjectsBelow
from thriftune.object_store.protocol import ObjectMissing, ObjectStoreError, StoreUnavailable
from thriftune.store.epochs import Claim, Epochs
from thriftune.store.heartbeat import HEARTBEAT_SECONDS, Heartbeat
from thriftune.store.output_objects import OutputShipper
from thriftune.store.shipped_log import ShippedLogWriter
from thriftune.store.sqlite import SqliteStore
from thriftune.store.study_index import RECORD_KEY, StudyIndex, StudyRecord

Say = Callable[[str], object]

SHIP_SECONDS = 3.0
"""Ship new entries this often. A machine that dies with its disk loses about as much; each time costs requests."""

_GATHER_SECONDS = 0.05
"""Wait this long for further entries before a shipment, so that many short trials do not cause one each."""

REQUESTS_SECONDS = 5.0
"""Look this often for requests of other machines, such as `thriftune stop`."""

OUTPUT_SECONDS = 15.0
"""Copy changed output files this often."""

PATIENCE_SECONDS = 30.0
"""Wait at most this long until something that must not be lost is shipped."""

SHORT_PATIENCE_SECONDS = 3.0
"""The same while the object store is known to be away."""

LAST_PATIENCE_SECONDS = 60.0
"""Wait at most this long at the end of a drive until everything is shipped."""

_LAST_RETRY_SECONDS = 1.0
"""Try again this often at the end of a drive."""

_SAY_SECONDS = 5.0
"""Tell the user after this time that the drive waits; at its end, this often."""

_RENTED = "a machine is rented or released"

REQUESTS = "requests/"
FUNCTION = "function.pickle"


class Shipper:
    """Ships one study during one drive.

    - `local`, `local_name`: the store with the log, and the study's name there.
    - `record`: the study, as it was when the drive began.
    - `objects`: of the study's URL.
    - `writer`: ships the log; its epoch has started.
    - `say`: called with warnings, in the thread of the driver.
    """

    def __init__(
        self,
        local: SqliteStore,
        local_name: str,
        index: StudyIndex,
        record: StudyRecord,
        objects: ObjectsBelow,
        writer: ShippedLogWriter,
        heartbeat: Heartbeat,
        claim: Claim,
        say: Say,
    ) -> None:
        self._local, self._local_name = local, local_name
        self._index, self._record = index, record
        self._objects = objects
        self._writer, self._heartbeat, self._claim = writer, heartbeat, claim
        self.say = say
        self.has_files_elsewhere = False  # other machines see the study's folder
        self.restored = False  # the drive began with a log that another machine has shipped
        self._output = OutputShipper(objects)
        self._folder: Path | None = None  # the study's local folder, once it is known
        self._function_stamp: tuple[int, int] | None = None  # time and size of the function that was shipped
        self._due: dict[str, float] = {}  # by task: the monotonic time at which it is next due
        self._messages: SimpleQueue[str] = SimpleQueue()  # of the thread, for the user
        self._changed = threading.Condition()  # guards the attributes below; notified when one changes
        self._urgent = False  # someone waits
        self._give_up_at: float | None = None  # monotonic; None until the end of the drive
        self._done = False  # the thread has ended
        self._away_since: float | None = None  # monotonic time of the first failure in a row
        self._lost: StoreConflict | None = None  # another drive has taken the study over
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)

    def start(self) -> None:
        """Begin to ship."""
        self.take_requests()
        self._due["heartbeat"] = time.monotonic() + HEARTBEAT_SECONDS
        self._thread.start()

    def ship_files(self, folder: Path) -> None:
        """Ship the files in the study's folder, too. Called once the folder is known and belongs to the study."""
        if not self.has_files_elsewhere:
            self._folder = folder
        self.ship_record()

    def ship_record(self) -> None:
        """Ship the study's settings at once. Called after they have changed."""
        self._due["heartbeat"] = 0.0
        self.ship_soon()

    @property
    def has_ended(self) -> bool:
        """Return whether the thread ships nothing any more."""
        return self._done

    def fetch_function(self) -> bytes | None:
        """Return the training function that a drive has stored; None if none has."""
        return self._objects.get(FUNCTION) if self._objects.info(FUNCTION) else None

    def raise_if_lost(self) -> None:
        """Raise StoreConflict if another drive has taken the study over. Also shows what the thread has to say."""
        while not self._messages.empty():
            self.say(self._messages.get())
        if self._lost is not None:
            raise self._lost

    def check(self) -> None:
        """Ask the server whether another drive has taken the study over; raise StoreConflict if so.

        Called before something that a driver must not do any more, such as deleting old checkpoints. Any thread
        may call it.
        """
        if self._lost is not None:
            raise self._lost
        self._writer.check()

    def ship_now(self) -> None:
        """Return once all entries are shipped that the local log has now. Any thread may call it.

        Waits only for a limited time. Raises StoreUnavailable then, and StoreConflict if another drive has taken
        the study over.
        """
        patience = self._patience
        if not self._wait_until_shipped(patience):
            raise StoreUnavailable(f"the log could not be written to {self._objects.url} within {patience:.0f} s")
        if self._lost is not None:
            raise self._lost

    @property
    def _patience(self) -> float:
        return PATIENCE_SECONDS if self._away_since is None else SHORT_PATIENCE_SECONDS

    def _wait_until_shipped(self, seconds: float) -> bool:
        """Wait until all present entries are shipped, or the study is lost; return False if that takes longer."""
        entries = self._local.length(self._local_name)
        with self._changed:
            if self._writer.shipped < entries:
                self._urgent = True
                self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._writer.shipped >= entries or self._lost is not None or self._done, seconds
            )
            return self._writer.shipped >= entries or self._lost is not None

    def ship_soon(self) -> None:
        """Ship all entries that the local log has now, without delay. Does not wait."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()

    def wait_until_shipped(self, what: str = "", at_risk: str = "") -> None:
        """Return once all entries are shipped that the local log has now.

        Waits only for a limited time, and then warns. Raises StoreConflict if another drive has taken over.

        - `what`, `at_risk`: for the warning, as in LogShipping.
        """
        patience = self._patience
        shipped = self._wait_until_shipped(min(patience, _SAY_SECONDS))
        if not shipped and patience > _SAY_SECONDS:
            self.say(f"waiting until {self._objects.url} knows that {what or _RENTED}")
            shipped = self._wait_until_shipped(patience - _SAY_SECONDS)
        self.raise_if_lost()
        if not shipped:
            loss = f"{at_risk} may be lost, too" if at_risk else "look for machines that nobody uses"
            self.say(
                f"{what or _RENTED}, and this could not be written to {self._objects.url} within {patience:.0f} "
                f"s; should this machine be lost with its disk, {loss}"
            )

    def take_requests(self) -> None:
        """Move the requests of other machines to the local store."""
        for info in list(self._objects.list_objects(REQUESTS)):
            with suppress(ObjectMissing, ValueError, TypeError):  # it was taken meanwhile, or is no request
                what, at = json.loads(self._objects.get(info.key))
                self._local.request(self._local_name, str(what), float(at))
            self._objects.delete([info.key])

    def close(self) -> None:
        """Ship what is left, and end the drive in the object store. Called in the thread of the driver."""
        give_up_at = time.monotonic() + LAST_PATIENCE_SECONDS
        with self._changed:
            self._give_up_at = give_up_at
            self._changed.notify_all()
            while not self._done and (left := give_up_at - time.monotonic()) > 0:
                if not self._changed.wait_for(lambda: self._done, min(left, _SAY_SECONDS)):
                    self.say(f"waiting until the study is written to {self._objects.url}")
        if self._lost is not None:
            self._remove_if_deleted()
        self.raise_if_lost()
        if not self._done or self._away_since is not None:
            missing = self._local.length(self._local_name) - self._writer.shipped
            self.say(
                f"the last {missing} entries of the log and the last output of trials could not be "
                f"written to {self._objects.url}; they are in {self._local.url}. Resume the study on this machine "
                "to write them"
            )

    def _remove_if_deleted(self) -> None:
        """Remove what this drive has written to a study that was deleted meanwhile. Nobody else would."""
        with suppress(ObjectStoreError):
            is_claimed = Epochs(self._objects).claimed_at(self._writer.epoch.number) > 0.0
            if not is_claimed and self._objects.info(RECORD_KEY) is None:
                self._objects.delete(info.key for info in self._objects.list_objects())

    # --- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._pass():
                with self._changed:
                    if self._away_since is not None and self._give_up_at is not None:
                        self._changed.wait(_LAST_RETRY_SECONDS)
                    else:
                        self._changed.wait_for(lambda: self._urgent or self._give_up_at is not None, SHIP_SECONDS)
                        self._changed.wait_for(lambda: self._give_up_at is not None, _GATHER_SECONDS)
        finally:
            with self._changed:
                self._done = True
                self._changed.notify_all()

    def _pass(self) -> bool:
        """Ship what is due. Return whether to go on."""
        with self._changed:
            self._urgent, give_up_at = False, self._give_up_at
        try:
            self._ship(last=give_up_at is not None)
        except StoreConflict as error:
            with self._changed:
                self._lost = error
            return False
        except Exception as error:  # whatever it is, the study goes on
            self._failed(error)
            return give_up_at is None or time.monotonic() < give_up_at
        self._succeeded()
        return give_up_at is None

    def _ship(self, *, last: bool) -> None:
        if self._is_due("heartbeat", HEARTBEAT_SECONDS):
            self._writer.check()  # first: the heartbeat may be another drive's by now
            self._heartbeat.beat(self._claim)
            self._write_record(self._claim)
        self._writer.ship(self._local.length(self._local_name))
        with self._changed:
            self._changed.notify_all()
        if self._is_due("requests", REQUESTS_SECONDS):
            self.take_requests()
        if self._folder is not None:
            self._ship_function(self._folder / FUNCTION)
            self._ship_output(self._folder, last=last)
        if last:
            self._writer.check()
            self._write_record(None)
            self._heartbeat.end(self._claim)

    def _ship_function(self, path: Path) -> None:
        try:
            status = path.stat()
        except OSError:  # a study of a command has none
            return
        stamp = status.st_mtime_ns, status.st_size
        if stamp != self._function_stamp:
            self._objects.put(FUNCTION, path.read_bytes())
            self._function_stamp = stamp

    def _ship_output(self, folder: Path, *, last: bool) -> None:
        if last:
            self._output.ship(folder, None)
        elif self._is_due("output", OUTPUT_SECONDS):
            until = time.monotonic() + SHIP_SECONDS  # log and heartbeat must not wait longer
            if not self._output.ship(folder, is_urgent=lambda: self._urgent or time.monotonic() > until):
                self._due["output"] = 0.0  # the rest in the next pass

    def _write_record(self, driver: Claim | None) -> None:
        listing = self._local.listing(self._local_name)
        record = replace(self._record, spec=listing.spec, summary=listing.summary)
        self._index.write(replace(record, entries=self._writer.shipped, driver=driver))

    def _is_due(self, task: str, seconds: float) -> bool:
        """Return whether a task is due, and if so, when it is due next: in this many seconds."""
        now = time.monotonic()
        if now < self._due.get(task, 0.0):
            return False
        self._due[task] = now + seconds
        return True

    def _failed(self, error: Exception) -> None:
        self._due.clear()  # other tasks of this pass were left out
        if self._away_since is None:
            self._messages.put(
                f"{self._objects.url} cannot be written ({error}); the study goes on, and it is tried again"
            )
            with self._changed:
                self._away_since = time.monotonic()
                self._changed.notify_all()

    def _succeeded(self) -> None:
        if self._away_since is not None:
            self._messages.put(f"{self._objects.url} can be written again, and has everything that it missed")
            with self._changed:
                self._away_since = None
