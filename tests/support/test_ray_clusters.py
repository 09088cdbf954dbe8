"""Tests that the clusters for other tests work, and leave nothing behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.ray_clusters import Nodes, autoscaled, nodes
from thriftune.clouds.ray.cluster import Cluster

pytestmark = pytest.mark.cluster

ray = pytest.importorskip("ray")


def processes_of(folder: str) -> list[int]:
    """Return the processes with the folder in their command lines."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and folder in (entry / "cmdline").read_bytes().decode(errors="replace"):
                pids.append(int(entry.name))
        except OSError:  # it has just ended
            continue
    return pids


def wait_for_no_process(folder: str) -> None:
    """Wait until no process of a cluster is left, and check that its folder is removed."""
    deadline = time.monotonic() + 30.0
    while processes_of(folder) and time.monotonic() < deadline:  # workers end after their raylet
        time.sleep(0.1)
    assert processes_of(folder) == []
    assert not Path(folder).exists()


def test_nothing_is_left_after_a_failure() -> None:
    before = dict(os.environ)

    def broken(cluster: Nodes) -> None:
        connection = Cluster.attach(cluster.address)
        folder.append(os.environ["RAY_TMPDIR"])
        assert processes_of(folder[0])
        assert len(connection.nodes()) == 2  # with the head
        assert cluster.address.startswith("127.0.0.1:")
        node = cluster.add(2, labels={"colour": "red"}, resources={"tape": 3}, kind="red_spot")
        [added] = [each for each in connection.nodes() if each.id == node]
        assert (added.resources["CPU"], added.resources["tape"]) == (2.0, 3.0)
        assert (added.labels["colour"], added.type) == ("red", "red_spot")
        cluster.kill(node)
        raise ZeroDivisionError

    folder: list[str] = []
    with pytest.raises(ZeroDivisionError), nodes(1) as cluster:
        broken(cluster)
    wait_for_no_process(folder[0])
    assert not ray.is_initialized()
    assert dict(os.environ) == before


def test_a_script_in_the_namespaces_ends_with_the_cluster() -> None:
    with autoscaled({}) as cluster:
        script = "import os, socket, sys; print(socket.if_nameindex(), sys.argv[1], os.environ['RAY_ADDRESS'])"
        assert cluster.run(script, "x") == "[(1, 'lo')] x 127.0.0.1:6379\n"
        with pytest.raises(AssertionError, match="exit status 3"):
            cluster.run("import sys; sys.exit(3)")
        endless = cluster.start("import time; print('here', flush=True); time.sleep(600)")
        assert endless.stdout is not None
        assert endless.stdout.readline() == "here\n"
        assert processes_of(str(cluster.folder))
    assert endless.wait(30) != 0
    endless.stdout.close()
    wait_for_no_process(str(cluster.folder))
