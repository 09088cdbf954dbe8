"""What can go wrong? Every error thriftune raises on purpose.

A message names the thing, the value and the way out, so that nobody has to read the code to go on.
"""

from __future__ import annotations


class ThriftuneError(Exception):
    """The root of every error thriftune raises on purpose."""


class SpaceError(ThriftuneError, ValueError):
    """A search space, or a configuration of one, that cannot be."""


class SettingError(ThriftuneError, ValueError):
    """An argument of tune(), Study or a study file that cannot be used."""


class StudyNotFound(ThriftuneError, LookupError):
    """No study of that name in that store."""


class StudyExists(ThriftuneError):
    """A study of that name is already there."""


class StudyMismatch(ThriftuneError):
    """A study of that name is there, but asks another question (another space, objective or constraint)."""


class StudyChanged(StudyMismatch):
    """The code that the study's trials run has changed since some of them got their values."""


class StudyBusy(ThriftuneError):
    """Another driver is running this study now."""


class StoreConflict(ThriftuneError):
    """The log has grown behind the driver's back: another driver wrote to it."""


class StoreError(ThriftuneError):
    """The store cannot be opened, read or written (a full disk, a file that is no database)."""


class StudyDamaged(StoreError):
    """Raised for a study that cannot be read from its store. Other studies of the store are not affected.

    - `what`: what is wrong, in words.
    """

    def __init__(self, name: str, store: str, what: str) -> None:
        super().__init__(name, store, what)
        self.name, self.store, self.what = name, store, what

    def __str__(self) -> str:
        return (
            f"study {self.name!r} in {self.store} is damaged, or was written by a newer thriftune: {self.what}; "
            f"restore a copy of the store, or remove the study: thriftune delete {self.name} --store {self.store}"
        )


class StoreFull(StoreError):
    """The disk of the store, or the user's quota there, has no room. Nothing was written."""


class CheckpointError(ThriftuneError):
    """A checkpoint could not be written."""


class NoBestTrial(ThriftuneError, LookupError):
    """None is the best: no trial has a value yet, none meets the constraints, or there are several objectives."""


class NothingLeft(ThriftuneError):
    """The searcher has no further configuration to suggest, as when a grid is used up."""


class ProfileError(ThriftuneError):
    """How long a step takes could not be measured: the training function failed, or did none in the time."""


class MissingExtra(ThriftuneError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class StudyFailed(ThriftuneError):
    """The study has stopped, as its first trials have all failed with the same error; the message has it."""


class StudyInterrupted(KeyboardInterrupt):
    """The study was told to stop and has stopped cleanly; the message says how to resume it."""


class NoCheckpoint(ThriftuneError, LookupError):
    """There is no model to load: the trial saved nothing, or its checkpoints are gone or damaged."""
