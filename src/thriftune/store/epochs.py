"""Decide which drive owns a study's shipped log.

    epochs/000002.json               the claim of epoch 2: which drive it belongs to, created once
    epochs/000002-3fa9c1d2.started   readers use this drive's log from now on; the number of entries it began with

Each drive has an epoch of its own, with the next number. It claims the epoch, then reads the log of the newest
epoch that has started, then ships a copy of it to its own epoch, and then starts. From its claim on, the drives
of all older epochs have lost the study. Each of them looks for a newer claim after it has shipped something, and
before it relies on it. So what a drive relies on was shipped before the newer drive's claim, and therefore before
the newer drive read the log. A drive that was paused for days, and then goes on, writes to its own epoch only,
where nobody reads.

Some servers ignore that an object is to be created and not replaced. Two drives may then claim one number. The
claim has one content, so that only one of the two finds itself there later; the other has lost.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from dataclasses import asdict, dataclass
from typing import NamedTuple

from thriftune.object_store.protocol import ObjectMissing, ObjectStore
from thriftune.store.protocol import DriverInfo

PREFIX = "epochs/"

_CLAIM = re.compile(r"epochs/(\d{6,})\.json")
_STARTED = re.compile(r"epochs/(\d{6,})-([0-9a-f]{8})\.started")


class Epoch(NamedTuple):
    """A drive's epoch. Epochs of greater numbers are newer."""

    number: int
    drive: str

    @property
    def name(self) -> str:
        return f"{self.number:06}-{self.drive}"


@dataclass(frozen=True, slots=True)
class Claim:
    """The content of a claim: the drive, and the process that makes it."""

    drive: str
    pid: int
    host: str
    since: float

    @property
    def driver(self) -> DriverInfo:
        return DriverInfo(self.pid, self.host, self.since)


UNKNOWN = Claim("", 0, "an unknown host", 0.0)
"""Stands for a claim that cannot be read."""


def new_claim() -> Claim:
    """Return a claim of this process, for a new drive."""
    return Claim(secrets.token_hex(4), os.getpid(), os.uname().nodename, time.time())


class Epochs:
    """The epochs of one study. `objects`: of the study's URL."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def claim(self, claim: Claim) -> tuple[Epoch, Claim | None]:
        """Claim the next epoch. Return it with None; or else the epoch that another has claimed meanwhile."""
        number = self._last_number() + 1
        if self._objects.create(_claim_key(number), json.dumps(asdict(claim)).encode()):
            return Epoch(number, claim.drive), None
        other = self._claim(number)
        return Epoch(number, other.drive if other else ""), other

    def claimed_at(self, number: int) -> float:
        """Return when an epoch was claimed, by the server's clock; 0 for one that was not."""
        info = self._objects.info(_claim_key(number))
        return info.modified_at if info else 0.0

    def start(self, epoch: Epoch, entries: int) -> None:
        """Make readers use this epoch's log. `entries`: how many it has."""
        self._objects.put(_started_key(epoch), b"%d" % entries)

    def entries_at_start(self, epoch: Epoch) -> int:
        """Return how many entries the log of an epoch had at its start; 0 if a newer one has replaced it."""
        try:
            return int(self._objects.get(_started_key(epoch)))
        except (ObjectMissing, ValueError):
            return 0

    def newer_than(self, epoch: Epoch) -> Claim | None:
        """Return the claim of a drive that has taken the study over from this epoch; None if none has."""
        own = self._claim(epoch.number)
        if own is None or own.drive != epoch.drive:
            return own or UNKNOWN
        return self._claim(epoch.number + 1)

    def newest_started(self) -> Epoch | None:
        """Return the epoch whose log readers use; None if none has started.

        Does not trust that the list of objects is up to date: it also tries the numbers after the last one.
        """
        numbers, started = self._listed()
        number = max(numbers, default=0)
        while (claim := self._claim(number + 1)) is not None:
            number += 1
            if self._objects.info(_started_key(Epoch(number, claim.drive))):
                started.append(Epoch(number, claim.drive))
        if not started:
            return None
        newest = [epoch for epoch in started if epoch.number == max(started).number]
        if len(newest) > 1 and (claim := self._claim(newest[0].number)):
            newest = [epoch for epoch in newest if epoch.drive == claim.drive] or newest
        return newest[-1]

    def older_markers(self, epoch: Epoch) -> list[str]:
        """Return the keys of the started markers of all older epochs, which nobody needs any more."""
        return [_started_key(each) for each in self._listed()[1] if each.number < epoch.number]

    def _last_number(self) -> int:
        number = max(self._listed()[0], default=0)
        while self._objects.info(_claim_key(number + 1)):
            number += 1
        return number

    def _listed(self) -> tuple[list[int], list[Epoch]]:
        """Return the numbers of all claims, and the epochs that have started."""
        keys = [info.key for info in self._objects.list_objects(PREFIX)]
        started = [Epoch(int(match[1]), match[2]) for match in map(_STARTED.fullmatch, keys) if match]
        claimed = [int(match[1]) for match in map(_CLAIM.fullmatch, keys) if match]
        return claimed + [epoch.number for epoch in started], sorted(started)

    def _claim(self, number: int) -> Claim | None:
        try:
            return Claim(**json.loads(self._objects.get(_claim_key(number))))
        except ObjectMissing:
            return None
        except (ValueError, TypeError):
            return UNKNOWN


def _claim_key(number: int) -> str:
    return f"{PREFIX}{number:06}.json"


def _started_key(epoch: Epoch) -> str:
    return f"{PREFIX}{epoch.name}.started"
