"""`thriftune simulate` on rented machines: its table, its JSON, its picture, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from thriftune.cli import cli

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
name = "stays"
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
    (tmp_path / "train.py").write_text("def train(trial): ...\n")
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def run_cli(*arguments: object, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["simulate", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result


def test_a_study_that_was_not_run_on_its_own_machines(study: Path) -> None:
    output = run_cli(study, "--policy", "thrifty,on_demand", "--deadline", "6h").stdout
    assert "2 kinds, 1 of them may be preempted" in output
    assert "cost of each policy" in output
    lines = {line.split()[0]: line for line in output.splitlines() if line.startswith(("thrifty", "on_demand"))}
    assert "100%" in lines["thrifty"]
    assert "$6." in lines["on_demand"]


def test_programs_get_one_object_a_policy(study: Path) -> None:
    result = run_cli(study, "--policy", "thrifty,cheapest_spot", "--json", "--seeds", 2)
    parsed = json.loads(result.stdout)
    assert [each["policy"] for each in parsed] == ["thrifty", "cheapest_spot"]
    assert set(parsed[0]) >= {"cost", "duration", "steps_lost", "deadline_met", "oracle_ratio"}
    assert "the reports of trials are synthetic" in result.stderr


def test_a_picture_of_the_first(study: Path, tmp_path: Path) -> None:
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
def test_what_cannot_be_is_one_line(study: Path, arguments: tuple[str, ...], message: str) -> None:
    given = [study if each == "FILE" else each for each in arguments]
    result = run_cli(*given, status=1)
    assert message in result.stderr
    assert result.stderr.count("\n") <= 2


def test_a_plan_is_one_of_the_policies(study: Path) -> None:
    parsed = json.loads(run_cli(study, "--policy", "elastic,thrifty", "--deadline", "3h", "--json").stdout)
    assert [each["policy"] for each in parsed] == ["elastic", "thrifty"]
    assert [each["deadline_met"] for each in parsed] == [1.0, 1.0]


def cost(study: Path, *more: str) -> float:
    (parsed,) = json.loads(run_cli(study, "--policy", "thrifty", "--deadline", "6h", "--json", *more).stdout)
    return float(parsed["cost"])


def test_what_starting_and_saving_take_is_as_the_profile_says(study: Path) -> None:
    same = cost(study)
    assert same == cost(study, "--restart", "10s", "--save", "5s")
    assert same < cost(study, "--restart", "20m", "--save", "5s")


def test_a_large_state_takes_its_time(study: Path) -> None:
    large = cost(study, "--state", "250", "--bandwidth", "0.5")
    assert large > cost(study)
    assert large == cost(study, "--restart", "510s", "--save", "505s")


def test_without_checkpoints_there_are_no_machines_that_may_be_taken_away(study: Path) -> None:
    refused = run_cli(study, "--policy", "thrifty", "--save", "never", status=1).stderr
    assert "would restart from step 1 whenever spot is preempted; let trials save" in refused
    parsed = json.loads(run_cli(study, "--policy", "on_demand", "--save", "never", "--json").stdout)
    assert parsed[0]["steps_lost"] == 0.0


@pytest.mark.parametrize(
    ("option", "value"),
    [("--policy", "thrifty"), ("--seeds", "2"), ("--restart", "1s"), ("--save", "1s"), ("--state", "3")],
)
def test_options_that_would_do_nothing_are_refused(option: str, value: str) -> None:
    output = run_cli("--table", "t.npz", option, value, status=1).stderr
    assert f"{option}: only applies to rented machines; add --cloud" in output


def test_functions_are_not_rented_and_a_limit_of_machines_is_kept_to(study: Path) -> None:
    text = study.read_text()
    study.write_text(text.replace('name = "stays"', 'name = "stays"\nbilling = "per_function"'))
    assert "a policy cannot rent functions" in run_cli(study, status=1).stderr
    study.write_text(text.replace('name = "stays"', 'name = "stays"\nmax_machines = 1'))
    one = json.loads(run_cli(study, "--policy", "on_demand", "--json").stdout)[0]
    study.write_text(text)
    four = json.loads(run_cli(study, "--policy", "on_demand", "--json").stdout)[0]
    assert one["duration"] > 3 * four["duration"]
    assert one["finished"] == four["finished"] == 1.0


def test_machines_of_a_record_stand_in_for_those_of_the_file(study: Path, tmp_path: Path) -> None:
    study.write_text(study.read_text().partition("[[cloud]]")[0])
    record = {"zone": {"gap_seconds": 600.0, "rle": [[4, 2000]]}}
    (tmp_path / "there.json").write_text(json.dumps(record))
    parsed = json.loads(run_cli(study, "--cloud", tmp_path / "there.json", "--policy", "thrifty", "--json").stdout)
    assert parsed[0]["finished"] == 1.0
    assert "cloud: is missing; write [cloud]" in run_cli(study, status=1).stderr
    (tmp_path / "empty.json").write_text("[]")
    assert "must be a JSON object of zones" in run_cli(study, "--cloud", tmp_path / "empty.json", status=1).stderr


def test_trials_differ_as_the_profile_says(study: Path) -> None:
    even = cost(study)
    study.write_text(study.read_text().replace("startup = 10.0", "startup = 10.0, std = 60.0"))
    assert cost(study) != even


def test_where_no_picture_can_be_written_nothing_is_simulated(study: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    output = run_cli(study, "--plot", tmp_path / "nowhere" / "x.png", status=1).stderr
    assert "there is no folder" in output
