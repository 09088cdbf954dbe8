"""A process that fetches a dataset as a trial does: `python fetch_dataset.py CACHE SERVER URL [STEP ...]`.

SERVER is a folder that stands for the object store: s3://bucket/key is SERVER/bucket/key. It prints the path of
the copy, and then waits until its input ends.

- `gate`: each download waits until the file SERVER/open exists.
- `slow`: each download takes some milliseconds.
- `fork`: a child process, whose id is printed next, waits as well.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectInfo, ObjectStore
from thriftune.object_store.urls import ObjectUrl
from thriftune.training.data_cache import DataCache
from thriftune.training.data_folder import DataFolder


class Server:
    """Objects in a folder, which writes down each download."""

    def __init__(self, server: Path, url: ObjectUrl, steps: list[str]) -> None:
        self.server, self.steps = server, steps
        self.objects: ObjectStore = open_objects(str(server / url.bucket / url.prefix))

    def info(self, key: str) -> ObjectInfo | None:
        return self.objects.info(key)

    def list_objects(self) -> Iterator[ObjectInfo]:
        return self.objects.list_objects()

    def download(self, key: str, path: Path) -> ObjectInfo:
        with (self.server / "downloads").open("a") as log:
            log.write(f"{os.getpid()} {key}\n")
        while "gate" in self.steps and not (self.server / "open").exists():
            time.sleep(0.01)
        if "slow" in self.steps:
            time.sleep(0.02)
        return self.objects.download(key, path)


def main(cache: str, server: str, url: str, *steps: str) -> None:
    def opener(url: ObjectUrl) -> ObjectStore:
        return Server(Path(server), url, list(steps))  # type: ignore[return-value]

    copy = DataCache(opener, DataFolder(Path(cache))).fetch(url, "", lambda message: None)
    print(copy.path, flush=True)
    if "fork" in steps:
        if (child := os.fork()) == 0:
            sys.stdin.read()
            os._exit(0)
        print(child, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
