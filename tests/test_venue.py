"""What a study that rents nothing need not load; and what a plan makes of one that does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from thriftune.cluster_kinds import kinds_of
from thriftune.objectives import Objective
from thriftune.parameters import Float
from thriftune.plan_file import job_of
from thriftune.planning import CloudProfile, Profile
from thriftune.planning.choosing import plan
from thriftune.space import Space
from thriftune.spec import Spec
from thriftune.venue import within


def test_what_plans_and_rents_is_loaded_only_where_there_is_something_to_rent() -> None:
    code = """
import sys
from pathlib import Path
import thriftune.launch, thriftune.clouds.ray, thriftune.engines.ray
from thriftune.cluster_kinds import kinds_of, node_types
assert node_types(kinds_of((), {"CPU": 1.0}, Path(".")), {"CPU": 1.0}) == []
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("scipy", "ray")))
print("thriftune.plan_file" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["[]", "False"], done.stderr


def test_what_can_be_rented_is_still_found() -> None:
    (kind,) = kinds_of(["m5.xlarge_on-demand"], {"CPU": 1.0}, Path())
    assert kind.name == "m5.xlarge_on-demand"
    assert kind.slots == 4


def test_a_study_is_driven_within_the_limits_of_its_plan() -> None:
    """What was measured took some of the deadline; and there are no machines for trials that are not planned."""
    space, wanted = Space({"x": Float(0.0, 1.0)}), (Objective("loss", False),)
    spec = Spec("a", space, wanted, 0, max_steps=27, stopping="hyperband", deadline_seconds=400.0, engine="ray")
    found = plan(job_of(spec)[0], Profile({1: 1.0}), [CloudProfile(4, 1.0, name="a")], deadline=390.0)
    driven = within(spec, found)
    assert driven.trials == sum(stage.trials for stage in found.stages if stage.begins == 0)
    assert driven.deadline_seconds == 390.0
    assert within(replace(spec, trials=7), found).trials == 7
