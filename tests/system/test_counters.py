"""Counters: real work shows in the counts, and missing counters are left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.system.alone import alone
from thriftune.system.counters import GAUGES, Counters, rates

ALWAYS = {
    "user_seconds",
    "system_seconds",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
    "blocks_in",
    "blocks_out",
}
IO = {"read_bytes", "written_bytes", "read_calls", "write_calls", "disk_read_bytes", "disk_written_bytes"}

STAT = "7 (a) S (b) R " + " ".join(str(number) for number in range(4, 53))  # field n is n, from the fourth on
FILES = {
    "self/io": "rchar: 11\nwchar: 12\nsyscr: 13\nsyscw: 14\nread_bytes: 15\nwrite_bytes: 16\ncancelled: 17\n",
    "self/stat": STAT,
    "self/task/7/schedstat": "900 1500000000 3\n",
    "self/task/8/schedstat": "900 500000000 3\n",
    "pressure/cpu": "some avg10=0.00 avg60=0.25 avg300=0.13 total=2500000\nfull avg10=0.00 total=9\n",
    "pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 total=0\n",
}
SHOWN = {
    "self/io": IO,
    "self/stat": GAUGES,
    "self/task/7/schedstat": {"run_delay_seconds"},
    "pressure/cpu": {"cpu_pressure_seconds"},
    "pressure/memory": {"memory_pressure_seconds"},
}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def read_once(proc: Path) -> dict[str, float]:
    counters = Counters(proc=proc)
    try:
        return counters.read()
    finally:
        counters.close()


class TestThisMachine:
    def test_work_shows_in_the_counts(self, tmp_path: Path) -> None:
        before, after = alone(
            """
            counters = Counters()
            before = counters.read()
            burn(0.2)
            with open(sys.argv[1], "wb", buffering=0) as file:
                for _ in range(10):
                    file.write(bytes(100_000))
            memory = bytearray(64 << 20)
            memory[::4096] = b"x" * len(memory[::4096])
            stop = threading.Event()
            threads = [threading.Thread(target=stop.wait) for _ in range(3)]
            for thread in threads:
                thread.start()
            answer = [before, counters.read()]
            stop.set()
            """,
            tmp_path / "file",
        )
        grown = {name: after[name] - before[name] for name in before}
        assert all(grown[name] >= 0 for name in grown.keys() - GAUGES)
        assert grown["user_seconds"] + grown["system_seconds"] >= 0.19
        assert grown["written_bytes"] >= 1_000_000
        assert grown["write_calls"] >= 10
        assert grown["minor_faults"] > 0
        assert grown["resident_bytes"] >= 60 << 20
        assert (before["threads"], after["threads"]) == (1, 4)

    def test_waiting_for_a_core_counts_for_every_thread(self) -> None:
        delays = alone("""
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            rival = started(RIVAL)
            counters = Counters()
            delays = [counters.read()["run_delay_seconds"]]
            worked, stop = threading.Event(), threading.Event()
            def work():
                burn(0.3)
                worked.set()
                stop.wait()
            thread = threading.Thread(target=work)
            thread.start()
            worked.wait()
            delays.append(counters.read()["run_delay_seconds"])
            stop.set()
            thread.join()
            delays.append(counters.read()["run_delay_seconds"])
            rival.kill()
            rival.wait()
            answer = delays
        """)
        before, worked, ended = delays
        assert worked - before > 0.05, "it had half a core for a third of a second of work"
        assert ended >= worked, "the waiting time of a thread that has ended still counts"

    def test_a_program_name_with_parentheses(self) -> None:
        threads, resident = alone("""
            Path("/proc/self/comm").write_text("a) R 1 (b 2")
            read = Counters().read()
            answer = [read["threads"], read["resident_bytes"]]
        """)
        assert threads == 1
        assert resident > 1 << 20

    def test_descriptors_are_few_and_closed(self) -> None:
        before, most, after = alone("""
            opened = lambda: len(os.listdir("/proc/self/fd"))
            before = opened()
            counters = Counters()
            most = 0
            for _ in range(200):  # a thread, and soon its number, comes and goes
                thread = threading.Thread(target=counters.read)
                thread.start()
                thread.join()
                while len(os.listdir("/proc/self/task")) > 1:  # join() returns before the thread has ended
                    time.sleep(0.001)
                most = max(most, opened())
            counters.close()
            counters.close()
            answer = [before, most, opened()]
        """)
        assert after == before
        assert most <= before + 5 + 2  # files, the main thread and the one that ended last

    def test_more_threads_than_are_read(self) -> None:
        threads, delay, descriptors = alone("""
            counters = Counters()
            stop = threading.Event()
            threads = [threading.Thread(target=stop.wait) for _ in range(150)]
            for thread in threads:
                thread.start()
            before = len(os.listdir("/proc/self/fd"))
            read = counters.read()
            answer = [read["threads"], read["run_delay_seconds"], len(os.listdir("/proc/self/fd")) - before]
            stop.set()
        """)
        assert threads == 151
        assert delay >= 0
        assert descriptors <= 64

    def test_training_code_may_close_every_descriptor(self) -> None:
        names = alone("""
            counters = Counters()
            os.closerange(3, 256)
            taken = [os.open("/dev/zero", os.O_RDONLY) for _ in range(20)]  # in the places of ours
            answer = [sorted(counters.read()), sorted(counters.read())]
        """)
        assert all(set(read) >= ALWAYS for read in names)
        assert not any(set(read) & (IO | GAUGES) for read in names), "files of others are not parsed as ours"

    def test_no_heavy_module_is_loaded(self) -> None:
        assert (
            alone(
                """
            code = "import sys, thriftune.system.counters, thriftune.system.energy; print(*sys.modules)"
            loaded = subprocess.check_output([sys.executable, "-c", code], text=True)
            answer = sorted({"numpy", "scipy", "ctypes", "subprocess"} & set(loaded.split()))
            """
            )
            == []
        )


class TestOtherMachines:
    def test_every_file_is_parsed(self, proc: Path) -> None:
        read = read_once(proc)
        assert {name: read[name] for name in IO} == {
            "read_bytes": 11,
            "written_bytes": 12,
            "read_calls": 13,
            "write_calls": 14,
            "disk_read_bytes": 15,
            "disk_written_bytes": 16,
        }
        assert read["threads"] == 20
        assert read["resident_bytes"] % 24 == 0
        assert read["resident_bytes"] > 24
        assert read["run_delay_seconds"] == pytest.approx(2.0)
        assert read["cpu_pressure_seconds"] == pytest.approx(2.5)
        assert read["memory_pressure_seconds"] == pytest.approx(1e-6)
        assert read.keys() == ALWAYS.union(*SHOWN.values()), "there is no pressure/io"

    def test_without_any_file(self, tmp_path: Path) -> None:
        assert read_once(tmp_path).keys() == ALWAYS

    @pytest.mark.parametrize("missing", SHOWN)
    @pytest.mark.parametrize(
        "spoil",
        [
            Path.unlink,
            lambda path: path.write_bytes(b""),
            lambda path: path.write_bytes(b"\xff\0 (\n"),
            lambda path: path.write_text("none: of these) 1 2 are = what\nis due\n"),
            lambda path: (path.unlink(), path.mkdir()),
        ],
        ids=["missing", "empty", "bytes", "words", "folder"],
    )
    def test_an_unreadable_file_is_left_out(
        self, proc: Path, missing: str, spoil: Callable[[Path], object]
    ) -> None:
        spoil(proc / missing)
        read = read_once(proc)
        without = set() if "task" in missing else SHOWN[missing]  # another thread still says how long it waited
        assert read.keys() == ALWAYS.union(*SHOWN.values()) - without

    def test_a_file_that_disappears_is_left_out(self, proc: Path) -> None:
        counters = Counters(proc=proc)
        (proc / "self/io").write_text("")
        (proc / "self/task/8/schedstat").unlink()
        read = counters.read()
        counters.close()
        assert not IO & read.keys()
        assert read["run_delay_seconds"] == pytest.approx(2.0)

    def test_the_waiting_time_of_an_ended_thread_counts_once(self, proc: Path) -> None:
        counters = Counters(proc=proc)
        task = proc / "self/task/8"
        (task / "schedstat").write_text("900 700000000 4\n")
        assert counters.read()["run_delay_seconds"] == pytest.approx(2.2)
        (task / "schedstat").unlink()
        task.rmdir()
        assert counters.read()["run_delay_seconds"] == pytest.approx(2.2)
        task.mkdir()  # another thread, with the number of the one that ended
        (task / "schedstat").write_text("900 300000000 4\n")
        assert counters.read()["run_delay_seconds"] == pytest.approx(2.5)
        counters.close()


class TestRates:
    @settings(deadline=None)
    @given(
        st.dictionaries(st.sampled_from(sorted(ALWAYS | IO)), st.tuples(*[st.floats(0, 1e12)] * 2)),
        st.floats(1e-3, 1e6),
    )
    def test_counts_are_per_second(self, counts: dict[str, tuple[float, float]], seconds: float) -> None:
        before = {name: start for name, (start, _) in counts.items()}
        after = {name: start + more for name, (start, more) in counts.items()}
        found = rates(before, after, seconds)
        assert found.keys() == counts.keys()
        for name, (start, more) in counts.items():
            assert found[name] * seconds == pytest.approx(more, rel=1e-6, abs=1e-3 + 1e-9 * start)

    def test_gauges_are_those_of_the_later_reading(self) -> None:
        before = {"resident_bytes": 10.0, "user_seconds": 1.0}
        after = {"resident_bytes": 6.0, "threads": 3.0, "user_seconds": 2.0}
        assert rates(before, after, 4.0) == {"resident_bytes": 6.0, "threads": 3.0, "user_seconds": 0.25}

    def test_counters_of_only_one_reading_are_left_out(self) -> None:
        assert rates({"cycles": 1.0, "threads": 2.0}, {"branches": 5.0}, 1.0) == {}

    def test_a_count_that_falls_has_rate_0(self) -> None:
        assert rates({"cycles": 100.0}, {"cycles": 99.5}, 1.0) == {"cycles": 0.0}

    @pytest.mark.parametrize("seconds", [0.0, -1.0])
    def test_without_time_there_are_no_rates(self, seconds: float) -> None:
        assert rates({"cycles": 1.0}, {"cycles": 2.0, "threads": 1.0}, seconds) == {"threads": 1.0}
