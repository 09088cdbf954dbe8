"""Open, check and delete what a study keeps in an object store."""

from __future__ import annotations

from thriftune.loop.study_checkpoints import StudyCheckpoints
from thriftune.object_store.access import check_access
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectStoreError
from thriftune.state.spec import Spec
from thriftune.store.protocol import LogShipping

_DELETE_RETRY_SECONDS = 5.0
"""How long to retry. The user waits, and can delete the study again."""


def open_checkpoints(url: str, spec: Spec, drive: str, shipping: LogShipping | None) -> StudyCheckpoints:
    """Return the driver's part of a study's checkpoints, after checking that the store can be used.

    Raises an ObjectStoreError that says what is missing, such as the bucket or a permission.

    - `url`: of the study. `drive`: the id of this drive.
    - `shipping`: ships the log; None if it is not shipped.
    """
    check_access(open_objects(url))
    return StudyCheckpoints(url, open_objects, spec, drive, shipping)


def delete_objects(url: str, study: str) -> None:
    """Delete all objects of a study. Raises an ObjectStoreError if some may be left; it may be called again.

    `url`: of the study.
    """
    try:
        objects = open_objects(url, retry_seconds=_DELETE_RETRY_SECONDS)
        objects.delete(each.key for each in objects.list_objects())
    except ObjectStoreError as error:
        raise type(error)(
            f"study {study!r} is not deleted, as its objects below {url} could not all be deleted: {error}. "
            "Try again when the object store can be used."
        ) from error
