"""What a study that rents nothing need not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from thriftune.cluster_kinds import kinds_of


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
