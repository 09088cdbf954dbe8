"""Ship a study whose files are in an object store while this process drives it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from thriftune.engines import pickled
from thriftune.state.spec import Spec
from thriftune.store.opening import is_object_store
from thriftune.store.protocol import Store
from thriftune.store.study_files import StudyFiles

if TYPE_CHECKING:
    from thriftune.store.shipper import Say, Shipper

_FETCH_SECONDS = 3.0
"""Look this often for new output in an object store. Each time costs several requests."""


@contextmanager
def shipping(store: Store, spec: Spec, say: Say) -> Iterator[Shipper | None]:
    """Ship the study during a `with` block, in which this process is its driver. Yield None for other studies.

    - A store in an object store ships all its studies itself.
    - A study in a local store is shipped if its storage is in an object store. If another machine has continued
      it, its log there replaces the one in the local store.
    """
    if not is_object_store(store.url) and not is_object_store(spec.storage):
        yield None
        return
    # Imported here, so that other studies do not load it.
    from thriftune.store.object_url_store import ObjectUrlStore
    from thriftune.store.sqlite import SqliteStore

    if isinstance(store, ObjectUrlStore):
        shipper = store.shipper(spec.name)
        shipper.say = say
        yield shipper
    elif isinstance(store, SqliteStore):
        from thriftune.object_store.opening import open_objects
        from thriftune.object_store.reopening import ReopenedObjects
        from thriftune.store.shipping import StudyShipping

        objects = ReopenedObjects(lambda: open_objects(spec.storage))
        study = StudyShipping(objects, spec.storage, store, spec.name, spec.id)
        with study.drive(study.registered(spec.name, store.listing(spec.name)), say) as shipper:
            yield shipper
    else:
        yield None


def fetch_function(shipper: Shipper, files: StudyFiles) -> None:
    """Fetch the training function of a study that another machine has begun, or continued since."""
    if shipper.restored or not files.function.exists():
        data = shipper.fetch_function()
        if data is not None:
            files.claim()
            pickled.write(files.function, data)


def fetch_output(store: Store, name: str, trial: int | None = None) -> float:
    """Fetch the output files of a trial, or of all, if the store is in an object store.

    Returns after how many seconds there may be more: 0 for a local store.
    """
    if not is_object_store(store.url):
        return 0.0
    from thriftune.store.object_url_store import ObjectUrlStore

    if isinstance(store, ObjectUrlStore):
        store.fetch_output(name, trial)
    return _FETCH_SECONDS
