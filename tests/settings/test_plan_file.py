"""Tests of study files as plans read them: the job, the profile, the machines and the errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from thriftune import planning
from thriftune.errors import SettingError
from thriftune.planning.profile import profile_path
from thriftune.settings.plan_file import PlanFile, read_plan_file
from thriftune.settings.study_file import read_study_file

BASE = """
command = ["train", "--lr", "{lr}"]
minimize = "loss"
trials = 8
max_steps = 20
[space.lr]
type = "float"
low = 1e-4
high = 0.1
"""
PROFILE = "[profile]\nseconds_per_step = {1 = 4.0, 2 = 2.2}\nstd = 0.5\n"
CLOUD = '[cloud]\nmachine = "p3.8xlarge"\n'


def read(folder: Path, text: str, **options: Any) -> PlanFile:
    path = folder / "digits.toml"
    path.write_text(text)
    return read_plan_file(path, **options)


def test_a_complete_file_is_read(tmp_path: Path) -> None:
    plan_file = read(tmp_path, 'stopping = "none"\n' + BASE + PROFILE + CLOUD)
    assert plan_file.study.name == "digits"
    assert plan_file.job == planning.JobSpec.of([(8, 20)])
    assert plan_file.profile == planning.Profile({1: 4.0, 2: 2.2}, std=0.5)
    assert [cloud.name for cloud in plan_file.clouds] == ["p3.8xlarge"]
    assert plan_file.notes == []


def test_several_machine_types_are_read_and_one_can_be_chosen(tmp_path: Path) -> None:
    text = BASE + PROFILE + '[[cloud]]\nmachine = "p3.8xlarge"\n[[cloud]]\nmachine = "p3.2xlarge"\ninit = 30\n'
    assert [cloud.name for cloud in read(tmp_path, text).clouds] == ["p3.8xlarge", "p3.2xlarge"]
    (chosen,) = read(tmp_path, text, machine="p3.2xlarge").clouds
    assert chosen.init_latency.mean == 30.0, "its table in the file is used"


def test_a_chosen_machine_that_the_file_lacks_comes_from_the_catalog(tmp_path: Path) -> None:
    for text in (BASE + PROFILE, BASE + PROFILE + CLOUD):
        plan_file = read(tmp_path, 'stopping = "none"\n' + text, machine="p3.16xlarge")
        assert [cloud.slots for cloud in plan_file.clouds] == [8]
        assert plan_file.notes[0].startswith("p3.16xlarge: is not in the study file; the plan assumes that such")


def test_a_given_profile_is_used_before_the_files_and_the_one_beside_it(tmp_path: Path) -> None:
    given, in_file, beside = (planning.Profile({1: seconds}) for seconds in (1.0, 2.0, 3.0))
    given.write(tmp_path / "given.json")
    (tmp_path / "sub").mkdir()
    in_file.write(tmp_path / "sub" / "named.json")
    beside.write(profile_path(tmp_path / "digits.toml"))
    assert (tmp_path / "digits.profile.json").exists()
    with_profile = 'profile = "sub/named.json"\n' + BASE + CLOUD
    assert read(tmp_path, BASE + CLOUD).profile == beside
    assert read(tmp_path, with_profile).profile == in_file
    assert read(tmp_path, with_profile, profile=tmp_path / "given.json").profile == given


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BASE + PROFILE, "cloud: is missing; write [cloud] and in it machine = 'p3.8xlarge', or give --machine"),
        (
            BASE + CLOUD,
            "profile: is missing, and digits.profile.json does not exist; measure one with: thriftune profile ",
        ),
        ("cloud = 3\n" + BASE, "cloud: 3 must be a table of a kind of machine, or several"),
        ("cloud = [3]\n" + BASE + PROFILE, "cloud: 3 must be a table: write [[cloud]] above each machine type"),
        ("profile = 3\n" + BASE, "profile: 3 must be the path of a profile, or a table"),
        ('profile = "p.json"\n' + BASE + CLOUD, "/p.json: cannot be read (No such file or directory)"),
        (BASE + CLOUD + "[profile]\nstd = 1\n", "a profile must be a table with seconds_per_step"),
        (BASE + CLOUD + PROFILE.replace("std", "sdt"), "profile: sdt: unknown; the keys are checkpoint,"),
        (BASE.replace("max_steps = 20\n", "") + CLOUD + PROFILE, "max_steps: is missing; a plan needs"),
    ],
)
def test_the_error_for_a_mistake_names_the_file_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path}/digits.toml: ")
    assert message in str(error.value)


def test_the_error_for_a_given_profile_names_the_profile(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(json.dumps({"seconds_per_step": {"2": 1.0}}))
    with pytest.raises(SettingError, match=rf"^{tmp_path}/bad.json: seconds_per_step: must be"):
        read(tmp_path, BASE + CLOUD, profile=tmp_path / "bad.json")


def test_a_run_ignores_the_profile_and_the_machines(tmp_path: Path) -> None:
    path = tmp_path / "digits.toml"
    path.write_text('profile = "none.json"\n' + BASE + "[cloud]\nmachine = 'unheard-of'\n")
    assert read_study_file(path).spec.trials == 8


RAY = """
[cloud]
machine = "m5.xlarge"
spot = true
price_per_hour = 0.07
"""


def test_machines_of_a_ray_study_are_node_types_with_a_slot_for_each_worker_that_fits(tmp_path: Path) -> None:
    engine = 'engine = {name = "ray", cpus = 2}\n'
    (node_type,) = read(tmp_path, engine + BASE + PROFILE + RAY).clouds
    assert (node_type.name, node_type.slots, node_type.price_per_hour) == ("m5.xlarge_spot", 2, 0.07)
    assert node_type.survival is not None, "the default mean lifetime is used"
    assert read(tmp_path, engine + BASE + PROFILE + RAY, machine="m5.xlarge_spot").clouds == [node_type]


@pytest.mark.parametrize(
    ("waits_in_table", "waits"), [("", (40.0, 3.0)), ("queue = 7", (7.0, 0.0)), ("init = 5", (0.0, 5.0))]
)
def test_a_machine_without_waits_gets_those_of_the_profile(
    tmp_path: Path, waits_in_table: str, waits: tuple[float, float]
) -> None:
    profile = PROFILE + "queue = 40.0\ninit = 3.0\n"
    (machine_type,) = read(tmp_path, BASE + profile + CLOUD + waits_in_table).clouds
    assert (machine_type.queue_latency.mean, machine_type.init_latency.mean) == waits
