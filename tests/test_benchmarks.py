"""The benchmarks run, at tiny sizes and without peers; what they measure is not judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import large_store, peers, throughput
from thriftune.launch import read_history
from thriftune.spec import Spec
from thriftune.store import open_store
from thriftune.trial import State

ROOT = Path(__file__).resolve().parent.parent


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["throughput", "report_cost", "large_store", "memory", "footprint"])
def test_each_runs_and_judges_nothing_when_quick(name: str) -> None:
    told = json.loads(run(f"benchmarks.{name}", "--json", "--quick", "--without-peers"))
    assert told["command"] == f"python -m benchmarks.{name} --json --quick --without-peers"
    assert told["machine"]["cores"] >= 1
    assert told["machine"]["fdatasync_microseconds"] > 0
    assert told["rows"]
    for row in told["rows"]:
        assert row["what"]
        assert row["figure"]
        assert row["met"] is None


def test_a_table_for_people() -> None:
    shown = run("benchmarks.report_cost", "--quick")
    assert "python -m benchmarks.report_cost --quick" in shown
    assert "under 200 us" in shown


@pytest.mark.parametrize("killed", [False, True])
def test_the_large_store_is_a_study_like_any_other(tmp_path: Path, killed: bool) -> None:
    path = tmp_path / "studies.db"
    entries = large_store.make(path, trials=3, reports=4, killed=killed)
    with open_store(path) as store:
        history = read_history(store, Spec.from_json(store.spec(large_store.NAME)))
        (listed,) = store.studies()
    history.validate()
    assert history.entries == entries
    assert history.counts[State.COMPLETED] == 3
    assert [len(trial.reports) for trial in history.trials[:3]] == [4, 4, 4]
    assert bool(history.running) == killed
    # What makes the two differ for a listing: only in good order is the summary up to date.
    assert (listed.summary["entries"] == entries) == (not killed)


def test_a_peer_is_taken_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with the pinned version is used as it is, without a network."""
    interpreter = tmp_path / "optuna" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    version = peers.PINS["optuna"].partition("==")[2]
    interpreter.write_text(f"#!/bin/sh\necho {version}\n")
    interpreter.chmod(0o755)
    monkeypatch.setenv("THRIFTUNE_PEERS", str(tmp_path))
    assert peers.python("optuna") == interpreter


def test_a_script_that_fails_is_not_a_figure() -> None:
    broken = throughput.System("broken", "noop_thriftune.py", 4, arguments=("not a number",))
    with pytest.raises(SystemExit, match="broken failed"):
        broken.rate(4)


def test_every_peer_has_its_script_and_its_pin() -> None:
    for system in throughput.PEERS:
        assert system.peer in peers.PINS
        assert os.access(Path(throughput.__file__).with_name(system.script), os.R_OK)
