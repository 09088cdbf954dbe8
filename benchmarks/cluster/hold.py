"""Runs a Ray cluster with one node until standard input ends. Prints the cluster's address.

The workers on the node have the environment of this process, which is that of the system under test. So it imports
nothing of this project.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

from ray.cluster_utils import Cluster

_STORE_BYTES = 80_000_000


def main(cpus: int) -> None:
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        # Other programs on this machine must not find the cluster, and its sockets need a short path.
        os.environ["RAY_TMPDIR"] = folder
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": cpus,
                "include_dashboard": False,
                "temp_dir": f"{folder}/ray",
                "node_ip_address": "127.0.0.1",
                "object_store_memory": _STORE_BYTES,
            },
        )
        try:
            print(cluster.address, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                sys.stdin.read()
        finally:
            cluster.remove_node(cluster.head_node, allow_graceful=False)


if __name__ == "__main__":
    main(int(sys.argv[1]))
