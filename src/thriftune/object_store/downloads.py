"""Copy an object into a file: ranges of it are read at the same time, in bounded memory."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

RANGE_BYTES = 8 << 20
"""Large enough that a request's latency hardly counts, small enough that eight fit into 64 MiB."""

PARALLEL_RANGES = 8

Buffer = bytes | memoryview


@contextmanager
def new_file(path: Path) -> Iterator[int]:
    """Yield the descriptor of a file that gets its name when the block succeeds, and is removed otherwise."""
    unfinished = path.with_name(f".unfinished-{secrets.token_hex(8)}")
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        yield file
        unfinished.rename(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


def write_ranges(file: int, size: int, read: Callable[[int, int], Buffer]) -> None:
    """Write `size` bytes to a file, several ranges at a time.

    `read`: returns the bytes from a start to before an end. Called in several threads.
    """

    def copy(start: int) -> None:
        _write_at(file, start, read(start, min(start + RANGE_BYTES, size)))

    starts = range(0, size, RANGE_BYTES)
    if not starts:
        return
    copy(0)  # alone, because a server that cannot read ranges fails here
    if len(starts) == 1:
        return
    pool = ThreadPoolExecutor(min(PARALLEL_RANGES, len(starts) - 1), "thriftune-download")
    try:
        for _ in pool.map(copy, starts[1:]):
            pass
    finally:
        pool.shutdown(cancel_futures=True)


def write_stream(file: int, chunks: Iterable[Buffer]) -> int:
    """Replace the content of a file by chunks, one after the other; return its size."""
    os.ftruncate(file, 0)
    position = 0
    for chunk in chunks:
        _write_at(file, position, chunk)
        position += len(chunk)
    return position


def _write_at(file: int, position: int, data: Buffer) -> None:
    view = memoryview(data)
    written = 0
    while written < len(view):
        written += os.pwrite(file, view[written:], position + written)
