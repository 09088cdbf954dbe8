"""Tests the cloud with Ray's own autoscaler, which starts and ends the nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clouds.ray.test_cloud import SPOT
from tests.support.ray_clusters import Autoscaled, autoscaled, node_type
from thriftune.clouds.ray.cluster import INSTANCE_TYPE, MARKET

pytestmark = pytest.mark.cluster

IDLE_SECONDS = 4.0

ON_DEMAND = {INSTANCE_TYPE: "c7i.large", MARKET: "on-demand"}

BEGIN = """
import json, os, signal, sys, time
from tests.clouds.conformance import machines_of
from tests.clouds.ray.test_cloud import Study
from thriftune.state import events as ev
from thriftune.clouds.ray.cluster import Cluster

cluster = Cluster.attach(os.environ["RAY_ADDRESS"])
workers = lambda: {node.id: node.type for node in cluster.nodes() if node.resources.get("CPU")}

def wait_until(done, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, workers()
        time.sleep(0.1)

def write(**values):
    print(json.dumps(values), flush=True)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Autoscaled]:
    types = {
        "c7i.large_spot": node_type(2, labels=SPOT, most=3),
        "c7i.large_on-demand": node_type(2, labels=ON_DEMAND, most=3),
    }
    with autoscaled(types, idle_seconds=IDLE_SECONDS) as cluster:
        yield cluster


def written(output: str) -> dict[str, Any]:
    """Return all values that a script has written."""
    values: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith("{"):
            values |= json.loads(line)
    return values


def test_machines_start_stay_while_idle_and_end_when_released(cluster: Autoscaled) -> None:
    script = """
study = Study(cluster)
study.open()
study.rent("m1")
study.rent("m2")
study.rent("m3", "c7i.large_on-demand")
for _ in range(3):
    if len(machines_of(study.events, ev.MachineReady)) < 3:
        study.wait_for(ev.MachineReady)
nodes = {machine: study.cloud.node_of(machine).id for machine in ("m1", "m2", "m3")}
write(types={machine: workers()[node] for machine, node in nodes.items()}, nodes=len(set(nodes.values())))
write(slots=[machine.slots for machine in study.fleet.present.values()])
wait_until(lambda: study.poll() or time.time() > study.events[-1].at + 2 * float(sys.argv[1]))
write(idle=len(workers()))
study.release("m1")
study.wait_for(ev.MachineReleased)
write(released=nodes["m1"] not in workers(), remaining=sorted(study.fleet.present))
study.release("m2"), study.release("m3")
study.wait_for(ev.MachineBilled)
wait_until(lambda: study.poll() is None or not study.fleet.present)
write(bills=[machine.bill.dollars > 0 for machine in study.fleet.past], end=len(workers()))
study.close()
"""
    values = written(cluster.run(BEGIN + script, str(IDLE_SECONDS)))
    assert values == {
        "types": {"m1": "c7i.large_spot", "m2": "c7i.large_spot", "m3": "c7i.large_on-demand"},
        "nodes": 3,
        "slots": [2, 2, 2],
        "idle": 3,
        "released": True,
        "remaining": ["m2", "m3"],
        "bills": [True] * 3,
        "end": 0,
    }


def test_a_new_driver_finds_the_machine_of_a_killed_one(cluster: Autoscaled) -> None:
    first = """
study = Study(cluster)
study.open()
study.rent("m1")
study.wait_for(ev.MachineReady)
write(node=study.cloud.node_of("m1").id)
os._exit(0)
"""
    second = """
from tests.clouds.ray.test_cloud import RayCloud, TYPE, WORKER
cloud = RayCloud(cluster, "a", WORKER, ("m1",), types=(TYPE,))
write(events=len(cloud.open(time.time())), node=cloud.node_of("m1").id)
time.sleep(2 * float(sys.argv[1]))
write(kept=cloud.node_of("m1").id in workers(), polled=len(cloud.poll_events(time.time())))
os._exit(0)
"""
    third = """
wait_until(lambda: not workers())
from tests.clouds.ray.test_cloud import RayCloud, TYPE, WORKER
cloud = RayCloud(cluster, "a", WORKER, ("m1",), types=(TYPE,))
write(events=[type(event).__name__ for event in cloud.open(time.time())])
cloud.close(time.time())
"""
    node = written(cluster.run(BEGIN + first))["node"]
    values = written(cluster.run(BEGIN + second, str(IDLE_SECONDS)))
    assert values == {"events": 0, "node": node, "kept": True, "polled": 0}
    assert written(cluster.run(BEGIN + third)) == {"events": ["MachineLost", "MachineBilled"]}


def test_two_studies_rent_different_nodes_and_a_lost_node_stays_lost(cluster: Autoscaled) -> None:
    script = """
study = Study(cluster, sys.argv[1])
study.open()
study.rent("m1")
study.wait_for(ev.MachineReady)
write(node=study.cloud.node_of("m1").id)
pause = time.time() + 5
wait_until(lambda: study.poll() is None or time.time() > pause)
write(present=list(study.fleet.present), all=len(workers()))
sys.stdout.flush()
study.release("m1")
study.wait_for(ev.MachineReleased)
study.close()
"""
    running = [cluster.start(BEGIN + script, name) for name in ("one", "two")]
    values = [written(each.communicate(timeout=120)[0]) for each in running]
    assert [each.returncode for each in running] == [0, 0]
    assert values[0]["node"] != values[1]["node"]
    assert [each["present"] for each in values] == [["m1"], ["m1"]]

    lost = """
import psutil
study = Study(cluster)
study.open()
study.rent("m1")
study.wait_for(ev.MachineReady)
node = study.cloud.node_of("m1").id
raylets = [each for each in psutil.process_iter(["name", "environ"]) if each.info["name"] == "raylet"]
[raylet] = [each for each in raylets if node in str(each.info["environ"])]
raylet.kill()
event = study.wait_for(ev.MachineLost)
write(revoked=event.revoked, billed=study.fleet.past[-1].bill is not None)
time.sleep(5)
write(workers=len(workers()), more=len(study.poll()))
study.close()
"""
    assert written(cluster.run(BEGIN + lost)) == {"revoked": True, "billed": True, "workers": 0, "more": 0}
