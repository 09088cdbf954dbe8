"""The Ray actor that runs one worker of a trial on a node of a cluster.

The actor has a local engine with one worker process. A trial may crash or block this process without harm to the
actor, and the engine reports its failure in the same way as on a single machine. The worker writes its events to
the actor's folder before it sends them. If all nodes share the study's folder, the actor's folder is there, and
the events survive the loss of the node. Otherwise it is on the node (node_files.py), and the events survive the
actor and the driver. Output then travels with the events.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from thriftune.common.clock import wall_time
from thriftune.engines import pickled
from thriftune.engines.local import LocalEngine
from thriftune.engines.project_code import enter_project
from thriftune.engines.ray.node_files import ActorName, begin_attempt, make_folder, remove_folder
from thriftune.errors import SettingError
from thriftune.state.events import Ended, Event, Failed, Killed, Lost, Warned
from thriftune.store.output_files import PART_BYTES, OutputPiece, OutputReader
from thriftune.training.gang_connection import free_port
from thriftune.training.run import Run

_STORAGE_SECONDS = 5.0
"""How long a network file system may take to show a folder that another machine has created."""

_STORAGE_POLL_SECONDS = 0.1

_ENGINE_WAIT_SECONDS = 0.5
"""The longest wait of the local engine. It must check this often for kills by the kernel for lack of memory."""

_OUTPUT_SECONDS = 0.5
"""Send output of a running attempt at most this often, and with its end."""

_OUTPUT_BYTES = 1 << 18
"""The most output to send each time. The files of an attempt that prints faster have a limited size; their rest is
sent with its end."""

Order = tuple[int, str, tuple[Any, ...]]
"""A call of a method of the local engine: the number of the order, the method and its arguments."""


LEAVE = "leave"
"""The method of the last order of an actor: end the worker, and remove the actor's own folder."""


class Answer(NamedTuple):
    """What next_events() returns.

    - `output`: output that was printed before the events. Empty if all nodes share the study's folder.
    - `left`: the order LEAVE was executed. The actor's processes have ended, and its folder is removed.
    """

    events: list[Event]
    output: list[OutputPiece]
    left: bool = False


class WorkerActor:
    """An actor with one worker process.

    The driver calls its methods on two threads of the actor. The thread "events" runs open() and next_events(),
    the thread "orders" runs give_order() and find_port(). Orders and answers are numbered, because either may be
    sent twice when the network fails.
    """

    def __init__(
        self,
        folder: str | ActorName,
        target: Mapping[str, Any],
        variables: Mapping[str, str],
        paths: Sequence[str],
        function: bytes | None = None,
    ) -> None:
        """Prepare the process of the actor.

        - `folder`: the folder of this actor in the study's storage, which the driver has created; or the name of
          its folder on this node.
        - `target`: the training function; see worker.load_target(). With an "archive", its code is fetched.
        - `variables`: environment variables for the worker.
        - `paths`: the driver's sys.path.
        - `function`: the contents of the file with the pickled training function. None if the file that the target
          names can be read on this node, or if the function is not pickled.
        """
        self._own_folder = None if isinstance(folder, str) else make_folder(folder)
        self._output: AttemptOutput | None = None  # of the last attempt, if output is to be sent
        self._late_output: list[OutputPiece] = []  # unsent output of the attempt before
        tempfile.tempdir = None  # make_folder() has used it, and the variables may change it
        os.environ.update(variables)
        target = dict(target)
        if isinstance(folder, str):
            _wait_for_folder(Path(folder))
        if function is not None:
            target["where"] = str(self._write_function(function))
        sys.path += [path for path in paths if path not in sys.path and Path(path).exists()]
        self._remarks = enter_project(target)  # about this machine; sent with the first attempt
        with contextlib.suppress(OSError):  # the script's folder may not exist on this machine
            os.chdir(target.get("folder") or ".")
        engine_folder = Path(folder) if isinstance(folder, str) else self._own_folder
        assert engine_folder is not None
        # With a shared folder, each report is synced to the server. A node's own disk is lost with the node.
        self._engine = LocalEngine(engine_folder, 1, target, durable=self._own_folder is None)
        self._engine.recover()
        self._warnings: list[Event] = []  # unsent
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._executed: set[int] = set()  # the numbers of all orders that were executed
        self._opened = False
        self._answers = 0  # number of answers that next_events() has returned
        self._last_answer = Answer([], [])
        self._left = False  # LEAVE was executed, so the engine cannot be used any more

    def _write_function(self, function: bytes) -> Path:
        """Write the pickled training function to this actor's own folder, and return its path."""
        assert self._own_folder is not None
        path = self._own_folder / "function.pickle"
        pickled.write(path, function)
        pickled.check_owner(path)
        return path

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

    def next_events(self, answers: int, orders: Sequence[Order]) -> Answer:
        """Execute orders, wait for events or output, and return them.

        `answers`: the number of answers that the driver has received. If it has not received the last one, this
        answer is returned again.
        """
        self._execute(orders)
        if answers < self._answers:
            return self._last_answer
        while not self._left:
            events = self._engine.wait(_ENGINE_WAIT_SECONDS)
            self._execute(())
            warnings, self._warnings = self._warnings, []
            events = [*warnings, *events]
            output = self._new_output(events)
            if events or output:
                self._answers, self._last_answer = self._answers + 1, Answer(events, output, self._left)
                return self._last_answer
        return Answer([], [], True)

    def _new_output(self, events: Sequence[Event]) -> list[OutputPiece]:
        """Return the output to send with these events. All output of an attempt must be sent before its end."""
        if self._output is None:
            return []
        ended = any(isinstance(event, (Ended, Failed, Killed, Lost)) for event in events)
        late, self._late_output = self._late_output, []
        return [*late, *(self._output.rest() if ended else self._output.next_pieces())]

    def give_order(self, order: Order) -> None:
        """Add an order, which the present or the next call of next_events() executes."""
        self._orders.put(order)
        self._engine.wake()

    def find_port(self, address: str) -> int:
        """Return a free port of this machine. The other workers of a gang connect to it."""
        return free_port(address)

    def _execute(self, later_orders: Sequence[Order]) -> None:
        """Execute the orders of give_order() and the later orders by their numbers, each at most once."""
        orders = list(later_orders)
        with contextlib.suppress(queue.Empty):
            while True:
                orders.append(self._orders.get_nowait())
        for number, method, arguments in sorted(orders, key=lambda order: order[0]):
            if number not in self._executed:
                self._executed.add(number)
                if method == LEAVE:
                    self._leave()
                    return
                if method == "start":
                    run = arguments[0]
                    remarks, self._remarks = self._remarks, []
                    self._warnings += [
                        Warned(wall_time(), run.trial, run.attempt, each, once=True) for each in remarks
                    ]
                if method == "start" and self._own_folder is not None:
                    arguments = self._begin_attempt(self._own_folder, *arguments)
                getattr(self._engine, method)(*arguments)

    def _leave(self) -> None:
        self._engine.close()
        self._output, self._left = None, True
        if self._own_folder is not None:
            remove_folder(self._own_folder)

    def _begin_attempt(self, own_folder: Path, run: Run, *others: Any) -> tuple[Any, ...]:
        """Return the arguments of start() with a folder of the attempt on this node."""
        if self._output is not None:  # processes of the last attempt may have printed after its end
            self._late_output = self._output.rest()
        folder = begin_attempt(own_folder, run)
        self._output = AttemptOutput(folder, run)
        return replace(run, folder=str(folder)), *others


class AttemptOutput:
    """Reads the output of an attempt from its files on this node, to send it to the driver."""

    def __init__(self, folder: Path, run: Run) -> None:
        self._attempt = run.trial, run.attempt, run.rank
        self._reader = OutputReader(folder, run.attempt, run.rank)
        self._next_at = 0.0  # when to look for output again, in monotonic seconds

    def next_pieces(self) -> list[OutputPiece]:
        """Return some new output, if enough time has passed since the last call."""
        now = time.monotonic()
        if now < self._next_at:
            return []
        self._next_at = now + _OUTPUT_SECONDS
        begins, data = self._reader.read_piece(_OUTPUT_BYTES)
        return [OutputPiece(*self._attempt, begins, data)] if data else []

    def rest(self) -> list[OutputPiece]:
        """Return all output that was not returned yet. This is at most the size of the output files."""
        pieces = []
        while (piece := self._reader.read_piece(PART_BYTES))[1]:
            pieces.append(OutputPiece(*self._attempt, *piece))
        return pieces


def _wait_for_folder(folder: Path) -> None:
    """Wait until the folder is visible on this machine.

    Raises SettingError if the storage is not shared.
    """
    deadline = time.monotonic() + _STORAGE_SECONDS
    while not folder.exists():
        if time.monotonic() > deadline:
            raise SettingError(
                f"{socket.gethostname()} does not see the folder {folder}: all nodes must see the study's folder; "
                "set storage= to a folder of a file system that they share, or to an object store"
            )
        with contextlib.suppress(OSError):
            os.listdir(folder.parent)  # noqa: PTH208 (makes a network file system refresh the folder)
        time.sleep(_STORAGE_POLL_SECONDS)
