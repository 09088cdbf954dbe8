"""Tests that a script's study runs on a Ray node that sees nothing of the driver's machine but an object store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.projects import editable, empty_site, git, install, source, write
from tests.support.ray_clusters import nodes
from thriftune.object_store.opening import open_objects

pytestmark = pytest.mark.cluster

pytest.importorskip("ray")

_SCRIPT = """
import sys
import thriftune as tt
import helper, second

def train(trial):
    trial.report(loss=helper.loss(trial["x"]) + int(open("data.txt").read()) + len(second.value))

if __name__ == "__main__":
    result = tt.tune(
        train, {"x": tt.Float(0, 1)}, minimize="loss", trials=2, seed=1, name="sent", searcher="random",
        engine=tt.Ray(address=sys.argv[1]), storage=sys.argv[2], store=sys.argv[3], progress=False,
    )
    print(sorted(trial.value - trial.config["x"] for trial in result.trials))
"""


def test_a_node_gets_the_project_and_local_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_url: str
) -> None:
    site = empty_site(tmp_path, monkeypatch)
    package = source(tmp_path / "code", "second")
    install(site, "second", editable(package))
    project = write(tmp_path / "project", "train.py", "shared/helper.py", "data.txt", ".gitignore")
    (project / "train.py").write_text(_SCRIPT)
    (project / "shared/helper.py").write_text("def loss(x): return x + 100\n")
    (project / "data.txt").write_text("3")
    (project / ".gitignore").write_text("*.db*\n")
    git(project, "init", "--quiet")
    paths = [ROOT / "src", ROOT, site, package / "src", project / "shared"]
    with nodes() as cluster:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / f"{tmp_path.name} cache of the node"))
        cluster.add_apart(2, tmp_path / "project", tmp_path / "code", tmp_path / "site")
        process = subprocess.run(
            [sys.executable, "train.py", cluster.address, s3_url, str(project / "studies.db")],
            cwd=project,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert process.returncode == 0, process.stderr
    assert process.stdout == "[109.0, 109.0]\n", process.stderr
    kinds = {each.key.partition("/")[0] for each in open_objects(s3_url).list_objects()}
    assert {"code", "wheels"} <= kinds
