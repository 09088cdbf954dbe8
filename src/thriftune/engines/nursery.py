"""Who bears the workers, and buries them? Two small processes between the driver and its workers.

The nursery forks workers on request (it is single-threaded and has the imports done, so a worker is there in
milliseconds), tells the driver how each one died, and makes sure that nothing outlives its time: what a dead
worker left behind becomes its child and is ended, and when the driver goes away, for whatever reason, it ends
them all and then itself. The warden, its parent, does nothing but that last thing, for the case that the nursery
itself is killed.

Every worker is the reaper of its own descendants, so that an orphan here is always one of a dead worker's, and
never what a trial that still runs has sent into the background.

Protocol, one JSON object a message: in {"spawn": id} with the descriptors [link, output], {"kill": id};
out {"born": id, "pid": n}, {"died": id, "status": wait status}, {"unborn": id, "why": text}.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from pathlib import Path
from typing import Any, NoReturn

from thriftune.engines import worker

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_FORK_PATIENCE_SECONDS = 5.0
"""How long a machine that is out of processes or memory is given to have one again."""


def main(control_fd: int, alive_fd: int, settings: dict[str, Any]) -> None:
    """`alive_fd` is locked; it is inherited by every fork, and so locked until the last of them is gone."""
    for fd in (control_fd, alive_fd):
        os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: end_descendants())
    # The driver's going is seen as the end of the control stream; this covers a stream that somebody else
    # holds open by having forked the driver.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    warden_pid = os.getpid()
    nursery_pid = os.fork()
    if nursery_pid == 0:
        os.setsid()  # no signal to a group shall take both
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == warden_pid:
            Nursery(socket.socket(fileno=control_fd), settings).run()
            if os.getppid() == warden_pid:
                os.kill(warden_pid, signal.SIGCONT)  # a stopped one would stay, and keep the next run waiting
    else:
        os.close(control_fd)
        os.waitpid(nursery_pid, 0)
    end_descendants()


class Nursery:
    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self.control = control
        self.settings = settings
        self.pids: dict[int, int] = {}  # pid of each live worker -> its id
        self.unsent: deque[bytes] = deque()  # messages the driver has had no time for

    def run(self) -> None:
        """Until the driver is gone."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        control = self.control.fileno()
        poll = select.poll()  # not select(): the driver may have given a descriptor above 1023
        poll.register(wake_read, select.POLLIN)
        try:
            while True:
                poll.register(control, select.POLLIN | (select.POLLOUT if self.unsent else 0))
                ready = dict(poll.poll())
                if wake_read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                    self.reap()
                state = ready.get(control, 0)
                if state & ~(select.POLLIN | select.POLLOUT):
                    break  # the driver is gone, and so is the use of what it had still ordered
                if state & select.POLLIN and not self.obey():
                    break
                self.send()
        except Exception:
            traceback.print_exc()

    def obey(self) -> bool:
        try:
            message, fds, _, _ = socket.recv_fds(self.control, 4096, 2)
        except ConnectionError:
            return False
        if not message:
            return False
        order = json.loads(message)
        if "spawn" in order:
            try:
                self.spawn(order["spawn"], fds)
            except OSError as error:
                self.tell({"unborn": order["spawn"], "why": f"no process could be started: {error}"})
            finally:
                for fd in fds:
                    os.close(fd)
        elif "kill" in order:
            for pid, worker_id in self.pids.items():
                if worker_id == order["kill"]:
                    _kill(pid)  # it may not have made its group yet
                    _kill_group(pid)
        return True

    def spawn(self, worker_id: int, fds: list[int]) -> None:
        if len(fds) != 2:
            raise OSError("the process that keeps the workers has too many files open")
        nursery_pid = os.getpid()
        pid = self.fork()
        if pid == 0:
            try:
                os.setsid()
                _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != nursery_pid:  # it died before the line above
                    os._exit(0)
                _prctl(_PR_SET_CHILD_SUBREAPER, 1)
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_DFL)
                self.control.close()
                worker.main(worker_id, fds[0], fds[1], self.settings)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        self.pids[pid] = worker_id
        self.tell({"born": worker_id, "pid": pid})

    def fork(self) -> int:
        """One refusal must not end the other trials, nor use up this one's chances in a moment."""
        deadline = time.monotonic() + _FORK_PATIENCE_SECONDS
        while True:
            try:
                return os.fork()
            except OSError:
                if time.monotonic() > deadline:
                    raise
            self.reap()  # the dead count too
            time.sleep(0.1)

    def reap(self) -> None:
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                break
            pid = dead.si_pid
            worker_id = self.pids.pop(pid, None)
            if worker_id is not None:
                _kill_group(pid)  # while it is not buried, its number cannot be another's
            _, status = os.waitpid(pid, 0)
            if worker_id is not None:
                self.tell({"died": worker_id, "status": status})
        # What a dead worker leaves behind becomes our child, even if it left the worker's group.
        for pid in _children():
            if pid not in self.pids:
                _kill(pid)

    def tell(self, message: dict[str, Any]) -> None:
        self.unsent.append(json.dumps(message).encode())
        self.send()

    def send(self) -> None:
        """As much as the driver takes now: waiting for one that waits for us would be for ever."""
        while self.unsent:
            try:
                self.control.send(self.unsent[0], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:  # the driver is gone; the next obey() sees it
                self.unsent.clear()
                return
            self.unsent.popleft()


def end_descendants() -> NoReturn:
    """Ends them and this process: their orphans become our children, so without children, all are gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        for pid in _children():
            _kill(pid)
            _kill_group(pid)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)


def _children() -> list[int]:
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{me}/children").read_text().split()]
    except OSError:  # a kernel built without that file
        stats = [entry / "stat" for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [int(stat.parent.name) for stat in stats if _parent(stat) == me]


def _parent(stat: Path) -> int | None:
    try:
        return int(stat.read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
