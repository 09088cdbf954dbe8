"""Open, check and delete what a study keeps in an object store."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from thriftune.loop.study_checkpoints import StudyCheckpoints
from thriftune.object_store.access import check_access
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectStore, ObjectStoreError
from thriftune.object_store.reopening import ReopenedObjects
from thriftune.state.spec import Spec
from thriftune.store.protocol import LogShipping, Store
from thriftune.store.study_files import StudyFiles

_DELETE_RETRY_SECONDS = 5.0
"""How long to retry. The user waits, and can delete the study again."""


def open_checkpoints(url: str, spec: Spec, drive: str, shipping: LogShipping | None) -> StudyCheckpoints:
    """Return the driver's part of a study's checkpoints, after checking that the store can be used.

    Raises an ObjectStoreError that says what is missing, such as the bucket or a permission.

    - `url`: of the study. `drive`: the id of this drive.
    - `shipping`: ships the log; None if it is not shipped.
    """
    check_access(open_objects(url))
    return StudyCheckpoints(url, _open_for_long, spec, drive, shipping)


def _open_for_long(url: str) -> ObjectStore:
    return ReopenedObjects(lambda: open_objects(url))


def delete_objects(store: Store, name: str, files: StudyFiles, storage: str) -> None:
    """Delete all objects of a study. The caller holds its lock in its own store.

    Raises StudyBusy if another machine drives it, and an ObjectStoreError if some objects may be left. It may be
    called again then.

    - `files`: of the study. `storage`: the URL below which several studies keep their objects.
    """
    # Imported here, so that nothing else loads it.
    from thriftune.store.shipping import StudyShipping
    from thriftune.store.sqlite import SqliteStore
    from thriftune.store.study_index import StudyIndex

    try:
        objects = open_objects(storage, retry_seconds=_DELETE_RETRY_SECONDS)
        fenced: AbstractContextManager[None] = nullcontext()
        if isinstance(store, SqliteStore):  # its log is shipped, and may have been continued elsewhere
            fenced = StudyShipping(objects, storage, store, name, files.owner).fenced(name)
        with fenced:
            StudyIndex(objects, storage).remove(files.owner, name)
    except ObjectStoreError as error:
        raise type(error)(
            f"study {name!r} is not deleted, as its objects below {files.objects} could not all be deleted: "
            f"{error}. Try again when the object store can be used."
        ) from error
