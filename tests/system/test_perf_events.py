"""What the kernel counts: asked for rightly, read rightly, and simply less where it does not let us."""

from __future__ import annotations

import os
import struct
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import unable
from tests.system.alone import alone
from thriftune.system.perf_events import COUNTED_ANYWAY, EVENTS, TASK_CLOCK, Events, attributes, count

NAMED = {event.name: event for event in EVENTS}
NANOSECONDS = st.integers(1, 2**62)


def paranoid() -> int:
    try:
        return int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    except OSError:
        unable("this kernel has no perf events")


class TestWhatIsAsked:
    def test_the_58_events_of_the_paper(self) -> None:
        assert Counter(event.type for event in EVENTS) == {0: 10, 3: 42, 1: 6}
        assert len(NAMED) == len({(event.type, event.config) for event in EVENTS}) == 58

    @pytest.mark.parametrize(
        ("name", "type_", "config"),
        [
            ("cycles", 0, 0),
            ("branch_misses", 0, 5),
            ("reference_cycles", 0, 9),
            ("l1d_read_accesses", 3, 0x00000),
            ("ll_read_misses", 3, 0x10002),
            ("dtlb_write_misses", 3, 0x10103),
            ("node_prefetch_misses", 3, 0x10206),
            ("context_switches", 1, 3),
            ("page_faults_major", 1, 6),
        ],
    )
    def test_by_the_kernels_numbers(self, name: str, type_: int, config: int) -> None:
        said = attributes(NAMED[name], user_only=False)
        assert struct.unpack_from("=IIQ", said) == (type_, 64, config)
        assert len(said) == 64

    def test_children_and_both_times_are_asked_for(self) -> None:
        read_format, flags = struct.unpack_from("=QQ", attributes(TASK_CLOCK, user_only=False), 32)
        assert (read_format, flags) == (0b11, 0b10)

    def test_user_mode_alone_where_the_kernel_is_forbidden(self) -> None:
        (flags,) = struct.unpack_from("=Q", attributes(TASK_CLOCK, user_only=True), 40)
        assert flags == 0b1100010


class TestWhatIsRead:
    @settings(deadline=None)
    @given(st.integers(0, 2**50), NANOSECONDS)
    def test_what_counted_all_the_time_is_as_it_is(self, value: int, nanoseconds: int) -> None:
        assert count(struct.pack("=QQQ", value, nanoseconds, nanoseconds)) == value

    @settings(deadline=None)
    @given(st.integers(0, 2**50), st.integers(1, 2**40), st.integers(1, 64))
    def test_what_took_turns_is_scaled_up(self, value: int, running: int, turns: int) -> None:
        assert count(struct.pack("=QQQ", value, running * turns, running)) == pytest.approx(value * turns)

    def test_what_never_had_a_turn_says_nothing(self) -> None:
        assert count(struct.pack("=QQQ", 0, 5_000_000, 0)) is None

    @settings(deadline=None)
    @given(st.binary(max_size=40).filter(lambda text: len(text) != 24))
    def test_what_is_no_reading_says_nothing(self, text: bytes) -> None:
        assert count(text) is None


class TestThisMachine:
    """With the kernel's own events, which need no hardware."""

    @pytest.fixture(autouse=True)
    def available(self) -> None:
        events = Events([TASK_CLOCK])
        events.close()
        if not events.software:
            unable("perf events may not be opened here")

    def test_work_and_memory_are_counted(self) -> None:
        before, after = alone("""
            events = Events()
            before = events.read()
            burn(0.2)
            memory = bytearray(64 << 20)
            memory[::4096] = b"x" * len(memory[::4096])
            answer = [before, events.read()]
        """)
        assert after["task_clock_seconds"] - before["task_clock_seconds"] >= 0.19
        if "page_faults" in after:  # there is hardware
            assert after["page_faults"] > before["page_faults"]
            parts = after["page_faults_minor"] + after["page_faults_major"]
            assert parts == pytest.approx(after["page_faults"], abs=8), "some happen while they are read"

    def test_without_hardware_what_getrusage_counts_is_left_to_it(self) -> None:
        hardware, read = alone("events = Events(); burn(0.1); answer = [events.hardware, events.read()]")
        counted_twice = COUNTED_ANYWAY & read.keys()
        assert bool(counted_twice) == bool(hardware)
        assert {"task_clock_seconds", "cpu_migrations"} <= read.keys() or paranoid() > 1

    def test_hardware_is_counted_where_there_is_some(self) -> None:
        opened, after = alone("events = Events(); burn(1.0); answer = [events.hardware, events.read()]")
        assert opened <= 52
        assert ("instructions" in after or "cycles" in after) == (opened > 0)
        assert set(after) <= set(NAMED)

    def test_threads_and_processes_started_later_are_counted(self) -> None:
        alone_, with_thread, with_process = alone("""
            events = Events()
            readings = [events.read()["task_clock_seconds"]]
            def work():
                until = time.thread_time() + 0.2
                while time.thread_time() < until:
                    pass
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            readings.append(events.read()["task_clock_seconds"])
            child = started("import time\\nwhile time.process_time() < 0.3: pass\\nprint(flush=True)\\ninput()")
            readings.append(events.read()["task_clock_seconds"])  # it is still there, waiting for a line
            child.communicate(b"\\n")
            answer = readings
        """)
        assert with_thread - alone_ >= 0.19
        assert with_process - with_thread >= 0.28

    def test_descriptors_end_with_the_program_and_with_close(self) -> None:
        open_, in_child, closed, read = alone("""
            def perf_descriptors(pid):
                links = []
                for descriptor in os.listdir(f"/proc/{pid}/fd"):
                    try:
                        links.append(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
                    except OSError:
                        continue
                return sum("perf_event" in link for link in links)
            events = Events()
            opened = perf_descriptors("self")
            with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
                while b"sleep" not in Path(f"/proc/{child.pid}/cmdline").read_bytes():
                    time.sleep(0.01)
                in_child = perf_descriptors(child.pid)
                child.kill()
            events.close()
            events.close()
            answer = [opened, in_child, perf_descriptors("self"), events.read()]
        """)
        assert open_ >= 1
        assert (in_child, closed, read) == (0, 0, {})

    def test_a_trial_that_closes_every_descriptor_is_no_error(self) -> None:
        assert alone("events = Events(); os.closerange(3, 256); answer = [events.read(), events.close()]") == [
            {},
            None,
        ]

    def test_too_few_descriptors_give_fewer_events(self) -> None:
        opened, read = alone("""
            Events().close()  # all that is imported on the way
            spare = os.open("/dev/null", os.O_RDONLY)
            resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 2, spare + 2))
            events = Events()
            answer = [events.hardware + events.software, len(events.read())]
        """)
        assert opened == 1
        assert read <= 1

    def test_an_ordinary_user_counts_user_mode(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("becoming another user needs root")
        if paranoid() != 2:
            pytest.skip(f"perf_event_paranoid is {paranoid()} here, not Linux's default of 2")
        user_only, names = alone("""
            become_nobody()
            events = Events()
            burn(0.1)
            answer = [events.user_only, sorted(events.read())]
        """)
        assert user_only
        assert "task_clock_seconds" in names
        assert not {"context_switches", "cpu_migrations"} & set(names), "they would stay 0"

    def test_a_container_that_forbids_it_is_no_error(self) -> None:
        assert alone("""
            forbid_perf()
            events = Events()
            answer = [events.hardware, events.software, events.read()]
        """) == [0, 0, {}]
