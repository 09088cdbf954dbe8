"""plan: tables, JSON and pictures of what machines to rent, and one line where a limit cannot be kept."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner, Result

from tests import ROOT
from tests.cli.programs import run, strict
from tests.support.study_files import HALVING_STUDY, ON_DEMAND
from thriftune import planning
from thriftune.cli import cli
from thriftune.cli import plan as command
from thriftune.cli.common import to_json
from thriftune.cli.plan_tables import compare_plans, fallback_sentences
from thriftune.market.lifetime import Exponential
from thriftune.planning.plan_finder import Planner, plan

EXAMPLE = ROOT / "examples" / "plan"

SPOT = """
[[cloud]]
machine = "p3.8xlarge"
init = 15
spot = true
price_per_hour = 4.0
mean_lifetime = "30m"
"""

RunCli = Callable[..., Result]


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch) -> RunCli:
    """Return a function that runs a command and checks its exit status; busy() prints nothing."""
    monkeypatch.setattr("thriftune.cli.screen.PATIENCE_SECONDS", 3600.0)

    def call(*args: object, status: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["plan", *map(str, args)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result

    return call


def file(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return file(tmp_path, HALVING_STUDY + ON_DEMAND)


def lines_of(shown: str) -> dict[str, str]:
    """By their first word."""
    return {line.split()[0]: line for line in shown.splitlines() if line.split()}


def test_the_example_has_a_plan_at_once(run_cli: RunCli) -> None:
    result = run_cli(EXAMPLE / "study.toml")
    lines = lines_of(result.stdout)
    assert "plan-example: 7 stages, 1792 steps in total" in lines["study"]
    assert "p3.8xlarge: 4 workers, $12.24/h" in lines["machines"]
    assert "20 min 00 s, met with a probability of 9" in lines["deadline"]
    assert "optimal, proven" in lines["lower"]
    assert lines["1"].split()[:3] == ["1", "0-4", "64"]
    assert lines["7"].split()[:3] == ["7", "252-508", "1"]
    assert "times the cost" in lines["naive_elastic"]
    assert "more expensive" in lines["static"]
    assert result.stderr == ""
    assert "\x1b" not in result.stdout


def test_the_page_shows_what_the_example_prints(run_cli: RunCli) -> None:
    shown = [line.rstrip() for line in run_cli(EXAMPLE / "study.toml").stdout.splitlines()]
    assert "\n".join(shown) in (EXAMPLE.parents[1] / "docs" / "planning.md").read_text()


def test_the_example_can_be_run_too(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "train.py", tmp_path)
    study = file(tmp_path, (EXAMPLE / "study.toml").read_text().replace("max_steps = 508", "max_steps = 12"))
    out, _ = run("run", study.name, "--trials", "2", "--store", "s.db", cwd=tmp_path)
    assert "val_loss" in out


def test_the_table_is_the_plan_of_the_same_call_in_python(run_cli: RunCli, study: Path) -> None:
    job = planning.successive_halving(16, 4, 28, 2)
    profile = planning.Profile({1: 40.0, 2: 22.0, 4: 13.0})
    cloud = planning.CloudProfile(4, 12.24, init=15.0, minimum=60.0, name="p3.8xlarge")
    expected = plan(job, profile, cloud, deadline="20m")
    parsed = strict(run_cli(study, "--json").stdout)
    assert {key: value for key, value in parsed.items() if key not in ("comparison", "frontier")} == strict(
        to_json(expected.to_json())
    )
    shown = run_cli(study).stdout.splitlines()
    start = next(i for i, line in enumerate(shown) if line.startswith("stage")) + 1
    rows = [line.split() for line in shown[start : start + len(job.stages)]]
    assert [row[2:6] for row in rows] == [
        [str(each) for each in (s.trials, s.workers, s.at_a_time, s.machines)] for s in expected.stages
    ]
    assert [row[-1] for row in rows] == [f"{stage.dollars:.2f}" for stage in expected.stages]


def test_the_comparison_and_the_frontier_for_programs(run_cli: RunCli, study: Path) -> None:
    parsed = strict(run_cli(study, "--json").stdout)
    assert set(parsed["comparison"]) == {"greedy", "static", "naive_elastic"}
    for other in parsed["comparison"].values():
        assert other["cost"] >= parsed["cost"] - 1e-9
        assert other["duration"] <= 1200.0
    points = [(point["duration"], point["cost"]) for point in parsed["frontier"]]
    assert points == sorted(points)
    assert [cost for _, cost in points] == sorted((cost for _, cost in points), reverse=True)


def test_limits_of_the_command_line_stand_in_place_of_both(run_cli: RunCli, tmp_path: Path) -> None:
    study = file(
        tmp_path, HALVING_STUDY.replace('deadline = "20m"', 'deadline = "20m"\nbudget = 20.0') + ON_DEMAND
    )
    parsed = strict(run_cli(study, "--json").stdout)
    assert (parsed["deadline"], parsed["budget"]) == (1200.0, 20.0)
    parsed = strict(run_cli(study, "--deadline", "25m", "--json").stdout)
    assert (parsed["deadline"], parsed["budget"]) == (1500.0, None)
    parsed = strict(run_cli(study, "--budget", "30", "--json").stdout)
    assert (parsed["deadline"], parsed["budget"]) == (None, 30.0)
    shown = lines_of(run_cli(study, "--budget", "30").stdout)
    assert "$30.00" in shown["budget"]
    assert "s: optimal, proven" in shown["lower"], "the bound is of the time"
    assert "greedy" not in shown, "which is for deadlines"
    assert "same time" in shown["static"]


def test_a_study_without_a_limit_of_its_own(run_cli: RunCli, tmp_path: Path) -> None:
    study = file(tmp_path, HALVING_STUDY.replace('deadline = "20m"', "trials = 16") + ON_DEMAND)
    wrong = run_cli(study, status=1).stderr
    assert wrong.startswith("error: give a deadline or a budget: the fastest plan takes")
    assert lines_of(run_cli(study, "--deadline", "20m").stdout)["deadline"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--deadline", "10s"), "deadline: 10.0 s cannot be met: the fastest plan needs "),
        (("--budget", "0.01"), "budget: $0.0100 is not enough: the cheapest plan costs $"),
        (("--deadline", "-5"), "{}: deadline: '-5' is not a duration"),
        (("--probability", "2"), "probability: 2.0 must be at least 0 and below 1"),
        (
            ("--machine", "p3.8xlarg"),
            "{}: p3.8xlarg: is not in the catalog of 120 offers; did you mean p3.8xlarge",
        ),
        (("--profile", "none.json"), "none.json: cannot be read (No such file or directory)"),
        (("--budget", "30", "--planner", "greedy"), "planner: greedy needs a deadline"),
        (("--plot", "x.gif"), "plot: 'x.gif' must end in .png, .svg or .pdf"),
    ],
)
def test_what_cannot_be_is_one_line(run_cli: RunCli, study: Path, options: tuple[str, ...], message: str) -> None:
    result = run_cli(study, *options, status=1)
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {message.format(study)}")
    assert result.stderr.count("\n") == 1


def test_without_a_profile_it_is_said_how_to_measure_one(run_cli: RunCli, tmp_path: Path) -> None:
    study = file(tmp_path, HALVING_STUDY[: HALVING_STUDY.index("[profile]")] + ON_DEMAND)
    assert f"measure one with: thriftune profile {study}" in run_cli(study, status=1).stderr
    planning.Profile({1: 4.0}).write(tmp_path / "study.profile.json")
    assert lines_of(run_cli(study).stdout)["cost"]


def test_planners_that_cannot_make_it_are_said_to(run_cli: RunCli, tmp_path: Path) -> None:
    study = file(tmp_path, HALVING_STUDY + ON_DEMAND + "max_machines = 2\n")
    lines = lines_of(run_cli(study).stdout)
    assert "at most 2" in lines["machines"]
    assert "no plan within the deadline" in lines["naive_elastic"], "which would have all trials at a time"
    assert strict(run_cli(study, "--json").stdout)["comparison"]["naive_elastic"] is None


def test_another_planner_is_compared_with_the_best(run_cli: RunCli, study: Path) -> None:
    shown = lines_of(run_cli(study, "--planner", "static").stdout)
    assert "lower" not in shown, "it knows of none"
    assert "cheaper" in shown["exact"]
    assert get_args(Planner) == command._PLANNERS


def test_notes_are_beside_the_plan(run_cli: RunCli, tmp_path: Path) -> None:
    text = HALVING_STUDY.replace('stopping = {name = "halving", n = 16, min_steps = 4, eta = 2}', "trials = 16")
    result = run_cli(file(tmp_path, text + ON_DEMAND), "--machine", "p3.16xlarge", "--json")
    assert strict(result.stdout)["stages"][0]["offer"] == "p3.16xlarge"
    first, second = result.stderr.splitlines()
    assert first.startswith("auto: may stop trials early")
    assert second.startswith("p3.16xlarge: is not in the study file")


# --- machines that are taken away -------------------------------------------------------------------------


def test_when_to_fall_back(run_cli: RunCli, tmp_path: Path) -> None:
    study = file(tmp_path, HALVING_STUDY + ON_DEMAND + SPOT)
    shown = run_cli(study).stdout
    assert "p3.8xlarge spot: 4 workers, $4.00/h, may be preempted" in shown
    assert "if a stage has not begun by its minute in the column 'begin by', continue on p3.8xlarge, " in shown
    parsed = strict(run_cli(study, "--json").stdout)
    stages = {
        line.split()[0]: line.split()
        for line in shown.splitlines()
        if "p3.8xlarge spot" in line and "$" not in line
    }
    assert stages["1"][-1] == f"{parsed['fall_back_at'][0] / 60:.1f}"


def test_nothing_to_fall_back_on(run_cli: RunCli, tmp_path: Path) -> None:
    shown = run_cli(file(tmp_path, HALVING_STUDY + SPOT)).stdout
    assert "none: add a [[cloud]] of machines that are not preempted" in shown
    assert "begin by" not in shown
    assert "fallback" not in run_cli(file(tmp_path, HALVING_STUDY + ON_DEMAND)).stdout


def test_a_stage_that_begins_too_late_to_fall_back() -> None:
    """Where what stays is much slower, there comes a time when it is no way out."""
    job = planning.successive_halving(16, 4, 28, 2)
    slow = planning.CloudProfile(4, 4.0, speed=0.1, name="slow")
    fast = planning.CloudProfile(4, 4.0, name="fast", survival=Exponential(5.0))
    found = plan(job, planning.Profile({1: 4.0, 2: 2.2}), [slow, fast], deadline=300.0)
    (sentence,) = fallback_sentences(found, [slow, fast])
    assert sentence == "too late: even if such a stage begins as planned, slow cannot finish the rest in time"


# --- comparisons -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("price", "words"),
    [
        (1.0, "same cost"),
        (1.004, "same cost"),
        (1.2, "20% more expensive"),
        (2.14, "2.1 times the cost"),
        (0.9, "10% cheaper"),
    ],
)
def test_how_dear_another_is(price: float, words: str) -> None:
    job, profile = planning.JobSpec.of([(4, 10)]), planning.Profile({1: 4.0})
    clouds = [planning.CloudProfile(4, dollars) for dollars in (10.0, 10.0 * price)]
    mine, other = (plan(job, profile, cloud, deadline="1h") for cloud in clouds)
    assert compare_plans(mine, other) == words


def test_how_much_longer_another_takes() -> None:
    job, profile = planning.JobSpec.of([(4, 10)]), planning.Profile({1: 4.0})
    clouds = [planning.CloudProfile(4, 10.0, speed=speed) for speed in (1.0, 0.8, 0.4)]
    mine, slower, slowest = (plan(job, profile, cloud, budget=100.0) for cloud in clouds)
    assert [compare_plans(mine, other) for other in (mine, slower, slowest)] == [
        "same time",
        "25% longer",
        "2.5 times as long",
    ]
    assert compare_plans(slower, mine) == "20% shorter"


# --- pictures ---------------------------------------------------------------------------------------------


def drawn(run_cli: RunCli, study: Path, *args: object) -> str:
    mpl = pytest.importorskip("matplotlib")
    path = study.with_suffix(".svg")
    with mpl.rc_context({"svg.fonttype": "none"}):
        result = run_cli(study, *args, "--plot", path)
    assert result.stdout.startswith("study ")  # the table as well
    assert result.stderr == f"wrote {path}\n"
    return path.read_text()


def test_pictures(run_cli: RunCli, study: Path) -> None:
    picture = drawn(run_cli, study)
    for text in (
        "small: $",
        "optimal",
        "greedy",
        "static",
        "naive elastic",
        "this plan",
        "deadline",
        "p3.8xlarge",
    ):
        assert f">{text}" in picture
    assert ">budget<" not in picture
    for shape in ("16\u00d71", "4\u00d7"):
        assert f">{shape}" in picture, "trials and workers of a stage that has room for them"


def test_a_picture_for_a_budget(run_cli: RunCli, study: Path) -> None:
    picture = drawn(run_cli, study, "--budget", 30)
    assert ">budget<" in picture
    assert ">greedy<" not in picture
    assert ">deadline<" not in picture


def test_a_picture_of_several_kinds(run_cli: RunCli, tmp_path: Path) -> None:
    """Whichever are in the plan, each once."""
    study = file(tmp_path, HALVING_STUDY + ON_DEMAND + '[[cloud]]\nmachine = "p3.2xlarge"\ninit = 100\n')
    offers = {stage["offer"] for stage in strict(run_cli(study, "--json").stdout)["stages"]}
    picture = drawn(run_cli, study)
    assert [picture.count(f">{offer}<") for offer in offers] == [1] * len(offers)


def test_a_picture_and_json(run_cli: RunCli, study: Path) -> None:
    pytest.importorskip("matplotlib")
    path = study.with_suffix(".png")
    assert strict(run_cli(study, "--plot", path, "--json").stdout)["stages"]
    assert path.read_bytes().startswith(b"\x89PNG")


def test_pictures_without_matplotlib(run_cli: RunCli, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run_cli(study, "--plot", "x.png", status=1)
    assert result.stderr == "error: a plot needs matplotlib; install it with: pip install 'thriftune[plot]'\n"
