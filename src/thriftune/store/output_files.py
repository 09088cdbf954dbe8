"""Keeps what each attempt of a trial prints: in files of the trial's folder, of a limited size.

    output/2.log            the first 1 MiB of attempt 2
    output/2.7340032.log    a later part, which begins after so many bytes; the last two parts are kept
    output/2-rank1.log      of the second worker, where a trial has several

The name of each part says where it begins, so that a reader knows what was left out between two of them, whoever
was killed in the middle of writing. An attempt that prints nothing has no file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

PART_BYTES = 1 << 20
"""The length of a part."""

LAST_PARTS = 2
"""Parts that are kept beside the first: at least one whole one, and the one being written."""

_READ_BYTES = 1 << 18
_NAME = re.compile(r"(\d+)(?:-rank(\d+))?(?:\.(\d+))?\.log")


class OutputWriter:
    """Writes what one worker of one attempt prints."""

    def __init__(self, trial_folder: str | Path, attempt: int, rank: int = 0) -> None:
        self._folder = _folder(trial_folder)
        self._stem = f"{attempt}-rank{rank}" if rank else str(attempt)
        self._offset = 0  # bytes printed so far, kept or not
        self._room = 0  # bytes that still fit into the open part; 0 if none is open
        self._fd = -1
        self._last: list[Path] = []  # the parts after the first that are there, in order

    def write(self, output: bytes) -> OSError | None:
        """Write the output. Return why some of it could not be written; it is left out then.

        The next call begins a new part, as there may be room again.
        """
        end = self._offset + len(output)
        try:
            while output:
                if self._room == 0:
                    self._begin_part()
                written = os.write(self._fd, output[: self._room])
                output = output[written:]
                self._offset, self._room = self._offset + written, self._room - written
                if len(self._last) > LAST_PARTS:  # only now: a part that stays empty takes no other's place
                    self._last.pop(0).unlink(missing_ok=True)
        except OSError as error:
            if self._last and self._room == PART_BYTES:
                self._last.pop().unlink(missing_ok=True)
            self._offset, self._room = end, 0
            return error
        return None

    def close(self) -> None:
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
    """Reads the output of one attempt, also while it is written."""

    def __init__(self, trial_folder: str | Path, attempt: int, rank: int = 0) -> None:
        self._folder = _folder(trial_folder)
        self._attempt, self._rank = attempt, rank
        self._offset = 0  # of the output that was read or passed over

    def read(self) -> bytes:
        """Return what is new since the last call. A line says how much is left out, where that is so."""
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
            except FileNotFoundError:  # made room for a later part
                continue
        return b"".join(read)

    def _parts(self) -> list[tuple[int, Path]]:
        """Return where each part begins, and its file, in order."""
        return sorted(
            (begins, self._folder / name)
            for name, attempt, rank, begins in _listed(self._folder)
            if (attempt, rank) == (self._attempt, self._rank)
        )


def read_output(trial_folder: str | Path, attempt: int, rank: int = 0) -> str:
    """Return what an attempt has printed; empty if nothing is kept."""
    return OutputReader(trial_folder, attempt, rank).read().decode(errors="replace")


def attempts_with_output(trial_folder: str | Path, rank: int = 0) -> list[int]:
    """Return the numbers of the attempts whose output is kept, in order."""
    return sorted({attempt for _, attempt, of, _ in _listed(_folder(trial_folder)) if of == rank})


def _folder(trial_folder: str | Path) -> Path:
    return Path(trial_folder) / "output"


def _listed(folder: Path) -> list[tuple[str, int, int, int]]:
    """Return each part's name, attempt, rank and beginning."""
    try:
        names = [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for match in filter(None, map(_NAME.fullmatch, names)):
        attempt, rank, begins = match.groups("0")
        found.append((match.group(), int(attempt), int(rank), int(begins)))
    return found
