"""Tests how many workers a study wants, and how two studies share a real cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray_clusters import Nodes, nodes
from tests.support.tables import Table
from thriftune.launch.runtime import wanted
from thriftune.provisioning.present_machines import PresentMachines

pytestmark = pytest.mark.cluster

PATIENCE_SECONDS = 120.0


@pytest.mark.parametrize(
    ("trials", "workers", "gang", "expected"),
    [
        (9, None, 1, 9),
        (9, 4, 1, 4),
        (9, None, 2, 18),
        (3, 4, 1, 3),
        (None, 4, 2, 8),
        (None, None, 1, 10_000),
        (9, None, 0, 0),
    ],
)
def test_workers_that_a_study_wants(trials: int | None, workers: int | None, gang: int, expected: int) -> None:
    limits: dict[str, Any] = {"deadline_seconds": 60.0} if trials is None else {}
    table = Table(slots=2, trials=trials, workers=workers, engine="ray", provisioner=PresentMachines(), **limits)
    assert wanted(table.spec, table.history, gang) == expected


def test_ended_trials_want_no_workers() -> None:
    table = Table(slots=2, trials=3, workers=None, engine="ray")
    table.report(0, 1, 0.5)
    table.end(0)
    assert wanted(table.spec, table.history, 1) == 2


STUDY = """
import json, sys, time
from pathlib import Path
import thriftune as tt
from thriftune.state import events as ev
from thriftune.store.opening import open_store

folder, name, address, other = Path(sys.argv[1]), *sys.argv[2:5]

def train(trial):
    done = 0
    def load(at):
        nonlocal done
        done = int((at / "done").read_text())
    trial.restore(load)
    (folder / f"{name}-started").touch()
    for step in trial.steps():
        time.sleep(0.1)
        done += 1
        assert done == step
        trial.report(loss=trial["x"], save=lambda at: (at / "done").write_text(str(done)))
        # Wait until the other study runs, too, so that both share the cluster.
        while not (folder / f"{other}-started").exists() and not trial.told_to_end():
            time.sleep(0.05)

result = tt.tune(
    train, {"x": tt.Float(0, 1)}, minimize="loss", max_steps=15, trials=5, stopping="none", searcher="random",
    engine=tt.Ray(address=address), name=name, store=folder / f"{name}.db", storage=folder / "shared",
    progress=False,
)
with open_store(folder / f"{name}.db") as store:
    log = list(store.read(name))
print(json.dumps({
    "states": [str(trial.state.value) for trial in result.trials],
    "bad": sum(trial.failures + trial.losses for trial in result.trials),
    "shares": [[entry.workers, entry.why] for entry in log if type(entry) is ev.ShareChanged],
    "moved": sum(type(entry) is ev.Move for entry in log),
    "steps": [trial.step for trial in result.trials],
}))
"""


def start(folder: Path, name: str, other: str, cluster: Nodes) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STUDY, str(folder), name, cluster.address, other]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def outcome(study: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        output, errors = study.communicate(timeout=PATIENCE_SECONDS)
    finally:
        study.kill()
    assert study.returncode == 0, errors
    return dict(json.loads(output.splitlines()[-1]))


@pytest.mark.parametrize("cpus", [(4,), (1, 1, 1, 1)], ids=["one node", "four nodes"])
def test_two_studies_share_a_cluster_fairly(cpus: tuple[int, ...], tmp_path: Path) -> None:
    """The second study gets the nodes that the first one releases."""
    with nodes(*cpus) as cluster:
        first = start(tmp_path, "first", "second", cluster)
        second = None
        try:
            while not (tmp_path / "first-started").exists():
                assert first.poll() is None, first.communicate()
                time.sleep(0.05)
            second = start(tmp_path, "second", "first", cluster)
            both = [outcome(first), outcome(second)]
        finally:
            for study in (first, second):
                if study is not None:
                    study.kill()
                    study.wait()
    for each in both:
        assert each["states"] == ["COMPLETED"] * 5
        assert each["steps"] == [15] * 5
        assert each["bad"] == 0, "a trial that moves for another study has not failed"
    assert [2, "1 other study: second"] in both[0]["shares"]
    assert [2, "1 other study: first"] in both[1]["shares"]
    assert both[0]["shares"][-1][0] is None or both[1]["shares"][-1][0] is None, (
        "the study that ends last gets the whole cluster"
    )
    assert both[0]["moved"] >= 2, "the first study had all four slots, and released two"
