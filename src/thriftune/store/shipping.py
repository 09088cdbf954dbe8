"""Take a study over whose log is in an object store, and ship it while this process drives it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from thriftune.errors import StoreConflict, StudyBusy
from thriftune.object_store.protocol import ObjectMissing, ObjectStore, ObjectStoreError
from thriftune.store.epochs import Claim, Epoch, Epochs, new_claim
from thriftune.store.heartbeat import LIFETIME_SECONDS, Heartbeat, ServerClock
from thriftune.store.messages import busy
from thriftune.store.protocol import StudyListing
from thriftune.store.shipped_log import ShippedLogReader, ShippedLogWriter
from thriftune.store.shipper import Say, Shipper
from thriftune.store.sqlite import SqliteStore
from thriftune.store.study_index import RECORD_KEY, StudyIndex, StudyRecord, decode, study_objects


class StudyShipping:
    """The right to drive one study of an object store, and its shipping.

    Kept between the drives of a process. A study that is asked and told thus claims no epoch for each question.

    - `objects`: of the store's URL; `url`: as the user has written it.
    - `local`, `local_name`: the store on this machine, and the study's name there. Its driver is this process.
    - `study`: the study's id.
    """

    def __init__(self, objects: ObjectStore, url: str, local: SqliteStore, local_name: str, study: str) -> None:
        self._url = url
        self._study = study
        self._objects = study_objects(objects, study)
        self._local, self._local_name = local, local_name
        self._index = StudyIndex(objects, url)
        self._heartbeat = Heartbeat(self._objects, ServerClock(objects))
        self._claim: Claim | None = None  # of the last drive, if its epoch has started
        self._writer: ShippedLogWriter | None = None  # of that epoch
        self._restored_log = False  # the drive began with a log that another machine has shipped

    @property
    def claim(self) -> Claim:
        """The claim of this process, during a drive."""
        assert self._claim is not None
        return self._claim

    @contextmanager
    def drive(self, record: StudyRecord, say: Say) -> Iterator[Shipper]:
        """Ship the study during a `with` block. First, put the log into the local store if another has it newer.

        Raises StudyBusy if another driver lives, StudyDamaged if the log cannot be read, and StoreConflict at the
        end if another driver has taken the study over meanwhile.
        """
        self.check_free(record.name)
        self._restored_log = False
        writer = self._continued() or self._taken_over(record, say)
        self._index.write(replace(record, driver=self.claim, entries=writer.shipped))
        shipper = Shipper(
            self._local,
            self._local_name,
            self._index,
            record,
            self._objects,
            writer,
            self._heartbeat,
            self.claim,
            say,
        )
        shipper.restored = self._restored_log
        shipper.start()
        try:
            yield shipper
        except BaseException:
            with suppress(StoreConflict):  # the error of the block tells more
                shipper.close()
            raise
        else:
            shipper.close()
        finally:
            if not shipper.has_ended:  # it may still ship, so the next drive needs an epoch of its own
                self._claim = self._writer = None

    def registered(self, name: str, listing: StudyListing) -> StudyRecord:
        """Return the study's record in the object store, for a study whose own store is a local one.

        Adds the study if it is not there. Raises StudyExists if another study has its name.
        """
        record = StudyRecord(self._study, name, listing.created_at, listing.spec, listing.summary)
        try:
            known = decode(self._study, name, self._objects.get(RECORD_KEY))
        except ObjectMissing:
            self._index.write(record)
        else:
            record = replace(record, entries=known.entries)
            if known.name != name:  # it was renamed in its own store
                self._index.rename(known, name, listing.spec)
        self._index.register(record)
        return record

    def check_free(self, name: str) -> None:
        """Raise StudyBusy if a driver lives that is not one of this local store.

        Another driver of this local store has ended, because this process holds the study's lock there.
        """
        living = self._heartbeat.living()
        if living is not None and living.drive != self._local.shipped_by(self._local_name):
            left = self._heartbeat.seconds_left()
            raise StudyBusy(_busy(name, self._url, living, left))

    @contextmanager
    def fenced(self, name: str) -> Iterator[None]:
        """Keep drivers of all machines from the study while it is renamed or deleted in a `with` block.

        Takes it from those that are believed dead. Raises StudyBusy if one lives.
        """
        self.check_free(name)
        claim = new_claim()
        self._heartbeat.beat(claim)
        try:
            self._claim_epoch(name, claim)
            self._claim = self._writer = None
            yield
        finally:
            with suppress(ObjectStoreError):  # it ends by itself after a while
                self._heartbeat.end(claim)

    def _continued(self) -> ShippedLogWriter | None:
        """Return the writer of the last drive of this process; None if another drive has come since."""
        writer, claim = self._writer, self._claim
        if writer is None or claim is None:
            return None
        self._heartbeat.beat(claim)
        if Epochs(self._objects).newer_than(writer.epoch) is not None:
            return None
        return writer

    def _taken_over(self, record: StudyRecord, say: Say) -> ShippedLogWriter:
        """Claim the next epoch, and start it with the newest log. Return its writer."""
        self._claim = self._writer = None
        claim = new_claim()
        self._heartbeat.beat(claim)
        try:
            epoch = self._claim_epoch(record.name, claim)
            writer = self._restored(record, epoch, say)
        except BaseException:
            self._heartbeat.end(claim)
            raise
        self._local.set_shipped_by(self._local_name, claim.drive)
        self._claim, self._writer = claim, writer
        return writer

    def _restored(self, record: StudyRecord, epoch: Epoch, say: Say) -> ShippedLogWriter:
        """Put the newest log into the local store, start the epoch with it, and return the epoch's writer."""
        local, name = self._local, self._local_name
        newest, lines = ShippedLogReader(self._objects, record.name, self._url).read(record.entries)
        if newest is not None and not self._continues(newest, len(lines)):
            if local.length(name):
                say(f"the log of study {record.name!r} in {self._url} replaces the older one here")
            local.replace_log(name, lines, record.summary)
            self._restored_log = True
        writer = ShippedLogWriter(
            self._objects, epoch, lambda first, entries: local.lines(name, first, entries), record.name
        )
        writer.start(local.length(name))
        return writer

    def _continues(self, newest: Epoch, entries: int) -> bool:
        """Return whether the local log goes on where the shipped one ends."""
        same = self._local.shipped_by(self._local_name) == newest.drive
        return same and self._local.length(self._local_name) >= entries

    def _claim_epoch(self, name: str, claim: Claim) -> Epoch:
        epochs = Epochs(self._objects)
        while True:
            epoch, other = epochs.claim(claim)
            if other is None:
                return epoch
            left = self._heartbeat.seconds_left_of(epochs.claimed_at(epoch.number))
            if left > 0:  # two drives have begun at once, and the other was first
                raise StudyBusy(_busy(name, self._url, other, left))


def _busy(name: str, url: str, claim: Claim, seconds_left: float) -> str:
    return (
        f"{busy(name, url, claim.driver)}. If that process or its machine is dead, wait "
        f"{max(1.0, seconds_left):.0f} s, until its last heartbeat is {LIFETIME_SECONDS:.0f} s old"
    )
