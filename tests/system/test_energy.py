"""The energy meter: RAPL is added up and shared by CPU time; joules are estimated where RAPL is missing."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.system.alone import alone
from thriftune.system.energy import EnergyMeter, Rapl, estimate

RANGE = 262_143_328_850  # as Intel's processors have it, in microjoules


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
    def test_busy_and_idle_cores(self, cpu_seconds: float, seconds: float, cores: float, joules: float) -> None:
        assert estimate(cpu_seconds, seconds, cores) == pytest.approx(joules)

    def test_without_rapl(self, tmp_path: Path) -> None:
        before = time.process_time(), time.monotonic()
        meter = EnergyMeter(root=tmp_path)
        assert (meter.source, meter.problem) == ("estimate", None)
        burn(0.2)
        joules = meter.take(0.0)
        cpu_seconds, seconds = time.process_time() - before[0], time.monotonic() - before[1]
        assert 3.5 * 0.19 <= joules <= 3.5 * cpu_seconds + 0.05
        time.sleep(0.2)
        kept = meter.take(100.0)
        assert 0.74 * 100 * 0.19 <= kept <= estimate(cpu_seconds + 1, seconds + 10, 100.0)

    def test_a_child_process_counts_when_it_has_ended(self, tmp_path: Path) -> None:
        joules = alone(
            """
            meter = EnergyMeter(root=Path(sys.argv[1]))
            started("import time\\nwhile time.process_time() < 0.5: pass").wait()
            answer = meter.take(0)
            """,
            tmp_path,
        )
        assert joules >= 3.5 * 0.48


class TestRapl:
    def test_packages_are_added_up_and_counters_start_again(self, root: Path) -> None:
        rapl = Rapl.find(root)
        assert rapl is not None
        domain(root, "intel-rapl:0", "package-0", 3_000_000)
        domain(root, "intel-rapl:0:0", "core", 900_000_000)
        domain(root, "intel-rapl:2", "psys", 900_000_000)
        assert rapl.take() == pytest.approx(2.0)
        domain(root, "intel-rapl:1", "package-1", 4_000_000)
        assert rapl.take() == pytest.approx(5.0)
        assert rapl.take() == 0.0

    @settings(deadline=None, max_examples=30)
    @given(st.lists(st.integers(0, RANGE // 1000), min_size=1, max_size=20))
    def test_a_counter_may_start_again_any_number_of_times(self, steps: list[int]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            powercap = Path(folder)
            domain(powercap, "intel-rapl:0", "package-0", 0)
            rapl = Rapl.find(powercap)
            assert rapl is not None
            total = 0
            for step in steps:
                total += step * 999
                domain(powercap, "intel-rapl:0", "package-0", total % RANGE)
                assert rapl.take() == pytest.approx(step * 999 / 1e6)

    def test_without_packages_there_is_no_rapl(self, tmp_path: Path) -> None:
        assert Rapl.find(tmp_path / "nowhere") is None
        domain(tmp_path, "intel-rapl:0", "psys", 0)
        assert Rapl.find(tmp_path) is None

    def test_a_process_gets_at_most_the_whole(self, root: Path) -> None:
        meter = EnergyMeter(root=root)
        assert (meter.source, meter.problem) == ("RAPL", None)
        burn(0.2)
        domain(root, "intel-rapl:0", "package-0", 101_000_000)
        assert 0 < meter.take(2.0) <= 100.0 + 1e-6
        burn(0.05)
        assert meter.take(2.0) == 0.0

    def test_another_process_has_its_share(self, root: Path) -> None:
        source, joules, own, rivals = alone(
            """
            rival = started(RIVAL)
            package = Path(sys.argv[1]) / "intel-rapl:0" / "energy_uj"
            def rivals_seconds():
                user, system = Path(f"/proc/{rival.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
            rivals = rivals_seconds()
            meter = EnergyMeter(root=Path(sys.argv[1]))
            before = time.process_time()
            while time.process_time() < before + 0.5 or rivals_seconds() < rivals + 0.5:
                pass
            package.write_text("1001000000")
            own, rivals = time.process_time() - before, rivals_seconds() - rivals
            joules = meter.take(1)
            rival.kill()
            rival.wait()
            answer = [meter.source, joules, own, rivals]
            """,
            root,
        )
        assert source == "RAPL"
        assert 0 < joules <= 1000 * own / (own + rivals) * 1.3

    def test_counters_that_only_root_may_read(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("becoming another user needs root")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            (domain(Path(folder), "intel-rapl:0", "package-0", 0) / "energy_uj").chmod(0o400)
            source, problem = alone(
                """
                become_nobody()
                meter = EnergyMeter(root=Path(sys.argv[1]))
                answer = [meter.source, meter.problem]
                """,
                folder,
            )
        assert source == "estimate"
        assert "only root may read" in problem
        assert problem.endswith("; joules are estimated from CPU time")

    def test_a_counter_that_disappears_is_reported_and_estimated(self, root: Path) -> None:
        meter = EnergyMeter(root=root)
        (root / "intel-rapl:1" / "energy_uj").unlink()
        burn(0.1)
        assert meter.take(0.0) >= 3.5 * 0.09
        assert meter.source == "estimate"
        assert meter.problem is not None
        assert str(root / "intel-rapl:1" / "energy_uj") in meter.problem
