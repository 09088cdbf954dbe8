"""Joules: what each meter says is added up rightly, shared by CPU time, and estimated where there is none."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import unable
from tests.system.alone import alone
from thriftune.errors import SettingError
from thriftune.system import meters
from thriftune.system.energy import Energy, estimate
from thriftune.system.perf_events import TASK_CLOCK, Events

RANGE = 262_143_328_850  # as Intel's processors have it, in microjoules

Program = Callable[..., Path]


@pytest.fixture(autouse=True)
def bin_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs are found, so that this machine's own cards stay out of it.

    However busy this machine is, the programs have the time they need.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(meters, "_PATIENCE_SECONDS", 60.0)
    return folder


@pytest.fixture
def program(bin_: Path) -> Program:
    """A program of that name; `asked` beside it has a line for each time it ran."""

    def write(name: str, script: str) -> Path:
        path = bin_ / name
        path.write_text(f'#!/bin/sh\necho "$@" >> {bin_}/asked\n{script}\n')
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two processors, with a part of one and the board around both."""
    powercap = tmp_path / "powercap"
    domain(powercap, "intel-rapl:0", "package-0", 1_000_000)
    domain(powercap, "intel-rapl:0:0", "core", 500_000)
    domain(powercap, "intel-rapl:1", "package-1", RANGE - 1_000_000)
    domain(powercap, "intel-rapl:2", "psys", 3_000_000)
    domain(powercap, "intel-rapl-mmio:0", "package-0", 1_000_000)
    return powercap


def domain(powercap: Path, folder: str, name: str, microjoules: int) -> Path:
    path = powercap / folder
    path.mkdir(parents=True, exist_ok=True)
    (path / "name").write_text(f"{name}\n")
    (path / "energy_uj").write_text(f"{microjoules}\n")
    (path / "max_energy_range_uj").write_text(f"{RANGE}\n")
    return path


def burn(cpu_seconds: float) -> None:
    until = time.process_time() + cpu_seconds
    while time.process_time() < until:
        pass


def sleeps(pid: int) -> bool:
    try:
        return b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def asked(bin_: Path) -> list[str]:
    return (bin_ / "asked").read_text().splitlines()


class TestEstimate:
    @pytest.mark.parametrize(
        ("cpu_seconds", "seconds", "cores", "joules"),
        [
            (0.0, 0.0, 2.0, 0.0),
            (10.0, 10.0, 1.0, 35.0),
            (0.0, 10.0, 2.0, 14.8),
            (10.0, 10.0, 2.0, 35.0 + 7.4),
            (30.0, 10.0, 2.0, 105.0),  # more than its share
            (1.0, 10.0, 0.5, 3.5 + 0.74 * 4),
        ],
    )
    def test_cores_at_work_and_kept(self, cpu_seconds: float, seconds: float, cores: float, joules: float) -> None:
        assert estimate(cpu_seconds, seconds, cores) == pytest.approx(joules)

    def test_without_a_meter(self, tmp_path: Path) -> None:
        before = time.process_time(), time.monotonic()
        energy = Energy(root=tmp_path)
        assert (energy.source, energy.estimated, energy.problem) == ("estimate", True, None)
        burn(0.2)
        joules = energy.take(0.0)
        cpu_seconds, seconds = time.process_time() - before[0], time.monotonic() - before[1]
        assert 3.5 * 0.19 <= joules <= 3.5 * cpu_seconds + 0.05
        time.sleep(0.2)
        kept = energy.take(100.0)
        assert 0.74 * 100 * 0.19 <= kept <= estimate(cpu_seconds + 1, seconds + 10, 100.0)
        energy.close()

    def test_a_child_that_still_runs_counts(self, tmp_path: Path) -> None:
        events = Events([TASK_CLOCK])
        events.close()
        if not events.software:
            unable("perf events may not be opened here, so children count when they have ended")
        with_it, after_it = alone(
            """
            energy = Energy(root=Path(sys.argv[1]))
            child = started("import time\\nwhile time.process_time() < 1: pass\\nprint(flush=True)\\ninput()")
            with_it = energy.take(0)
            child.communicate(b"\\n")
            answer = [with_it, energy.take(0)]
            """,
            tmp_path,
        )
        assert with_it >= 3.5 * 0.98
        assert after_it < 3.5 * 0.5, "not once more when it has ended"

    def test_a_child_that_has_ended_counts_everywhere(self, tmp_path: Path) -> None:
        joules = alone(
            """
            forbid_perf()
            energy = Energy(root=Path(sys.argv[1]))
            started("import time\\nwhile time.process_time() < 0.5: pass").wait()
            answer = energy.take(0)
            """,
            tmp_path,
        )
        assert joules >= 3.5 * 0.48


class TestRapl:
    def test_processors_are_added_up_and_turn_over(self, root: Path) -> None:
        meter = meters.rapl(root)
        assert meter is not None
        start = meter.joules()
        domain(root, "intel-rapl:0", "package-0", 3_000_000)
        domain(root, "intel-rapl:0:0", "core", 900_000_000)
        domain(root, "intel-rapl:2", "psys", 900_000_000)
        assert meter.joules() - start == pytest.approx(2.0)
        domain(root, "intel-rapl:1", "package-1", 4_000_000)
        assert meter.joules() - start == pytest.approx(2.0 + 5.0)
        assert meter.joules() - start == pytest.approx(7.0)

    @settings(deadline=None, max_examples=30)
    @given(st.lists(st.integers(0, RANGE // 1000), min_size=1, max_size=20))
    def test_however_often_it_turns_over(self, steps: list[int]) -> None:
        drawn = [step * 999 for step in steps]
        with tempfile.TemporaryDirectory() as folder:
            powercap = Path(folder)
            domain(powercap, "intel-rapl:0", "package-0", 0)
            meter = meters.rapl(powercap)
            assert meter is not None
            total = 0
            for more in drawn:
                total += more
                domain(powercap, "intel-rapl:0", "package-0", total % RANGE)
                assert meter.joules() == pytest.approx(total / 1e6)

    def test_no_processors_no_meter(self, tmp_path: Path) -> None:
        assert meters.rapl(tmp_path / "nowhere") is None
        domain(tmp_path, "intel-rapl:0", "psys", 0)
        assert meters.rapl(tmp_path) is None

    def test_a_process_gets_at_most_all_of_it(self, root: Path) -> None:
        energy = Energy(root=root)
        assert (energy.source, energy.estimated, energy.problem) == ("RAPL", False, None)
        burn(0.2)
        domain(root, "intel-rapl:0", "package-0", 101_000_000)
        assert 0 < energy.take(2.0) <= 100.0 + 1e-6
        burn(0.05)
        assert energy.take(2.0) == 0.0
        energy.close()

    def test_a_rival_has_its_part(self, root: Path) -> None:
        source, joules, own, rivals = alone(
            """
            rival = started(RIVAL)
            package = Path(sys.argv[1]) / "intel-rapl:0" / "energy_uj"
            def rivals_seconds():
                user, system = Path(f"/proc/{rival.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
            rivals = rivals_seconds()
            energy = Energy(root=Path(sys.argv[1]))
            before = time.process_time()
            while time.process_time() < before + 0.5 or rivals_seconds() < rivals + 0.5:
                pass
            package.write_text("1001000000")
            own, rivals = time.process_time() - before, rivals_seconds() - rivals
            joules = energy.take(1)
            rival.kill()
            rival.wait()
            answer = [energy.source, joules, own, rivals]
            """,
            root,
        )
        assert source == "RAPL"
        assert 0 < joules <= 1000 * own / (own + rivals) * 1.3

    def test_for_root_alone(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("becoming another user needs root")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            (domain(Path(folder), "intel-rapl:0", "package-0", 0) / "energy_uj").chmod(0o400)
            source, estimated, problem = alone(
                """
                become_nobody()
                energy = Energy(root=Path(sys.argv[1]))
                answer = [energy.source, energy.estimated, energy.problem]
                """,
                folder,
            )
        assert (source, estimated) == ("estimate", True)
        assert "intel-rapl:0/energy_uj is for root alone" in problem
        assert problem.endswith("; joules are estimated from CPU time")

    def test_one_that_goes_is_said_and_estimated(self, root: Path) -> None:
        energy = Energy(root=root)
        (root / "intel-rapl:1" / "energy_uj").unlink()
        burn(0.1)
        assert energy.take(0.0) >= 3.5 * 0.09
        assert (energy.source, energy.estimated) == ("estimate", True)
        assert energy.problem is not None
        assert str(root / "intel-rapl:1" / "energy_uj") in energy.problem
        energy.close()


class TestCards:
    def test_nvidia_smi_is_asked_for_the_watts_of_all(self, program: Program, bin_: Path) -> None:
        program("nvidia-smi", "echo 70.25\necho '[N/A]'\necho 29.75")
        outside = time.monotonic()
        meter = meters.cards()
        inside = time.monotonic()
        assert meter is not None
        time.sleep(0.1)
        least = 100.0 * (time.monotonic() - inside)
        joules = meter.joules()
        assert least <= joules <= 100.0 * (time.monotonic() - outside)
        assert asked(bin_) == ["--query-gpu=power.draw --format=csv,noheader,nounits"]

    def test_between_two_answers_the_mean_counts(
        self, program: Program, bin_: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(meters, "_ASKED_EVERY_SECONDS", 0.0)
        monkeypatch.setattr(meters, "_WAITS_PER_ASKING", 0)
        program("nvidia-smi", f"read -r watts < {bin_}/watts\necho $watts")
        (bin_ / "watts").write_text("100\n")
        outside = time.monotonic()
        meter = meters.cards()
        inside = time.monotonic()
        assert meter is not None
        (bin_ / "watts").write_text("300\n")
        time.sleep(0.1)
        least = 200.0 * (time.monotonic() - inside)
        joules = meter.joules()
        assert least <= joules <= 200.0 * (time.monotonic() - outside)

    def test_with_rapl_and_then_without(
        self, program: Program, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(meters, "_ASKED_EVERY_SECONDS", 0.0)
        monkeypatch.setattr(meters, "_WAITS_PER_ASKING", 0)
        program("nvidia-smi", "echo 50")
        energy = Energy(root=root)
        assert (energy.source, energy.estimated, energy.problem) == ("RAPL and NVML", False, None)
        burn(0.05)
        assert energy.take(1.0) > 0
        program("nvidia-smi", "echo the driver is gone >&2; exit 9")
        burn(0.05)
        domain(root, "intel-rapl:0", "package-0", 5_000_000)
        assert 0 < energy.take(1.0) <= 4.0 + 1e-9
        assert (energy.source, energy.estimated) == ("RAPL", False)
        assert energy.problem is not None
        assert "nvidia-smi: failed with status 9 (the driver is gone); only RAPL is counted" in energy.problem
        energy.close()

    def test_cards_that_say_nothing(self, program: Program, tmp_path: Path) -> None:
        program("nvidia-smi", "echo '[N/A]'")
        energy = Energy(root=tmp_path)
        assert (energy.source, energy.estimated) == ("estimate", True)
        assert energy.problem is not None
        assert "[N/A]" in energy.problem
        energy.close()

    def test_the_librarys_own_joules_come_first(
        self, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program("nvidia-smi", "echo 100")
        library(tmp_path, monkeypatch, "return [4000, 2500][card]")
        meter = meters.cards()
        assert meter is not None
        assert (meter.name, meter.joules()) == ("NVML", 6.5)

    def test_older_cards_are_asked_for_watts(
        self, program: Program, bin_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program("nvidia-smi", "echo 100")
        library(tmp_path, monkeypatch, "raise RuntimeError('Not Supported')")
        assert meters.cards() is not None
        assert len(asked(bin_)) == 1


def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, energy: str) -> None:
    """NVIDIA's Python package, of two cards."""
    (tmp_path / "pynvml.py").write_text(f"""
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetTotalEnergyConsumption(card): {energy}
""")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml")


class TestCommand:
    def test_its_joules_are_what_is_said(
        self, program: Program, bin_: Path, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(meters, "_FIRST_SPAN_SECONDS", 0.0)
        monkeypatch.setattr(meters, "_ASKED_EVERY_SECONDS", 0.0)
        monkeypatch.setattr(meters, "_WAITS_PER_ASKING", 0)
        joules = bin_ / "joules"
        joules.write_text("1000\n")
        path = program("my-meter", f"read -r joules < {joules}\necho $joules")
        energy = Energy([str(path), "--all", "of it"], root=root)
        assert (energy.source, energy.estimated, energy.problem) == ("my-meter", False, None)
        joules.write_text("1250.5\n")
        burn(0.1)
        assert 0 < energy.take(1.0) <= 250.5 + 1e-6
        assert asked(bin_) == ["--all of it"] * len(asked(bin_))
        joules.write_text("10\n")
        burn(0.05)
        assert energy.take(0.0) >= 3.5 * 0.04
        assert energy.estimated
        fallen = f"the meter {path} has fallen, from 1250.5 to 10; joules are estimated from CPU time"
        assert energy.problem == fallen
        joules.write_text("2000\n")
        energy.take(1.0)
        assert (energy.source, energy.problem) == ("estimate", fallen), "it is not believed again"
        energy.close()

    @pytest.mark.parametrize(
        ("still_seconds", "cpu_seconds", "believed"),
        [(9.0, 9.0, True), (10.5, 0.5, True), (10.5, 2.0, False), (3600.0, 30.0, True), (3600.0, 3600.0, False)],
    )
    def test_one_that_does_not_rise_while_there_is_work_is_not_believed(
        self,
        program: Program,
        monkeypatch: pytest.MonkeyPatch,
        still_seconds: float,
        cpu_seconds: float,
        believed: bool,
    ) -> None:
        clock, worked = [1000.0], [0.0]
        monkeypatch.setattr(meters, "_cpu_seconds", lambda: worked[0])
        program("my-meter", "echo 5")
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: clock[0])
            meter = meters.command_meter(["my-meter"])
            clock[0] += 6.0
            worked[0] += 6.0
            program("my-meter", "echo 7")
            assert meter.joules() == pytest.approx(2.0), "it has risen, and counts from here"
            clock[0] += still_seconds
            worked[0] += cpu_seconds
            if believed:
                meter.joules()
            else:
                with pytest.raises(meters.MeterFailed, match="the meter my-meter has not risen for 10 seconds"):
                    meter.joules()

    def test_one_that_stands_still_is_said_and_estimated(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in (("_FIRST_SPAN_SECONDS", 0.0), ("_ASKED_EVERY_SECONDS", 0.0), ("_WAITS_PER_ASKING", 0)):
            monkeypatch.setattr(meters, name, value)
        energy = Energy([str(program("my-meter", "echo 5"))])
        burn(0.05)
        assert energy.take(1.0) == 0.0
        assert energy.problem is None
        monkeypatch.setattr(meters, "_STILL_SECONDS", 0.1)
        monkeypatch.setattr(meters, "_AT_WORK_SHARE", 0.0)  # however busy this machine is
        burn(0.2)
        assert energy.take(0.0) >= 3.5 * 0.19
        assert energy.problem is not None
        assert energy.problem.endswith("has not risen for 0.1 seconds; joules are estimated from CPU time")
        energy.close()

    def test_it_is_asked_seldom_and_reckoned_on(
        self, program: Program, bin_: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(meters, "_ASKED_EVERY_SECONDS", 600.0)
        joules = bin_ / "joules"
        joules.write_text("0\n")
        program("my-meter", f"read -r joules < {joules}\necho $joules")
        meter = meters.command_meter(["my-meter"])
        assert meter.joules() == 0.0
        time.sleep(0.5)
        joules.write_text("100\n")
        known = meter.joules()
        assert known == pytest.approx(100.0)
        said = [meter.joules() for _ in range(200)]
        assert len(asked(bin_)) == 2
        assert said == sorted(said)
        assert said[-1] > known

    def test_the_longer_it_takes_the_less_it_is_asked(self, program: Program) -> None:
        program("my-meter", "/bin/sleep 0.2\necho 1")
        meter = meters.command_meter(["my-meter"])
        assert isinstance(meter, meters._Asked)
        meter._due = asked_at = time.monotonic()
        meter.joules()
        assert meter._due - asked_at >= 50 * 0.2

    def test_the_next_answer_puts_right_what_was_said(self, program: Program, bin_: Path) -> None:
        joules = bin_ / "joules"
        joules.write_text("0\n")
        program("my-meter", f"read -r joules < {joules}\necho $joules")
        meter = meters.command_meter(["my-meter"])
        assert isinstance(meter, meters._Asked)

        def ask(now: float) -> float:
            joules.write_text(f"{now}\n")
            meter._due = 0.0
            return meter.joules()

        time.sleep(0.05)
        assert ask(10_000.0) == pytest.approx(10_000.0)
        time.sleep(0.05)
        too_much = meter.joules()
        assert too_much > 10_001.0
        assert ask(10_001.0) == too_much, "nothing is taken back"
        assert ask(too_much + 7.0) == pytest.approx(too_much + 7.0), "and nothing is counted twice"

    def test_in_the_folder_where_it_was_given(
        self, program: Program, bin_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(meters, "_FIRST_SPAN_SECONDS", 0.0)
        monkeypatch.chdir(bin_)
        (bin_ / "joules").write_text("5\n")
        program("my-meter", "read -r joules < joules\necho $joules")
        meter = meters.command_meter(["my-meter"])
        monkeypatch.chdir(tmp_path)
        (bin_ / "joules").write_text("8\n")
        assert meter.joules() == pytest.approx(3.0)

    @pytest.mark.parametrize(
        ("script", "why"),
        [
            ("echo no such sensor >&2; exit 3", "failed with status 3 (no such sensor)"),
            ("kill -9 $$", "failed with status -9"),
            ("echo 12 watts", "printed '12 watts\\n', not a number"),
            ("echo 12; echo 13", "not a number"),
            ("true", "printed '', not a number"),
            ("echo nan", "not a number"),
            ("printf '\\377'", "not a number"),
        ],
    )
    def test_one_that_fails_is_said_and_not_asked_again(
        self, program: Program, bin_: Path, root: Path, script: str, why: str
    ) -> None:
        energy = Energy([str(program("my-meter", script))], root=root)
        assert (energy.source, energy.estimated) == ("estimate", True), "a user's meter is not replaced by another"
        assert energy.problem is not None
        assert "my-meter: " in energy.problem
        assert why in energy.problem
        assert energy.problem.endswith("; joules are estimated from CPU time")
        burn(0.05)
        assert energy.take(0.0) >= 3.5 * 0.04
        assert len(asked(bin_)) == 1
        energy.close()

    def test_one_that_fails_later_is_estimated_from_then_on(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(meters, "_FIRST_SPAN_SECONDS", 0.0)
        path = program("my-meter", "echo 1")
        energy = Energy([str(path)])
        assert energy.problem is None
        path.unlink()
        monkeypatch.setattr(meters, "_ASKED_EVERY_SECONDS", 0.0)
        for meter in energy._meters:
            assert isinstance(meter, meters._Asked)
            meter._due = 0.0
        burn(0.1)
        assert energy.take(0.0) >= 3.5 * 0.09
        assert energy.estimated
        assert energy.problem is not None
        assert "my-meter: cannot be run" in energy.problem
        energy.close()

    def test_one_that_is_not_there(self, root: Path) -> None:
        energy = Energy(["no-such-meter"], root=root)
        assert energy.source == "estimate"
        assert energy.problem is not None
        assert "no-such-meter: cannot be run" in energy.problem
        energy.close()

    def test_one_that_takes_too_long_ends_with_its_helpers(
        self, program: Program, bin_: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(meters, "_PATIENCE_SECONDS", 3.0)
        path = program("my-meter", f"/bin/sleep 600 &\necho $! > {bin_}/helper\nwait")
        energy = Energy([str(path)])
        assert energy.estimated
        assert energy.problem is not None
        assert "my-meter: took over 3 s" in energy.problem
        helper = int((bin_ / "helper").read_text())
        deadline = time.monotonic() + 60
        while sleeps(helper):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        energy.close()

    @pytest.mark.parametrize("command", ["my-meter --joules", "", []])
    def test_what_is_no_command(self, command: str | list[str]) -> None:
        with pytest.raises(SettingError, match=r"energy command: .*give a list") as error:
            Energy(command)
        assert repr(command) in str(error.value)
