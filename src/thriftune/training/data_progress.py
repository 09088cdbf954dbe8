"""Say how far the download of a dataset is, if it takes longer than a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

from thriftune.common.formatting import format_bytes, format_seconds
from thriftune.training.cache_files import bytes_on_disk

Say = Callable[[str], None]


class Progress:
    """Says the progress of a download during a `with` block."""

    FIRST_SECONDS: ClassVar = 2.0
    """A download that takes less time is not mentioned."""

    NEXT_SECONDS: ClassVar = 15.0

    def __init__(self, what: str, size: int, folder: Path, say: Say) -> None:
        """Prepare for a download of `size` bytes into `folder`. `what`: such as "fetching s3://b/train"."""
        self._what, self._size, self._folder, self._say = what, size, folder, say
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._said = False
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._said and kind is None:
            seconds = format_seconds(time.monotonic() - self._began)
            self._say(f"{self._what}: done, {format_bytes(self._size)} in {seconds}")

    def _follow(self) -> None:
        pause = self.FIRST_SECONDS
        while not self._done.wait(pause):
            self._said = True
            pause = self.NEXT_SECONDS
            written = min(bytes_on_disk(self._folder), self._size)
            share = written / self._size if self._size else 1.0
            self._say(f"{self._what}: {format_bytes(written)} of {format_bytes(self._size)}, {share:.0%}")
