"""Cuts what a worker prints into attempts, and keeps it: all in the attempts' files, the end in memory."""

from __future__ import annotations

from collections import deque

from thriftune.engines.worker import MARK
from thriftune.store.output_files import OutputWriter
from thriftune.training.run import Run

_TAIL_BYTES = 16_384
"""How much of the end of an attempt's output is kept for the case that it fails."""


class WorkerOutput:
    """The output of one worker, which prints MARK before that of each attempt."""

    def __init__(self) -> None:
        self._awaited: deque[Run] = deque()  # those whose mark has not been read, in order of start
        self._run: Run | None = None  # the one whose mark was read last
        self._writer: OutputWriter | None = None  # of that one
        self._tail = b""  # the end of its output
        self._held = b""  # read, and perhaps the beginning of a mark

    @property
    def begun(self) -> bool:
        """Return whether the run that was started last has begun."""
        return not self._awaited

    @property
    def tail(self) -> str:
        """The end of what the attempt that began last has printed."""
        return (self._tail + self._held)[-_TAIL_BYTES:].decode(errors="replace").strip()

    def expect(self, run: Run) -> None:
        """Take note that the worker was given a run. What it prints before the mark is of the run before."""
        self._awaited.append(run)

    def take(self, printed: bytes) -> tuple[Run, OSError] | None:
        """Keep what was read. Return the run whose output could not be written, and why."""
        trouble = None
        *ended, rest = (self._held + printed).split(MARK)
        self._held = b""
        for text in ended:
            trouble = self._keep(text) or trouble
            if self._awaited:
                self._next_run()
            else:  # a trial has printed what looks like one
                trouble = self._keep(MARK) or trouble
        held = _begun_mark(rest)
        trouble = self._keep(rest[: len(rest) - held]) or trouble
        self._held = rest[len(rest) - held :]
        return trouble

    def close(self) -> None:
        """Called when nothing more will be read."""
        self._keep(self._held)
        self._held = b""
        if self._writer is not None:
            self._writer.close()

    def _next_run(self) -> None:
        if self._writer is not None:
            self._writer.close()
        run = self._run = self._awaited.popleft()
        self._writer = OutputWriter(run.folder, run.attempt, run.rank)
        self._tail = b""

    def _keep(self, text: bytes) -> tuple[Run, OSError] | None:
        self._tail = (self._tail + text)[-_TAIL_BYTES:]
        if self._run is None or self._writer is None or not text:
            return None
        error = self._writer.write(text)
        return None if error is None else (self._run, error)


def _begun_mark(text: bytes) -> int:
    """Return how many bytes at the end of the text may be the beginning of a mark."""
    if MARK[:1] not in text[1 - len(MARK) :]:
        return 0
    return next((n for n in range(min(len(MARK) - 1, len(text)), 0, -1) if MARK.startswith(text[-n:])), 0)
