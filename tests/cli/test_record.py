"""`thriftune record`: writes a study to a file that `thriftune simulate` replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests.cli import studies
from tests.cli.programs import RunCli, invoke, parse_json
from thriftune.planning.profile import Profile
from thriftune.replay import recordings
from thriftune.store.opening import open_store


@pytest.fixture
def store_path(twelve_trials: Path) -> Path:
    return twelve_trials


def test_a_recording_is_simulated_like_its_study(run_cli: RunCli, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    summary = run_cli("record", "a", "--output", path).stdout
    assert summary.startswith("12 trials, 108 reports: ")
    assert summary.endswith(f" kB in {path}\n")
    from_study = parse_json(run_cli("simulate", "--from", "a", "--stopping", "asha", "--json").stdout)
    from_file = parse_json(run_cli("simulate", "--table", path, "--stopping", "asha", "--json").stdout)
    assert from_file["steps"] == from_study["steps"] < from_file["without_stopping"]["steps"] == 108
    assert from_file["best"]["config"] == from_study["best"]["config"]


def test_steady_gives_all_steps_of_a_trial_the_same_time(run_cli: RunCli, tmp_path: Path) -> None:
    run_cli("record", "a", "-o", tmp_path / "a.npz", "--steady")
    for _, curve in recordings.read(tmp_path / "a.npz").rows:
        assert len(set(curve.seconds)) == 1


def test_the_step_times_of_a_profile_are_recorded(run_cli: RunCli, tmp_path: Path) -> None:
    Profile({1: 4.0, 2: 2.5}).write(tmp_path / "a.profile.json")
    run_cli("record", "a", "-o", tmp_path / "a.npz", "--profile", tmp_path / "a.profile.json")
    assert recordings.read(tmp_path / "a.npz").seconds_by_cores == {1: 4.0, 2: 2.5}
    run_cli("record", "a", "-o", tmp_path / "a.npz")  # overwrites its own earlier file
    assert recordings.read(tmp_path / "a.npz").seconds_by_cores == {}


def test_unfinished_trials_are_left_out_with_a_note(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.db") as opened:
        studies.write(opened, studies.spec("digits"), studies.log(finished=False))
    output = invoke("record", "digits", "-o", tmp_path / "digits.npz", "--store", tmp_path / "s.db")
    assert output.stderr.splitlines() == [
        "2 trials did not finish and are left out",
        "1 trial failed before its first report and is left out",
    ]
    assert output.stdout.startswith("2 trials, 6 reports: ")


def test_failed_trials_with_reports_are_recorded(tmp_path: Path) -> None:
    def fail_at(trial: tt.Trial) -> None:
        for step in trial.steps():
            if step > trial["good"]:
                raise ValueError("too far")
            trial.report(loss=1 / step)

    how: dict[str, Any] = {"searcher": "grid", "retries": 0, "progress": False, "minimize": "loss", "workers": 1}
    store = tmp_path / "s.db"
    tt.tune(fail_at, {"good": tt.Int(0, 3)}, trials=4, max_steps=3, name="a", store=store, stopping="none", **how)
    output = invoke("record", "a", "-o", tmp_path / "a.npz", "--store", store)
    assert output.stderr == "1 trial failed before its first report and is left out\n"
    assert output.stdout.startswith("3 trials, 6 reports: ")
    rows = recordings.read(tmp_path / "a.npz").rows
    assert sorted((len(curve.steps), curve.error is None) for _, curve in rows) == [
        (1, False),
        (2, False),
        (3, True),
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("b", "-o", "b.npz"), "there is no study 'b'"),
        (("a", "-o", "nowhere/a.npz"), "--output: the folder nowhere does not exist; create it first"),
        (
            ("a", "-o", "mine.npz"),
            "--output: mine.npz exists and is not a recording, so it is not overwritten; choose another file",
        ),
        (("a", "-o", "a.zip"), "a.zip: a recording is an npz file"),
        (("a", "-o", "a.npz", "--profile", "none.json"), "none.json: cannot be read"),
    ],
)
def test_mistakes_are_reported(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.npz").write_text("my own")
    assert message in run_cli("record", *args, status=1).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]
