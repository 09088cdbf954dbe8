"""Stands between the nursery and one worker: adopts what a trial sends into the background, and reaps it.

A worker cannot do that itself: it could not tell such processes from the trial's own children, whose exit status
belongs to the trial. When the worker ends, the reaper ends what is left, and tells the nursery how it ended.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import NoReturn

from thriftune.engines.processes import adopt_orphans, end_children, end_with_parent, kill


def run(news: int, fds: Sequence[int], fork: Callable[[], int], work: Callable[[], NoReturn]) -> NoReturn:
    """Forks a worker, waits for its end, and exits. Called in a process that the nursery has just forked.

    Writes the worker's process id to the descriptor `news`, and its wait status once it has ended and nothing of
    it is left. Only the worker uses the descriptors `fds`. SIGTERM ends the worker at once.
    """
    os.setsid()  # no signal to the nursery's group shall reach it
    adopt_orphans()
    reaper = os.getpid()
    pid = fork()
    if pid == 0:
        os.close(news)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        end_with_parent(signal.SIGKILL)
        if os.getppid() != reaper:  # it died before the line above
            os._exit(0)
        work()
    for fd in fds:
        os.close(fd)
    signal.signal(signal.SIGTERM, lambda *_: kill(pid))
    os.write(news, b"%d\n" % pid)
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if ended is not None and ended.si_pid == pid:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # its id may soon be another's
        if ended is not None:
            _, status = os.waitpid(ended.si_pid, 0)
            if ended.si_pid == pid:
                break
    end_children()
    os.write(news, b"%d\n" % status)
    os._exit(0)
