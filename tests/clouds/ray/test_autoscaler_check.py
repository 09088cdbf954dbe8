"""Tests that a study with machines= is refused only if nothing in the cluster can start such machines."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

import thriftune as tt
from tests.support.ray_clusters import nodes
from thriftune.clouds.ray.autoscaler_check import REPORT_WAIT_SECONDS, check_autoscaler, starts_no_nodes
from thriftune.clouds.ray.cluster import Cluster, ClusterNode
from thriftune.errors import SettingError

HEX = "a0f16e936755f03c45e02a07146dbfb181c27afe906f065c2ba40aa4"
UNFINISHED = json.dumps({"gcs_request_time": 0.001, "load_metrics_report": {}}).encode()
WITHOUT_AUTOSCALER = json.dumps({"autoscaler_report": {"active_nodes": {f"node_{HEX}": 1}}}).encode()
WITH_AUTOSCALER = json.dumps(
    {"autoscaler_report": {"active_nodes": {"ray.head.default": 1, "m5.xlarge_spot": 2}}}
).encode()
MACHINES = ["m5.xlarge_on-demand"]


@dataclass
class FakeCluster:
    """A cluster whose monitor writes these reports one after the other; the last one stays."""

    reports: list[bytes | None]
    types: list[str] = field(default_factory=list)
    started: bool = False
    version_2: bool = False
    address: str = "10.0.0.5:6379"

    def writes_monitor_report(self) -> bool:
        return not self.version_2

    def monitor_report(self) -> bytes | None:
        return self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]

    def nodes(self) -> list[ClusterNode]:
        return [ClusterNode(str(i), "", {}, {}, kind) for i, kind in enumerate(self.types)]


def seconds_waited(cluster: FakeCluster) -> float:
    """Run the check; return the seconds that it waited."""
    waits: list[float] = []
    check_autoscaler(cast(Cluster, cluster), MACHINES, waits.append)
    return sum(waits)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (None, None),
        (UNFINISHED, None),
        (json.dumps({"autoscaler_report": None}).encode(), None),
        (json.dumps({"autoscaler_report": {"active_nodes": {}}}).encode(), None),
        (WITHOUT_AUTOSCALER, True),
        (WITH_AUTOSCALER, False),
        (
            json.dumps({"autoscaler_report": {"active_nodes": {"node_type_1": 1, f"node_{HEX}": 1}}}).encode(),
            False,
        ),
    ],
)
def test_reads_the_monitor_report(report: bytes | None, expected: bool | None) -> None:
    assert starts_no_nodes(report) is expected


def test_a_cluster_that_starts_no_nodes_is_refused_also_if_its_report_comes_late() -> None:
    late: list[bytes | None] = [None, UNFINISHED, UNFINISHED, WITHOUT_AUTOSCALER]
    for reports in ([*late], late[-1:]):
        with pytest.raises(
            SettingError, match=r"m5.xlarge_on-demand: the cluster at 10.0.0.5:6379 has no autoscaler"
        ):
            seconds_waited(FakeCluster(reports))


def test_accepts_a_cluster_with_an_autoscaler_or_without_a_report() -> None:
    assert seconds_waited(FakeCluster([WITH_AUTOSCALER])) == 0.0
    assert seconds_waited(FakeCluster([None, UNFINISHED, WITH_AUTOSCALER])) < 1.0
    assert seconds_waited(FakeCluster([WITHOUT_AUTOSCALER], version_2=True)) == 0.0
    assert seconds_waited(FakeCluster([WITHOUT_AUTOSCALER], types=["", "m5.xlarge_spot"])) == 0.0, (
        "a node of a type was started"
    )
    assert REPORT_WAIT_SECONDS <= seconds_waited(FakeCluster([None])) < REPORT_WAIT_SECONDS + 1.0, (
        "the report may come later"
    )


def test_refuses_a_cluster_that_the_study_starts_itself() -> None:
    with pytest.raises(SettingError, match=r"Leave machines out .* `thriftune cluster template` writes"):
        seconds_waited(FakeCluster([None], started=True))


def train(trial: tt.Trial) -> float:
    return float(trial["x"])


@pytest.mark.cluster
def test_a_study_on_nodes_that_were_started_by_hand_may_not_name_machines(tmp_path: Path) -> None:
    common: dict[str, Any] = {"minimize": "loss", "trials": 1, "progress": False, "storage": tmp_path / "files"}
    with nodes(1) as cluster:
        for machines, refused in ((MACHINES, True), ([], False)):
            engine = tt.Ray(address=cluster.address, machines=machines)
            options = {**common, "engine": engine, "store": tmp_path / "s.db", "name": f"a{refused}"}
            if refused:
                with pytest.raises(SettingError, match="has no autoscaler to start them"):
                    tt.tune(train, {"x": tt.Float(0, 1)}, **options)
            else:
                assert tt.tune(train, {"x": tt.Float(0, 1)}, **options).best.finished
