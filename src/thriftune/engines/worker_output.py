"""Split the output of a worker by attempts, and store it.

All output is written to files, which are separate for each attempt. The end of the latest attempt's output is also
kept in memory.
"""

from __future__ import annotations

from collections import deque

from thriftune.engines.worker import MARK
from thriftune.store.output_files import OutputWriter
from thriftune.training.run import Run

_TAIL_BYTES = 16_384
"""The length of the end of an attempt's output that stays in memory, to be reported if the attempt fails."""


class WorkerOutput:
    """The output of one worker, which prints MARK before the output of each attempt."""

    def __init__(self) -> None:
        self._expected: deque[Run] = deque()  # runs whose mark has not been read, in order of start
        self._run: Run | None = None  # the run whose mark was read last
        self._writer: OutputWriter | None = None  # writes the output of that run
        self._tail = b""  # the end of that output
        self._partial_mark = b""  # the last bytes read, if they may be the beginning of a mark

    @property
    def begun(self) -> bool:
        """Return whether the worker has begun the last run that it was given."""
        return not self._expected

    @property
    def tail(self) -> str:
        """Return the end of the output of the attempt that began last."""
        return (self._tail + self._partial_mark)[-_TAIL_BYTES:].decode(errors="replace").strip()

    def expect(self, run: Run) -> None:
        """Record that the worker was given a run.

        Output before the next mark still belongs to the previous run.
        """
        self._expected.append(run)

    def take(self, data: bytes) -> tuple[Run, OSError] | None:
        """Store output of the worker.

        Returns None, or (run of the output, error) if it could not be stored.
        """
        failure = None
        *texts, rest = (self._partial_mark + data).split(MARK)
        self._partial_mark = b""
        for text in texts:
            failure = self._store(text) or failure
            if self._expected:
                self._next_run()
            else:  # a trial has printed the text of a mark
                failure = self._store(MARK) or failure
        mark_bytes = _partial_mark_bytes(rest)
        failure = self._store(rest[: len(rest) - mark_bytes]) or failure
        self._partial_mark = rest[len(rest) - mark_bytes :]
        return failure

    def close(self) -> None:
        """Store the rest of the output and close the file.

        Called when the worker has ended.
        """
        self._store(self._partial_mark)
        self._partial_mark = b""
        if self._writer is not None:
            self._writer.close()

    def _next_run(self) -> None:
        if self._writer is not None:
            self._writer.close()
        run = self._run = self._expected.popleft()
        self._writer = OutputWriter(run.folder, run.attempt, run.rank)
        self._tail = b""

    def _store(self, text: bytes) -> tuple[Run, OSError] | None:
        self._tail = (self._tail + text)[-_TAIL_BYTES:]
        if self._run is None or self._writer is None or not text:
            return None
        error = self._writer.write(text)
        return None if error is None else (self._run, error)


def _partial_mark_bytes(text: bytes) -> int:
    """Return how many bytes at the end of the text may be the beginning of a mark."""
    if MARK[:1] not in text[1 - len(MARK) :]:
        return 0
    return next((n for n in range(min(len(MARK) - 1, len(text)), 0, -1) if MARK.startswith(text[-n:])), 0)
