"""A driver dies with its disk. Another machine, which sees only the object store, finishes the study."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from thriftune.errors import StudyNotFound

SCRIPT = """
import sys
import time

import thriftune as tt


def train(trial):
    trial.restore(lambda folder: print("restored", (folder / "state").read_text(), flush=True))
    for step in trial.steps():
        time.sleep(0.05)
        print("step", step, flush=True)
        trial.report(loss=trial["x"] / step, save=lambda folder: (folder / "state").write_text(f"step {step}"))


if __name__ == "__main__":
    settings = {"trials": 4, "max_steps": 10, "workers": 2, "seed": 0, "name": "s", "progress": False}
    tt.tune(train, {"x": tt.Float(0.0, 1.0)}, minimize="loss", store=sys.argv[1], **settings)
"""

# A test does not wait until the heartbeat of the dead driver is old enough.
COMMAND = """
import sys

from thriftune.store import heartbeat

heartbeat.LIFETIME_SECONDS = 0.0
from thriftune.cli import main

sys.exit(main())
"""


def environment(home: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, sys.path))
    return os.environ | {"PYTHONPATH": path, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}


def command(home: Path, *arguments: str) -> str:
    """Run thriftune on the machine with this home, and return its output."""
    ran = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], env=environment(home), capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def reports(url: str) -> int:
    try:
        with_reports = tt.load("s", store=url).trials
    except StudyNotFound:
        return 0
    return sum(len(trial.reports) for trial in with_reports)


def test_another_machine_finishes_the_study(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "reader"))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    one, two = tmp_path / "one", tmp_path / "two"
    driver = subprocess.Popen([sys.executable, str(script), s3_url], env=environment(one), cwd=tmp_path)
    try:
        give_up_at = time.monotonic() + 60
        while (seen := reports(s3_url)) < 3:
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
        (listed,) = json.loads(command(two, "list", "--json", "--store", s3_url))
        assert listed["name"] == "s"
    finally:
        driver.kill()
        driver.wait()
    shutil.rmtree(one)
    before = tt.load("s", store=s3_url)
    first = [(trial.id, dict(trial.config)) for trial in before.trials]
    command(two, "resume", "s", "--quiet", "--store", s3_url)
    result: Any = json.loads(command(two, "show", "s", "--json", "--store", s3_url))
    after = tt.load("s", store=s3_url)
    assert [trial.reports[-1].step for trial in after.trials] == [10] * 4
    assert [(trial.id, dict(trial.config)) for trial in after.trials][: len(first)] == first
    assert sum(len(trial.reports) for trial in after.trials) == 40
    assert seen >= 3
    assert result
    assert any(trial.resume_step > 0 for trial in after.trials), "the checkpoints were lost with the disk"
    three = tmp_path / "three"
    assert "step 10" in command(three, "logs", "s", "--trial", "3", "--store", s3_url)
    assert "finished" in command(three, "list", "--store", s3_url)
    command(three, "rename", "s", "t", "--store", s3_url)
    command(three, "delete", "t", "--yes", "--store", s3_url)
    assert json.loads(command(two, "list", "--json", "--store", s3_url)) == []


def test_a_study_in_a_local_store_is_seen_from_everywhere(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its storage is in an object store."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "reader"))
    local = tmp_path / "studies.db"
    settings: dict[str, Any] = {"trials": 2, "max_steps": 3, "workers": 1, "seed": 0, "progress": False}

    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            trial.report(loss=trial["x"] / step)

    def tune(trials: int) -> tt.Result:
        return tt.tune(
            train,
            {"x": tt.Float(0.0, 1.0)},
            minimize="loss",
            name="s",
            store=local,
            storage=s3_url,
            **settings | {"trials": trials},
        )

    assert len(tune(2).trials) == 2
    assert len(tt.load("s", store=s3_url).trials) == 2
    # Another machine goes on with it, and then this one.
    command(tmp_path / "two", "resume", "s", "--trials", "3", "--quiet", "--store", s3_url)
    assert len(tune(4).trials) == 4
    assert len(tt.load("s", store=s3_url).trials) == len(tt.load("s", store=local).trials) == 4
