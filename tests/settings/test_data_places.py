"""Tests of the setting `data`: names, URLs and paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from thriftune.errors import SettingError
from thriftune.settings.data_places import data_places


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("s3://bucket/train?region=eu-west-1", "s3://bucket/train?region=eu-west-1"),
        ("gs://bucket/train/", "gs://bucket/train/"),
        ("train.csv", "/study/train.csv"),
        ("/data/train", "/data/train"),
        (Path("train"), "/study/train"),
        ("file:///data/my%20train", "/data/my train"),
    ],
)
def test_urls_stay_and_paths_become_absolute(given: str | Path, stored: str) -> None:
    assert data_places({"train": given}, Path("/study")) == {"train": stored}


def test_paths_are_relative_to_the_current_folder_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert data_places({"a": "x", "b": "~/y"}) == {"a": f"{tmp_path}/x", "b": "/home/me/y"}


def test_no_data_is_an_empty_mapping() -> None:
    assert data_places(None) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("s3://b/train", r"data: 's3://b/train' must be a dict such as \{'train': 's3://bucket/train'\}"),
        ({"my data": "x"}, "data: the name 'my data' must be letters, digits"),
        ({7: "x"}, "data: the name 7 must be letters"),
        ({"train": 7}, "data: train: 7 must be a URL or a path"),
        ({"train": ""}, "data: train: '' must be a URL or a path"),
        ({"train": "ftp://host/train"}, "data: train: ftp:// is not supported; use s3://, gs://, az://, file://"),
        ({"train": "s3://"}, "data: train: 's3://' names no bucket"),
        ({"train": "s3://b/x?regin=y"}, "data: train: .*did you mean region"),
        ({"train": "file://relative"}, "data: train: 'file://relative' is not a folder"),
    ],
)
def test_what_cannot_be_data_is_an_error(given: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        data_places(given)
