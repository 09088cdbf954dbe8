"""The objects of which a trial's checkpoints consist in an object store.

    trials/7/checkpoints/2-3fa9c1d2/000004.json       the manifest of checkpoint 4 of attempt 2
    trials/7/checkpoints/2-3fa9c1d2/000004/HASH       a part of a file, which the manifest names

A checkpoint counts once its manifest exists. The manifest is created last, and never changed. It names each file
with the keys of its parts, in order. The parts of unchanged files are those of the checkpoint before: the same
hash is not uploaded twice in a row. A part's key contains the checkpoint that uploaded it first, so that a part
that was deleted and is uploaded again has another key.

The name of an attempt contains the drive that started it, here 3fa9c1d2. So two attempts of one number, which two
drivers have started because they did not know of each other, never write the same key.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PART_BYTES = 32 << 20
"""The size of each part of a file but the last. Parts are uploaded in parallel, and each in one request: so no
upload can be aborted halfway, and remain invisible and billed."""

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a checkpoint. `parts`: the keys of its parts relative to the trial's prefix, in order.

    A name that ends with a slash is an empty folder, without parts.
    """

    size: int
    parts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint consists of.

    - `name`: the checkpoint's name, from checkpoint_name().
    - `step`: the last step that is complete in it.
    - `partial`: it was saved in the middle of the step after `step`.
    - `saved_at`: unix seconds, by the worker's clock.
    - `files`: by name, relative to the folder that was saved.
    - `reports`: the reports since the checkpoint before, each encoded by messages.to_line().
    - `command_state`: the files are those of a command's own folder, THRIFTUNE_CHECKPOINT_DIR. Otherwise a save
      function wrote them.
    - `first_step`: 0 or 1, if a command counts its steps from it; None if that is not known.
    """

    name: str
    trial: int
    attempt: int
    step: int
    partial: bool
    saved_at: float
    files: Mapping[str, StoredFile]
    reports: Sequence[str] = field(default=())
    command_state: bool = False
    first_step: int | None = None

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(each.size for each in self.files.values())

    @property
    def parts(self) -> set[str]:
        """The keys of all parts."""
        return {part for each in self.files.values() for part in each.parts}


def attempt_prefix(attempt: int, drive: str) -> str:
    """Return the beginning of the names of an attempt's checkpoints. `drive`: the id of the drive that runs it."""
    return f"{attempt}-{drive}/"


def checkpoint_name(attempt: int, drive: str, number: int) -> str:
    """Return the name of a checkpoint. `number`: counts the checkpoints of the attempt from 1."""
    return f"{attempt_prefix(attempt, drive)}{number:06}"


def trial_prefix(trial: int) -> str:
    """Return the beginning of the keys of a trial's checkpoints. Keys are relative to the study's URL."""
    return f"trials/{trial}/checkpoints/"


def manifest_key(trial: int, name: str) -> str:
    """Return the key of a checkpoint's manifest."""
    return f"{trial_prefix(trial)}{name}.json"


def part_key(trial: int, part: str) -> str:
    """Return the key of a part. `part`: as a manifest names it, "NAME/HASH"."""
    return f"{trial_prefix(trial)}{part}"


def part_hash(part: str) -> str:
    """Return the hash of a part's content, with which its name ends."""
    return part.rpartition("/")[2]


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as a line of JSON, followed by a line with its CRC-32."""
    data: dict[str, Any] = {"format": _FORMAT}
    for name in ("name", "trial", "attempt", "step", "partial", "saved_at", "command_state", "first_step"):
        data[name] = getattr(manifest, name)
    data["files"] = {name: [each.size, *each.parts] for name, each in manifest.files.items()}
    data["reports"] = list(manifest.reports)
    line = json.dumps(data).encode()
    return b"%s\n%08x" % (line, zlib.crc32(line))


def decode(data: bytes) -> Manifest:
    """Return the manifest that encode() has encoded. Raise ValueError for anything else."""
    line, _, checksum = data.rpartition(b"\n")
    if checksum != b"%08x" % zlib.crc32(line):
        raise ValueError("the manifest is incomplete")
    values = json.loads(line)
    if values["format"] != _FORMAT:
        raise ValueError(f"this version of thriftune does not know format {values['format']}")
    files = {name: StoredFile(size, tuple(parts)) for name, (size, *parts) in values.pop("files").items()}
    del values["format"]
    return Manifest(files=files, **values)
