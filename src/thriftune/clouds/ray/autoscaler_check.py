"""Check that a Ray cluster can start nodes, before a study waits for them.

Every head runs Ray's monitor. Without an autoscaler configuration, the monitor starts no nodes. It then reports a
separate node type for each node, with the id of the node as its name. With a configuration, it reports the node
types of the configuration. Version 2 of the autoscaler writes no such report, so clusters that use it are not
checked.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from thriftune.errors import SettingError

if TYPE_CHECKING:
    from thriftune.clouds.ray.cluster import Cluster

REPORT_WAIT_SECONDS = 12.0
"""How long to wait for the first report of a new head. The monitor writes one every five seconds."""

_POLL_SECONDS = 0.25

_TYPE_OF_ONE_NODE = re.compile(r"node_[0-9a-f]{56}")
"""The name of a node type that a monitor without a configuration reports: the id of the node."""


def starts_no_nodes(report: bytes | None) -> bool | None:
    """Return whether a monitor's report shows that the cluster has no autoscaler.

    Returns None if that is unknown.
    """
    contents = json.loads(report).get("autoscaler_report") if report else None
    types = (contents or {}).get("active_nodes")
    return all(map(_TYPE_OF_ONE_NODE.fullmatch, types)) if types else None


def check_autoscaler(
    cluster: Cluster, machines: Sequence[str], sleep: Callable[[float], object] = time.sleep
) -> None:
    """Raise SettingError if the cluster certainly cannot start nodes of these types.

    A cluster whose autoscaler writes no report passes the check. `machines`: the names of the node types.
    """
    if cluster.started:
        raise SettingError(
            f"machines: {', '.join(machines)}: the cluster that is started on this machine cannot start other "
            "nodes. Leave machines out to use this machine alone, or give the address= of a cluster with an "
            "autoscaler; `thriftune cluster template` writes the configuration of one"
        )
    waited = 0.0
    while cluster.writes_monitor_report() and waited <= REPORT_WAIT_SECONDS:
        no_autoscaler = starts_no_nodes(cluster.monitor_report())
        if no_autoscaler is not None:
            if no_autoscaler and not any(node.type for node in cluster.nodes()):
                raise SettingError(
                    f"machines: {', '.join(machines)}: the cluster at {cluster.address} has no autoscaler to "
                    "start them. Add nodes to it by hand and leave machines out, or start it with an autoscaler; "
                    "`thriftune cluster template` writes the configuration"
                )
            return
        sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS
