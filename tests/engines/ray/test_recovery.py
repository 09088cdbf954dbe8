"""Tests the recovery of the reports of an earlier driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thriftune.engines.ray.engine import RayEngine
from thriftune.state.events import Reported
from thriftune.training.messages import to_line


class EmptyCluster:
    """A cluster without actors."""

    def end_actors(self, prefix: str) -> None:
        pass


def test_recovery_on_a_cluster_leaves_no_descriptor_open(tmp_path: Path) -> None:
    cluster: Any = EmptyCluster()
    engine = RayEngine(cluster, lambda _: None, {"CPU": 1.0}, tmp_path, "test", {})  # type: ignore[arg-type, return-value]
    reports = [Reported(float(n), n, 1, 1, 1, {"loss": 1.0}) for n in range(3)]
    for n, report in enumerate(reports):
        spools = tmp_path / "seats" / f"1-{n}" / "spools"
        spools.mkdir(parents=True)
        (spools / "0.spool").write_bytes(to_line(report))
    before = descriptors()
    for _ in range(50):
        assert engine.recover() == reports
    assert descriptors() == before


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
