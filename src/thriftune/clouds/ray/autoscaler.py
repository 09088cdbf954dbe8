"""Can a Ray cluster start nodes? Told before a study waits for machines that never come.

Every head runs Ray's monitor. Without a configuration it only watches: it reports each node as a type of its own,
named after the node. With one, it reports the types of the configuration. Version 2 of the autoscaler reports
neither, so nothing is known of a cluster that has it.
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

STATUS_SECONDS = 12.0
"""How long to wait for the first report of a head that has just started: one comes every five seconds."""

_LOOK_SECONDS = 0.25

_OWN_TYPE = re.compile(r"node_[0-9a-f]{56}")
"""What a monitor that only watches calls the type of a node."""


def only_watches(status: bytes | None) -> bool | None:
    """Return whether a monitor's report is that of one that starts no nodes; None where it does not tell yet."""
    report = json.loads(status).get("autoscaler_report") if status else None
    types = (report or {}).get("active_nodes")
    return all(map(_OWN_TYPE.fullmatch, types)) if types else None


def check_autoscaler(
    cluster: Cluster, machines: Sequence[str], sleep: Callable[[float], object] = time.sleep
) -> None:
    """Raise SettingError if it is certain that nothing can start nodes of these types in the cluster.

    A cluster whose autoscaler has not reported is taken to have one. `machines`: names of node types.
    """
    if cluster.started:
        raise SettingError(
            f"machines: {', '.join(machines)}: the cluster that is started on this machine cannot start other "
            "nodes. Leave machines out to use this machine alone, or give the address= of a cluster with an "
            "autoscaler; `thriftune cluster template` writes the configuration of one"
        )
    waited = 0.0
    while cluster.may_report() and waited <= STATUS_SECONDS:
        watches = only_watches(cluster.monitor_report())
        if watches is not None:
            if watches and not any(node.type for node in cluster.nodes()):
                raise SettingError(
                    f"machines: {', '.join(machines)}: the cluster at {cluster.address} has no autoscaler to "
                    "start them. Add nodes to it by hand and leave machines out, or start it with an autoscaler; "
                    "`thriftune cluster template` writes the configuration"
                )
            return
        sleep(_LOOK_SECONDS)
        waited += _LOOK_SECONDS
