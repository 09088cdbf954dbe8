"""Tests a worker's connection to its driver."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from thriftune.engines.local import _send
from thriftune.engines.worker import DriverLink
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

    def wait() -> None:
        link.wait_for_answer(2, FOREVER_SECONDS)
        done.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    for stale in ([3, 2, 1], [3, 1, 2], [4, 2, 9]):  # an earlier report, attempt, trial
        _send(driver, {"judged": stale})
    assert not done.wait(0.05)
    _send(driver, {"judged": [3, 2, 2]})
    waiting.join(FOREVER_SECONDS)
    assert done.is_set()
    assert not link.told_to_end()
    link.wait_for_answer(2, FOREVER_SECONDS)  # the answer has arrived before


def test_a_request_to_end_ends_the_wait(connection: tuple[DriverLink, socket.socket]) -> None:
    link, driver = connection
    _send(driver, {"end": [3, 2]})
    link.wait_for_answer(1, FOREVER_SECONDS)
    assert link.told_to_end()


def test_the_wait_ends_after_its_timeout(connection: tuple[DriverLink, socket.socket]) -> None:
    link, _ = connection
    link.wait_for_answer(1, 0.01)
    assert not link.told_to_end()
