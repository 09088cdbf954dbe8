"""Tests of trial.data, the datasets of a trial by name."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from thriftune.common.user_cache import FOLDER_VARIABLE
from thriftune.errors import DataError
from thriftune.object_store.dataset_listing import list_dataset
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectStore
from thriftune.state.events import Event, Warned
from thriftune.training.data_folder import BYTES_VARIABLE, DataFolder
from thriftune.training.datasets import Datasets
from thriftune.training.run import Run
from thriftune.training.trial import Trial


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bucket() -> ObjectStore:
    return open_objects(f"memory://{secrets.token_hex(4)}")


class Link:
    """A link that keeps all events."""

    def __init__(self) -> None:
        self.sent: list[Event] = []

    def send(self, event: Event) -> int:
        self.sent.append(event)
        return 0

    def seconds_left(self) -> float | None:
        return None

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:
        return False

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.sent if isinstance(event, Warned)]


def trial_with(data: dict[str, tuple[str, str]], folder: Path, link: Link | None = None) -> Trial:
    return Trial(Run(7, 1, {}, 0, ("loss",), None, 0, str(folder / "trial"), 2, data=data), link or Link())


def test_a_path_is_used_in_place(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "train.csv").write_text("1,2")
    trial = trial_with({"train": (str(tmp_path / "train.csv"), "")}, tmp_path)
    assert trial.data["train"] == tmp_path / "train.csv"
    assert not cache.exists()


def test_a_path_that_is_missing_on_this_machine_is_an_error(tmp_path: Path) -> None:
    trial = trial_with({"train": (f"{tmp_path}/no", "")}, tmp_path)
    with pytest.raises(DataError, match=r"data: train: .*/no does not exist on this machine"):
        trial.data["train"]


def test_a_url_is_fetched_when_it_is_first_read(bucket: ObjectStore, tmp_path: Path, cache: Path) -> None:
    bucket.put("train/1.csv", b"1,2")
    url = f"{bucket.url}/train"
    trial = trial_with({"train": (url, list_dataset(url).version)}, tmp_path)
    assert "train" in trial.data
    assert (list(trial.data), len(trial.data), repr(trial.data)) == (["train"], 1, "<datasets train>")
    assert not cache.exists()
    assert (trial.data["train"] / "1.csv").read_bytes() == b"1,2"
    assert trial.data["train"] is trial.data["train"]


def test_a_dataset_is_in_use_until_the_attempt_ends(bucket: ObjectStore, tmp_path: Path) -> None:
    bucket.put("train.csv", b"1,2")
    trial = trial_with({"train": (f"{bucket.url}/train.csv", "")}, tmp_path)
    assert trial.data["train"].exists()
    (entry,) = DataFolder().entries()
    assert not DataFolder().remove(entry.key)
    trial.leave()
    assert DataFolder().remove(entry.key)


def test_an_unknown_name_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    data = trial_with({"train": ("s3://b/train", ""), "valid": ("s3://b/valid", "")}, tmp_path).data
    with pytest.raises(KeyError, match=r"'trian' is not a dataset of this study; did you mean train\?"):
        data["trian"]
    with pytest.raises(KeyError, match="'x' is not a dataset of this study; it has train, valid"):
        data["x"]
    assert data.get("x") is None


def test_a_forked_process_has_what_was_read_before_it(bucket: ObjectStore, tmp_path: Path) -> None:
    for name in ("train", "valid"):
        bucket.put(name, b"1,2")
    trial = trial_with({name: (f"{bucket.url}/{name}", "") for name in ("train", "valid")}, tmp_path)
    assert trial.data["train"].exists()
    if (child := os.fork()) == 0:
        assert trial.data["train"].exists()
        try:
            trial.data["valid"]
        except DataError as error:
            os._exit("read trial.data['valid'] before that" in str(error))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_a_study_without_data_says_how_to_give_it(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="it has none: give data="):
        trial_with({}, tmp_path).data["train"]


def test_an_error_names_the_dataset(bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = f"{bucket.url}/no"
    with pytest.raises(DataError, match=f"data: train: {missing} does not exist"):
        Datasets({"train": (missing, "")}, print)["train"]
    bucket.put("train", b"1,2")
    monkeypatch.setenv(BYTES_VARIABLE, "many")
    with pytest.raises(DataError, match=f"data: train: {BYTES_VARIABLE}: 'many' must be"):
        Datasets({"train": (f"{bucket.url}/train", "")}, print)["train"]


def test_a_change_since_the_study_started_is_a_warning(bucket: ObjectStore, tmp_path: Path) -> None:
    bucket.put("train.csv", b"new")
    link = Link()
    trial = trial_with({"train": (f"{bucket.url}/train.csv", "0" * 24)}, tmp_path, link)
    assert trial.data["train"].read_bytes() == b"new"
    assert link.warnings == [
        f"data: train: {bucket.url}/train.csv has changed since the study started; new trials use the new data"
    ]


def test_a_damaged_copy_is_a_warning(
    bucket: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.put("train.csv", b"1,2")
    sources = {"train": (f"{bucket.url}/train.csv", "")}
    path = trial_with(sources, tmp_path).data["train"]
    path.chmod(0o644)
    path.write_bytes(b"")
    link = Link()
    assert trial_with(sources, tmp_path, link).data["train"].read_bytes() == b"1,2"
    assert link.warnings == [
        f"data: train: another program has changed the copy of {bucket.url}/train.csv, so it was fetched again"
    ]


def test_a_long_download_is_mentioned_in_the_output(
    bucket: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from thriftune.training.data_progress import Progress

    monkeypatch.setattr(Progress, "FIRST_SECONDS", 0.0)
    bucket.put("train.csv", b"1,2")
    trial_with({"train": (f"{bucket.url}/train.csv", "")}, tmp_path).data["train"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"thriftune: data: train: fetching {bucket.url}/train.csv: ")
    assert lines[-1].startswith(f"thriftune: data: train: fetching {bucket.url}/train.csv: done, 3 bytes in ")
