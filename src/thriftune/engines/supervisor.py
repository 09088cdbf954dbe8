"""Who bears the workers, and buries them? Small processes between the driver and its workers.

The nursery forks workers on request (it is single-threaded and has the imports done, so a worker is there in
milliseconds) and tells the driver how each one died. When the driver goes away, for whatever reason, the nursery
ends all workers and then itself. The warden, its parent, does only that last thing, in case the nursery is killed.

Each worker has a reaper above it (reaper.py), which adopts what the trial sends into the background. So an orphan
here is always one of a reaper that was killed, and is ended.

Protocol, one JSON object a message: in {"spawn": id} with the descriptors [link, output], {"kill": id};
out {"born": id, "pid": n}, {"died": id, "status": wait status}, {"unborn": id, "why": text}.
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

_FORK_PATIENCE_SECONDS = 5.0
"""How long a machine that is out of processes or memory is given to have one again."""


def main(control_fd: int, alive_fd: int, settings: dict[str, Any]) -> None:
    """`alive_fd` is locked; it is inherited by every fork, and so locked until the last of them is gone."""
    for fd in (control_fd, alive_fd):
        os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: end_descendants())
    # The driver's going is seen as the end of the control stream; this covers a stream that somebody else
    # holds open by having forked the driver.
    end_with_parent(signal.SIGTERM)
    warden_pid = os.getpid()
    nursery_pid = os.fork()
    if nursery_pid == 0:
        os.setsid()  # no signal to a group shall take both
        adopt_orphans()
        end_with_parent(signal.SIGTERM)
        if os.getppid() == warden_pid:
            Supervisor(socket.socket(fileno=control_fd), settings).run()
            if os.getppid() == warden_pid:
                os.kill(warden_pid, signal.SIGCONT)  # a stopped one would stay, and keep the next run waiting
    else:
        os.close(control_fd)
        os.waitpid(nursery_pid, 0)
    end_descendants()


@dataclass(frozen=True, slots=True)
class _Worker:
    id: int
    pid: int
    news: int  # a descriptor, from which its wait status can be read once its reaper has ended


class Supervisor:
    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self.control = control
        self.settings = settings
        self.workers: dict[int, _Worker] = {}  # all whose reaper lives, by the process id of that
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
            for pid, each in self.workers.items():
                if each.id == order["kill"]:
                    os.kill(pid, signal.SIGTERM)  # not reaped yet, so the number is still its own
                    os.kill(pid, signal.SIGCONT)  # a stopped one would not act on it
        return True

    def spawn(self, worker_id: int, fds: list[int]) -> None:
        if len(fds) != 2:
            raise OSError("the process that keeps the workers has too many files open")
        nursery_pid = os.getpid()
        news, told = os.pipe2(os.O_CLOEXEC)
        try:
            pid = self.fork()
            if pid == 0:
                try:
                    end_with_parent(signal.SIGTERM)
                    if os.getppid() != nursery_pid:  # it died before the line above
                        os._exit(0)
                    self.leave(news)
                    reaper.run(told, fds, self.fork, lambda: self.work(worker_id, fds))
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)
        except OSError:
            os.close(news)
            raise
        finally:
            os.close(told)
        born = _read_number(news)
        if born is None:
            os.close(news)
            raise OSError("the process that was to keep the worker has ended")
        self.workers[pid] = _Worker(worker_id, born, news)
        self.tell({"born": worker_id, "pid": born})

    def leave(self, news: int) -> None:
        """Close what only the nursery uses. Called in a fork of it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.control.close()
        os.close(news)
        for other in self.workers.values():
            os.close(other.news)
        self.workers.clear()

    def work(self, worker_id: int, fds: list[int]) -> NoReturn:
        """Run the worker's loop until it ends. Called in a fork of the reaper."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        worker.main(worker_id, fds[0], fds[1], self.settings)
        os._exit(1)

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
        """Tell the driver which workers have ended, and kill orphans. Called when a child has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            ended = self.workers.pop(pid, None)
            if ended is not None:
                told = _read_number(ended.news)
                os.close(ended.news)
                if told is None:  # somebody killed the reaper; the worker is our child now
                    self.bury(ended.pid)
                self.tell({"died": ended.id, "status": status if told is None else told})
        for pid in children_of(os.getpid()):  # what a killed reaper leaves behind
            if pid not in self.workers:
                kill(pid)

    def bury(self, pid: int) -> None:
        """Kill a worker whose reaper was killed and wait for its end: its trial may be started again after it."""
        if pid in children_of(os.getpid()):
            kill(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

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
    end_children()
    os._exit(0)


def _read_number(news: int) -> int | None:
    """Waits for the next line of a reaper; returns None if it has ended without one."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(news, 1)
        if not more:
            return None
        line += more
    return int(line)
