"""Loading of a study's settings and history from a store.

A study that cannot be read raises StudyDamaged and no other error, so that every command can handle it.
"""

from __future__ import annotations

from dataclasses import fields
from reprlib import repr as short

from thriftune.errors import StudyDamaged
from thriftune.results.models import files_of_trials
from thriftune.state.event_checks import CHECKS
from thriftune.state.history import History
from thriftune.state.spec import KINDS, Spec, Target
from thriftune.store.protocol import Store
from thriftune.store.study_files import StudyFiles


def load_spec(store: Store, name: str) -> Spec:
    """Return the settings of the study. Raises StudyNotFound or StudyDamaged."""
    data = store.spec(name)
    try:
        spec = Spec.from_json(data)
        if spec.name != name:
            raise ValueError(f"they belong to a study named {spec.name!r}")
        for part in (spec, spec.target):
            _check_types(part)
    except Exception as error:  # any kind of error, because damaged data may be anything
        raise StudyDamaged(name, store.url, f"its settings cannot be read ({_reason(error)})") from error
    return spec


def load_history(store: Store, spec: Spec) -> History:
    """Return the history of the study, from its whole log. Raises StudyNotFound or StudyDamaged."""
    return catch_up(new_history(store, spec), store, spec.name)


def new_history(store: Store, spec: Spec) -> History:
    """Return an empty history of the study, whose trials can find their files."""
    files = StudyFiles.of(spec, store)
    return spec.new_history(str(files.folder), files_of_trials(files))


def catch_up(history: History, store: Store, name: str) -> History:
    """Apply the log entries that the history does not have yet, and return the history.

    Raises StudyDamaged; the history is not usable after that.
    """
    entries = store.read(name, after=history.entries)
    try:
        return history.apply_log(entries)
    except Exception as error:  # any kind of error, because damaged entries may be in any order
        number = history.entries + 1
        raise StudyDamaged(name, store.url, f"entry {number} cannot be where it is ({_reason(error)})") from error


def _check_types(part: Spec | Target) -> None:
    """Raise ValueError if a setting has a wrong type. Spec itself checks everything else."""
    for field in fields(part):
        value = getattr(part, field.name)
        check = CHECKS.get(str(field.type))
        if check is not None and not check(value):
            raise ValueError(f"{field.name} is {short(value)}")
    if isinstance(part, Target) and part.kind not in KINDS:
        raise ValueError(f"kind is {short(part.kind)}")


def _reason(error: Exception) -> str:
    """Return the error in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"
