"""Tests of specs made from settings: conversions, defaults, limits and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from thriftune.clouds.local import cores
from thriftune.errors import SettingError
from thriftune.settings.make_spec import make_spec, with_limits
from thriftune.settings.table import Settings
from thriftune.state.spec import Spec, Target

SPACE = {"x": tt.Float(0.0, 1.0)}


def spec_of(**settings: Any) -> Spec:
    complete = Settings(**{"minimize": "loss", "trials": 8, **settings})
    return make_spec(SPACE, complete, target=Target("pickled"), name="made")


def test_settings_are_stored_as_given_or_converted(tmp_path: Path) -> None:
    spec = spec_of(
        name="own",
        patience=5,
        keep=3,
        deadline="1h30m",
        budget=2.5,
        timeout=90,
        max_trial_time="2h",
        target=0.1,
        workers=3,
        seed=7,
        storage=tmp_path,
        stopping=tt.stopping.ASHA(eta=4),
        max_steps=9,
    )
    assert (spec.name, spec.trials, spec.patience, spec.keep, spec.seed) == ("own", 8, 5, 3, 7)
    assert (spec.deadline_seconds, spec.deadline_at, spec.budget_dollars) == (5400.0, None, 2.5)
    assert (spec.timeout_seconds, spec.max_trial_seconds, spec.target_value) == (90.0, 7200.0, 0.1)
    assert (spec.workers, spec.storage, spec.stopping) == (3, str(tmp_path), "asha")
    assert spec.stopping_options["eta"] == 4
    assert Spec.from_json(spec.to_json()) == spec


def test_the_defaults_of_settings() -> None:
    spec = spec_of()
    assert (spec.name, spec.searcher, spec.stopping, spec.engine) == ("made", "bayes", "auto", "local")
    assert (spec.workers, spec.retries, spec.value, spec.on_failure) == (cores(), 1, "auto", "stop")
    assert spec_of().id != spec.id


def test_a_log_without_newer_settings_keeps_its_old_behaviour() -> None:
    data = spec_of().to_json()
    del data["value"], data["on_failure"], data["patience"]
    old = Spec.from_json(data)
    assert (old.value, old.on_failure, old.patience) == ("last", "go_on", None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trials": None}, "give at least one limit"),
        ({"trials": None, "minimize": None}, "give minimize or"),
        ({"seed": -1}, "seed: -1 is too small; use 0 or more"),
        ({"budget": -1.0}, "budget: -1.0 must be above zero and finite"),
        ({"storage": "ftp://bucket"}, "storage: ftp:// is not supported; use s3://, gs://, az://, file://"),
        ({"storage": "s3://"}, "storage: 's3://' names no bucket"),
        ({"storage": "s3://bucket?zone=1"}, "storage: s3:// has no option 'zone'; it may have region"),
        ({"storage": "file://relative"}, "'file://relative' is not a folder; write its path, or file:///path"),
        ({"storage": Path("s3://bucket/x")}, "which cannot hold a URL; give it as a string"),
        ({"stop_when_converged": True, "searcher": "random"}, "needs searcher='bayes'.*'random' does not have"),
        ({"stopping": "halving"}, "max_steps"),
        ({"searcher": "bays"}, "searcher 'bays'"),
        ({"retries": -1}, "retries: -1 is too small"),
        ({"workers": 0}, "workers: 0 is too small; use 1 or more"),
    ],
)
def test_an_invalid_setting_is_an_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        spec_of(**settings)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, ""),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/b/?region=eu-west-1", "s3://bucket/a/b?region=eu-west-1"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://box/a?account=me", "az://box/a?account=me"),
        ("file:///data/a%20b", "/data/a b"),
        ("/data", "/data"),
        (Path("/data"), "/data"),
    ],
)
def test_storage_is_a_folder_or_the_url_of_an_object_store(given: str | Path | None, stored: str) -> None:
    spec = spec_of(storage=given)
    assert spec.storage == stored
    assert Spec.from_json(spec.to_json()).storage == stored


def test_a_relative_folder_is_stored_as_an_absolute_one() -> None:
    assert spec_of(storage="shared").storage == str(Path("shared").absolute())


def test_limits_replace_those_of_a_study() -> None:
    before = spec_of(deadline="1h")
    after = with_limits(before, {"trials": 9, "deadline": "2h", "budget": 3.0, "workers": 2})
    assert (after.trials, after.deadline_seconds, after.budget_dollars, after.workers) == (9, 7200.0, 3.0, 2)
    assert after.system == before.system
    assert with_limits(before, {}) == before
