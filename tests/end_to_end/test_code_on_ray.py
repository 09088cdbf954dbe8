"""Tests that a script's study runs on a Ray node that sees nothing of the driver's machine but an object store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.package_index import add_wheel, package_index
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


_MISSING = """
import sys
import thriftune as tt

def train(trial):
    import first
    trial.report(loss=float(first.value))

if __name__ == "__main__":
    result = tt.tune(
        train, {"x": tt.Float(0, 1)}, minimize="loss", trials=4, seed=1, searcher="random",
        engine=tt.Ray(address=sys.argv[1]), storage=sys.argv[2], store=sys.argv[3],
    )
    print(sorted(trial.value for trial in result.trials))
"""


def test_a_node_installs_packages_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_url: str
) -> None:
    site = empty_site(tmp_path, monkeypatch)
    install(site, "first", None, ("second>=1", "unknown; python_version < '3'", "third; extra == 'all'"))
    index = package_index(tmp_path / "index", monkeypatch)
    add_wheel(index, "first", requires=("second>=1",))
    add_wheel(index, "second")
    project = write(tmp_path / "project", "train.py")
    (project / "train.py").write_text(_MISSING)
    cache = tmp_path.parent / f"{tmp_path.name} cache of the node"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "train.py", cluster.address, s3_url, str(project / "studies.db")],
            cwd=project,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT, site)))},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    with nodes() as cluster:
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        cluster.add_apart(2, tmp_path / "project", tmp_path / "site")
        alone = run()  # the driver does without `second`, and so does the node
        install(site, "second", None)
        done = run()
        install(site, "third", None)
        (project / "train.py").write_text(_MISSING.replace("import first", "import first, third"))
        refused = run()
    assert alone.returncode == 0, alone.stderr
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1.5, 1.5, 1.5, 1.5]\n"
    installed = [
        sorted(path.name for path in folder.glob("site/*")) for folder in cache.glob("thriftune/packages/*")
    ]
    first = ["first", "first-1.5.dist-info"]
    assert first in installed
    assert [*first, "second", "second-1.5.dist-info"] in installed
    assert refused.returncode != 0
    assert "no worker can be started on" in refused.stderr
    assert "cannot be installed there: first==1.5, second==1.5, third==1.5." in refused.stderr
    assert "No matching distribution found for third==1.5" in refused.stderr
