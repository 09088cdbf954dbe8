"""Tests the local engine: the conformance tests, and faults of processes on this machine."""

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

from tests.engines.conformance import (
    ON_THIS_MACHINE,
    TARGET,
    EngineConformance,
    ends,
    events_of,
    no_more_events,
    wait_for_end,
    wait_until,
)
from tests.engines.processes import eventually, parent, processes_with, wait_for_no_process
from thriftune.engines import local, recovery, supervisor
from thriftune.engines.exit_causes import MemoryKills, exit_cause
from thriftune.engines.local import LocalEngine
from thriftune.engines.protocol import Engine
from thriftune.errors import StudyBusy, ThriftuneError
from thriftune.state.events import Ended, Event, Failed, Lost, Reported, Tick, Warned
from thriftune.store.output_files import read_output
from thriftune.training.messages import LineBuffer, from_line, read_spool, to_line
from thriftune.training.run import Run


class TestLocalEngine(EngineConformance):
    def make(self, folder: Path, slots: int) -> LocalEngine:
        return LocalEngine(folder / "run", slots, TARGET)

    def make_code(self, folder: Path, slots: int) -> str:
        path = f"__import__('pathlib').Path({str(folder / 'run')!r})"
        return f"__import__('thriftune.engines.local').engines.local.LocalEngine({path}, {slots}, {TARGET!r})"

    # --- workers

    def test_workers_are_reused_and_replaced_after_a_failure(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)

        def pid_of(trial: int, do: str = "pid") -> float:
            engine.start(run(trial, do), ON_THIS_MACHINE)
            events = wait_for_end(engine, trial)
            return float(events[0].metrics["pid"])  # type: ignore[attr-defined]

        # A worker stays if all changes can be undone. A child that has ended does not count.
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
            engine.start(run(100 + n, do), ON_THIS_MACHINE)
            assert isinstance(wait_for_end(engine, 100 + n)[-1], Ended), do
        first = {pid_of(trial) for trial in range(20)} | {pid_of(20, "leave_zombie"), pid_of(21)}
        assert len(first) == 1
        engine.start(run(30, "raise_error"), ON_THIS_MACHINE)
        wait_for_end(engine, 30)
        assert pid_of(31) not in first
        for n, do in enumerate(
            ("leave_thread", "leave_child", "leave_daemon", "leave_socket", "leave_written_file")
        ):
            before = pid_of(40 + n)
            engine.start(run(50 + n, do), ON_THIS_MACHINE)
            assert isinstance(wait_for_end(engine, 50 + n)[-1], Ended)
            assert pid_of(60 + n) != before, do

    def test_background_processes_are_waited_for_while_training(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "send_into_background"), ON_THIS_MACHINE)
        report, end = wait_for_end(engine, 0)
        assert isinstance(end, Ended)
        assert isinstance(report, Reported)
        assert report.metrics == {"loss": 7.0, "left": 0.0, "adopted": 5.0}

    def test_a_worker_killed_from_outside_is_lost(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        for trial, number in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)):
            engine.start(run(trial, "count", max_steps=10**6, pause=0.01), ON_THIS_MACHINE)
            events = wait_until(engine, len)
            (status,) = (status for status in engine.status() if status.trial == trial)
            assert status.pid is not None
            os.kill(status.pid, number)
            wait_until(engine, ends, events)
            assert isinstance(events[-1], Lost)
            assert signal.Signals(number).name in events[-1].why

    def test_an_idle_worker_killed_from_outside_is_replaced(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(2)
        wait_for_workers(engine)
        for status in engine.status():
            assert status.pid is not None
            os.kill(status.pid, signal.SIGKILL)
        # A run may reach a killed worker or a new one. It ends once, and has not failed.
        for trial in (0, 1):
            engine.start(run(trial, "pid"), ON_THIS_MACHINE)
        events = wait_for_end(engine, 0, 1)
        assert {type(event) for event in ends(events)} <= {Ended, Lost}
        no_more_events(engine)
        engine.start(run(2, "pid"), ON_THIS_MACHINE)
        assert isinstance(wait_for_end(engine, 2)[-1], Ended)

    def test_a_run_is_lost_if_its_worker_ends_before_the_run_begins(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        assert isinstance(engine, LocalEngine)
        wait_for_workers(engine)
        (status,) = engine.status()
        assert status.pid is not None
        os.kill(status.pid, signal.SIGABRT)  # a thread of an earlier trial might do so
        engine.start(run(0, "pid"), ON_THIS_MACHINE)
        event = ends(wait_for_end(engine, 0))[0]
        assert isinstance(event, (Lost, Ended))

    @pytest.mark.parametrize("generations", [2, 3], ids=["supervisor", "watchdog"])
    def test_the_supervisor_and_its_watchdog_may_be_killed(
        self,
        generations: int,
        opened: Callable[[int], Engine],
        run: Callable[..., Run],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        mark = os.urandom(8).hex()
        monkeypatch.setenv("TEST_MARK", mark)
        engine = opened(2)
        engine.start(run(0, "sleep_in_company"), ON_THIS_MACHINE)
        engine.start(run(1, "count", max_steps=10**6, pause=0.01), ON_THIS_MACHINE)
        events = wait_until(engine, lambda events: events_of(events, 0) and events_of(events, 1))
        before = set(processes_with(f"TEST_MARK={mark}"))
        victim = next(status.pid for status in engine.status())
        assert victim is not None
        for _ in range(generations):
            victim = parent(victim)
        os.kill(victim, signal.SIGKILL)
        wait_until(engine, lambda events: len(ends(events)) == 2, events)
        assert all(isinstance(event, Lost) for event in ends(events))
        eventually(lambda: not before & set(processes_with(f"TEST_MARK={mark}")), "all its processes have ended")
        engine.start(run(2, "check"), ON_THIS_MACHINE)
        assert isinstance(wait_for_end(engine, 2)[-1], Ended)
        engine.close()
        wait_for_no_process(f"TEST_MARK={mark}")

    def test_a_supervisor_that_cannot_start_is_an_error(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        engine = opened(1)

        def start_attempts() -> None:
            for attempt in range(1, 10):
                engine.start(run(0, "pid", attempt=attempt), ON_THIS_MACHINE)
                assert isinstance(wait_for_end(engine, 0, attempt=attempt)[-1], Lost)

        with pytest.raises(ThriftuneError, match="ends right after its start, with status 1"):
            start_attempts()

    def test_a_missing_python_is_an_error(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        engine = self.make(folder, 1)
        engine.recover()
        with pytest.raises(ThriftuneError, match="/nowhere/python"):
            engine.open()
        engine.close()

    def test_too_many_open_files_are_reported(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "sleep"), ON_THIS_MACHINE)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)

        def lowest_free() -> int:
            fd = os.dup(0)
            os.close(fd)
            return fd

        free = lowest_free()
        try:
            for spare in range(4):  # a worker needs four for a moment
                resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, limits[1]))
                with pytest.raises(ThriftuneError, match=r"Too many open files; give fewer workers"):
                    engine.start(run(1, "sleep"), ON_THIS_MACHINE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert lowest_free() == free

    def test_the_supervisor_does_not_wait_for_the_driver(self) -> None:
        """The driver may wait for the supervisor at the same time."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        process = supervisor.Supervisor(theirs, {})
        for n in range(1000):
            process.send({"kind": "started", "worker": n, "pid": n})
        received = 0
        while received < 1000:
            assert ours.recv(4096)
            received += 1
            process.send_unsent()
        assert not process.unsent

    def test_a_fork_that_fails_is_retried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        refusals = [BlockingIOError("no more processes"), OSError("no memory")]

        def fork() -> int:
            if refusals:
                raise refusals.pop()
            return 4711

        monkeypatch.setattr(os, "fork", fork)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            assert supervisor.Supervisor(theirs, {}).fork() == 4711

    def test_a_run_is_lost_if_no_process_can_be_started(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        assert isinstance(engine, LocalEngine)
        engine.start(run(0, "sleep"), ON_THIS_MACHINE)
        (worker,) = engine._workers.values()
        with pytest.MonkeyPatch.context() as patch:
            news = (
                b'{"kind": "not_started", "worker": %d, "why": "no process could be started: EAGAIN"}' % worker.id
            )
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                theirs.send(news)
                patch.setattr(engine, "_control", ours)
                engine._read_supervisor()
        (lost,) = wait_for_end(engine, 0)
        assert isinstance(lost, Lost)
        assert "EAGAIN" in lost.why

    def test_a_fork_of_the_driver_does_not_keep_the_workers_running(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        """It holds the driver's sockets open; close() returns nevertheless."""
        engine = opened(1)
        engine.start(run(0, "sleep"), ON_THIS_MACHINE)
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        try:
            engine.close()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def test_a_stopped_supervisor_does_not_delay_the_end(
        self, opened: Callable[[int], Engine], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mark = os.urandom(8).hex()
        monkeypatch.setenv("TEST_MARK", mark)
        monkeypatch.setattr(local, "_CLOSE_SECONDS", 0.2)
        engine = opened(1)
        wait_for_workers(engine)
        pid = engine.status()[0].pid
        assert pid is not None
        os.kill(parent(parent(pid)), signal.SIGSTOP)
        engine.close()
        wait_for_no_process(f"TEST_MARK={mark}")

    def test_a_stopped_watchdog_does_not_delay_the_driver(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mark = os.urandom(8).hex()
        monkeypatch.setenv("TEST_MARK", mark)
        engine = opened(1)
        engine.start(run(0, "sleep"), ON_THIS_MACHINE)
        wait_for_workers(engine)
        pid = engine.status()[0].pid
        assert pid is not None
        process = parent(parent(pid))
        os.kill(parent(process), signal.SIGSTOP)
        os.kill(process, signal.SIGKILL)
        assert isinstance(wait_for_end(engine, 0)[-1], Lost)
        engine.start(run(1, "check"), ON_THIS_MACHINE)
        assert isinstance(wait_for_end(engine, 1)[-1], Ended)
        engine.close()
        wait_for_no_process(f"TEST_MARK={mark}")

    def test_workers_use_the_clock_of_their_driver(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """That is the clock at the driver's start: later changes of the wall clock must not show in durations."""
        real_time, hour = time.time, 3600.0
        monkeypatch.setattr(time, "time", lambda: real_time() - 2 * hour)
        engine = opened(1)
        monkeypatch.setattr(time, "time", real_time)
        engine.start(run(0, "pid"), ON_THIS_MACHINE)
        engine.start(run(1, "sleep"), ON_THIS_MACHINE)
        events = wait_for_end(engine, 0)
        engine.kill(1, 1)
        events += wait_for_end(engine, 1)
        assert len(events) == 3
        assert all(event.at < real_time() - hour for event in events)

    # --- limits

    def test_files_and_memory_do_not_grow_with_trials(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], folder: Path
    ) -> None:
        engine = opened(2)

        def run_trials(first: int, last: int, do: str) -> None:
            events: list[Event] = []
            for trial in range(first, last, 2):
                engine.start(run(trial, do), ON_THIS_MACHINE)
                engine.start(run(trial + 1, do), ON_THIS_MACHINE)
                events.clear()
                wait_until(engine, lambda events: len(ends(events)) == 2, events)

        def descriptors() -> int:
            return len(list(Path("/proc/self/fd").iterdir()))

        run_trials(0, 20, "exit_3")
        run_trials(20, 500, "pid")
        before, memory = descriptors(), resident_bytes()
        run_trials(500, 2500, "pid")
        run_trials(2500, 2700, "exit_3")
        run_trials(2700, 2710, "pid")
        engine.wait(0.1)
        # One or two workers may not have ended yet.
        assert descriptors() <= before + 6
        assert len(list((folder / "run" / "spools").iterdir())) <= 8
        assert resident_bytes() - memory < 6 << 20

    @pytest.mark.parametrize("act", ["limit_files", "limit_files_for_good"])
    def test_a_limit_on_files_is_not_mistaken_for_a_full_disk(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], act: str
    ) -> None:
        engine = opened(1)
        engine.start(run(0, act, max_steps=1000), ON_THIS_MACHINE)
        *reports, failed = events_of(wait_for_end(engine, 0), 0)
        assert isinstance(failed, Failed)
        assert "RLIMIT_FSIZE" in failed.error
        assert {type(event) for event in reports} == {Reported}

    def test_an_endless_message_does_not_fill_the_memory_of_the_driver(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "pid"), ON_THIS_MACHINE)
        wait_for_end(engine, 0)
        before = resident_bytes()
        engine.start(run(1, "write_without_end"), ON_THIS_MACHINE)
        failed, peak = next_event(engine)
        assert isinstance(failed, Failed)
        assert "a message of more than 16 MiB" in failed.error
        assert peak - before < 100 << 20

    def test_a_report_that_is_too_large_is_an_error(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "report_much"), ON_THIS_MACHINE)
        (failed,) = wait_for_end(engine, 0)
        assert isinstance(failed, Failed)
        assert "at most 16 MiB" in failed.error
        engine.start(run(1, "check"), ON_THIS_MACHINE)
        assert isinstance(wait_for_end(engine, 1)[-1], Ended)

    def test_100_mb_of_output_do_not_fill_the_memory_or_the_disk(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], folder: Path
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "pid"), ON_THIS_MACHINE)
        wait_for_end(engine, 0)
        before = resident_bytes()
        engine.start(run(1, "print_much"), ON_THIS_MACHINE)
        failed, peak = next_event(engine)
        assert isinstance(failed, Failed)
        assert failed.output.endswith("the last of it")
        assert len(failed.output) <= 16_384
        assert peak - before < 10 << 20
        files = list((folder / "trials" / "1" / "output").iterdir())
        assert sum(path.stat().st_size for path in files) <= 3 << 20
        assert read_output(folder / "trials" / "1", 1).rstrip().endswith("the last of it")

    def test_output_that_cannot_be_stored_is_a_warning_and_no_failure(
        self, opened: Callable[[int], Engine], run: Callable[..., Run], folder: Path
    ) -> None:
        engine = opened(1)
        for trial in (0, 1):
            (folder / "trials" / str(trial)).mkdir(parents=True)
            (folder / "trials" / str(trial) / "output").write_text("in the way")
        engine.start(run(0, "check"), ON_THIS_MACHINE)
        (warned,) = (event for event in wait_for_end(engine, 0) if not isinstance(event, (Reported, Ended)))
        assert isinstance(warned, Warned)
        assert warned.message == "the output of trials cannot be stored: File exists; the trials go on without it"
        engine.start(run(1, "check"), ON_THIS_MACHINE)
        assert [type(event) for event in wait_for_end(engine, 1)] == [Reported, Ended], "there is one warning"

    def test_each_attempt_has_its_own_output(
        self, opened: Callable[[int], Engine], run: Callable[..., Run]
    ) -> None:
        engine = opened(1)
        engine.start(run(0, "check"), ON_THIS_MACHINE)
        wait_for_end(engine, 0)
        engine.start(run(1, "raise_error"), ON_THIS_MACHINE)
        (failed,) = wait_for_end(engine, 1)
        assert isinstance(failed, Failed)
        assert failed.output == "about to raise"

    # --- recovery from an earlier driver

    def test_recover_refuses_while_processes_of_an_earlier_driver_run(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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

    def test_a_spool_keeps_its_order_if_the_clock_was_set_back(self, folder: Path) -> None:
        spools = folder / "run" / "spools"
        spools.mkdir(parents=True)
        events = [Reported(20.0, 0, 1, 1, 1, {"loss": 1.0}), Ended(10.0, 0, 1, 1.0)]
        (spools / "0.spool").write_bytes(b"".join(map(to_line, events)) + b'Reported {"at": 3')
        (spools / "1.spool").write_bytes(to_line(Ended(15.0, 1, 1, 1.0)))
        assert self.make(folder, 1).recover() == [Ended(15.0, 1, 1, 1.0), *events]


def wait_for_workers(engine: Engine) -> None:
    """Wait until all workers have started. Called before the first event of a trial."""
    eventually(lambda: engine.wait(0.05) or all(status.pid for status in engine.status()), "workers have started")


def next_event(engine: Engine) -> tuple[Event, int]:
    """Return the next event, and the largest memory of this process until then, in bytes."""
    events: list[Event] = []
    peak = 0
    while not events:
        events += engine.wait(0.01)
        peak = max(peak, resident_bytes())
    (event,) = events
    return event, peak


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


# --- helpers ----------------------------------------------------------------------------------------------


def test_lines_are_joined_from_chunks() -> None:
    text = b"one\n\ntwo and a half\nthree\nrest"
    for size in range(1, len(text) + 1):
        lines = LineBuffer()
        chunks = [text[start : start + size] for start in range(0, len(text), size)]
        assert [line for chunk in chunks for line in lines.feed(chunk)] == text.split(b"\n")[:-1]
        assert lines.feed(b"\n") == [b"rest"]


@pytest.mark.parametrize("line", [b"", b"Nonsense {}", b"Ended", b"Ended {", b"Ended []", b"\xff\xfe {}"])
def test_a_line_without_an_event_is_a_value_error(line: bytes, tmp_path: Path) -> None:
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
def test_exit_causes(status: int, kind: str | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thriftune.engines.exit_causes.out_of_memory_kills", lambda: 5)
    cause = exit_cause(status, MemoryKills())
    assert cause.kind == kind
    assert message in cause.message


def test_each_kill_for_memory_explains_one_end_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kills, now = [5], [0.0]
    monkeypatch.setattr("thriftune.engines.exit_causes.out_of_memory_kills", lambda: kills[0])
    monkeypatch.setattr("thriftune.engines.exit_causes.time.monotonic", lambda: now[0])
    memory = MemoryKills()
    assert not memory.claim()
    kills[0] = 7
    memory.check()
    assert [exit_cause(signal.SIGKILL, memory).kind for _ in range(3)] == ["memory", "memory", None]
    kills[0] = 8
    now[0] = 3.0
    memory.check()  # the kill is new: it may have hit a worker whose end is not known yet
    assert memory.claim()
    kills[0] = 9
    for now[0] in (6.0, 9.0):
        memory.check()
    assert not memory.claim()
