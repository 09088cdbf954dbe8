"""The reaper: the parent process of one worker, which waits for orphans.

The reaper adopts the orphans of a trial. A worker cannot do that itself, because it could not distinguish orphans
from the trial's own children, for which the trial itself waits. When the worker has ended, the reaper ends the
remaining orphans, and reports how the worker ended.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import NoReturn

from thriftune.engines.processes import adopt_orphans, end_children, end_with_parent, kill


def run(status_fd: int, fds: Sequence[int], fork: Callable[[], int], work: Callable[[], NoReturn]) -> NoReturn:
    """Fork a worker, wait for its end, and exit.

    Called in a process that the supervisor has just forked. SIGTERM makes the reaper kill the worker.

    - `status_fd`: a descriptor to which the reaper writes two lines: the worker's process id, and the worker's
      wait status when the worker and its orphans have ended.
    - `fds`: descriptors that only the worker uses.
    - `fork`: forks this process.
    - `work`: runs the worker.
    """
    os.setsid()  # signals to the supervisor's process group do not reach this process
    adopt_orphans()
    reaper_pid = os.getpid()
    pid = fork()
    if pid == 0:
        os.close(status_fd)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        end_with_parent(signal.SIGKILL)
        if os.getppid() != reaper_pid:  # the reaper ended before the line above
            os._exit(0)
        work()
    for fd in fds:
        os.close(fd)
    signal.signal(signal.SIGTERM, lambda *_: kill(pid))
    os.write(status_fd, b"%d\n" % pid)
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if ended is not None and ended.si_pid == pid:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # another process may get the worker's id from now on
        if ended is not None:
            _, status = os.waitpid(ended.si_pid, 0)
            if ended.si_pid == pid:
                break
    end_children()
    os.write(status_fd, b"%d\n" % status)
    os._exit(0)
