"""What a study that rents nothing need not load; and what a plan makes of one that does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from thriftune.clouds.ray.cluster import Cluster, ClusterNode
from thriftune.errors import SettingError
from thriftune.launch.runtime import _check_room, within
from thriftune.planning import CloudProfile, Profile
from thriftune.planning.plan_finder import plan
from thriftune.settings.engine_options import Ray
from thriftune.settings.machine_tables import job_of
from thriftune.settings.node_types import kinds_of
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state.spec import Spec


def test_what_plans_and_rents_is_loaded_only_where_there_is_something_to_rent() -> None:
    code = """
import sys
from pathlib import Path
import thriftune.launch.drive, thriftune.clouds.ray, thriftune.engines.ray.engine
from thriftune.settings.node_types import kinds_of, node_types
assert node_types(kinds_of((), {"CPU": 1.0}, Path(".")), {"CPU": 1.0}) == []
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("scipy", "ray")))
print("thriftune.settings.machine_tables" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["[]", "False"], done.stderr


def test_what_can_be_rented_is_still_found() -> None:
    (kind,) = kinds_of(["m5.xlarge_on-demand"], {"CPU": 1.0}, Path())
    assert kind.name == "m5.xlarge_on-demand"
    assert kind.slots == 4


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (
            Ray(gang=3),
            "a trial has 3 workers with 1 CPU, and the cluster that is started on this machine has room for 2",
        ),
        (Ray(gpus=1), "1 worker with 1 CPU, 1 GPU, .* has room for 0"),
        (Ray(gang=2), None),
    ],
)
def test_what_can_never_have_room_is_refused(where: Ray, why: str | None) -> None:
    cluster = Cluster("127.0.0.1:1", False, started=True)
    there = [ClusterNode("a", "127.0.0.1", {"CPU": 2.0}, {})]
    with mock.patch.object(Cluster, "nodes", return_value=there):
        if why is None:
            _check_room(where, cluster)
        else:
            with pytest.raises(SettingError, match=why):
                _check_room(where, cluster)


def test_a_study_is_driven_within_the_limits_of_its_plan() -> None:
    """What was measured took some of the deadline; and there are no machines for trials that are not planned."""
    space, wanted = Space({"x": Float(0.0, 1.0)}), (Objective("loss", False),)
    spec = Spec("a", space, wanted, 0, max_steps=27, stopping="hyperband", deadline_seconds=400.0, engine="ray")
    found = plan(job_of(spec)[0], Profile({1: 1.0}), [CloudProfile(4, 1.0, name="a")], deadline=390.0)
    driven = within(spec, found)
    assert driven.trials == sum(stage.trials for stage in found.stages if stage.begins == 0)
    assert driven.deadline_seconds == 390.0
    assert within(replace(spec, trials=7), found).trials == 7
