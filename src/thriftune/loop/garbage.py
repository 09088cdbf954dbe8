"""Tell which objects of a trial's checkpoints no attempt and no reader needs. Nothing here deletes anything.

Workers create objects at the same time, so a listing is out of date when it is used. Two rules make that harmless.
First, what a running attempt has created after the last of its checkpoints in the log is no garbage. Second, a
checkpoint reuses only parts of the one before it in its attempt, or of the one that its attempt was given. Both
are kept. So a part is garbage if no manifest of a kept checkpoint names it, and no running attempt has created it
since. What drives have created that the log does not know is no garbage either: they have taken the study over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_MANIFEST_SUFFIX = ".json"
_NAME = re.compile(r"(\d+)-([0-9a-f]+)/(\d+)")


class CheckpointName(NamedTuple):
    """The parts of a checkpoint's name, as checkpoint_objects.checkpoint_name() composes them."""

    attempt: int
    drive: str
    number: int

    @classmethod
    def parse(cls, name: str) -> CheckpointName | None:
        """Return the parts of a name; None if no attempt has given it."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), match[2], int(match[3]))


@dataclass(frozen=True, slots=True)
class WantedCheckpoints:
    """The checkpoints of one trial as the log knows them at one moment.

    - `names`: the checkpoints to keep, with those that the running attempt was given.
    - `drive`: the id of the drive that asks.
    - `earlier_drives`: the ids of the drives before it. Another drive, which the log does not know, has taken the
      study over.
    - `attempts`: how many attempts the trial has had. This drive may start later ones at any time.
    - `running`: whether the last of them runs.
    - `newest`: the name of the running attempt's last checkpoint in the log; empty without one.
    """

    trial: int
    names: frozenset[str]
    drive: str
    earlier_drives: frozenset[str]
    attempts: int = 0
    running: bool = False
    newest: str = ""

    def may_be_in_use(self, name: str) -> bool:
        """Return whether a running or a later attempt may have created this checkpoint since that moment."""
        parsed = CheckpointName.parse(name)
        if parsed is None or parsed.drive in self.earlier_drives:
            return False
        if parsed.drive != self.drive:
            return True
        if parsed.attempt == self.attempts and self.running:
            newest = CheckpointName.parse(self.newest)
            return newest is None or parsed.number > newest.number
        return parsed.attempt > self.attempts


class Garbage(NamedTuple):
    """Keys to delete, relative to the prefix of the trial's checkpoints: all manifests first, then the parts."""

    manifests: list[str]
    parts: list[str]


def may_have_garbage(keys: Iterable[str], wanted: WantedCheckpoints) -> bool:
    """Return whether a listing has parts that are garbage unless the manifest of a kept checkpoint names them.

    The parts that were uploaded for a kept checkpoint are not counted: it names them.
    """
    creators = {key.rpartition("/")[0] for key in keys if not key.endswith(_MANIFEST_SUFFIX)}
    return any(not wanted.may_be_in_use(creator) for creator in creators - wanted.names)


def garbage(
    keys: Iterable[str], wanted: WantedCheckpoints, parts: Mapping[str, Collection[str] | None]
) -> Garbage:
    """Return the keys of a listing that are garbage.

    - `keys`: relative to the prefix of the trial's checkpoints.
    - `parts`: the parts that each kept checkpoint names. None if its manifest is damaged: then all parts that were
      uploaded for it stay. A checkpoint whose manifest is gone is left out.
    """
    needed = {part for named in parts.values() for part in named or ()}
    damaged = {name for name, named in parts.items() if named is None}
    # The next checkpoint of the running attempt may reuse the parts that this one names.
    unknown = bool(wanted.newest) and parts.get(wanted.newest) is None
    found = Garbage([], [])
    for key in keys:
        if key.endswith(_MANIFEST_SUFFIX):
            name = key.removesuffix(_MANIFEST_SUFFIX)
            if name not in wanted.names and not wanted.may_be_in_use(name):
                found.manifests.append(key)
        elif key not in needed and not unknown:
            creator = key.rpartition("/")[0]
            if creator not in damaged and not wanted.may_be_in_use(creator):
                found.parts.append(key)
    return found
