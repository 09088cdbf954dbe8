"""Who bears the workers, and buries them? One small process between the driver and its workers.

It forks workers on request (it is single-threaded and has the imports done, so a worker is there in milliseconds),
tells the driver how each one died, and makes sure that nothing outlives its time: it is the reaper of all its
descendants, ends what a dead worker left behind, and when the driver goes away, for whatever reason, it ends
them all and then itself.

Protocol, one JSON object a message: in {"spawn": id} with the descriptors [link, output], {"kill": id};
out {"born": id, "pid": n}, {"died": id, "status": wait status}.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from thriftune.engines import worker

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(control_fd: int, alive_file: str, settings: dict[str, Any]) -> None:
    # Held, and inherited by every fork, until the last of them is gone: how a later driver knows that they are.
    alive = os.open(alive_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    fcntl.flock(alive, fcntl.LOCK_SH)
    Nursery(socket.socket(fileno=control_fd), settings).run()


class Nursery:
    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self.control = control
        self.settings = settings
        self.pids: dict[int, int] = {}  # pid of each live worker -> its id

    def run(self) -> None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        # The driver's going is seen as the end of the control stream; this covers a stream that somebody else
        # holds open by having forked the driver.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        try:
            while True:
                ready, _, _ = select.select([self.control, wake_read], [], [])
                if wake_read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                    self.reap()
                if self.control in ready and not self.obey():
                    break
        finally:
            self.end()

    def obey(self) -> bool:
        try:
            message, fds, _, _ = socket.recv_fds(self.control, 4096, 2)
        except ConnectionError:
            return False
        if not message:
            return False
        order = json.loads(message)
        if "spawn" in order:
            self.spawn(order["spawn"], *fds)
        elif "kill" in order:
            for pid, worker_id in self.pids.items():
                if worker_id == order["kill"]:
                    _kill_group(pid)
        return True

    def spawn(self, worker_id: int, link_fd: int, output_fd: int) -> None:
        nursery_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != nursery_pid:  # it died before the line above
                    os._exit(0)
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_DFL)
                self.control.close()
                worker.main(worker_id, link_fd, output_fd, self.settings)
            finally:
                os._exit(1)
        os.close(link_fd)
        os.close(output_fd)
        self.pids[pid] = worker_id
        self.tell({"born": worker_id, "pid": pid})

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            worker_id = self.pids.pop(pid, None)
            if worker_id is not None:
                _kill_group(pid)
                self.tell({"died": worker_id, "status": status})
        # What a dead worker leaves behind becomes our child, even if it left the worker's group.
        for pid in _children():
            if pid not in self.pids:
                _kill(pid)

    def tell(self, message: dict[str, int]) -> None:
        with contextlib.suppress(OSError):  # the driver is gone; the next obey() sees it
            self.control.send(json.dumps(message).encode())

    def end(self) -> None:
        """Ends all descendants: their orphans become our children, so the loop ends when there are none left."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for pid in self.pids:
            _kill_group(pid)
        while True:
            for pid in _children():
                _kill(pid)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                os._exit(0)


def _children() -> list[int]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    try:
        return [int(pid) for pid in path.read_text().split()]
    except OSError:
        return []


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
