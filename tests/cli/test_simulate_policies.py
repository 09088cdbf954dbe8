"""`thriftune simulate` with policies on rented machines: its table, JSON and figure, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.programs import invoke

STUDY = """
name = "small"
function = "train.py:train"
minimize = "loss"
trials = 4
max_steps = 20
workers = 4
stopping = "none"
profile = {seconds_per_step = {1 = 300.0}, startup = 10.0, checkpoint = 5.0}
[space]
x = { type = "float", low = 0.0, high = 1.0 }
[[cloud]]
name = "reliable"
slots = 1
price_per_hour = 1.0
[[cloud]]
name = "spot"
slots = 1
price_per_hour = 0.3
spot = true
mean_lifetime = "3h"
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Write a study file with two machine types, and return its path."""
    (tmp_path / "train.py").write_text("def train(trial): ...\n")
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def run_cli(*arguments: object, status: int = 0) -> Result:
    return invoke("simulate", *arguments, status=status)


def test_policies_are_compared_on_the_machines_of_the_study_file(study: Path) -> None:
    output = run_cli(study, "--policy", "thrifty,on_demand", "--deadline", "6h").stdout
    assert "2 kinds, 1 of them may be preempted" in output
    assert "cost of each policy" in output
    lines = {line.split()[0]: line for line in output.splitlines() if line.startswith(("thrifty", "on_demand"))}
    assert "100%" in lines["thrifty"]
    assert "$6." in lines["on_demand"]


def test_json_has_one_object_for_each_policy(study: Path) -> None:
    result = run_cli(study, "--policy", "thrifty,cheapest_spot", "--json", "--seeds", 2)
    parsed = json.loads(result.stdout)
    assert [each["policy"] for each in parsed] == ["thrifty", "cheapest_spot"]
    assert set(parsed[0]) >= {"cost", "duration", "steps_lost", "deadline_met", "oracle_ratio"}
    assert "the reports of trials are synthetic" in result.stderr


def test_the_figure_shows_the_first_policy(study: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "timeline.svg"
    assert f"wrote {path}" in run_cli(study, "--plot", path).stderr
    assert "<svg" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give one of FILE, --from STUDY and --table FILE"),
        (("FILE", "--policy", "cheap"), "policy 'cheap' is not known"),
        (("FILE", "--restart", "soon"), "restart: 'soon' is not a duration"),
        (("--table", "t.npz", "--plot", "x.png"), "--plot: only applies to rented machines; add --cloud"),
    ],
)
def test_mistakes_are_reported(study: Path, arguments: tuple[str, ...], message: str) -> None:
    resolved = [study if each == "FILE" else each for each in arguments]
    result = run_cli(*resolved, status=1)
    assert message in result.stderr
    assert result.stderr.count("\n") <= 2


def test_elastic_is_one_of_the_policies(study: Path) -> None:
    parsed = json.loads(run_cli(study, "--policy", "elastic,thrifty", "--deadline", "3h", "--json").stdout)
    assert [each["policy"] for each in parsed] == ["elastic", "thrifty"]
    assert [each["deadline_met"] for each in parsed] == [1.0, 1.0]


def cost(study: Path, *more: str) -> float:
    """Return the simulated cost of the study under the policy thrifty."""
    (parsed,) = json.loads(run_cli(study, "--policy", "thrifty", "--deadline", "6h", "--json", *more).stdout)
    return float(parsed["cost"])


def test_the_times_to_start_and_save_come_from_the_profile(study: Path) -> None:
    default = cost(study)
    assert default == cost(study, "--restart", "10s", "--save", "5s")
    assert default < cost(study, "--restart", "20m", "--save", "5s")


def test_a_large_state_takes_longer_to_save_and_load(study: Path) -> None:
    large = cost(study, "--state", "250", "--bandwidth", "0.5")
    assert large > cost(study)
    assert large == cost(study, "--restart", "510s", "--save", "505s")


def test_without_checkpoints_only_on_demand_machines_are_allowed(study: Path) -> None:
    refused = run_cli(study, "--policy", "thrifty", "--save", "never", status=1).stderr
    assert "would restart from step 1 whenever spot is preempted; let trials save" in refused
    parsed = json.loads(run_cli(study, "--policy", "on_demand", "--save", "never", "--json").stdout)
    assert parsed[0]["steps_lost"] == 0.0


@pytest.mark.parametrize(
    ("option", "value"),
    [("--policy", "thrifty"), ("--seeds", "2"), ("--restart", "1s"), ("--save", "1s"), ("--state", "3")],
)
def test_options_without_effect_are_refused(option: str, value: str) -> None:
    output = run_cli("--table", "t.npz", option, value, status=1).stderr
    assert f"{option}: only applies to rented machines; add --cloud" in output


def test_machines_billed_per_function_are_refused_and_max_machines_is_kept(study: Path) -> None:
    text = study.read_text()
    study.write_text(text.replace('name = "reliable"', 'name = "reliable"\nbilling = "per_function"'))
    assert "a policy cannot rent functions" in run_cli(study, status=1).stderr
    study.write_text(text.replace('name = "reliable"', 'name = "reliable"\nmax_machines = 1'))
    one = json.loads(run_cli(study, "--policy", "on_demand", "--json").stdout)[0]
    study.write_text(text)
    four = json.loads(run_cli(study, "--policy", "on_demand", "--json").stdout)[0]
    assert one["duration"] > 3 * four["duration"]
    assert one["finished"] == four["finished"] == 1.0


def test_a_record_of_machines_replaces_those_of_the_study_file(study: Path, tmp_path: Path) -> None:
    study.write_text(study.read_text().partition("[[cloud]]")[0])
    record = {"zone": {"gap_seconds": 600.0, "rle": [[4, 2000]]}}
    (tmp_path / "record.json").write_text(json.dumps(record))
    parsed = json.loads(
        run_cli(study, "--cloud", tmp_path / "record.json", "--policy", "thrifty", "--json").stdout
    )
    assert parsed[0]["finished"] == 1.0
    error = run_cli(study, status=1).stderr
    assert "cloud: is missing; write [cloud] and in it machine = 'p3.8xlarge', or give --cloud TRACE" in error
    (tmp_path / "empty.json").write_text("[]")
    assert "must be a JSON object of zones" in run_cli(study, "--cloud", tmp_path / "empty.json", status=1).stderr


def test_the_standard_deviation_of_the_profile_changes_the_cost(study: Path) -> None:
    without_deviation = cost(study)
    study.write_text(study.read_text().replace("startup = 10.0", "startup = 10.0, std = 60.0"))
    assert cost(study) != without_deviation


def test_an_invalid_path_for_the_figure_is_refused_before_the_simulation(study: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    output = run_cli(study, "--plot", tmp_path / "nowhere" / "x.png", status=1).stderr
    assert "there is no folder" in output
