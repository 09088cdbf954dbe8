"""Tests of the look at a study's datasets before it starts, and of warnings about changed data."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from thriftune.common.user_cache import FOLDER_VARIABLE
from thriftune.errors import SettingError
from thriftune.launch.open_study import open_study
from thriftune.launch.study_data import check_data, with_data_versions, with_data_versions_if_found
from thriftune.loop.driver import record
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectStore
from thriftune.results.loading import load_history
from thriftune.settings.make_spec import make_spec
from thriftune.settings.table import Settings
from thriftune.space.parameters import Float
from thriftune.state import events as ev
from thriftune.state.spec import Spec, Target, data_sources
from thriftune.store.opening import open_store
from thriftune.store.protocol import Store
from thriftune.training.data_folder import BYTES_VARIABLE


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def bucket() -> ObjectStore:
    return open_objects(f"memory://{secrets.token_hex(4)}")


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:") as opened:
        yield opened


def spec_with(engine: str = "local", **data: str) -> Spec:
    settings = Settings(minimize="loss", trials=4, name="study", data=data, engine=engine)
    return make_spec({"x": Float(0.0, 1.0)}, settings, target=Target("pickled"), name="study")


def test_a_study_keeps_the_versions_of_its_data(bucket: ObjectStore) -> None:
    bucket.put("train/a", b"1")
    url = f"{bucket.url}/train"
    spec = with_data_versions(spec_with(train=url))
    ((place, version),) = data_sources(spec).values()
    assert place == url
    assert len(version) == 24
    assert with_data_versions(spec).code == spec.code
    bucket.put("train/b", b"1")
    assert with_data_versions(spec).code != spec.code
    assert Spec.from_json(spec.to_json()) == spec


def test_data_that_does_not_exist_is_refused(bucket: ObjectStore, tmp_path: Path, store: Store) -> None:
    for place in (f"{bucket.url}/no", f"{tmp_path}/no"):
        with pytest.raises(SettingError, match=r"data: train: .*/no does not exist"):
            open_study(store, spec_with(train=place))
    assert store.studies() == []


def test_a_path_may_exist_on_the_nodes_of_a_cluster_only(tmp_path: Path) -> None:
    assert with_data_versions(spec_with("ray", train=f"{tmp_path}/no")).code == {}


def test_data_that_is_too_large_for_the_machine_is_refused(
    bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train", "valid"):
        bucket.put(name, bytes(600_000))
    data = {name: f"{bucket.url}/{name}" for name in ("train", "valid")}
    monkeypatch.setenv(BYTES_VARIABLE, "1000000")
    with pytest.raises(SettingError, match=r"data: the datasets train and valid of 1\.2 MB cannot be cached in"):
        with_data_versions(spec_with(**data))
    assert with_data_versions(spec_with("ray", **data)).code  # its nodes have other disks


def test_a_study_that_exists_is_opened_without_its_data(bucket: ObjectStore, tmp_path: Path) -> None:
    bucket.put("train/a", b"1")
    (tmp_path / "valid").write_text("1")
    spec = with_data_versions(spec_with(train=f"{bucket.url}/train", valid=f"{tmp_path}/valid"))
    assert check_data(spec) is spec
    (tmp_path / "valid").unlink()
    with pytest.raises(SettingError, match=r"data: valid: .* does not exist"):
        check_data(with_data_versions_if_found(spec))
    bucket.delete(["train/a"])
    opened = with_data_versions_if_found(spec)
    assert opened.code == {}
    with pytest.raises(SettingError, match=r"data: train: .* does not exist"):
        check_data(opened)


def test_a_local_folder_has_changed_if_a_size_has(tmp_path: Path) -> None:
    (tmp_path / "train/sub").mkdir(parents=True)
    (tmp_path / "train/sub/a").write_text("12")
    spec = spec_with(train=str(tmp_path / "train"))
    before = with_data_versions(spec).code
    (tmp_path / "train/sub/a").touch()
    assert with_data_versions(spec).code == before
    (tmp_path / "train/sub/a").write_text("123")
    assert with_data_versions(spec).code != before


# --- warnings -----------------------------------------------------------------------------------------------


def messages(store: Store, spec: Spec) -> list[str]:
    """Open a study, give it a value, and return what the user was told."""
    said: list[str] = []
    opened = open_study(store, spec, say=said.append)
    store.update_spec(opened.name, opened.to_json())
    history = load_history(store, opened)
    config = {"x": 0.5}
    value = [
        ev.Create(1.0, 0, config),
        ev.Place(1.0, 0, 1, ev.OUTSIDE, 0),
        ev.Reported(2.0, 0, 1, 1, 1, {"loss": 1.0}),
        ev.Ended(3.0, 0, 1, 1.0),
    ]
    if not history.trials:
        record(store, history, opened.name, value)
    return said


def test_changed_data_are_a_warning(bucket: ObjectStore, store: Store) -> None:
    bucket.put("train", b"1")
    url = f"{bucket.url}/train"
    spec = spec_with(train=url)
    assert messages(store, spec) == []
    assert messages(store, spec) == []
    bucket.put("train", b"2")
    (said,) = messages(store, spec)
    assert messages(store, spec) == []
    assert said.endswith(f"from before a change: the data of train ({url}) have changed")


def test_another_place_of_the_data_is_a_warning(tmp_path: Path, store: Store) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    assert messages(store, spec_with(train=f"{tmp_path}/a", test=f"{tmp_path}/a")) == []
    (said,) = messages(store, spec_with(train=f"{tmp_path}/b", valid=f"{tmp_path}/a"))
    assert said.endswith(
        f"from before a change: data: test was {tmp_path}/a, is now not given; data: train was {tmp_path}/a, is "
        f"now {tmp_path}/b; data: valid was not given, is now {tmp_path}/a"
    )


def test_the_limits_of_a_resumed_study_come_with_its_new_data(bucket: ObjectStore) -> None:
    old, new = spec_with(train="s3://b/old"), spec_with(train="s3://b/new")
    assert replace(old).with_limits_of(new).data == {"train": "s3://b/new"}
