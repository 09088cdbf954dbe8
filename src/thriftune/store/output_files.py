"""Write and read the output of attempts, in files of limited size.

The files are in the trial's folder:

    output/2.log            the first 1 MiB of attempt 2
    output/2.7340032.log    a later part, which begins after 7340032 bytes of output; only the last two exist
    output/2-rank1.log      the output of the worker with rank 1 in a gang

The name of each later part contains the position at which it begins. A reader therefore knows how many bytes
between two parts were removed, even if the writer was killed. An attempt that prints nothing has no file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

PART_BYTES = 1 << 20
"""The largest size of a part: most outputs fit into one part, and a reader's memory holds several."""

LAST_PARTS = 2
"""The number of parts kept after the first: one complete part, and the one being written."""

_READ_BYTES = 1 << 18
"""The size of one read."""

_NAME = re.compile(r"(\d+)(?:-rank(\d+))?(?:\.(\d+))?\.log")


class OutputWriter:
    """Writes the output of one worker of one attempt."""

    def __init__(self, trial_folder: str | Path, attempt: int, rank: int = 0) -> None:
        self._folder = _folder(trial_folder)
        self._stem = f"{attempt}-rank{rank}" if rank else str(attempt)
        self._offset = 0  # number of bytes printed until now, stored or discarded
        self._room = 0  # number of bytes that still fit in the open part; 0 if none is open
        self._fd = -1
        self._last: list[Path] = []  # all existing parts after the first, in order

    def write(self, output: bytes) -> OSError | None:
        """Write output; return the error if some of it cannot be written.

        The rest of the output is then discarded. The next call begins a new part, because the disk may have space
        again.
        """
        end = self._offset + len(output)
        try:
            while output:
                if self._room == 0:
                    self._begin_part()
                written = os.write(self._fd, output[: self._room])
                output = output[written:]
                self._offset, self._room = self._offset + written, self._room - written
                if len(self._last) > LAST_PARTS:  # after the write, so that no part is removed for an empty one
                    self._last.pop(0).unlink(missing_ok=True)
        except OSError as error:
            if self._last and self._room == PART_BYTES:
                self._last.pop().unlink(missing_ok=True)
            self._offset, self._room = end, 0
            return error
        return None

    def close(self) -> None:
        """Close the open part, if there is one."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._room = -1, 0

    def _begin_part(self) -> None:
        self.close()
        if self._offset == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{self._stem}.log"
        else:
            path = self._folder / f"{self._stem}.{self._offset}.log"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._room = PART_BYTES
        if self._offset:
            self._last.append(path)


class OutputReader:
    """Reads the output of one worker of one attempt, even while it is being written."""

    def __init__(self, trial_folder: str | Path, attempt: int, rank: int = 0) -> None:
        self._folder = _folder(trial_folder)
        self._attempt, self._rank = attempt, rank
        self._offset = 0  # the position after the last byte that was returned or skipped

    def read(self) -> bytes:
        """Return the output since the last call.

        A line in the output says how many bytes are not stored, if any.
        """
        read: list[bytes] = []
        for begins, path in self._parts():
            try:
                with path.open("rb") as file:
                    if begins > self._offset:
                        between = b"" if read and read[-1].endswith(b"\n") else b"\n"
                        left_out = begins - self._offset
                        read.append(between + b"[... %s bytes are left out ...]\n" % f"{left_out:,}".encode())
                        self._offset = begins
                    file.seek(self._offset - begins)
                    while chunk := file.read(_READ_BYTES):
                        read.append(chunk)
                        self._offset += len(chunk)
            except FileNotFoundError:  # the writer has removed it to make room for a later part
                continue
        return b"".join(read)

    def _parts(self) -> list[tuple[int, Path]]:
        """Return (position at which it begins, path) of each part, in order."""
        return sorted(
            (begins, self._folder / name)
            for name, attempt, rank, begins in _all_parts(self._folder)
            if (attempt, rank) == (self._attempt, self._rank)
        )


def read_output(trial_folder: str | Path, attempt: int, rank: int = 0) -> str:
    """Return the stored output of one worker of an attempt; empty if it has none."""
    return OutputReader(trial_folder, attempt, rank).read().decode(errors="replace")


def attempts_with_output(trial_folder: str | Path, rank: int = 0) -> list[int]:
    """Return the numbers of the attempts with stored output, in order."""
    parts = _all_parts(_folder(trial_folder))
    return sorted({attempt for _, attempt, part_rank, _ in parts if part_rank == rank})


def _folder(trial_folder: str | Path) -> Path:
    return Path(trial_folder) / "output"


def _all_parts(folder: Path) -> list[tuple[str, int, int, int]]:
    """Return (file name, attempt, rank, position at which it begins) of each part."""
    try:
        names = [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    parts = []
    for match in filter(None, map(_NAME.fullmatch, names)):
        attempt, rank, begins = match.groups("0")
        parts.append((match.group(), int(attempt), int(rank), int(begins)))
    return parts
