"""The workers of one trial, each in a process of its own: they keep step, whatever becomes of one."""

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
from thriftune.training.checkpoints import Checkpoints
from thriftune.training.gangs import First, Gone, _Line, address, free_port, join
from thriftune.training.run import Run, TrialLost

WITHIN_SECONDS = 120.0
KEY = "open sesame"


class Came(NamedTuple):
    """What came of one worker."""

    outcome: Event
    sent: list[Event]
    seen: list[Any]

    @property
    def told(self) -> list[tuple[int, bool]]:
        return [(event.step, event.saved) for event in self.sent if isinstance(event, Reported)]


class Workers:
    """Starts them; ends what is left of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[tuple[SpawnProcess, Connection]] = []

    def run(self, workers: int, **settings: Any) -> Run:
        given: dict[str, Any] = {
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
            "meet": f"127.0.0.1:{free_port('127.0.0.1')}" if workers > 1 else "",
            "key": KEY,
        }
        return Run(**{**given, **settings})

    def start(
        self, run: Run, act: str, ranks: Sequence[int], end_after: float = math.inf, patience: float = 60.0
    ) -> None:
        context = multiprocessing.get_context("spawn")
        for rank in ranks:
            ours, theirs = context.Pipe(duplex=False)
            mine = Run(**{**{name: getattr(run, name) for name in Run.__slots__}, "rank": rank})
            end = end_after if rank == 0 else 0  # what the driver says to the others is not asked
            process = context.Process(target=gang_acts.work, args=(theirs, mine, act, end, patience), daemon=True)
            process.start()
            theirs.close()
            self._started.append((process, ours))

    def all_came(self) -> list[Came | None]:
        """In the order of their start; None for one that died. Each has come, in the time there is."""
        deadline = time.monotonic() + WITHIN_SECONDS
        found: list[Came | None] = []
        for process, pipe in self._started:
            assert wait([pipe], deadline - time.monotonic()), f"{process} hangs"
            try:
                found.append(Came(*pipe.recv()))
            except EOFError:
                found.append(None)
        return found

    def play(self, act: str, workers: int, end_after: float = math.inf, **settings: Any) -> list[Came]:
        self.start(self.run(workers, **settings), act, range(workers), end_after)
        return [came for came in self.all_came() if came is not None]

    def close(self) -> None:
        for process, pipe in self._started:
            process.kill()
            process.join()
            pipe.close()
        self._started.clear()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    found = Workers(tmp_path)
    yield found
    found.close()


# --- in step ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end_after", [1, 3, math.inf])
def test_all_end_after_the_same_step_and_one_speaks(workers: Workers, end_after: float) -> None:
    first, *others = workers.play("looping", 3, end_after)
    done = min(end_after, 5)
    for rank, came in enumerate((first, *others)):
        assert came.seen == [(rank, 3), *range(1, int(done) + 1)]
        assert isinstance(came.outcome, Ended)
        assert came.outcome.cut == (end_after < 5)
    assert first.told == [(step, True) for step in range(1, int(done) + 1)]
    assert [came.sent for came in others] == [[], []]


def test_only_the_first_saves(workers: Workers, tmp_path: Path) -> None:
    workers.play("looping", 2)
    found = Checkpoints(tmp_path / "3" / "checkpoints").load()
    assert found.folder is not None
    assert (found.step, (found.folder / "state").read_text()) == (5, "5 by 0")


@pytest.mark.parametrize(("end_after", "done"), [(2, 2), (math.inf, 5)])
def test_without_a_loop_over_steps(workers: Workers, end_after: float, done: int) -> None:
    first, second = workers.play("reporting", 2, end_after)
    assert first.seen[:done] == second.seen[:done] == list(range(1, done + 1))
    assert len(first.seen) == len(second.seen)
    assert isinstance(first.outcome, Ended)
    assert isinstance(second.outcome, Ended)
    assert [step for step, _ in first.told] == list(range(1, done + 1))


def test_one_worker_has_no_gang(workers: Workers) -> None:
    assert join(workers.run(1)) is None
    (only,) = workers.play("looping", 1)
    assert only.seen == [(0, 1), 1, 2, 3, 4, 5]


def test_several_workers_of_an_engine_that_starts_one_process(workers: Workers) -> None:
    """They are threads or devices of one process, and not a gang."""
    run = workers.run(4, meet="")
    workers.start(run, "looping", [0])
    (only,) = workers.all_came()
    assert only is not None
    assert only.seen[0] == (0, 1)


def test_no_number_of_the_firsts_ends_all(workers: Workers) -> None:
    first, second, third = workers.play("first_is_nan", 3)
    assert isinstance(first.outcome, Failed)
    assert first.outcome.kind == "nan"
    assert isinstance(second.outcome, Ended)
    assert isinstance(third.outcome, Ended)
    assert second.outcome.cut
    assert second.seen == third.seen == [1, 2]


def test_no_number_of_anothers_does_not_matter(workers: Workers) -> None:
    first, second = workers.play("second_is_nan", 2)
    assert isinstance(first.outcome, Ended)
    assert isinstance(second.outcome, Ended)
    assert first.seen == second.seen == [1, 2, 3, 4, 5]
    assert not second.sent


def test_one_that_never_looks_holds_nobody_up(workers: Workers) -> None:
    assert all(isinstance(came.outcome, Ended) for came in workers.play("not_asking", 2))


# --- going on ---------------------------------------------------------------------------------------------


def test_all_go_on_from_the_checkpoint_that_the_first_finds(workers: Workers, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "3" / "checkpoints")
    for step in (2, 3):
        checkpoints.save(step, lambda folder: (folder / "state").write_text("good"))
    (tmp_path / "3" / "checkpoints" / "step-0000000003" / "state" / "state").write_text("dirt")
    came = workers.play("restoring", 3, resume_step=3, attempt=2)
    for rank, each in enumerate(came):
        assert each.seen == ["good", 2, (rank, 3), 3, 4, 5]
        assert isinstance(each.outcome, Ended)
    (warned,) = [event for each in came for event in each.sent if isinstance(event, Warned)]
    assert "checkpoint of step 3 is corrupt" in warned.message


def test_where_there_is_no_checkpoint_left_all_begin_anew(workers: Workers) -> None:
    first, second = workers.play("restoring", 2, resume_step=3, attempt=2)
    assert first.seen == [0, (0, 2), 1, 2, 3, 4, 5]
    assert second.seen == [0, (1, 2), 1, 2, 3, 4, 5]


def test_one_that_does_not_share_the_folder(workers: Workers, tmp_path: Path) -> None:
    Checkpoints(tmp_path / "3" / "checkpoints").save(2, lambda folder: (folder / "state").write_text("good"))
    run = workers.run(2, resume_step=2, attempt=2)
    workers.start(run, "restoring", [0])
    elsewhere = Run(**{**{name: getattr(run, name) for name in Run.__slots__}, "folder": str(tmp_path / "4")})
    workers.start(elsewhere, "restoring", [1])
    first, second = workers.all_came()
    assert first is not None
    assert second is not None
    assert isinstance(first.outcome, Ended)
    assert isinstance(second.outcome, Failed)
    assert "worker 1 does not find the checkpoint of step 2 that the first" in second.outcome.error


def test_an_error_that_comes_of_anothers_is_told_as_that(workers: Workers, tmp_path: Path) -> None:
    Checkpoints(tmp_path / "3" / "checkpoints").save(2, lambda folder: (folder / "state").write_text("good"))
    first, second = workers.play("restoring_badly", 2, resume_step=2, attempt=2)
    for came in (first, second):
        assert isinstance(came.outcome, Failed)
        assert came.outcome.error.endswith("ZeroDivisionError: division by zero")
    assert isinstance(first.outcome, Failed)
    assert first.outcome.error.startswith("in worker 1: Traceback")


def test_what_only_the_first_does_is_named(workers: Workers, tmp_path: Path) -> None:
    Checkpoints(tmp_path / "3" / "checkpoints").save(2, lambda folder: (folder / "state").write_text("good"))
    first, second = workers.play("restoring_apart", 2, resume_step=2, attempt=2)
    assert isinstance(first.outcome, Ended)  # whoever runs them sees the other's end
    assert isinstance(second.outcome, Failed)
    assert "worker 1 awaits what the first worker says of 'told', which speaks of 'checkpoint'" in (
        second.outcome.error
    )


# --- those who do not come, or go -------------------------------------------------------------------------


def test_strangers_are_let_go_and_the_others_awaited(workers: Workers) -> None:
    run = workers.run(2)
    workers.start(run, "looping", [0])
    strangers = [stranger(run) for _ in range(7)]
    words = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        json.dumps({"key": "let me in", "rank": 1}).encode() + b"\n",
        json.dumps({"key": KEY, "rank": 2}).encode() + b"\n",
        b'{"key": "\\ud800", "rank": [1]}\n',
        b"[" * 4000 + b"\n",
        b"x" * 100_000,
    ]
    for each, word in zip(strangers, words, strict=False):  # the last says nothing
        each.sendall(word)
    gone = stranger(run)
    gone.close()
    for each, _ in zip(strangers, words, strict=False):
        each.settimeout(WITHIN_SECONDS)
        with contextlib.suppress(ConnectionError):
            assert each.recv(1) == b""
    workers.start(run, "looping", [1])
    first, second = workers.all_came()
    assert first is not None
    assert second is not None
    assert first.seen[1:] == second.seen[1:] == [1, 2, 3, 4, 5]
    for each in strangers:
        each.close()


def stranger(run: Run) -> socket.socket:
    """Somebody at the port, as soon as there is one."""
    while True:
        try:
            return socket.create_connection(address(run.meet))
        except ConnectionRefusedError:
            time.sleep(0.02)


def test_a_worker_that_never_comes(workers: Workers) -> None:
    run = workers.run(3)
    workers.start(run, "looping", [1])
    workers.start(run, "looping", [0], patience=1.0)
    second, first = workers.all_came()
    assert first is not None
    assert second is not None
    assert isinstance(first.outcome, Lost)
    assert first.outcome.why.startswith("of the trial's 3 workers, worker")
    assert first.outcome.why.endswith(f"did not come to {run.meet} within 1 s")
    assert isinstance(second.outcome, (Ended, Lost))  # it came late, or waited for what did not come


def test_a_first_worker_that_never_comes(workers: Workers) -> None:
    run = workers.run(2)
    workers.start(run, "looping", [1], patience=0.5)
    (came,) = workers.all_came()
    assert came is not None
    assert isinstance(came.outcome, Lost)
    assert came.outcome.why.startswith(f"worker 1 has not found the first worker at {run.meet} in 0.5 s: ")


def test_a_port_that_somebody_else_has_taken(workers: Workers) -> None:
    run = workers.run(2)
    with socket.create_server(address(run.meet)), pytest.raises(TrialLost, match="cannot listen at 127"):
        First(run)


def test_the_first_goes_on_without_one_that_died(workers: Workers) -> None:
    workers.start(workers.run(3), "killed_1", range(3))
    first, second, third = workers.all_came()
    assert second is None
    assert first is not None
    assert third is not None
    assert [step for step, _ in first.told] == [1, 2, 3, 4, 5]
    assert isinstance(first.outcome, Ended)
    assert isinstance(third.outcome, Ended)


def test_without_the_first_the_others_end_quietly(workers: Workers) -> None:
    workers.start(workers.run(3), "killed_0", range(3))
    first, second, third = workers.all_came()
    assert first is None
    for came in (second, third):
        assert came is not None
        assert isinstance(came.outcome, Ended)
        assert came.outcome.cut


# --- lines ------------------------------------------------------------------------------------------------


@pytest.fixture
def line() -> Iterator[tuple[_Line, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        theirs = socket.create_connection(door.getsockname())
        ours = _Line(door.accept()[0])
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_message_comes_in_pieces_or_with_others(line: tuple[_Line, socket.socket]) -> None:
    ours, theirs = line
    theirs.sendall(b'{"told": fal')
    assert ours.receive(0.05) == {}
    theirs.sendall(b'se}\n{"told": true}\n')
    assert ours.receive() == {"told": False}
    assert ours.receive(0.0) == {"told": True}
    assert ours.receive(0.0) == {}
    theirs.close()
    with pytest.raises(Gone):
        ours.receive()
    ours.send({"told": True})  # nobody hears it, and nothing happens


def test_a_line_to_a_machine_that_vanishes_is_probed(line: tuple[_Line, socket.socket]) -> None:
    sock = line[0].socket
    idle, every, times = (
        sock.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert idle + every * times == 10


@pytest.mark.parametrize(
    ("meet", "found"), [("10.0.0.7:80", ("10.0.0.7", 80)), (":80", ("", 80)), ("[::1]:80", ("::1", 80))]
)
def test_where_they_meet(meet: str, found: tuple[str, int]) -> None:
    assert address(meet) == found


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
def play_command(workers: Workers, tmp_path: Path) -> Callable[..., list[Came]]:
    def play(script: str, workers_count: int = 2, end_after: float = math.inf) -> list[Came]:
        (tmp_path / "3").mkdir()
        (tmp_path / "3" / "script.py").write_text(script)
        config = {"command": [sys.executable, "script.py"]}
        return workers.play("command", workers_count, end_after, config=config)

    return play


def test_a_command_finds_its_workers(play_command: Callable[..., list[Came]], tmp_path: Path) -> None:
    first, second, third = play_command(PRINTS, 3)
    said = [(tmp_path / "3" / f"rank-{rank}").read_text().split() for rank in range(3)]
    assert [each[:4] for each in said] == [[str(rank), "3", str(rank), "127.0.0.1"] for rank in range(3)]
    assert len({each[4] for each in said}) == 1
    assert first.told == [(1, False)]
    assert not second.sent
    assert not third.sent
    assert isinstance(second.outcome, Ended)


def test_a_command_that_reports_itself(play_command: Callable[..., list[Came]]) -> None:
    first, second = play_command(REPORTS)
    assert [step for step, _ in first.told] == [1, 2, 3, 4, 5]
    assert not second.sent
    assert isinstance(first.outcome, Ended)
    assert isinstance(second.outcome, Ended)


def test_the_commands_of_all_workers_are_told_to_end(play_command: Callable[..., list[Came]]) -> None:
    first, second = play_command(HANGS, 2, 1)
    assert first.told == [(1, False)]
    for came in (first, second):
        assert isinstance(came.outcome, Ended)
        assert came.outcome.cut


def test_a_command_that_fails(play_command: Callable[..., list[Came]]) -> None:
    first, second = play_command(FAILS)
    assert isinstance(first.outcome, Ended)
    assert isinstance(second.outcome, Failed)
    assert "exited with status 4" in second.outcome.error
