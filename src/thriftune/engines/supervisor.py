"""The supervisor: the process that starts and ends the local workers of a driver.

The driver starts a watchdog process, which forks the supervisor. The supervisor forks workers on request. It has
one thread, and has already imported all modules, so that a worker starts within milliseconds. It reports the wait
status of each worker that ends to the driver. When the driver ends, for whatever reason, the supervisor ends all
workers and itself. The watchdog does the same if the supervisor is killed.

The parent process of each worker is a reaper (reaper.py), which adopts the orphans of the worker. An orphan that
the supervisor adopts therefore belonged to a reaper that was killed, and the supervisor kills it.

The driver and the supervisor exchange messages, each one JSON object. The driver sends {"spawn": id} with two file
descriptors, one for messages and one for output, and {"kill": id}. The supervisor sends {"kind": "started",
"worker": id, "pid": n}, {"kind": "ended", "worker": id, "status": wait status}, or {"kind": "not_started",
"worker": id, "why": text}.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
import traceback
from collections import deque
from dataclasses import dataclass
from typing import Any, NoReturn

from thriftune.engines import reaper, worker
from thriftune.engines.processes import adopt_orphans, children_of, end_children, end_with_parent, kill

_FORK_RETRY_SECONDS = 5.0
"""How long to retry a fork on a machine that has no free processes or memory."""

_FORK_POLL_SECONDS = 0.1

_MESSAGE_BYTES = 4096


def main(control_fd: int, alive_fd: int, settings: dict[str, Any]) -> None:
    """Run the watchdog and the supervisor, until the driver has ended.

    - `control_fd`: a socket for messages to and from the driver.
    - `alive_fd`: a locked file. Every fork inherits it, so it stays locked until the last of them has ended.
    - `settings`: see worker.main().
    """
    for fd in (control_fd, alive_fd):
        os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: end_descendants())
    # The supervisor notices the end of the driver by the end of the control stream. If a fork of the driver holds
    # the stream open, this signal ends the watchdog instead.
    end_with_parent(signal.SIGTERM)
    watchdog_pid = os.getpid()
    supervisor_pid = os.fork()
    if supervisor_pid == 0:
        os.setsid()  # the watchdog stays in another process group, so that no signal ends both
        adopt_orphans()
        end_with_parent(signal.SIGTERM)
        if os.getppid() == watchdog_pid:
            Supervisor(socket.socket(fileno=control_fd), settings).run()
            if os.getppid() == watchdog_pid:
                os.kill(watchdog_pid, signal.SIGCONT)  # a stopped watchdog could not end, and would keep the lock
    else:
        os.close(control_fd)
        os.waitpid(supervisor_pid, 0)
    end_descendants()


@dataclass(frozen=True, slots=True)
class _SupervisedWorker:
    """A worker process, as the supervisor knows it."""

    id: int
    pid: int
    status_fd: int  # for reading its wait status, which its reaper writes


class Supervisor:
    """Starts workers for the driver, and reports their ends."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self.control = control
        self.settings = settings
        self.workers: dict[
            int, _SupervisedWorker
        ] = {}  # all workers whose reaper runs, by the reaper's process id
        self.unsent: deque[bytes] = deque()  # messages that the driver has not received yet

    def run(self) -> None:
        """Serve the driver until it has ended."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        control = self.control.fileno()
        poll = select.poll()  # not select(), which fails for descriptors above 1023
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
                    break  # the driver has ended, so its last requests do not matter
                if state & select.POLLIN and not self.obey():
                    break
                self.send_unsent()
        except Exception:
            traceback.print_exc()

    def obey(self) -> bool:
        """Carry out a request of the driver; return False if the driver has ended."""
        try:
            message, fds, _, _ = socket.recv_fds(self.control, _MESSAGE_BYTES, 2)
        except ConnectionError:
            return False
        if not message:
            return False
        request = json.loads(message)
        if "spawn" in request:
            try:
                self.spawn(request["spawn"], fds)
            except OSError as error:
                why = f"no process could be started: {error}"
                self.send({"kind": "not_started", "worker": request["spawn"], "why": why})
            finally:
                for fd in fds:
                    os.close(fd)
        elif "kill" in request:
            for reaper_pid, each in self.workers.items():
                if each.id == request["kill"]:
                    # The reaper has not been waited for, so no other process has its id. SIGCONT is for a reaper
                    # that was stopped.
                    os.kill(reaper_pid, signal.SIGTERM)
                    os.kill(reaper_pid, signal.SIGCONT)
        return True

    def spawn(self, worker_id: int, fds: list[int]) -> None:
        """Start a worker and its reaper; raise OSError if they cannot be started.

        `fds`: the descriptors for the worker's messages and for its output.
        """
        if len(fds) != 2:
            raise OSError("the supervisor process has too many files open")
        supervisor_pid = os.getpid()
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        try:
            reaper_pid = self.fork()
            if reaper_pid == 0:
                try:
                    end_with_parent(signal.SIGTERM)
                    if os.getppid() != supervisor_pid:  # the supervisor ended before the line above
                        os._exit(0)
                    self.close_files(status_read)
                    reaper.run(status_write, fds, self.fork, lambda: self.work(worker_id, fds))
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
        except OSError:
            os.close(status_read)
            raise
        finally:
            os.close(status_write)
        worker_pid = _read_number(status_read)
        if worker_pid is None:
            os.close(status_read)
            raise OSError("the parent process of the worker has ended")
        self.workers[reaper_pid] = _SupervisedWorker(worker_id, worker_pid, status_read)
        self.send({"kind": "started", "worker": worker_id, "pid": worker_pid})

    def close_files(self, status_fd: int) -> None:
        """Close the files that only the supervisor uses.

        Called in a process that the supervisor has forked.
        """
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.control.close()
        os.close(status_fd)
        for other in self.workers.values():
            os.close(other.status_fd)
        self.workers.clear()

    def work(self, worker_id: int, fds: list[int]) -> NoReturn:
        """Run the worker until it ends.

        Called in the process that the reaper has forked.
        """
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        worker.main(worker_id, fds[0], fds[1], self.settings)
        os._exit(1)

    def fork(self) -> int:
        """Call os.fork() and return its result.

        Retries for some time if the machine has no free processes or memory. Otherwise a short shortage could
        use up all retries of a trial.
        """
        deadline = time.monotonic() + _FORK_RETRY_SECONDS
        while True:
            try:
                return os.fork()
            except OSError:
                if time.monotonic() > deadline:
                    raise
            self.reap()  # ended processes count towards the limit until they are waited for
            time.sleep(_FORK_POLL_SECONDS)

    def reap(self) -> None:
        """Report which workers have ended, and kill orphans.

        Called when a child process has ended.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            ended = self.workers.pop(pid, None)
            if ended is not None:
                worker_status = _read_number(ended.status_fd)
                os.close(ended.status_fd)
                if worker_status is None:  # the reaper was killed, and this process has adopted the worker
                    self.end_adopted(ended.pid)
                    worker_status = status
                self.send({"kind": "ended", "worker": ended.id, "status": worker_status})
        for pid in children_of(os.getpid()):
            if pid not in self.workers:  # an orphan of a reaper that was killed
                kill(pid)

    def end_adopted(self, pid: int) -> None:
        """Kill a worker whose reaper was killed, and wait for its end.

        It must have ended before another attempt of its trial starts.
        """
        if pid in children_of(os.getpid()):
            kill(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the driver, now or later."""
        self.unsent.append(json.dumps(message).encode())
        self.send_unsent()

    def send_unsent(self) -> None:
        """Send as many messages as possible without waiting for the driver.

        The driver may itself be waiting for this process.
        """
        while self.unsent:
            try:
                self.control.send(self.unsent[0], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:  # the driver has ended; the next obey() notices that
                self.unsent.clear()
                return
            self.unsent.popleft()


def end_descendants() -> NoReturn:
    """End all descendants and this process.

    Orphans are included, because they become children of this process.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_children()
    os._exit(0)


def _read_number(fd: int) -> int | None:
    """Wait for the next line of a reaper, and return the number in it.

    Returns None if the reaper has ended without another line.
    """
    line = b""
    while not line.endswith(b"\n"):
        char = os.read(fd, 1)
        if not char:
            return None
        line += char
    return int(line)
