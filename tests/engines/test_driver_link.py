"""Tests a worker's connection to its driver."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from thriftune.engines.driver_link import DriverLink
from thriftune.engines.local import _send
from thriftune.training.messages import run_message
from thriftune.training.run import Run

FOREVER_SECONDS = 60.0


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[tuple[DriverLink, socket.socket]]:
    """Yield the worker's link, which has received a run, and the driver's socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        link = DriverLink(theirs, tmp_path / "0.spool")
        run = Run(3, 2, {}, 0, ("loss",), 5, 7, str(tmp_path), 2, judged=True)
        _send(ours, {"run": run_message(run)})
        assert link.next_run() is not None
        yield link, ours


def test_waits_until_the_report_was_judged(connection: tuple[DriverLink, socket.socket]) -> None:
    link, driver = connection
    done = threading.Event()
    answers: list[bool] = []

    def wait() -> None:
        answers.append(link.end_requested(2, FOREVER_SECONDS))
        done.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    for stale in ([3, 2, 1], [3, 1, 2], [4, 2, 9]):  # an earlier report, attempt, trial
        _send(driver, {"judged": stale})
    assert not done.wait(0.05)
    _send(driver, {"judged": [3, 2, 2]})
    waiting.join(FOREVER_SECONDS)
    assert answers == [False]
    assert not link.end_requested()
    assert not link.end_requested(2, FOREVER_SECONDS)  # the answer has arrived before


def test_a_request_to_end_ends_the_wait(connection: tuple[DriverLink, socket.socket]) -> None:
    link, driver = connection
    _send(driver, {"end": [3, 2]})
    assert link.end_requested(1, FOREVER_SECONDS)
    assert link.end_requested()


def test_the_wait_ends_after_its_timeout(connection: tuple[DriverLink, socket.socket]) -> None:
    link, _ = connection
    assert not link.end_requested(1, 0.01)


def test_a_signal_handler_neither_waits_nor_receives_while_its_thread_receives(
    connection: tuple[DriverLink, socket.socket],
) -> None:
    link, driver = connection
    in_handler: list[bool] = []

    def handle(*_: object) -> None:
        _send(driver, {"end": [3, 2]})
        in_handler.append(link.end_requested(1, FOREVER_SECONDS))

    earlier = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert link.end_requested(1, FOREVER_SECONDS)  # the handler interrupts this wait
    finally:
        signal.signal(signal.SIGALRM, earlier)
    assert in_handler == [False]


def test_the_check_of_the_sending_thread_does_not_wait_for_a_thread_that_receives(
    connection: tuple[DriverLink, socket.socket],
) -> None:
    link, driver = connection
    waiting = threading.Thread(target=link.end_requested, args=(1, FOREVER_SECONDS))
    waiting.start()
    while not link._receiving:
        time.sleep(0.001)
    assert not link._end_requested_now()
    _send(driver, {"end": [3, 2]})
    waiting.join(FOREVER_SECONDS)
    assert link._end_requested_now()
