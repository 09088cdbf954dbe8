"""What runs on a node of a cluster? A seat: room for one worker of a trial, kept by an actor of the cluster.

Within it, a worker process of the local engine runs the trials, so that whatever a trial does to its process is
kept from the actor and told as on this machine. What the worker says is in the seat's folder, in the study's
storage, before it is sent: it outlives the node.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thriftune.engines.local import LocalEngine
from thriftune.errors import SettingError
from thriftune.state.events import Event
from thriftune.training.gangs import free_port

_STORAGE_SECONDS = 5.0
"""So long a folder that was made elsewhere may take to be seen on a network's file system."""

_LOOK_SECONDS = 0.5
"""The local engine wants to be asked so often, that it can tell whom the kernel has killed for memory."""

Order = tuple[int, str, tuple[Any, ...]]
"""Its number, one of the local engine's methods, and what it is called with."""


class Seat:
    """Hears on one thread what the worker says; is told on another what it shall do. Each order has a number, and
    so has each answer, for either may have to be sent twice where a network fails."""

    def __init__(self, folder: str, target: Mapping[str, Any], variables: Mapping[str, str], paths: Sequence[str]):
        os.environ.update(variables)
        _await(Path(folder))
        sys.path += [path for path in paths if path not in sys.path and Path(path).exists()]
        with contextlib.suppress(OSError):  # where the script was started, if that is here, too
            os.chdir(target.get("folder") or ".")
        self._engine = LocalEngine(Path(folder), 1, dict(target), durable=True)
        self._engine.recover()
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._obeyed: set[int] = set()
        self._opened = False
        self._told = 0  # answers so far
        self._last: list[Event] = []  # the last of them

    def hello(self) -> int:
        """The number of its process, once it can take a trial."""
        if not self._opened:
            # On the thread that hears, which is there as long as the seat: the worker ends with it.
            self._opened = True
            self._engine.open()
        return os.getpid()

    def hear(self, known: int, orders: Sequence[Order]) -> list[Event]:
        """What happened after the answer of number `known`, as soon as anything has."""
        self._obey(orders)
        if known < self._told:
            return self._last
        while True:
            events = self._engine.wait(_LOOK_SECONDS)
            self._obey(())
            if events:
                self._told, self._last = self._told + 1, events
                return events

    def say(self, order: Order) -> None:
        """Is obeyed while hear() waits, or when it is called next."""
        self._orders.put(order)
        self._engine.wake()

    def port(self, address: str) -> int:
        """At which the first worker of a trial can be reached by the others."""
        return free_port(address)

    def _obey(self, orders: Sequence[Order]) -> None:
        said = []
        with contextlib.suppress(queue.Empty):
            while True:
                said.append(self._orders.get_nowait())
        for number, method, arguments in [*said, *orders]:  # those that were said are earlier
            if number not in self._obeyed:
                self._obeyed.add(number)
                getattr(self._engine, method)(*arguments)


def _await(folder: Path) -> None:
    """The driver has made it: where it is not, neither are the study's checkpoints."""
    deadline = time.monotonic() + _STORAGE_SECONDS
    while not folder.exists():
        if time.monotonic() > deadline:
            raise SettingError(
                f"{folder} is not there, on {socket.gethostname()}: all nodes must see the study's folder; give "
                "storage=, a folder of a file system that they share"
            )
        with contextlib.suppress(OSError):
            os.listdir(folder.parent)  # noqa: PTH208 (has a network's file system look again)
        time.sleep(0.1)
