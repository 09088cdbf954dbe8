"""Create a study in its store, or open the one that exists, with the limits that the user gives now."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

from thriftune.common.clock import WallClock
from thriftune.errors import StudyExists, StudyMismatch, StudyNotFound
from thriftune.launch.changed_code import check_code
from thriftune.launch.fingerprint import of_target
from thriftune.launch.renaming import set_aside
from thriftune.launch.study_data import with_data_versions, with_data_versions_if_found
from thriftune.launch.warm_start import (
    KnownStudy,
    Source,
    check_not_itself,
    knowledge,
    name_of,
)
from thriftune.results.loading import load_history, load_spec
from thriftune.settings.deadlines import check_ahead
from thriftune.settings.study_paths import store_and_name
from thriftune.state.events import Event
from thriftune.state.spec import Spec
from thriftune.state.stored_settings import ChangePolicy
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store
from thriftune.store.study_files import StudyFiles, storage_of


def open_study(
    store: Store,
    given: Spec,
    sources: Sequence[Source] = (),
    initial_events: Sequence[Event] = (),
    *,
    fresh: bool = False,
    on_change: ChangePolicy = "stop",
    say: Callable[[str], object] = warnings.warn,
) -> Spec:
    """Create the study in the store, or open the one of that name. Return its spec with the limits of `given`.

    The spec of a study that exists is not written yet, as another process may be driving the study. A new study
    is written at once with its first events: what it learns from its sources, and `initial_events`. A study that
    exists gets `initial_events` from drive().

    - `sources`: the studies of a warm start.
    - `fresh`: give the existing study another name, and create a new one.
    - `on_change`: what to do if the code of its trials has changed; see check_code().
    - `say`: called with messages for the user.
    """
    if not given.code:
        given = replace(given, code=of_target(given.target))
    given = replace(given, warm_start=tuple(dict.fromkeys(map(name_of, sources))))
    existing = _find(store, given.name)
    starts_over = fresh and existing is not None
    if starts_over:
        existing = None
    given = with_data_versions(given) if existing is None else with_data_versions_if_found(given)
    check_not_itself(sources, given.name, existing.id if existing else None)
    now = WallClock().now()
    # The same deadline may be given again after it has passed, as when a script is run again.
    if existing is None or given.deadline_at != existing.deadline_at:
        check_ahead(given, now)
    if existing is None:
        learned = knowledge([_read_source(source, store) for source in sources], given, now)
        history = given.new_history()
        first_events = [event for event in (*learned, *initial_events) if history.apply(event)]
        if starts_over:  # only now, as nothing is refused any more
            old_name = set_aside(store, given.name)
            say(f"study {given.name!r} starts over; the old study is kept as {old_name!r}")
        try:
            store.create(given.name, given.to_json(), now, first_events)
            return given
        except StudyExists:  # another process created it just now
            existing = load_spec(store, given.name)
    _check_same_question(store, existing, given)
    check_code(store, existing, given, on_change, say)
    return existing.with_limits_of(given)


def _check_same_question(store: Store, existing: Spec, given: Spec) -> None:
    """Raise StudyMismatch if the two specs differ in something that never changes."""
    differences = existing.difference(given)
    if given.storage and given.storage != storage_of(existing, store) and _has_files(store, existing):
        differences.append(f"storage: was {storage_of(existing, store) or store.folder}, is now {given.storage}")
    if not differences:
        return
    learn = ""
    if not given.warm_start and (given.metric, given.maximize) == (existing.metric, existing.maximize):
        learn = f', with warm_start="{existing.name}" if it should learn from the existing study'
    raise StudyMismatch(
        f"study {given.name!r} exists and differs: {'; '.join(differences)}. "
        f"Give this one another name{learn}, or start over with fresh=True (--fresh), which keeps the old study "
        "under another name"
    )


def _has_files(store: Store, spec: Spec) -> bool:
    """Return whether the study may have files of trials, so that its storage cannot change."""
    files = StudyFiles.of(spec, store)
    return bool(load_history(store, spec).created_ids) if files.objects else files.has_trials


def _find(store: Store, name: str) -> Spec | None:
    try:
        return load_spec(store, name)
    except StudyNotFound:
        return None


def _read_source(source: Source, store: Store) -> KnownStudy:
    """Load a study that the new one learns from."""
    if isinstance(source, KnownStudy):
        return source
    path, name = store_and_name(source)
    try:
        with open_store(path, create=False) if path else contextlib.nullcontext(store) as opened:
            spec = load_spec(opened, name)
            return KnownStudy(spec, load_history(opened, spec))
    except StudyNotFound as error:
        raise StudyNotFound(f"warm_start: {error} (PATH:NAME names a study in another store)") from None
