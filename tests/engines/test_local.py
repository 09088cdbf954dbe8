"""The local engine: what every engine must do, and what only processes of this machine can go through."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.conformance import HERE, TARGET, EngineConformance, ends, nothing_more, told, until, until_ended
from tests.engines.processes import all_gone, eventually, marked, parent
from thriftune.engines import local, recovery, supervisor
from thriftune.engines.exit_causes import MemoryKills, ending
from thriftune.engines.local import LocalEngine
from thriftune.engines.protocol import Engine
from thriftune.errors import StudyBusy, ThriftuneError
from thriftune.state.events import Ended, Event, Failed, Lost, Reported, Tick, Warned
from thriftune.store.output_files import read_output
from thriftune.training.messages import Lines, from_line, read_spool, to_line
from thriftune.training.run import Run


class TestLocalEngine(EngineConformance):
    def make(self, folder: Path, slots: int) -> LocalEngine:
        return LocalEngine(folder / "run", slots, TARGET)

    def make_code(self, folder: Path, slots: int) -> str:
        home = f"__import__('pathlib').Path({str(folder / 'run')!r})"
        return f"__import__('thriftune.engines.local').engines.local.LocalEngine({home}, {slots}, {TARGET!r})"

    # --- workers

    def test_workers_are_reused_and_replaced_after_a_failure(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)

        def pid_of(trial: int, do: str = "pid") -> float:
            engine.start(run(trial, do), HERE)
            events = until_ended(engine, trial)
            return float(events[0].metrics["pid"])  # type: ignore[attr-defined]

        # What is put right, and what only waits to be buried, is no reason to lose a warm worker.
        for n, do in enumerate(
            (
                "change_folder",
                "change_variables",
                "change_signals",
                "change_limits",
                "change_process",
                "check",
                "leave_read_file",
                "close_stdout",
                "print_mark",
            )
        ):
            engine.start(run(100 + n, do), HERE)
            assert isinstance(until_ended(engine, 100 + n)[-1], Ended), do
        first = {pid_of(trial) for trial in range(20)} | {pid_of(20, "leave_zombie"), pid_of(21)}
        assert len(first) == 1
        engine.start(run(30, "raise_error"), HERE)
        until_ended(engine, 30)
        assert pid_of(31) not in first
        for n, do in enumerate(
            ("leave_thread", "leave_child", "leave_daemon", "leave_socket", "leave_written_file")
        ):
            before = pid_of(40 + n)
            engine.start(run(50 + n, do), HERE)
            assert isinstance(until_ended(engine, 50 + n)[-1], Ended)
            assert pid_of(60 + n) != before, do

    def test_processes_in_the_background_are_reaped_while_training(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "send_into_background"), HERE)
        report, end = until_ended(engine, 0)
        assert isinstance(end, Ended)
        assert isinstance(report, Reported)
        assert report.metrics == {"loss": 7.0, "left": 0.0, "adopted": 5.0}

    def test_a_worker_killed_from_outside_is_lost(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        for trial, number in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)):
            engine.start(run(trial, "count", max_steps=10**6, pause=0.01), HERE)
            events = until(engine, len)
            (doing,) = (doing for doing in engine.status() if doing.trial == trial)
            assert doing.pid is not None
            os.kill(doing.pid, number)
            until(engine, ends, events)
            assert isinstance(events[-1], Lost)
            assert signal.Signals(number).name in events[-1].why

    def test_an_idle_worker_killed_from_outside_is_replaced(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(2)
        eventually(lambda: engine.wait(0.05) or all(d.pid for d in engine.status()), "workers are born")
        for doing in engine.status():
            assert doing.pid is not None
            os.kill(doing.pid, signal.SIGKILL)
        # Whether a run reaches one that is dead already or a new one, it ends once, and by nobody's fault.
        for trial in (0, 1):
            engine.start(run(trial, "pid"), HERE)
        events = until_ended(engine, 0, 1)
        assert {type(event) for event in ends(events)} <= {Ended, Lost}
        nothing_more(engine)
        engine.start(run(2, "pid"), HERE)
        assert isinstance(until_ended(engine, 2)[-1], Ended)

    def test_a_worker_that_exits_before_it_begins_is_lost_and_not_the_trials_fault(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        assert isinstance(engine, LocalEngine)
        eventually(lambda: engine.wait(0.05) or all(d.pid for d in engine.status()), "a worker is born")
        (doing,) = engine.status()
        assert doing.pid is not None
        os.kill(doing.pid, signal.SIGABRT)  # as a thread that another trial has left behind might end it
        engine.start(run(0, "pid"), HERE)
        event = ends(until_ended(engine, 0))[0]
        assert isinstance(event, (Lost, Ended))

    @pytest.mark.parametrize("generations", [2, 3], ids=["nursery", "warden"])
    def test_the_keepers_of_the_workers_may_be_killed(
        self,
        generations: int,
        opened: Callable[[int], Engine],
        run: Callable[..., Run],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        mark = os.urandom(8).hex()
        monkeypatch.setenv("TEST_MARK", mark)
        engine = opened(2)
        engine.start(run(0, "sleep_in_company"), HERE)
        engine.start(run(1, "count", max_steps=10**6, pause=0.01), HERE)
        events = until(engine, lambda events: told(events, 0) and told(events, 1))
        before = set(marked(f"TEST_MARK={mark}"))
        victim = next(doing.pid for doing in engine.status())
        assert victim is not None
        for _ in range(generations):
            victim = parent(victim)
        os.kill(victim, signal.SIGKILL)
        until(engine, lambda events: len(ends(events)) == 2, events)
        assert all(isinstance(event, Lost) for event in ends(events))
        eventually(lambda: not before & set(marked(f"TEST_MARK={mark}")), "all it kept are gone")
        engine.start(run(2, "check"), HERE)
        assert isinstance(until_ended(engine, 2)[-1], Ended)
        engine.close()
        all_gone(f"TEST_MARK={mark}")

    def test_a_nursery_that_cannot_start_is_an_error(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        engine = opened(1)

        def go_on() -> None:
            for attempt in range(1, 10):
                engine.start(run(0, "pid", attempt=attempt), HERE)
                assert isinstance(until_ended(engine, 0, attempt=attempt)[-1], Lost)

        with pytest.raises(ThriftuneError, match="ends as soon as it is started, with status 1"):
            go_on()

    def test_a_python_that_is_not_there_is_an_error(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        engine = self.make(folder, 1)
        engine.recover()
        with pytest.raises(ThriftuneError, match="/nowhere/python"):
            engine.open()
        engine.close()

    def test_too_many_open_files_is_an_error_that_says_so(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "sleep"), HERE)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)

        def lowest_free() -> int:
            fd = os.dup(0)
            os.close(fd)
            return fd

        free = lowest_free()
        try:
            for spare in range(4):  # a worker takes four for a moment
                resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, limits[1]))
                with pytest.raises(ThriftuneError, match=r"Too many open files; give fewer workers"):
                    engine.start(run(1, "sleep"), HERE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert lowest_free() == free

    def test_more_workers_than_their_keepers_line_holds(
        self,
    ) -> None:
        """The nursery must not wait for a driver that waits for the nursery."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        keeper = supervisor.Supervisor(theirs, {})
        for n in range(1000):
            keeper.tell({"born": n, "pid": n})
        got = 0
        while got < 1000:
            assert ours.recv(4096)
            got += 1
            keeper.send()
        assert not keeper.unsent

    def test_a_fork_that_is_refused_for_a_moment_is_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        refusals = [BlockingIOError("no more processes"), OSError("no memory")]

        def fork() -> int:
            if refusals:
                raise refusals.pop()
            return 4711

        monkeypatch.setattr(os, "fork", fork)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            assert supervisor.Supervisor(theirs, {}).fork() == 4711

    def test_no_process_to_be_had_is_nobodys_fault(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        assert isinstance(engine, LocalEngine)
        engine.start(run(0, "sleep"), HERE)
        (worker,) = engine._workers.values()
        with pytest.MonkeyPatch.context() as patch:
            news = b'{"unborn": %d, "why": "no process could be started: EAGAIN"}' % worker.id
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                theirs.send(news)
                patch.setattr(engine, "_control", ours)
                engine._nursery_speaks()
        (lost,) = until_ended(engine, 0)
        assert isinstance(lost, Lost)
        assert "EAGAIN" in lost.why

    def test_a_fork_of_the_driver_does_not_keep_the_workers(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        """It has the driver's lines, too; close() returns all the same."""
        engine = opened(1)
        engine.start(run(0, "sleep"), HERE)
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        try:
            engine.close()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def test_a_stopped_nursery_does_not_hold_up_the_end(
        self, opened: Callable[[int], Engine], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mark = os.urandom(8).hex()
        monkeypatch.setenv("TEST_MARK", mark)
        monkeypatch.setattr(local, "_CLOSED_WITHIN_SECONDS", 0.2)
        engine = opened(1)
        eventually(lambda: engine.wait(0.05) or all(d.pid for d in engine.status()), "a worker is born")
        pid = engine.status()[0].pid
        assert pid is not None
        os.kill(parent(parent(pid)), signal.SIGSTOP)
        engine.close()
        all_gone(f"TEST_MARK={mark}")

    def test_a_stopped_warden_does_not_hold_up_the_driver(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mark = os.urandom(8).hex()
        monkeypatch.setenv("TEST_MARK", mark)
        engine = opened(1)
        engine.start(run(0, "sleep"), HERE)
        eventually(lambda: engine.wait(0.05) or all(d.pid for d in engine.status()), "a worker is born")
        pid = engine.status()[0].pid
        assert pid is not None
        keeper = parent(parent(pid))
        os.kill(parent(keeper), signal.SIGSTOP)
        os.kill(keeper, signal.SIGKILL)
        assert isinstance(until_ended(engine, 0)[-1], Lost)
        engine.start(run(1, "check"), HERE)
        assert isinstance(until_ended(engine, 1)[-1], Ended)
        engine.close()
        all_gone(f"TEST_MARK={mark}")

    def test_workers_go_by_the_clock_of_their_driver(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As it was when the driver began: what happened to the wall clock since must not show in durations."""
        right, hour = time.time, 3600.0
        monkeypatch.setattr(time, "time", lambda: right() - 2 * hour)
        engine = opened(1)
        monkeypatch.setattr(time, "time", right)
        engine.start(run(0, "pid"), HERE)
        engine.start(run(1, "sleep"), HERE)
        events = until_ended(engine, 0)
        engine.kill(1, 1)
        events += until_ended(engine, 1)
        assert len(events) == 3
        assert all(event.at < right() - hour for event in events)

    # --- what grows

    def test_nothing_grows_with_trials_and_deaths(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], folder: Path
    ) -> None:
        engine = opened(2)

        def do(first: int, last: int, what: str) -> None:
            events: list[Event] = []
            for trial in range(first, last, 2):
                engine.start(run(trial, what), HERE)
                engine.start(run(trial + 1, what), HERE)
                events.clear()
                until(engine, lambda events: len(ends(events)) == 2, events)

        def descriptors() -> int:
            return len(list(Path("/proc/self/fd").iterdir()))

        do(0, 20, "exit_3")
        do(20, 500, "pid")
        before, memory = descriptors(), resident_bytes()
        do(500, 2500, "pid")
        do(2500, 2700, "exit_3")
        do(2700, 2710, "pid")
        engine.wait(0.1)
        # A dead worker or two may still be on their way out.
        assert descriptors() <= before + 6
        assert len(list((folder / "run" / "spools").iterdir())) <= 8
        assert resident_bytes() - memory < 6 << 20

    @pytest.mark.parametrize("act", ["limit_files", "limit_files_for_good"])
    def test_a_limit_on_files_does_not_pass_for_a_full_disk(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], act: str
    ) -> None:
        engine = opened(1)
        engine.start(run(0, act, max_steps=1000), HERE)
        *reports, failed = told(until_ended(engine, 0), 0)
        assert isinstance(failed, Failed)
        assert "RLIMIT_FSIZE" in failed.error
        assert {type(event) for event in reports} == {Reported}

    def test_a_message_without_an_end_does_not_fill_the_driver(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "pid"), HERE)
        until_ended(engine, 0)
        before, most = resident_bytes(), 0
        engine.start(run(1, "write_without_end"), HERE)
        events: list[Event] = []
        while not events:
            events += engine.wait(0.01)
            most = max(most, resident_bytes())
        (failed,) = events
        assert isinstance(failed, Failed)
        assert "a message of more than 16 MiB" in failed.error
        assert most - before < 100 << 20

    def test_a_report_that_is_too_large_is_an_error_that_says_so(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "report_much"), HERE)
        (failed,) = until_ended(engine, 0)
        assert isinstance(failed, Failed)
        assert "at most 16 MiB" in failed.error
        engine.start(run(1, "check"), HERE)
        assert isinstance(until_ended(engine, 1)[-1], Ended)

    def test_100_mb_of_output_do_not_fill_the_driver_or_the_disk(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], folder: Path
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "pid"), HERE)
        until_ended(engine, 0)
        before, most = resident_bytes(), 0
        engine.start(run(1, "print_much"), HERE)
        events: list[Event] = []
        while not events:
            events += engine.wait(0.01)
            most = max(most, resident_bytes())
        (failed,) = events
        assert isinstance(failed, Failed)
        assert failed.output.endswith("the last of it")
        assert len(failed.output) <= 16_384
        assert most - before < 10 << 20
        kept = list((folder / "trials" / "1" / "output").iterdir())
        assert sum(path.stat().st_size for path in kept) <= 3 << 20
        assert read_output(folder / "trials" / "1", 1).rstrip().endswith("the last of it")

    def test_output_that_cannot_be_kept_is_a_warning_and_no_failure(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], folder: Path
    ) -> None:
        engine = opened(1)
        for trial in (0, 1):
            (folder / "trials" / str(trial)).mkdir(parents=True)
            (folder / "trials" / str(trial) / "output").write_text("in the way")
        engine.start(run(0, "check"), HERE)
        (warned,) = (event for event in until_ended(engine, 0) if not isinstance(event, (Reported, Ended)))
        assert isinstance(warned, Warned)
        assert warned.message == "what trials print cannot be kept: File exists; they go on without it"
        engine.start(run(1, "check"), HERE)
        assert [type(event) for event in until_ended(engine, 1)] == [Reported, Ended], "it is said once"

    def test_the_output_of_one_attempt_is_not_the_next_ones(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "check"), HERE)
        until_ended(engine, 0)
        engine.start(run(1, "raise_error"), HERE)
        (failed,) = until_ended(engine, 1)
        assert isinstance(failed, Failed)
        assert failed.output == "about to raise"

    # --- what an earlier driver left

    def test_recover_refuses_while_somebody_is_left(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recovery, "END_WITHIN_SECONDS", 0.1)
        engine = self.make(folder, 1)
        engine.recover()
        engine.open()
        try:
            with pytest.raises(StudyBusy, match="fuser"):
                self.make(folder, 1).recover()
        finally:
            engine.close()
        assert self.make(folder, 1).recover() == []

    def test_a_clock_set_back_does_not_turn_a_spool_round(self, folder: Path) -> None:
        spools = folder / "run" / "spools"
        spools.mkdir(parents=True)
        told = [Reported(20.0, 0, 1, 1, 1, {"loss": 1.0}), Ended(10.0, 0, 1, 1.0)]
        (spools / "0.spool").write_bytes(b"".join(map(to_line, told)) + b'Reported {"at": 3')
        (spools / "1.spool").write_bytes(to_line(Ended(15.0, 1, 1, 1.0)))
        assert self.make(folder, 1).recover() == [Ended(15.0, 1, 1, 1.0), *told]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


# --- the small parts --------------------------------------------------------------------------------------


def test_lines_are_whole_however_they_come() -> None:
    text = b"one\n\ntwo and a half\nthree\nrest"
    for size in range(1, len(text) + 1):
        lines = Lines()
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        assert [line for chunk in chunks for line in lines.feed(chunk)] == text.split(b"\n")[:-1]
        assert lines.feed(b"\n") == [b"rest"]


@pytest.mark.parametrize("line", [b"", b"Nonsense {}", b"Ended", b"Ended {", b"Ended []", b"\xff\xfe {}"])
def test_what_is_no_event_is_a_value_error(line: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        from_line(line)
    spool = tmp_path / "spool"
    spool.write_bytes(line + b"\n" + to_line(Tick(1.0)))
    assert list(read_spool(spool)) == [Tick(1.0)]


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (0, "exited", "status 0"),
        (3 << 8, "exited", "status 3"),
        (signal.SIGSEGV, "signal", "SIGSEGV"),
        (signal.SIGSEGV | 0x80, "signal", "SIGSEGV"),  # with a core
        (40, "signal", "40"),
        (signal.SIGKILL, None, "SIGKILL"),
        (signal.SIGTERM, None, "SIGTERM"),
    ],
)
def test_endings(status: int, kind: str | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thriftune.engines.exit_causes.out_of_memory_kills", lambda: 5)
    end = ending(status, MemoryKills())
    assert end.kind == kind
    assert message in end.message


def test_each_kill_for_memory_explains_one_death_and_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    kills, now = [5], [0.0]
    monkeypatch.setattr("thriftune.engines.exit_causes.out_of_memory_kills", lambda: kills[0])
    monkeypatch.setattr("thriftune.engines.exit_causes.time.monotonic", lambda: now[0])
    memory = MemoryKills()
    assert not memory.claim()
    kills[0] = 7
    memory.look()
    assert [ending(signal.SIGKILL, memory).kind for _ in range(3)] == ["memory", "memory", None]
    kills[0] = 8
    now[0] = 3.0
    memory.look()  # just seen: it may be of a worker whose death is not known yet
    assert memory.claim()
    kills[0] = 9
    for now[0] in (6.0, 9.0):
        memory.look()
    assert not memory.claim()
