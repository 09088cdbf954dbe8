"""Tests of profiles: measured and interpolated step times, stragglers, files, and invalid values."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.errors import SettingError
from thriftune.planning import Profile
from thriftune.planning.profile import MIN_SLOWNESS, slowness_factors

SECONDS = st.floats(1e-6, 1e6)
PROFILES = st.builds(
    lambda alone, more, **others: Profile({1: alone, **more}, **others),
    SECONDS,
    st.dictionaries(st.integers(2, 512), SECONDS, max_size=6),
    std=st.floats(0.0, 1e3),
    startup=st.floats(0.0, 1e3),
    checkpoint=st.floats(0.0, 1e3),
    data_gb=st.floats(0.0, 1e3),
)


@settings(max_examples=100, deadline=None)
@given(PROFILES)
def test_measured_seconds_are_returned(profile: Profile) -> None:
    for workers, seconds in profile.seconds_per_step.items():
        assert profile.seconds(workers) == pytest.approx(seconds, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(PROFILES, st.data())
def test_interpolated_seconds_lie_between_their_neighbours(profile: Profile, data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, profile.most_workers))
    known = sorted(profile.seconds_per_step)
    below = max(each for each in known if each <= workers)
    above = min(each for each in known if each >= workers)
    low, high = sorted([profile.seconds_per_step[below], profile.seconds_per_step[above]])
    assert low * (1.0 - 1e-9) <= profile.seconds(workers) <= high * (1.0 + 1e-9)


def test_a_power_law_is_interpolated_exactly() -> None:
    profile = Profile({workers: 4.0 / workers**0.7 for workers in (1, 2, 8, 64)})
    for workers in range(1, 65):
        assert profile.seconds(workers) == pytest.approx(4.0 / workers**0.7)


@pytest.mark.parametrize("workers", [0, -1, 5])
def test_more_workers_than_measured_are_rejected(workers: int) -> None:
    with pytest.raises(
        SettingError, match=f"^{workers} workers: must be from 1 to 4, the numbers that were measured"
    ):
        Profile({1: 4.0, 4: 1.3}).seconds(workers)


# --- stragglers


@pytest.mark.parametrize("std", [0.0, 0.4, 4.0, 10.0, 40.0])
def test_the_mean_slowness_agrees_with_samples(std: float) -> None:
    profile = Profile({1: 4.0}, std=std)
    drawn = slowness_factors(profile.variation, np.random.default_rng(0).standard_normal(200_000))
    assert drawn.min() >= MIN_SLOWNESS
    assert profile.mean_slowness == pytest.approx(drawn.mean(), abs=4.0 * drawn.std() / math.sqrt(len(drawn)))


def test_variation_is_relative_to_one_worker() -> None:
    assert Profile({1: 4.0, 2: 1.0}, std=1.0).variation == 0.25
    assert Profile({1: 4.0}).mean_slowness == 1.0


# --- files


@settings(max_examples=100, deadline=None)
@given(PROFILES)
def test_json_round_trip(profile: Profile) -> None:
    assert Profile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


def test_file_round_trip(tmp_path: Path) -> None:
    profile = Profile({1: 4.0, 2: 2.2, 16: 0.5}, std=0.3, startup=12.0, checkpoint=2.0, data_gb=150.0)
    path = tmp_path / "study.profile.json"
    profile.write(path)
    assert Profile.read(path) == profile
    assert Profile.read(str(path)) == profile


def test_any_mapping_is_written_as_a_table() -> None:
    profile = Profile(MappingProxyType({1: 4.0, 2: 2.2}))
    assert profile.to_json()["seconds_per_step"] == {"1": 4.0, "2": 2.2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{'1': 2}", "is not JSON"),
        ("[1, 2]", "must be a table with seconds_per_step"),
        ("{}", "must be a table with seconds_per_step"),
        ('{"seconds_per_step": [4.0]}', "must be a table keyed by number of workers"),
        ('{"seconds_per_step": {"one": 4.0}}', "must be a table keyed by number of workers"),
        ('{"seconds_per_step": {"1.5": 4.0}}', "must be a table keyed by number of workers"),
        ('{"seconds_per_step": {"2": 4.0}}', "with an entry for 1 worker"),
        ('{"seconds_per_step": {"1": "4"}}', "with 1 workers: '4' must be a finite number, above 0"),
        ('{"seconds_per_step": {"1": NaN}}', "with 1 workers: nan must be a finite number, above 0"),
        ('{"seconds_per_step": {"1": 4, "-2": 1}}', "-2 workers: must be a whole number"),
        (
            '{"seconds_per_step": {"1": 4}, "startups": 1, "gpu": 2}',
            "gpu, startups: unknown; the keys are",
        ),
        ('{"seconds_per_step": {"1": 4}, "std": null}', "std: None must be a finite number, 0 or more"),
    ],
)
def test_an_invalid_file_is_named_with_its_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(SettingError) as result:
        Profile.read(path)
    assert str(result.value).startswith(f"{path}: ")
    assert message in str(result.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"nothing\.json: cannot be read .*; thriftune profile writes one"):
        Profile.read(tmp_path / "nothing.json")
    with pytest.raises(SettingError, match="cannot be read"):
        Profile.read(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingError, match="is not JSON"):
        Profile.read(tmp_path / "bytes.json")


@pytest.mark.parametrize("key", [1.5, None, ()])
def test_keys_must_be_whole_numbers(key: Any) -> None:
    with pytest.raises(SettingError, match="must be a table keyed by number of workers"):
        Profile.from_json({"seconds_per_step": {"1": 4.0, key: 2.0}})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seconds_per_step": 4.0}, "must be {workers: seconds}"),
        ({"seconds_per_step": {}}, "with an entry for 1 worker"),
        ({"seconds_per_step": {1: 4.0, 0: 1.0}}, "0 workers: must be a whole number, at least 1"),
        ({"seconds_per_step": {1: 4.0, 2.0: 1.0}}, r"2\.0 workers: must be a whole number"),
        ({"seconds_per_step": {1: 0.0}}, r"with 1 workers: 0\.0 must be a finite number, above 0"),
        ({"seconds_per_step": {1: math.inf}}, "with 1 workers: inf must be a finite number, above 0"),
        ({"seconds_per_step": {1: True}}, "with 1 workers: True must be"),
        ({"seconds_per_step": {1: 4.0}, "std": -1.0}, r"std: -1\.0 must be a finite number, 0 or more"),
        ({"seconds_per_step": {1: 4.0}, "startup": math.nan}, "startup: nan must be a finite number, 0 or more"),
        ({"seconds_per_step": {1: 4.0}, "checkpoint": "2"}, "checkpoint: '2' must be a finite number, 0 or more"),
        ({"seconds_per_step": {1: 4.0}, "data_gb": math.inf}, "data_gb: inf must be a finite number, 0 or more"),
    ],
)
def test_invalid_values_are_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Profile(**fields)
