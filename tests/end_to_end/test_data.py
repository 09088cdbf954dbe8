"""Tests of whole studies that train on datasets of an S3 server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import thriftune as tt
from tests.support.object_servers import FaultyServer, faulty
from thriftune.cli import cli
from thriftune.common.user_cache import FOLDER_VARIABLE
from thriftune.errors import SettingError, StudyFailed
from thriftune.object_store.opening import open_objects

SPACE = {"x": tt.Float(0.0, 1.0)}
FILES = {f"{number}.txt": str(number) for number in range(1, 5)}  # their sum is 10


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(url: str) -> None:
    bucket = open_objects(url)
    for name, text in FILES.items():
        bucket.put(f"train/{name}", text.encode())


def train_of(url: str) -> str:
    bucket, _, options = url.partition("?")
    return f"{bucket}/train?{options}"


def sum_of_files(trial: tt.Trial) -> None:
    import os

    total = sum(int(path.read_text()) for path in trial.data["train"].iterdir())
    trial.report(loss=total + trial["x"], process=os.getpid())


def tune(url: str, folder: Path, trials: int, workers: int = 2) -> tt.Result:
    return tt.tune(
        sum_of_files,
        SPACE,
        minimize="loss",
        trials=trials,
        workers=workers,
        name="sums",
        store=folder / "studies.db",
        data={"train": train_of(url)},
        progress=False,
    )


def downloads(server: FaultyServer) -> list[str]:
    return sorted(
        path.rpartition("/")[2] for method, path in server.requests if method == "GET" and ".txt" in path
    )


def test_a_dataset_is_fetched_once_for_all_trials(moto_url: str, tmp_path: Path) -> None:
    fill(moto_url)
    with faulty(moto_url) as server:
        result = tune(server.url, tmp_path, 6)
        assert downloads(server) == sorted(FILES)
        assert [t.error for t in result.trials if not 10 <= (t.value or 0) <= 11] == []
        server.refuse()
        again = tune(server.url, tmp_path, 6)  # nothing is left to run
        assert len(again.trials) == 6


def test_a_worker_that_has_fetched_data_runs_other_trials(moto_url: str, tmp_path: Path) -> None:
    fill(moto_url)
    result = tune(moto_url, tmp_path, 3, workers=1)
    assert len({trial.metrics["process"] for trial in result.trials}) == 1


def test_changed_data_are_a_warning(moto_url: str, tmp_path: Path) -> None:
    fill(moto_url)
    tune(moto_url, tmp_path, 1)
    open_objects(moto_url).put("train/5.txt", b"5")
    with pytest.warns(UserWarning, match=r"1 trial has a value from before a change: the data of train \(s3://"):
        result = tune(moto_url, tmp_path, 2)
    assert [int(trial.value or 0) for trial in result.trials] == [10, 15]


def test_data_that_are_missing_are_refused_before_the_study_exists(moto_url: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"data: train: s3://.* does not exist"):
        tune(moto_url, tmp_path, 1)
    assert not tt.studies(tmp_path / "studies.db")


def test_an_unknown_name_fails_trials_with_the_nearest_name(tmp_path: Path) -> None:
    def mistyped(trial: tt.Trial) -> None:
        trial.report(loss=len(str(trial.data["trian"])))

    with pytest.raises(StudyFailed, match=r"'trian' is not a dataset of this study; did you mean train\?"):
        tt.tune(mistyped, SPACE, minimize="loss", trials=4, retries=0, data={"train": tmp_path}, progress=False)


def test_a_study_file_names_data_for_its_command(moto_url: str, tmp_path: Path) -> None:
    fill(moto_url)
    (tmp_path / "valid.txt").write_text("7")
    (tmp_path / "train.py").write_text(
        "import pathlib, sys\n"
        "train = sum(int(each.read_text()) for each in pathlib.Path(sys.argv[1]).iterdir())\n"
        "print('loss', train + int(pathlib.Path(sys.argv[2]).read_text()))\n"
    )
    command = [sys.executable, "train.py", "{data.train}", "{data.valid}", "{x}"]
    (tmp_path / "study.toml").write_text(
        f"command = {json.dumps(command)}\n"
        'minimize = "loss"\ntrials = 2\nworkers = 1\n'
        f'data = {{ train = "{train_of(moto_url)}", valid = "valid.txt" }}\n'
        "[space.x]\ntype = 'float'\nlow = 0.0\nhigh = 1.0\n[metrics]\nloss = 'loss (\\d+)'\n"
    )
    store = ["--store", str(tmp_path / "s.db"), "--json"]
    done = CliRunner().invoke(cli, ["run", str(tmp_path / "study.toml"), *store])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["best"]["value"] == 17.0
    open_objects(moto_url).put("train/1.txt", b"0")
    done = CliRunner().invoke(cli, ["resume", "study", "--trials", "3", *store])
    assert "2 trials have values from before a change: the data of train (s3://" in done.stderr
    assert json.loads(done.stdout)["best"]["value"] == 16.0
