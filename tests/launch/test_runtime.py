"""Tests of the runtime: its lazy imports, the check that a trial fits, and the limits that a plan sets."""

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
from thriftune.planning.study_job import job_of_study
from thriftune.settings.engine_options import Ray
from thriftune.settings.ray_node_types import read_node_types
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state.spec import Spec


def test_without_machines_to_rent_neither_scipy_nor_the_cloud_tables_are_imported() -> None:
    code = """
import sys
from pathlib import Path
import thriftune.launch.drive, thriftune.clouds.ray, thriftune.engines.ray.engine
from thriftune.settings.ray_node_types import node_types, read_node_types
assert node_types(read_node_types((), {"CPU": 1.0}, Path(".")), {"CPU": 1.0}) == []
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("scipy", "ray")))
print("thriftune.settings.cloud_tables" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["[]", "False"], done.stderr


def test_the_cloud_tables_are_imported_for_machines_to_rent() -> None:
    (profile,) = read_node_types(["m5.xlarge_on-demand"], {"CPU": 1.0}, Path())
    assert profile.name == "m5.xlarge_on-demand"
    assert profile.slots == 4


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (
            Ray(gang=3),
            "a trial has 3 workers with 1 CPU, and the cluster that is started on this machine has room for 2",
        ),
        (Ray(gpus=1), "1 worker with 1 CPU, 1 GPU, .* has room for 0"),
        (Ray(gang=2), None),
    ],
)
def test_a_trial_that_can_never_fit_is_an_error(engine: Ray, message: str | None) -> None:
    cluster = Cluster("127.0.0.1:1", False, started=True)
    nodes = [ClusterNode("a", "127.0.0.1", {"CPU": 2.0}, {})]
    with mock.patch.object(Cluster, "nodes", return_value=nodes):
        if message is None:
            _check_room(engine, cluster)
        else:
            with pytest.raises(SettingError, match=message):
                _check_room(engine, cluster)


def test_a_study_runs_within_the_trials_and_the_deadline_of_its_plan() -> None:
    """Measuring uses part of the deadline, and a plan has machines for its own trials only."""
    space, objectives = Space({"x": Float(0.0, 1.0)}), (Objective("loss", False),)
    spec = Spec(
        "a", space, objectives, 0, max_steps=27, stopping="hyperband", deadline_seconds=400.0, engine="ray"
    )
    study_plan = plan(job_of_study(spec)[0], Profile({1: 1.0}), [CloudProfile(4, 1.0, name="a")], deadline=390.0)
    planned_spec = within(spec, study_plan)
    assert planned_spec.trials == sum(stage.trials for stage in study_plan.stages if stage.begins == 0)
    assert planned_spec.deadline_seconds == 390.0
    assert within(replace(spec, trials=7), study_plan).trials == 7
