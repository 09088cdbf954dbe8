"""Tests of gangs: workers in separate processes that stay in step even if one of them fails."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.training import gang_acts
from thriftune.state.events import Ended, Event, Failed, Lost, Reported, Warned
from thriftune.training.checkpoint_files import Checkpoints
from thriftune.training.gang_connection import ConnectionGone, GangConnection, free_port, parse_address
from thriftune.training.gangs import GangLeader, join
from thriftune.training.run import Run, TrialLost

WITHIN_SECONDS = 120.0
KEY = "open sesame"


class WorkerResult(NamedTuple):
    """The outcome of one worker, and what it sent and noted."""

    outcome: Event
    sent: list[Event]
    seen: list[Any]

    @property
    def reported(self) -> list[tuple[int, bool]]:
        return [(event.step, event.saved) for event in self.sent if isinstance(event, Reported)]


class Workers:
    """Starts workers, and kills those that remain."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[tuple[SpawnProcess, Connection]] = []

    def run(self, workers: int, **settings: Any) -> Run:
        defaults: dict[str, Any] = {
            "trial": 3,
            "attempt": 1,
            "config": {},
            "resume_step": 0,
            "objectives": ("loss",),
            "max_steps": 5,
            "seed": 11,
            "folder": str(self._folder / "3"),
            "keep": 2,
            "workers": workers,
            "leader_address": f"127.0.0.1:{free_port('127.0.0.1')}" if workers > 1 else "",
            "gang_key": KEY,
        }
        return Run(**{**defaults, **settings})

    def start(
        self, run: Run, act: str, ranks: Sequence[int], end_after: float = math.inf, join_seconds: float = 60.0
    ) -> None:
        context = multiprocessing.get_context("spawn")
        for rank in ranks:
            ours, theirs = context.Pipe(duplex=False)
            mine = Run(**{**{name: getattr(run, name) for name in Run.__slots__}, "rank": rank})
            end = end_after if rank == 0 else 0  # only worker 0 asks the driver
            process = context.Process(
                target=gang_acts.work, args=(theirs, mine, act, end, join_seconds), daemon=True
            )
            process.start()
            theirs.close()
            self._started.append((process, ours))

    def results(self) -> list[WorkerResult | None]:
        """Return the results in the order of start; None for a worker that died. Fail if one hangs."""
        deadline = time.monotonic() + WITHIN_SECONDS
        results: list[WorkerResult | None] = []
        for process, pipe in self._started:
            assert wait([pipe], deadline - time.monotonic()), f"{process} hangs"
            try:
                results.append(WorkerResult(*pipe.recv()))
            except EOFError:
                results.append(None)
        return results

    def play(self, act: str, workers: int, end_after: float = math.inf, **settings: Any) -> list[WorkerResult]:
        self.start(self.run(workers, **settings), act, range(workers), end_after)
        return [result for result in self.results() if result is not None]

    def close(self) -> None:
        for process, pipe in self._started:
            process.kill()
            process.join()
            pipe.close()
        self._started.clear()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path)
    yield started
    started.close()


# --- in step ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end_after", [1, 3, math.inf])
def test_all_end_after_the_same_step_and_only_the_leader_reports(workers: Workers, end_after: float) -> None:
    first, *others = workers.play("looping", 3, end_after)
    done = min(end_after, 5)
    for rank, result in enumerate((first, *others)):
        assert result.seen == [(rank, 3), *range(1, int(done) + 1)]
        assert isinstance(result.outcome, Ended)
        assert result.outcome.cut == (end_after < 5)
    assert first.reported == [(step, True) for step in range(1, int(done) + 1)]
    assert [result.sent for result in others] == [[], []]


def test_only_the_leader_saves(workers: Workers, tmp_path: Path) -> None:
    workers.play("looping", 2)
    checkpoint = Checkpoints(tmp_path / "3" / "checkpoints").load()
    assert checkpoint.folder is not None
    assert (checkpoint.step, (checkpoint.folder / "state").read_text()) == (5, "5 by 0")


@pytest.mark.parametrize(("end_after", "done"), [(2, 2), (math.inf, 5)])
def test_without_a_loop_over_steps(workers: Workers, end_after: float, done: int) -> None:
    first, second = workers.play("reporting", 2, end_after)
    assert first.seen[:done] == second.seen[:done] == list(range(1, done + 1))
    assert len(first.seen) == len(second.seen)
    assert isinstance(first.outcome, Ended)
    assert isinstance(second.outcome, Ended)
    assert [step for step, _ in first.reported] == list(range(1, done + 1))


def test_one_worker_has_no_gang(workers: Workers) -> None:
    assert join(workers.run(1)) is None
    (only,) = workers.play("looping", 1)
    assert only.seen == [(0, 1), 1, 2, 3, 4, 5]


def test_several_workers_in_one_process_are_no_gang(workers: Workers) -> None:
    """Such workers are threads or devices of one process."""
    run = workers.run(4, leader_address="")
    workers.start(run, "looping", [0])
    (only,) = workers.results()
    assert only is not None
    assert only.seen[0] == (0, 1)


def test_nan_of_the_leader_ends_all(workers: Workers) -> None:
    first, second, third = workers.play("first_is_nan", 3)
    assert isinstance(first.outcome, Failed)
    assert first.outcome.kind == "nan"
    assert isinstance(second.outcome, Ended)
    assert isinstance(third.outcome, Ended)
    assert second.outcome.cut
    assert second.seen == third.seen == [1, 2]


def test_nan_of_a_follower_is_ignored(workers: Workers) -> None:
    first, second = workers.play("second_is_nan", 2)
    assert isinstance(first.outcome, Ended)
    assert isinstance(second.outcome, Ended)
    assert first.seen == second.seen == [1, 2, 3, 4, 5]
    assert not second.sent


def test_follower_that_never_checks_delays_nobody(workers: Workers) -> None:
    assert all(isinstance(result.outcome, Ended) for result in workers.play("not_asking", 2))


# --- resuming ---------------------------------------------------------------------------------------------


def test_all_resume_from_the_checkpoint_of_the_leader(workers: Workers, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "3" / "checkpoints")
    for step in (2, 3):
        checkpoints.save(step, lambda folder: (folder / "state").write_text("good"))
    (tmp_path / "3" / "checkpoints" / "step-0000000003" / "state" / "state").write_text("dirt")
    results = workers.play("restoring", 3, resume_step=3, attempt=2)
    for rank, each in enumerate(results):
        assert each.seen == ["good", 2, (rank, 3), 3, 4, 5]
        assert isinstance(each.outcome, Ended)
    (warned,) = [event for each in results for event in each.sent if isinstance(event, Warned)]
    assert "checkpoint of step 3 is corrupt" in warned.message


def test_without_a_checkpoint_all_start_from_the_beginning(workers: Workers) -> None:
    first, second = workers.play("restoring", 2, resume_step=3, attempt=2)
    assert first.seen == [0, (0, 2), 1, 2, 3, 4, 5]
    assert second.seen == [0, (1, 2), 1, 2, 3, 4, 5]


def test_follower_without_the_shared_folder_fails(workers: Workers, tmp_path: Path) -> None:
    Checkpoints(tmp_path / "3" / "checkpoints").save(2, lambda folder: (folder / "state").write_text("good"))
    run = workers.run(2, resume_step=2, attempt=2)
    workers.start(run, "restoring", [0])
    elsewhere = Run(**{**{name: getattr(run, name) for name in Run.__slots__}, "folder": str(tmp_path / "4")})
    workers.start(elsewhere, "restoring", [1])
    first, second = workers.results()
    assert first is not None
    assert second is not None
    assert isinstance(first.outcome, Ended)
    assert isinstance(second.outcome, Failed)
    assert "worker 1 does not find the checkpoint of step 2 that worker 0" in second.outcome.error


def test_error_caused_by_a_follower_is_reported_as_its_own(workers: Workers, tmp_path: Path) -> None:
    Checkpoints(tmp_path / "3" / "checkpoints").save(2, lambda folder: (folder / "state").write_text("good"))
    first, second = workers.play("restoring_badly", 2, resume_step=2, attempt=2)
    for result in (first, second):
        assert isinstance(result.outcome, Failed)
        assert result.outcome.error.endswith("ZeroDivisionError: division by zero")
    assert isinstance(first.outcome, Failed)
    assert first.outcome.error.startswith("in worker 1: Traceback")


def test_call_of_the_leader_alone_is_an_error(workers: Workers, tmp_path: Path) -> None:
    Checkpoints(tmp_path / "3" / "checkpoints").save(2, lambda folder: (folder / "state").write_text("good"))
    first, second = workers.play("restoring_apart", 2, resume_step=2, attempt=2)
    assert isinstance(first.outcome, Ended)  # the engine sees the end of worker 1
    assert isinstance(second.outcome, Failed)
    assert "worker 1 waits for 'end' from worker 0, which sent 'checkpoint'" in (second.outcome.error)


# --- missing and lost workers -------------------------------------------------------------------------


def test_connections_of_other_processes_are_closed(workers: Workers) -> None:
    run = workers.run(2)
    workers.start(run, "looping", [0])
    strangers = [stranger(run) for _ in range(7)]
    messages = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        json.dumps({"key": "let me in", "rank": 1}).encode() + b"\n",
        json.dumps({"key": KEY, "rank": 2}).encode() + b"\n",
        b'{"key": "\\ud800", "rank": [1]}\n',
        b"[" * 4000 + b"\n",
        b"x" * 100_000,
    ]
    for each, message in zip(strangers, messages, strict=False):  # the last stranger sends nothing
        each.sendall(message)
    stranger(run).close()
    for each, _ in zip(strangers, messages, strict=False):
        each.settimeout(WITHIN_SECONDS)
        with contextlib.suppress(ConnectionError):
            assert each.recv(1) == b""
    workers.start(run, "looping", [1])
    first, second = workers.results()
    assert first is not None
    assert second is not None
    assert first.seen[1:] == second.seen[1:] == [1, 2, 3, 4, 5]
    for each in strangers:
        each.close()


def stranger(run: Run) -> socket.socket:
    """Connect to the leader's port as soon as it listens."""
    while True:
        try:
            return socket.create_connection(parse_address(run.leader_address))
        except ConnectionRefusedError:
            time.sleep(0.02)


def test_missing_follower_loses_the_trial(workers: Workers) -> None:
    run = workers.run(3)
    workers.start(run, "looping", [1])
    workers.start(run, "looping", [0], join_seconds=1.0)
    second, first = workers.results()
    assert first is not None
    assert second is not None
    assert isinstance(first.outcome, Lost)
    assert first.outcome.why.startswith("of the trial's 3 workers, worker")
    assert first.outcome.why.endswith(f"did not connect to {run.leader_address} within 1 s")
    assert isinstance(second.outcome, (Ended, Lost))  # it ended, or its own time was over


def test_missing_leader_loses_the_trial(workers: Workers) -> None:
    run = workers.run(2)
    workers.start(run, "looping", [1], join_seconds=0.5)
    (result,) = workers.results()
    assert result is not None
    assert isinstance(result.outcome, Lost)
    assert result.outcome.why.startswith(
        f"worker 1 could not connect to worker 0 at {run.leader_address} within 0.5 s: "
    )


def test_port_in_use_loses_the_trial(workers: Workers) -> None:
    run = workers.run(2)
    with (
        socket.create_server(parse_address(run.leader_address)),
        pytest.raises(TrialLost, match="cannot listen at 127"),
    ):
        GangLeader(run)


def test_leader_continues_without_a_killed_follower(workers: Workers) -> None:
    workers.start(workers.run(3), "killed_1", range(3))
    first, second, third = workers.results()
    assert second is None
    assert first is not None
    assert third is not None
    assert [step for step, _ in first.reported] == [1, 2, 3, 4, 5]
    assert isinstance(first.outcome, Ended)
    assert isinstance(third.outcome, Ended)


def test_followers_end_without_error_if_the_leader_is_killed(workers: Workers) -> None:
    workers.start(workers.run(3), "killed_0", range(3))
    first, second, third = workers.results()
    assert first is None
    for result in (second, third):
        assert result is not None
        assert isinstance(result.outcome, Ended)
        assert result.outcome.cut


# --- connections ------------------------------------------------------------------------------------------------


@pytest.fixture
def connection() -> Iterator[tuple[GangConnection, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours = GangConnection(listener.accept()[0])
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_are_split_at_line_breaks(connection: tuple[GangConnection, socket.socket]) -> None:
    ours, theirs = connection
    theirs.sendall(b'{"end": fal')
    assert ours.receive(0.05) == {}
    theirs.sendall(b'se}\n{"end": true}\n')
    assert ours.receive() == {"end": False}
    assert ours.receive(0.0) == {"end": True}
    assert ours.receive(0.0) == {}
    theirs.close()
    with pytest.raises(ConnectionGone):
        ours.receive()
    ours.send({"end": True})  # the connection is closed, and send() raises nothing


def test_vanished_machine_is_noticed_by_keepalive(connection: tuple[GangConnection, socket.socket]) -> None:
    sock = connection[0].socket
    idle, every, times = (
        sock.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert idle + every * times == 10


@pytest.mark.parametrize(
    ("address", "parsed"), [("10.0.0.7:80", ("10.0.0.7", 80)), (":80", ("", 80)), ("[::1]:80", ("::1", 80))]
)
def test_addresses_are_parsed(address: str, parsed: tuple[str, int]) -> None:
    assert parse_address(address) == parsed


# --- commands ---------------------------------------------------------------------------------------------

SCRIPT = """
import os, sys, time
import thriftune
from pathlib import Path
rank = os.environ["RANK"]
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
Path(f"rank-{rank}").write_text(" ".join(os.environ[name] for name in names))
"""
PRINTS = SCRIPT + "print('loss=0.5', flush=True)\n"
REPORTS = SCRIPT + "trial = thriftune.current_trial()\nfor step in trial.steps(): trial.report(loss=1.0)\n"
HANGS = SCRIPT + "print('loss=0.5', flush=True)\ntime.sleep(600)\n"
FAILS = SCRIPT + "time.sleep(0.5)\nsys.exit(int(rank) + 3 if rank == '1' else 0)\n"


@pytest.fixture
def play_command(workers: Workers, tmp_path: Path) -> Callable[..., list[WorkerResult]]:
    def play(script: str, workers_count: int = 2, end_after: float = math.inf) -> list[WorkerResult]:
        (tmp_path / "3").mkdir()
        (tmp_path / "3" / "script.py").write_text(script)
        config = {"command": [sys.executable, "script.py"]}
        return workers.play("command", workers_count, end_after, config=config)

    return play


def test_command_gets_torchrun_variables(play_command: Callable[..., list[WorkerResult]], tmp_path: Path) -> None:
    first, second, third = play_command(PRINTS, 3)
    variables = [(tmp_path / "3" / f"rank-{rank}").read_text().split() for rank in range(3)]
    assert [each[:4] for each in variables] == [[str(rank), "3", str(rank), "127.0.0.1"] for rank in range(3)]
    assert len({each[4] for each in variables}) == 1
    assert first.reported == [(1, False)]
    assert not second.sent
    assert not third.sent
    assert isinstance(second.outcome, Ended)


def test_command_that_reports_by_itself(play_command: Callable[..., list[WorkerResult]]) -> None:
    first, second = play_command(REPORTS)
    assert [step for step, _ in first.reported] == [1, 2, 3, 4, 5]
    assert not second.sent
    assert isinstance(first.outcome, Ended)
    assert isinstance(second.outcome, Ended)


def test_commands_of_all_workers_are_ended(play_command: Callable[..., list[WorkerResult]]) -> None:
    first, second = play_command(HANGS, 2, 1)
    assert first.reported == [(1, False)]
    for result in (first, second):
        assert isinstance(result.outcome, Ended)
        assert result.outcome.cut


def test_command_that_fails_ends_the_trial(play_command: Callable[..., list[WorkerResult]]) -> None:
    first, second = play_command(FAILS)
    assert isinstance(first.outcome, Ended)
    assert isinstance(second.outcome, Failed)
    assert "exited with status 4" in second.outcome.error
