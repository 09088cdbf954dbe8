"""`thriftune record`: a study as a file, which `simulate` replays without more settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import thriftune as tt
from tests.cli import studies
from tests.cli.programs import strict
from thriftune.cli import cli
from thriftune.planning.profile import Profile
from thriftune.replay import recordings
from thriftune.store.opening import open_store


def train(trial: tt.Trial) -> None:
    for step in trial.steps():
        trial.report(loss=trial["x"] + 1 / step)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "s.db"
    how: dict[str, Any] = {"searcher": "random", "seed": 1, "store": path, "progress": False, "minimize": "loss"}
    tt.tune(train, {"x": tt.Float(0.0, 1.0)}, trials=12, max_steps=9, name="a", stopping="none", **how)
    return path


def run_cli(store: Path, *args: object, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, [*map(str, args), "--store", str(store)])
    assert result.exit_code == status, result.output
    return result


def test_a_recording_is_simulated_as_its_study_is(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    sentence = run_cli(store, "record", "a", "--output", path).stdout
    assert sentence.startswith("12 trials, 108 reports: ")
    assert sentence.endswith(f" kB in {path}\n")
    of_study = strict(run_cli(store, "simulate", "--from", "a", "--stopping", "asha", "--json").stdout)
    of_file = strict(run_cli(store, "simulate", "--table", path, "--stopping", "asha", "--json").stdout)
    assert of_file["steps"] == of_study["steps"] < of_file["without_stopping"]["steps"] == 108
    assert of_file["best"]["config"] == of_study["best"]["config"]


def test_all_steps_of_a_trial_may_be_made_alike(store: Path, tmp_path: Path) -> None:
    run_cli(store, "record", "a", "-o", tmp_path / "a.npz", "--steady")
    for _, curve in recordings.read(tmp_path / "a.npz").rows:
        assert len(set(curve.seconds)) == 1


def test_the_times_of_a_profile_go_with_it(store: Path, tmp_path: Path) -> None:
    Profile({1: 4.0, 2: 2.5}).write(tmp_path / "a.profile.json")
    run_cli(store, "record", "a", "-o", tmp_path / "a.npz", "--profile", tmp_path / "a.profile.json")
    assert recordings.read(tmp_path / "a.npz").seconds_by_cores == {1: 4.0, 2: 2.5}
    run_cli(store, "record", "a", "-o", tmp_path / "a.npz")  # over what it made before
    assert recordings.read(tmp_path / "a.npz").seconds_by_cores == {}


def test_trials_that_did_not_come_to_their_end_are_left_out_and_said_to_be(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.db") as opened:
        studies.write(opened, studies.spec("digits"), studies.log(finished=False))
    output = run_cli(tmp_path / "s.db", "record", "digits", "-o", tmp_path / "digits.npz")
    assert output.stderr == "trials of digits that did not finish are left out: 3\n"
    assert output.stdout.startswith("2 trials, 6 reports: ")


@pytest.mark.parametrize(
    ("args", "says"),
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
def test_mistakes_are_told(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.npz").write_text("my own")
    assert says in run_cli(store, "record", *args, status=1).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]
