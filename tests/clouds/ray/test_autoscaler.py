"""A study that names machines is refused at once where nothing can start them, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

import thriftune as tt
from tests.support.ray_clusters import nodes
from thriftune.clouds.ray.autoscaler import STATUS_SECONDS, check_autoscaler, only_watches
from thriftune.clouds.ray.cluster import Cluster, ClusterNode
from thriftune.errors import SettingError

HEX = "a0f16e936755f03c45e02a07146dbfb181c27afe906f065c2ba40aa4"
FIRST = json.dumps({"gcs_request_time": 0.001, "load_metrics_report": {}}).encode()
WATCHES = json.dumps({"autoscaler_report": {"active_nodes": {f"node_{HEX}": 1}}}).encode()
STARTS = json.dumps({"autoscaler_report": {"active_nodes": {"ray.head.default": 1, "m5.xlarge_spot": 2}}}).encode()
NAMED = ["m5.xlarge_on-demand"]


@dataclass
class Reports:
    """A cluster whose monitor reports one after the other; the last one stays."""

    reports: list[bytes | None]
    types: list[str] = field(default_factory=list)
    started: bool = False
    version_2: bool = False
    address: str = "10.0.0.5:6379"

    def may_report(self) -> bool:
        return not self.version_2

    def monitor_report(self) -> bytes | None:
        return self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]

    def nodes(self) -> list[ClusterNode]:
        return [ClusterNode(str(i), "", {}, {}, kind) for i, kind in enumerate(self.types)]


def slept(cluster: Reports) -> float:
    """Returns the seconds for which the check has waited; raises what it raises."""
    waits: list[float] = []
    check_autoscaler(cast(Cluster, cluster), NAMED, waits.append)
    return sum(waits)


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (None, None),
        (FIRST, None),
        (json.dumps({"autoscaler_report": None}).encode(), None),
        (json.dumps({"autoscaler_report": {"active_nodes": {}}}).encode(), None),
        (WATCHES, True),
        (STARTS, False),
        (
            json.dumps({"autoscaler_report": {"active_nodes": {"node_type_1": 1, f"node_{HEX}": 1}}}).encode(),
            False,
        ),
    ],
)
def test_what_a_report_tells(status: bytes | None, found: bool | None) -> None:
    assert only_watches(status) is found


def test_a_cluster_that_only_watches_is_refused_also_if_its_report_comes_late() -> None:
    late: list[bytes | None] = [None, FIRST, FIRST, WATCHES]
    for reports in ([*late], late[-1:]):
        with pytest.raises(
            SettingError, match=r"m5.xlarge_on-demand: the cluster at 10.0.0.5:6379 has no autoscaler"
        ):
            slept(Reports(reports))


def test_a_cluster_with_an_autoscaler_or_one_that_cannot_be_told_is_not() -> None:
    assert slept(Reports([STARTS])) == 0.0
    assert slept(Reports([None, FIRST, STARTS])) < 1.0
    assert slept(Reports([WATCHES], version_2=True)) == 0.0
    assert slept(Reports([WATCHES], types=["", "m5.xlarge_spot"])) == 0.0, "somebody has started a node of a type"
    assert STATUS_SECONDS <= slept(Reports([None])) < STATUS_SECONDS + 1.0, "its report may come later"


def test_a_cluster_that_the_study_starts_itself_is_refused() -> None:
    with pytest.raises(SettingError, match=r"Leave machines out .* `thriftune cluster template` writes"):
        slept(Reports([None], started=True))


def train(trial: tt.Trial) -> float:
    return float(trial["x"])


@pytest.mark.cluster
def test_a_study_on_nodes_that_were_started_by_hand(tmp_path: Path) -> None:
    common: dict[str, Any] = {"minimize": "loss", "trials": 1, "progress": False, "storage": tmp_path / "files"}
    with nodes(1) as there:
        for machines, refused in ((NAMED, True), ([], False)):
            engine = tt.Ray(address=there.address, machines=machines)
            given = {**common, "engine": engine, "store": tmp_path / "s.db", "name": f"a{refused}"}
            if refused:
                with pytest.raises(SettingError, match="has no autoscaler to start them"):
                    tt.tune(train, {"x": tt.Float(0, 1)}, **given)
            else:
                assert tt.tune(train, {"x": tt.Float(0, 1)}, **given).best.finished
