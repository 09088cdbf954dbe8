"""Tests of the store in an object store: the conformance suite in memory and in a folder."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests.store.conformance import StoreConformance
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class TestMemory(StoreConformance):
    where = "memory://"

    def make(self, folder: Path) -> Store:
        return open_store(f"memory://{secrets.token_hex(4)}/studies")

    def reopen(self, store: Store) -> Store:
        return open_store(store.url, create=False)


class TestFolder(StoreConformance):
    where = "objects"

    def make(self, folder: Path) -> Store:
        return open_store(f"file://{folder}/objects")

    def reopen(self, store: Store) -> Store:
        return open_store(store.url, create=False)


def test_two_objects_ask_and_tell_one_study_in_turns(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/objects"
    settings: dict[str, Any] = {"minimize": "loss", "searcher": "random", "seed": 0, "name": "s", "store": url}
    one, two = (tt.Study({"x": tt.Float(0.0, 1.0)}, **settings) for _ in range(2))
    for number, study in enumerate((one, one, two, one, two)):
        trial = study.ask()
        assert trial.id == number
        study.tell(trial, trial["x"])
    assert len(tt.load("s", store=url).trials) == 5
    claims = list(tmp_path.glob("objects/studies/*/epochs/*.json"))
    assert len(claims) < 10, "each question has claimed an epoch"


def test_the_folder_of_a_deleted_study_is_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{secrets.token_hex(4)}"

    def tune() -> tt.Result:
        return tt.tune(
            lambda trial: trial["x"],
            {"x": tt.Float(0.0, 1.0)},
            minimize="loss",
            trials=1,
            workers=1,
            name="s",
            store=url,
            progress=False,
        )

    tune()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    tt.delete("s", store=url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert len(tune().trials) == 1


class TestS3(StoreConformance):
    """rclone's server, which does not honour create-only writes."""

    where = "s3://"

    @pytest.fixture(autouse=True)
    def _url(self, s3_url: str) -> None:
        self.url = s3_url

    def make(self, folder: Path) -> Store:
        return open_store(f"{self.url.partition('?')[0]}/prefix?{self.url.partition('?')[2]}")

    def reopen(self, store: Store) -> Store:
        return open_store(store.url, create=False)
