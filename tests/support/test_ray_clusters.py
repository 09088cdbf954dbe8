"""That the clusters which other tests run on are what they should be, and leave nothing behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.ray_clusters import Nodes, autoscaled, nodes
from thriftune.clouds.ray.cluster import Cluster

pytestmark = pytest.mark.cluster

ray = pytest.importorskip("ray")


def named(folder: str) -> list[int]:
    """Processes whose command line names it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and folder in (entry / "cmdline").read_bytes().decode(errors="replace"):
                found.append(int(entry.name))
        except OSError:  # it was going
            continue
    return found


def none_left(folder: str) -> None:
    deadline = time.monotonic() + 30.0
    while named(folder) and time.monotonic() < deadline:  # workers follow their raylet
        time.sleep(0.1)
    assert named(folder) == []
    assert not Path(folder).exists()


def test_nodes_come_and_go_and_nothing_is_left_after_a_failure() -> None:
    before = dict(os.environ)

    def broken(cluster: Nodes) -> None:
        there = Cluster.attach(cluster.address)
        folder.append(os.environ["RAY_TMPDIR"])
        assert named(folder[0])
        assert len(there.nodes()) == 2  # with the head
        assert cluster.address.startswith("127.0.0.1:")
        node = cluster.add(2, labels={"colour": "red"}, resources={"tape": 3}, kind="red_spot")
        [found] = [each for each in there.nodes() if each.id == node]
        assert (found.resources["CPU"], found.resources["tape"]) == (2.0, 3.0)
        assert (found.labels["colour"], found.type) == ("red", "red_spot")
        cluster.kill(node)
        raise ZeroDivisionError

    folder: list[str] = []
    with pytest.raises(ZeroDivisionError), nodes(1) as cluster:
        broken(cluster)
    none_left(folder[0])
    assert not ray.is_initialized()
    assert dict(os.environ) == before


def test_a_script_inside_sees_only_its_own_and_ends_with_the_cluster() -> None:
    with autoscaled({}) as cluster:
        script = "import os, socket, sys; print(socket.if_nameindex(), sys.argv[1], os.environ['RAY_ADDRESS'])"
        assert cluster.run(script, "x") == "[(1, 'lo')] x 127.0.0.1:6379\n"
        with pytest.raises(AssertionError, match="exit status 3"):
            cluster.run("import sys; sys.exit(3)")
        endless = cluster.start("import time; print('here', flush=True); time.sleep(600)")
        assert endless.stdout is not None
        assert endless.stdout.readline() == "here\n"
        assert named(str(cluster.folder))
    assert endless.wait(30) != 0
    endless.stdout.close()
    none_left(str(cluster.folder))
