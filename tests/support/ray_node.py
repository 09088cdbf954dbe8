"""Runs one node of a Ray cluster, until its input is closed. It prints the node's id.

Started by ray_clusters.py in a namespace of mounts, so that the node does not see all folders of this machine.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(address: str, settings: dict[str, Any]) -> None:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    params = RayParams(gcs_address=address, redis_address=address, node_ip_address="127.0.0.1", **settings)
    node = Node(params, head=False, spawn_reaper=False)
    print(node.node_id, flush=True)
    sys.stdin.read()
    node.kill_all_processes(check_alive=False, allow_graceful=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
