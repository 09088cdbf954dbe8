"""Tests of `thriftune cache`."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from click.testing import CliRunner

from thriftune.cli import cli
from thriftune.common.user_cache import FOLDER_VARIABLE
from thriftune.object_store.opening import open_objects
from thriftune.training.data_cache import DataCache


def cache(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["cache", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_an_empty_cache_is_listed(folder: Path) -> None:
    assert cache() == f"no datasets in {folder}/data\n"
    assert json.loads(cache("--json")) == {"folder": f"{folder}/data", "datasets": []}


def test_datasets_are_listed_and_removed_unless_they_are_in_use(folder: Path) -> None:
    bucket = open_objects(f"memory://{secrets.token_hex(4)}")
    copies = []
    for name in ("train", "valid"):
        bucket.put(name, bytes(8_000))
        copies.append(DataCache().fetch(f"{bucket.url}/{name}", "", lambda message: None))
    copies[0].release()
    first, second, last = cache().splitlines()
    assert first.endswith(f"{bucket.url}/train")
    assert second.startswith("   8.19 kB  ")
    assert f"16.4 kB  2 datasets in {folder}/data" in last
    first, second, last = cache("--clear").splitlines()
    assert first.endswith("/train  removed")
    assert second.endswith("/valid  in use")
    assert "1 dataset in" in last
    assert not copies[0].path.exists()
    assert copies[1].path.exists()
    copies[1].release()
    (row,) = json.loads(cache("--clear", "--json"))["datasets"]
    assert (row["url"], row["bytes"], row["removed"]) == (f"{bucket.url}/valid", 8192, True)
