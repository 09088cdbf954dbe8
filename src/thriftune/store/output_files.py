"""Write and read the output of attempts, in files of limited size.

A machine that does not share the folder sends its output in pieces, which the driver's machine stores.

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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PART_BYTES = 1 << 20
"""The largest size of a part: most outputs fit into one part, and a reader's memory holds several."""

LAST_PARTS = 2
"""The number of parts kept after the first: one complete part, and the one being written."""

_READ_BYTES = 1 << 18
"""The size of one read."""

_NAME = re.compile(r"(\d+)(?:-rank(\d+))?(?:\.(\d+))?\.log")


class OutputPiece(NamedTuple):
    """A piece of the output of one worker of an attempt, on its way to another machine.

    - `begins`: the number of bytes that the worker has printed before it.
    """

    trial: int
    attempt: int
    rank: int
    begins: int
    data: bytes


class OutputWriter:
    """Writes the output of one worker of one attempt."""

    def __init__(self, trial_folder: str | Path, attempt: int, rank: int = 0) -> None:
        self._folder = _folder(trial_folder)
        self._stem = f"{attempt}-rank{rank}" if rank else str(attempt)
        self._offset = 0  # number of bytes printed until now, stored or discarded
        self._room = 0  # number of bytes that still fit in the open part; 0 if none is open
        self._fd = -1
        self._last: list[Path] = []  # all existing parts after the first, in order

    @classmethod
    def after_stored(cls, trial_folder: str | Path, attempt: int, rank: int = 0) -> OutputWriter:
        """Return a writer that continues behind the output that is already stored.

        Raises OSError if the last part cannot be opened.
        """
        writer = cls(trial_folder, attempt, rank)
        parts = _parts(writer._folder, attempt, rank)
        if parts:
            begins, path = parts[-1]
            writer._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            size = os.fstat(writer._fd).st_size
            writer._offset, writer._room = begins + size, max(0, PART_BYTES - size)
            writer._last = [path for begins, path in parts if begins]
        return writer

    def write_piece(self, begins: int, output: bytes) -> OSError | None:
        """Write output that begins at this position.

        Bytes that are already stored are skipped. A piece that does not follow the stored output begins a new
        part, which shows a reader how many bytes are missing.
        """
        if begins > self._offset:
            self.close()
            self._offset = begins
        return self.write(output[self._offset - begins :])

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
        if not self._last:
            self._folder.mkdir(parents=True, exist_ok=True)
        if self._offset == 0:
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
        for begins, path in _parts(self._folder, self._attempt, self._rank):
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

    def read_piece(self, most_bytes: int) -> tuple[int, bytes]:
        """Return (position at which it begins, output) of the next output since the last call.

        The output is part of one file. It has at most this many bytes, and is empty if there is no more.
        """
        for begins, path in _parts(self._folder, self._attempt, self._rank):
            position = max(self._offset, begins)
            try:
                with path.open("rb") as file:
                    file.seek(position - begins)
                    data = file.read(most_bytes)
            except FileNotFoundError:  # the writer has removed it to make room for a later part
                continue
            if data:
                self._offset = position + len(data)
                return position, data
        return self._offset, b""


def read_output(trial_folder: str | Path, attempt: int, rank: int = 0) -> str:
    """Return the stored output of one worker of an attempt; empty if it has none."""
    return OutputReader(trial_folder, attempt, rank).read().decode(errors="replace")


def store_piece(trial_folder: str | Path, piece: OutputPiece) -> OSError | None:
    """Store a piece of output as the OutputWriter on its own machine would; return the error if that fails.

    A piece that arrives twice is stored once.
    """
    try:
        writer = OutputWriter.after_stored(trial_folder, piece.attempt, piece.rank)
    except OSError as error:
        return error
    try:
        return writer.write_piece(piece.begins, piece.data)
    finally:
        writer.close()


def output_pieces(trial_folder: str | Path, trial: int, piece_bytes: int = PART_BYTES) -> Iterator[OutputPiece]:
    """Yield all stored output of a trial's attempts, in pieces of at most this many bytes."""
    workers = sorted({(attempt, rank) for _, attempt, rank, _ in _all_parts(_folder(trial_folder))})
    for attempt, rank in workers:
        reader = OutputReader(trial_folder, attempt, rank)
        while (piece := reader.read_piece(piece_bytes))[1]:
            yield OutputPiece(trial, attempt, rank, *piece)


def attempts_with_output(trial_folder: str | Path, rank: int = 0) -> list[int]:
    """Return the numbers of the attempts with stored output, in order."""
    parts = _all_parts(_folder(trial_folder))
    return sorted({attempt for _, attempt, part_rank, _ in parts if part_rank == rank})


def _folder(trial_folder: str | Path) -> Path:
    return Path(trial_folder) / "output"


def _parts(folder: Path, attempt: int, rank: int) -> list[tuple[int, Path]]:
    """Return (position at which it begins, path) of each part of one worker of an attempt, in order."""
    return sorted((part[3], folder / part[0]) for part in _all_parts(folder) if part[1:3] == (attempt, rank))


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
