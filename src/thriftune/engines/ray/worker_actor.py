"""The Ray actor that runs one worker of a trial on a node of a cluster.

The actor has a local engine with one worker process. A trial may crash or block this process without harm to the
actor, and the engine reports its failure in the same way as on a single machine. The worker writes its events to
the actor's folder in the study's storage before it sends them. They therefore survive the loss of the node.
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
from thriftune.training.gang_connection import free_port

_STORAGE_SECONDS = 5.0
"""How long a network file system may take to show a folder that another machine has created."""

_STORAGE_POLL_SECONDS = 0.1

_ENGINE_WAIT_SECONDS = 0.5
"""The longest wait of the local engine. It must check this often for kills by the kernel for lack of memory."""

Order = tuple[int, str, tuple[Any, ...]]
"""A call of a method of the local engine: the number of the order, the method and its arguments."""


class WorkerActor:
    """An actor with one worker process.

    The driver calls its methods on two threads of the actor. The thread "events" runs open() and next_events(),
    the thread "orders" runs give_order() and find_port(). Orders and answers are numbered, because either may be
    sent twice when the network fails.
    """

    def __init__(self, folder: str, target: Mapping[str, Any], variables: Mapping[str, str], paths: Sequence[str]):
        """Prepare the process of the actor.

        - `folder`: the folder of this actor in the study's storage. The driver has created it.
        - `target`: the training function; see worker.load_target().
        - `variables`: environment variables for the worker.
        - `paths`: the driver's sys.path.
        """
        os.environ.update(variables)
        _wait_for_folder(Path(folder))
        sys.path += [path for path in paths if path not in sys.path and Path(path).exists()]
        with contextlib.suppress(OSError):  # the script's folder may not exist on this machine
            os.chdir(target.get("folder") or ".")
        self._engine = LocalEngine(Path(folder), 1, dict(target), durable=True)
        self._engine.recover()
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._executed: set[int] = set()  # the numbers of all orders that were executed
        self._opened = False
        self._answers = 0  # number of answers that next_events() has returned
        self._last_answer: list[Event] = []

    def open(self) -> int:
        """Start the worker, and return the process id of the actor.

        May be called twice.
        """
        if not self._opened:
            # The kernel ends the worker when the thread that started it ends. This thread runs until the actor
            # ends.
            self._opened = True
            self._engine.open()
        return os.getpid()

    def next_events(self, answers: int, orders: Sequence[Order]) -> list[Event]:
        """Execute orders, wait for events and return them.

        `answers`: the number of answers that the driver has received. If it has not received the last one, this
        answer is returned again.
        """
        self._execute(orders)
        if answers < self._answers:
            return self._last_answer
        while True:
            events = self._engine.wait(_ENGINE_WAIT_SECONDS)
            self._execute(())
            if events:
                self._answers, self._last_answer = self._answers + 1, events
                return events

    def give_order(self, order: Order) -> None:
        """Add an order, which the present or the next call of next_events() executes."""
        self._orders.put(order)
        self._engine.wake()

    def find_port(self, address: str) -> int:
        """Return a free port of this machine. The other workers of a gang connect to it."""
        return free_port(address)

    def _execute(self, later_orders: Sequence[Order]) -> None:
        """Execute the orders of give_order(), then the later orders, each at most once."""
        orders = []
        with contextlib.suppress(queue.Empty):
            while True:
                orders.append(self._orders.get_nowait())
        for number, method, arguments in [*orders, *later_orders]:
            if number not in self._executed:
                self._executed.add(number)
                getattr(self._engine, method)(*arguments)


def _wait_for_folder(folder: Path) -> None:
    """Wait until the folder is visible on this machine.

    Raises SettingError if the storage is not shared.
    """
    deadline = time.monotonic() + _STORAGE_SECONDS
    while not folder.exists():
        if time.monotonic() > deadline:
            raise SettingError(
                f"{socket.gethostname()} does not see the folder {folder}: all nodes must see the study's folder; "
                "set storage= to a folder of a file system that they share"
            )
        with contextlib.suppress(OSError):
            os.listdir(folder.parent)  # noqa: PTH208 (makes a network file system refresh the folder)
        time.sleep(_STORAGE_POLL_SECONDS)
