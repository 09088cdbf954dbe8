"""`thriftune plan`: the machines to rent, as a table, as JSON and as a figure; and errors of one line."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import get_args

import pytest
from click.testing import Result

from tests import ROOT
from tests.cli.programs import invoke, parse_json, run
from tests.support.study_files import HALVING_STUDY, ON_DEMAND
from thriftune import planning
from thriftune.cli import plan as plan_command
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


def run_cli(*args: object, status: int = 0) -> Result:
    return invoke("plan", *args, status=status)


@pytest.fixture(autouse=True)
def _no_progress_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep busy() silent, however slow the machine is."""
    monkeypatch.setattr("thriftune.cli.screen.PATIENCE_SECONDS", 3600.0)


def write_study(folder: Path, text: str) -> Path:
    """Write a study file, and return its path."""
    path = folder / "study.toml"
    path.write_text(text)
    return path


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path, HALVING_STUDY + ON_DEMAND)


def lines_of(shown: str) -> dict[str, str]:
    """Return the lines by their first word."""
    return {line.split()[0]: line for line in shown.splitlines() if line.split()}


def test_the_example_study_is_planned() -> None:
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


def test_the_docs_page_shows_the_output_of_the_example() -> None:
    shown = [line.rstrip() for line in run_cli(EXAMPLE / "study.toml").stdout.splitlines()]
    assert "\n".join(shown) in (EXAMPLE.parents[1] / "docs" / "planning.md").read_text()


def test_the_example_study_can_be_run(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "train.py", tmp_path)
    study = write_study(
        tmp_path, (EXAMPLE / "study.toml").read_text().replace("max_steps = 508", "max_steps = 12")
    )
    out, _ = run("run", study.name, "--trials", "2", "--store", "s.db", cwd=tmp_path)
    assert "val_loss" in out


def test_the_command_prints_the_plan_that_python_returns(study: Path) -> None:
    job = planning.successive_halving(16, 4, 28, 2)
    profile = planning.Profile({1: 40.0, 2: 22.0, 4: 13.0})
    cloud = planning.CloudProfile(4, 12.24, init=15.0, minimum=60.0, name="p3.8xlarge")
    expected = plan(job, profile, cloud, deadline="20m")
    parsed = parse_json(run_cli(study, "--json").stdout)
    assert {key: value for key, value in parsed.items() if key not in ("comparison", "frontier")} == parse_json(
        to_json(expected.to_json())
    )
    shown = run_cli(study).stdout.splitlines()
    start = next(i for i, line in enumerate(shown) if line.startswith("stage")) + 1
    rows = [line.split() for line in shown[start : start + len(job.stages)]]
    assert [row[2:6] for row in rows] == [
        [str(each) for each in (s.trials, s.workers, s.at_a_time, s.machines)] for s in expected.stages
    ]
    assert [row[-1] for row in rows] == [f"{stage.dollars:.2f}" for stage in expected.stages]


def test_the_comparison_and_the_frontier_as_json(study: Path) -> None:
    parsed = parse_json(run_cli(study, "--json").stdout)
    assert set(parsed["comparison"]) == {"greedy", "static", "naive_elastic"}
    for other in parsed["comparison"].values():
        assert other["cost"] >= parsed["cost"] - 1e-9
        assert other["duration"] <= 1200.0
    points = [(point["duration"], point["cost"]) for point in parsed["frontier"]]
    assert points == sorted(points)
    assert [cost for _, cost in points] == sorted((cost for _, cost in points), reverse=True)


def test_a_limit_option_replaces_both_limits_of_the_study_file(tmp_path: Path) -> None:
    study = write_study(
        tmp_path, HALVING_STUDY.replace('deadline = "20m"', 'deadline = "20m"\nbudget = 20.0') + ON_DEMAND
    )
    parsed = parse_json(run_cli(study, "--json").stdout)
    assert (parsed["deadline"], parsed["budget"]) == (1200.0, 20.0)
    parsed = parse_json(run_cli(study, "--deadline", "25m", "--json").stdout)
    assert (parsed["deadline"], parsed["budget"]) == (1500.0, None)
    parsed = parse_json(run_cli(study, "--budget", "30", "--json").stdout)
    assert (parsed["deadline"], parsed["budget"]) == (None, 30.0)
    shown = lines_of(run_cli(study, "--budget", "30").stdout)
    assert "$30.00" in shown["budget"]
    assert "s: optimal, proven" in shown["lower"], "the bound is on the time"
    assert "greedy" not in shown, "greedy is only for deadlines"
    assert "same time" in shown["static"]


def test_a_study_without_limits_needs_a_limit_option(tmp_path: Path) -> None:
    study = write_study(tmp_path, HALVING_STUDY.replace('deadline = "20m"', "trials = 16") + ON_DEMAND)
    wrong = run_cli(study, status=1).stderr
    assert wrong.startswith("error: give a deadline or a budget: the fastest plan takes")
    assert lines_of(run_cli(study, "--deadline", "20m").stdout)["deadline"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--deadline", "10s"), "deadline: 10.0 s cannot be met: the fastest plan needs "),
        (("--budget", "0.01"), "budget: $0.0100 is not enough: the cheapest plan costs $"),
        (("--deadline", "-5"), "deadline: '-5' is not a duration"),
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
def test_mistakes_are_reported_in_one_line(study: Path, options: tuple[str, ...], message: str) -> None:
    result = run_cli(study, *options, status=1)
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {message.format(study)}")
    assert result.stderr.count("\n") == 1


def test_without_a_profile_the_error_names_the_command_that_measures_one(tmp_path: Path) -> None:
    study = write_study(tmp_path, HALVING_STUDY[: HALVING_STUDY.index("[profile]")] + ON_DEMAND)
    assert f"measure one with: thriftune profile {study}" in run_cli(study, status=1).stderr
    planning.Profile({1: 4.0}).write(tmp_path / "study.profile.json")
    assert lines_of(run_cli(study).stdout)["cost"]


def test_planners_that_miss_the_deadline_are_marked(tmp_path: Path) -> None:
    study = write_study(tmp_path, HALVING_STUDY + ON_DEMAND + "max_machines = 2\n")
    lines = lines_of(run_cli(study).stdout)
    assert "at most 2" in lines["machines"]
    assert "no plan within the deadline" in lines["naive_elastic"], (
        "naive_elastic runs all trials at the same time"
    )
    assert parse_json(run_cli(study, "--json").stdout)["comparison"]["naive_elastic"] is None


def test_another_planner_is_compared_with_the_exact_one(study: Path) -> None:
    shown = lines_of(run_cli(study, "--planner", "static").stdout)
    assert "lower" not in shown, "this planner has no lower bound"
    assert "cheaper" in shown["exact"]
    assert get_args(Planner) == plan_command._PLANNERS


def test_notes_are_printed_to_standard_error(tmp_path: Path) -> None:
    text = HALVING_STUDY.replace('stopping = {name = "halving", n = 16, min_steps = 4, eta = 2}', "trials = 16")
    result = run_cli(write_study(tmp_path, text + ON_DEMAND), "--machine", "p3.16xlarge", "--json")
    assert parse_json(result.stdout)["stages"][0]["offer"] == "p3.16xlarge"
    first, second = result.stderr.splitlines()
    assert first.startswith("auto: may stop trials early")
    assert second.startswith("p3.16xlarge: is not in the study file")


# --- machines that may be preempted ------------------------------------------------------------------------


def test_the_latest_start_of_each_stage_before_the_fallback(tmp_path: Path) -> None:
    study = write_study(tmp_path, HALVING_STUDY + ON_DEMAND + SPOT)
    shown = run_cli(study).stdout
    assert "p3.8xlarge spot: 4 workers, $4.00/h, may be preempted" in shown
    assert "if a stage has not begun by its minute in the column 'begin by', continue on p3.8xlarge, " in shown
    parsed = parse_json(run_cli(study, "--json").stdout)
    stages = {
        line.split()[0]: line.split()
        for line in shown.splitlines()
        if "p3.8xlarge spot" in line and "$" not in line
    }
    assert stages["1"][-1] == f"{parsed['fall_back_at'][0] / 60:.1f}"


def test_a_plan_without_on_demand_machines_has_no_fallback(tmp_path: Path) -> None:
    shown = run_cli(write_study(tmp_path, HALVING_STUDY + SPOT)).stdout
    assert "none: add a [[cloud]] of machines that are not preempted" in shown
    assert "begin by" not in shown
    assert "fallback" not in run_cli(write_study(tmp_path, HALVING_STUDY + ON_DEMAND)).stdout


def test_a_fallback_that_is_too_slow_is_reported() -> None:
    job = planning.successive_halving(16, 4, 28, 2)
    slow = planning.CloudProfile(4, 4.0, speed=0.1, name="slow")
    fast = planning.CloudProfile(4, 4.0, name="fast", survival=Exponential(5.0))
    preemptible_plan = plan(job, planning.Profile({1: 4.0, 2: 2.2}), [slow, fast], deadline=300.0)
    (message,) = fallback_sentences(preemptible_plan, [slow, fast])
    assert message == "too late: even if such a stage begins as planned, slow cannot finish the rest in time"


# --- comparisons -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("price", "text"),
    [
        (1.0, "same cost"),
        (1.004, "same cost"),
        (1.2, "20% more expensive"),
        (2.14, "2.1 times the cost"),
        (0.9, "10% cheaper"),
    ],
)
def test_the_cost_of_another_plan_is_compared_in_words(price: float, text: str) -> None:
    job, profile = planning.JobSpec.of([(4, 10)]), planning.Profile({1: 4.0})
    clouds = [planning.CloudProfile(4, dollars) for dollars in (10.0, 10.0 * price)]
    first, other = (plan(job, profile, cloud, deadline="1h") for cloud in clouds)
    assert compare_plans(first, other) == text


def test_the_duration_of_another_plan_is_compared_in_words() -> None:
    job, profile = planning.JobSpec.of([(4, 10)]), planning.Profile({1: 4.0})
    clouds = [planning.CloudProfile(4, 10.0, speed=speed) for speed in (1.0, 0.8, 0.4)]
    first, slower, slowest = (plan(job, profile, cloud, budget=100.0) for cloud in clouds)
    assert [compare_plans(first, other) for other in (first, slower, slowest)] == [
        "same time",
        "25% longer",
        "2.5 times as long",
    ]
    assert compare_plans(slower, first) == "20% shorter"


# --- figures ----------------------------------------------------------------------------------------------


def figure_text(study: Path, *args: object) -> str:
    """Draw the figure of a plan as SVG, and return the file's text."""
    mpl = pytest.importorskip("matplotlib")
    path = study.with_suffix(".svg")
    with mpl.rc_context({"svg.fonttype": "none"}):
        result = run_cli(study, *args, "--plot", path)
    assert result.stdout.startswith("study ")  # the table as well
    assert result.stderr == f"wrote {path}\n"
    return path.read_text()


def test_the_figure_of_a_plan_for_a_deadline(study: Path) -> None:
    figure = figure_text(study)
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
        assert f">{text}" in figure
    assert ">budget<" not in figure
    for shape in ("16\u00d71", "4\u00d7"):
        assert f">{shape}" in figure, "the trials and workers of the stages that have room for a label"


def test_the_figure_of_a_plan_for_a_budget(study: Path) -> None:
    figure = figure_text(study, "--budget", 30)
    assert ">budget<" in figure
    assert ">greedy<" not in figure
    assert ">deadline<" not in figure


def test_the_figure_names_each_machine_type_once(tmp_path: Path) -> None:
    study = write_study(tmp_path, HALVING_STUDY + ON_DEMAND + '[[cloud]]\nmachine = "p3.2xlarge"\ninit = 100\n')
    offers = {stage["offer"] for stage in parse_json(run_cli(study, "--json").stdout)["stages"]}
    figure = figure_text(study)
    assert [figure.count(f">{offer}<") for offer in offers] == [1] * len(offers)


def test_a_figure_and_json_in_one_call(study: Path) -> None:
    pytest.importorskip("matplotlib")
    path = study.with_suffix(".png")
    assert parse_json(run_cli(study, "--plot", path, "--json").stdout)["stages"]
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_error_without_matplotlib_names_the_extra(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run_cli(study, "--plot", "x.png", status=1)
    assert result.stderr == "error: a plot needs matplotlib; install it with: pip install 'thriftune[plot]'\n"
