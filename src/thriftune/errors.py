"""The errors that thriftune raises on purpose.

Each message names the thing and the value that are wrong, and says what to do next.
"""

from __future__ import annotations

from thriftune.common.command_hints import delete_hint


class ThriftuneError(Exception):
    """The base class of all errors that thriftune raises on purpose."""


class SpaceError(ThriftuneError, ValueError):
    """A search space, or a configuration, that is not valid."""


class SettingError(ThriftuneError, ValueError):
    """A setting of tune(), Study, the command line or a study file that is not valid."""


class StudyNotFound(ThriftuneError, LookupError):
    """The store has no study of this name."""


class StudyExists(ThriftuneError):
    """The store already has a study of this name."""


class StudyMismatch(ThriftuneError):
    """The store has a study of this name with another space, objective or constraint."""


class StudyChanged(StudyMismatch):
    """The code that trials run has changed since some trials got their values."""


class StudyBusy(ThriftuneError):
    """Another driver runs this study now."""


class StoreConflict(ThriftuneError):
    """Another driver has written to the log of this driver's study."""


class StoreError(ThriftuneError):
    """The store cannot be opened, read or written, for example because its file is no database."""


class StudyDamaged(StoreError):
    """A study that cannot be read from its store. Other studies of the store are not affected.

    - `reason`: a text that says what is wrong.
    """

    def __init__(self, name: str, store: str, reason: str) -> None:
        super().__init__(name, store, reason)
        self.name, self.store, self.reason = name, store, reason

    def __str__(self) -> str:
        return (
            f"study {self.name!r} in {self.store} is damaged, or was written by a newer thriftune: {self.reason}; "
            f"restore a copy of the store, or remove the study: {delete_hint(self.name, self.store)}"
        )


class StoreFull(StoreError):
    """The disk of the store is full, or the user's quota is used up. Nothing was written."""


class CheckpointError(ThriftuneError):
    """A checkpoint could not be written."""


class DataError(ThriftuneError):
    """A dataset of the study cannot be read or cached on this machine."""


class NoBestTrial(ThriftuneError, LookupError):
    """No trial is the best: none has a value, none meets the constraints, or there are several objectives."""


class NothingLeft(ThriftuneError):
    """The searcher has no configuration left to suggest, for example at the end of a grid."""


class ProfileError(ThriftuneError):
    """The duration of a step could not be measured: the training function failed, or finished no step in time."""


class MissingExtra(ThriftuneError, ImportError):
    """An optional dependency is not installed. The message names the extra that installs it."""


class StudyFailed(ThriftuneError):
    """The study stopped because its first trials all failed with the same error, which is in the message."""


class StudyInterrupted(KeyboardInterrupt):
    """The study stopped cleanly after a request to stop. The message says how to resume it."""


class NoCheckpoint(ThriftuneError, LookupError):
    """The trial has no model to load: it saved nothing, or its checkpoints are removed or damaged."""
