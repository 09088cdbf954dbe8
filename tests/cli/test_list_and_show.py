"""`thriftune list`, `show`, `best` and `export`, and errors of commands, on logs that no trial wrote."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner

import thriftune as tt
from tests.cli import studies
from tests.cli.programs import RunCli, parse_json
from thriftune.cli import cli
from thriftune.space.objectives import parse_constraints
from thriftune.space.parameters import Choice
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.spec import Target
from thriftune.store.opening import open_store


def test_terminal_escapes_in_a_configuration_are_never_printed(run_cli: RunCli, store_path: Path) -> None:
    value = "\x1b]0;owned\x07\x9b2J"
    space = Space({"a\x1b[31m": Choice(["relu", value])})
    target = Target("command", command=("true", value))
    for name, objectives in (("one", studies.LOSS), ("two", studies.TWO_OBJECTIVES)):
        spec = studies.spec(name, space=space, target=target, objectives=objectives)
        log: list[ev.Event] = [
            ev.DriverStarted(100.0, 77, "there"),
            ev.MachineReady(100.0, ev.THIS_MACHINE, "AWS c7i.large", 4, 0.36),
        ]
        for trial in range(2):
            log += [
                ev.Create(101.0, trial, {"a\x1b[31m": value}),
                ev.Place(101.0, trial, 1, ev.THIS_MACHINE, 0),
                ev.Reported(102.0, trial, 1, 1, 3, {"loss": 1.0, "speed": 1.0, "\x1b[5m": 1.0}),
            ]
        log += [ev.Ended(103.0, 0, 1, 2.0), ev.Failed(103.0, 1, 1, "raised", value), ev.GiveUp(103.0, 1, "failed")]
        log += [ev.Finish(104.0, "all trials done"), ev.DriverStopped(104.0)]
        with open_store(store_path) as store:
            studies.write(store, spec, log)
        for command in (
            ("list",),
            ("show", name),
            ("show", name, "--trial", "0"),
            ("best", name),
            ("best", name, "--json"),
            ("export", name, "--format", "json"),
            ("resume", name),
        ):
            output = run_cli(*command).output
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", output), command
    assert r"a\x1b[31m=\x1b]0;owned\x07\x9b2J" in run_cli("show", "one").output
    assert r"a\x1b[31m = \x1b]0;owned\x07\x9b2J" in run_cli("best", "one").output


# --- list


def test_list_without_a_store_or_without_studies(run_cli: RunCli, store_path: Path) -> None:
    result = run_cli("list")
    assert result.stdout == ""
    assert f"there is no store at {store_path}" in result.stderr
    assert "name it with --store PATH, or set THRIFTUNE_STORE" in result.stderr
    assert parse_json(run_cli("list", "--json").stdout) == []
    assert not store_path.exists()
    open_store(store_path).close()
    assert f"no studies in {store_path}" in run_cli("list").stderr


def test_list_shows_state_trials_and_best_value(run_cli: RunCli, finished: None) -> None:
    header, line = run_cli("list").stdout.splitlines()
    assert header.split() == ["NAME", "STATE", "TRIALS", "BEST", "CREATED"]
    assert line.startswith("digits  finished  3 of 6 (1 failed)  loss 0.666667  ")
    (row,) = parse_json(run_cli("list", "--json").stdout)
    assert row["counts"] == {"COMPLETED": 2, "FAILED": 1}
    assert row["best"]["trial"] == 1
    assert (row["seconds"], row["dollars"]) == (10.0, pytest.approx(0.001))


def test_list_counts_trials_from_the_log_after_a_kill(run_cli: RunCli, killed: None) -> None:
    (row,) = parse_json(run_cli("list", "--json").stdout)
    assert row["state"] == "stopped"
    assert row["counts"] == {"WAITING": 2, "COMPLETED": 2, "FAILED": 1}


def test_list_shows_ask_tell_studies_and_studies_that_have_not_started(run_cli: RunCli, store_path: Path) -> None:
    study = tt.Study({"x": tt.Float(0, 1)}, minimize="loss", name="open", store=store_path)
    study.ask()
    with open_store(store_path) as store:
        store.create("new", studies.spec("new").to_json(), 5.0)
    rows = {row["name"]: row for row in parse_json(run_cli("list", "--json").stdout)}
    assert rows["open"]["state"] == "ask-tell"
    assert rows["open"]["counts"] == {"RUNNING": 1}
    assert rows["new"]["state"] == "not started"


# --- show


def test_show_describes_a_finished_study(run_cli: RunCli, finished: None, store_path: Path) -> None:
    shown = run_cli("show", "digits").stdout
    for text in (
        "finished: all 3 trials done",
        "3 of 6 ended: 2 completed, 1 failed",
        "loss 0.666667 (trial 1) lr=0.02 act=relu",
        "$0.0010 if rented (AWS c7i.large on demand)",
        "best loss so far, by trials ended",
        "trial 2: raised, 2 attempts, lr=0.5 act=tanh",
        "ValueError: bad [red]",
        "trial 1: odd 1",
    ):
        assert text in shown
    assert f"for the full error: thriftune show digits --trial N --store {store_path}" in " ".join(shown.split())
    assert any("⠀" <= character <= "⣿" for character in shown)
    assert "\x1b" not in shown


def test_show_says_how_to_resume_a_killed_study(run_cli: RunCli, killed: None, store_path: Path) -> None:
    shown = " ".join(run_cli("show", "killed").stdout.split())
    resume = f"thriftune resume killed --store {store_path}"
    assert f"interrupted: process 77 on there has ended; to resume: {resume}" in shown
    assert "trial 3 waits for the study to be resumed; goes on after step 1" in shown
    assert "trial 4 waits for the study to be resumed; retry 1 of 1 after ValueError: bad [red]; goes on" in shown


def test_show_describes_one_trial(run_cli: RunCli, finished: None) -> None:
    shown = run_cli("show", "digits", "--trial", "2").stdout
    for text in ("failed", "2: 2 failed, 0 lost", studies.TRACEBACK, "20%\nlast words"):
        assert text in shown
    shown = run_cli("show", "digits", "--trial", "0").stdout
    for text in ("loss by step", "other metrics at step 3", "gap nan", "odd 0", "the last checkpoint at step 2"):
        assert text in shown
    assert "\x1b" not in shown
    wrong = run_cli("show", "digits", "--trial", "3", status=1)
    assert wrong.stderr == "error: study 'digits' has no trial 3; its trials are 0 to 2\n"


def test_show_of_a_trial_without_checkpoints_and_with_plot(
    run_cli: RunCli, finished: None, tmp_path: Path
) -> None:
    assert "0, no checkpoint" in run_cli("show", "digits", "--trial", "2").stdout
    wrong = run_cli("show", "digits", "--trial", "2", "--plot", str(tmp_path / "x.png"), status=2)
    assert "--plot draws the whole study; leave out --trial" in wrong.stderr
    assert not (tmp_path / "x.png").exists()


def test_show_names_the_rule_that_stopped_a_trial(run_cli: RunCli, store_path: Path) -> None:
    ends = [ev.Stop(110.0, 3, 1, "by asha"), ev.Ended(111.0, 3, 1, 1.0, cut=True)]
    with open_store(store_path) as store:
        studies.write(store, studies.spec("judged", stopping="asha"), [*studies.log(finished=False), *ends])
    assert "; searcher bayes, stopping rule asha" in " ".join(run_cli("show", "judged").stdout.split())
    assert "stopped after step 1 by the stopping rule (asha)" in run_cli("show", "judged", "--trial", "3").stdout
    assert parse_json(run_cli("show", "judged", "--trial", "3", "--json").stdout)["cut_because"] == "by asha"
    assert parse_json(run_cli("show", "judged", "--trial", "0", "--json").stdout)["cut_because"] is None


def test_the_time_of_a_running_trial_increases(run_cli: RunCli, killed: None, store_path: Path) -> None:
    def seconds() -> float:
        return float(parse_json(run_cli("show", "killed", "--trial", "3", "--json").stdout)["seconds"])

    assert seconds() == 0.0
    with open_store(store_path) as store, store.drive("killed"):
        assert seconds() > 1e6  # it has been running since the 109th second of 1970
        assert "0.0 s" not in run_cli("show", "killed", "--trial", "3").stdout


def test_show_as_json(run_cli: RunCli, finished: None) -> None:
    shown = parse_json(run_cli("show", "digits", "--json").stdout)
    assert [trial["state"] for trial in shown["trials"]] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert shown["cost"]["estimate"] is True
    assert shown["best"]["config"] == {"lr": 0.02, "act": "relu"}
    trial = parse_json(run_cli("show", "digits", "--trial", "0", "--json").stdout)
    assert trial["reports"][0]["metrics"] == {"loss": 4.0, "gap": None}


def test_show_of_a_study_without_trials(run_cli: RunCli, store_path: Path) -> None:
    with open_store(store_path) as store:
        store.create("new", studies.spec("new").to_json(), 5.0)
    shown = " ".join(run_cli("show", "new").stdout.split())
    assert "not started yet; to resume: thriftune resume new" in shown
    assert "no trials yet" in shown
    assert "it has no trials" in run_cli("show", "new", "--trial", "0", status=1).stderr
    assert parse_json(run_cli("show", "new", "--json").stdout)["best"] is None


def test_a_warm_started_study_without_trials_has_not_started(run_cli: RunCli, store_path: Path) -> None:
    space = tt.Space({"lr": tt.Float(0.001, 10.0)})
    warm_start = ev.WarmStarted(
        5.0, "old", space.to_json(), "loss", False, [[{"lr": 0.1}, 1.0], [{"lr": 9.0}, None]]
    )
    with open_store(store_path) as store:
        store.create("new", studies.spec("new", warm_start=("old", "none")).to_json(), 5.0, [warm_start])
    assert [row["state"] for row in parse_json(run_cli("list", "--json").stdout)] == ["not started"]
    assert "warm start  old (1 trial), none (0 trials)" in run_cli("show", "new").stdout
    assert "not started yet; to resume" in run_cli("show", "new").stdout
    shown = parse_json(run_cli("show", "new", "--json").stdout)
    assert shown["state"] == "not started"
    assert shown["warm_start"] == [{"study": "old", "trials": 1}, {"study": "none", "trials": 0}]


def test_show_and_best_of_an_ask_tell_study(run_cli: RunCli, store_path: Path) -> None:
    study = tt.Study({"x": tt.Float(0, 1)}, maximize="score", name="open", store=store_path)
    trial = study.ask()
    study.tell(trial, 3.5)
    study.ask()
    shown = run_cli("show", "open").stdout
    assert "open: its user asks and tells" in shown
    assert "; maximizes score; searcher bayes" in shown
    assert "1 running, 1 completed" in shown
    assert run_cli("best", "open").stdout == f"score = 3.5  (trial 0)\nx = {trial['x']}\n"
    for command in ("resume", "stop"):
        assert "in its user's own code, by ask and tell" in run_cli(command, "open", status=1).stderr


def test_best_prints_the_best_configuration(run_cli: RunCli, finished: None) -> None:
    assert run_cli("best", "digits").stdout == "loss = 0.666667  (trial 1)\nlr = 0.02\nact = relu\n"
    best = parse_json(run_cli("best", "digits", "--json").stdout)
    assert (best["trial"], best["metrics"]["gap"]) == (1, None)


# --- several objectives and constraints


@pytest.fixture
def two_objectives(store_path: Path) -> None:
    rows = [(0.5, 3.0), (0.25, 2.0), (0.1, 1.0), (0.6, 2.5)]
    spec = studies.spec("two", objectives=studies.TWO_OBJECTIVES, constraints=parse_constraints("speed >= 2"))
    with open_store(store_path) as store:
        studies.write(store, spec, studies.log_of_two_objectives(*rows))


def test_show_list_and_best_of_several_objectives(run_cli: RunCli, two_objectives: None) -> None:
    shown = run_cli("show", "two").stdout
    assert "; minimizes loss, maximizes speed with speed >= 2; searcher bayes" in shown
    assert "front   2 trials, loss 0.25 to 0.5, speed 2 to 3" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["trial", "state", "loss", "speed", "feasible", "steps", "time", "configuration"] in lines
    at = lines.index(["front"])
    assert [row[:5] for row in lines[at + 2 : at + 4]] == [
        ["1", "completed", "0.25", "2", "yes"],
        ["0", "completed", "0.5", "3", "yes"],
    ]
    assert ["2", "completed", "0.1", "1", "no"] in [row[:5] for row in lines]
    shown = run_cli("show", "two", "--trial", "2").stdout
    assert ["feasible", "no"] in [line.split() for line in shown.splitlines()]
    assert "other metrics" not in shown
    assert run_cli("list").stdout.splitlines()[1].startswith("two   finished  4 of 6  front of 2  ")
    best = run_cli("best", "two").stdout
    assert best == (
        "loss = 0.25  speed = 2  (trial 1)\nlr = 0.02\nact = relu\n\n"
        "loss = 0.5  speed = 3  (trial 0)\nlr = 0.01\nact = relu\n"
    )


def test_only_part_of_a_long_front_is_shown(run_cli: RunCli, store_path: Path) -> None:
    spec = studies.spec("long", objectives=studies.TWO_OBJECTIVES, trials=25)
    with open_store(store_path) as store:
        studies.write(store, spec, studies.log_of_two_objectives(*((1.0 + i, 1.0 + i) for i in range(25))))
    assert "\nfront, 20 of 25\n" in run_cli("show", "long").stdout
    shown = run_cli("resume", "long").stdout.splitlines()  # prints the result, as no trial is left
    assert shown[2] == "front   loss 1, speed 1 (trial 0) lr=0.01 act=relu"
    assert shown[11:13] == ["        loss 10, speed 10 (trial 9) lr=0.1 act=relu", "        and 15 more"]


def test_json_of_several_objectives(run_cli: RunCli, two_objectives: None) -> None:
    shown = parse_json(run_cli("show", "two", "--json").stdout)
    assert shown["objectives"] == [{"metric": "loss", "maximize": False}, {"metric": "speed", "maximize": True}]
    assert (shown["metric"], shown["constraints"], shown["best"]) == ("loss", ["speed >= 2"], None)
    assert [(trial["trial"], trial["values"]) for trial in shown["front"]] == [(1, [0.25, 2.0]), (0, [0.5, 3.0])]
    assert [trial["feasible"] for trial in shown["trials"]] == [True, True, False, True]
    assert [trial["trial"] for trial in parse_json(run_cli("best", "two", "--json").stdout)] == [1, 0]
    (row,) = parse_json(run_cli("list", "--json").stdout)
    assert (row["best"], row["front_size"], row["constraints"]) == (None, 2, ["speed >= 2"])
    assert row["objectives"] == shown["objectives"]
    rows = list(csv.DictReader(StringIO(run_cli("export", "two").stdout)))
    assert [(row["feasible"], row["metrics.speed"]) for row in rows][1:3] == [("true", "2.0"), ("false", "1.0")]


def test_show_and_best_when_no_trial_meets_the_constraints(run_cli: RunCli, store_path: Path) -> None:
    spec = studies.spec("none", constraints=parse_constraints("speed >= 9"))
    with open_store(store_path) as store:
        studies.write(store, spec, studies.log_of_two_objectives((0.5, 3.0), (0.25, 2.0)))
    sentence = "none of 2 trials meets speed >= 9; the nearest is trial 0 with 3"
    assert f"best    {sentence}" in run_cli("show", "none").stdout
    assert run_cli("best", "none", status=1).stderr == f"error: {sentence}\n"
    assert parse_json(run_cli("show", "none", "--json").stdout)["front"] == []


def test_studies_from_before_several_objectives_can_be_read(run_cli: RunCli, store_path: Path) -> None:
    spec = studies.spec("old").to_json()
    del spec["objectives"], spec["constraints"]
    with open_store(store_path) as store:
        store.create("old", {**spec, "metric": "loss", "maximize": False}, 99.0)
        store.append("old", 0, studies.log())
    assert "  loss 0.666667  " in run_cli("list").stdout
    assert "loss 0.666667 (trial 1)" in run_cli("show", "old").stdout


# --- export


def test_export_as_csv(run_cli: RunCli, finished: None) -> None:
    rows = list(csv.DictReader(StringIO(run_cli("export", "digits").stdout)))
    assert [row["config.lr"] for row in rows] == ["0.01", "0.02", "0.5"]
    assert [row["metrics.loss"] for row in rows][2] == ""
    assert rows[2]["error"] == studies.TRACEBACK
    rows = list(csv.DictReader(StringIO(run_cli("export", "digits", "--reports").stdout)))
    assert [(row["trial"], row["step"]) for row in rows] == [(t, s) for t in "01" for s in "123"]
    assert (rows[1]["metrics.loss"], rows[1]["saved"], rows[1]["metrics.gap"]) == ("2.0", "true", "nan")


def test_export_as_json(run_cli: RunCli, finished: None, tmp_path: Path) -> None:
    rows = parse_json(run_cli("export", "digits", "--format", "json", "--reports").stdout)
    assert rows[0]["metrics"] == {"loss": 4.0, "gap": None}
    file = tmp_path / "out.json"
    assert run_cli("export", "digits", "-o", str(file)).output == ""
    assert [row["trial"] for row in parse_json(file.read_text())] == [0, 1, 2]
    wrong = run_cli("export", "digits", "-o", str(tmp_path / "no" / "out.csv"), status=1)
    assert wrong.stderr == f"error: {tmp_path}/no/out.csv: No such file or directory\n"


def test_export_of_a_study_without_trials(run_cli: RunCli, store_path: Path) -> None:
    with open_store(store_path) as store:
        store.create("new", studies.spec("new").to_json(), 5.0)
    assert run_cli("export", "new").stdout.startswith("trial,config.lr,config.act")
    assert parse_json(run_cli("export", "new", "--format", "json").stdout) == []


# --- errors


@pytest.mark.parametrize("command", ["show", "best", "stop", "delete", "export", "resume"])
def test_an_unknown_study_is_reported_with_a_suggestion(command: str, run_cli: RunCli, finished: None) -> None:
    wrong = run_cli(command, "digit", status=1)
    assert wrong.stderr.startswith("error: there is no study 'digit' in ")
    assert wrong.stderr.endswith("; did you mean 'digits'?\n")
    assert wrong.stdout == ""


@pytest.mark.parametrize("command", ["show", "best", "stop", "delete", "export", "resume"])
def test_a_missing_store_is_reported(command: str, run_cli: RunCli, store_path: Path) -> None:
    assert run_cli(command, "digits", status=1).stderr.startswith(f"error: there is no store at {store_path}")


def test_a_file_that_is_not_a_store_is_reported(run_cli: RunCli, store_path: Path) -> None:
    store_path.write_text("hello " * 100)
    assert "the file is not a database" in run_cli("list", status=1).stderr


def test_run_reports_a_missing_study_file(run_cli: RunCli, tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert f"error: {missing}: the study file cannot be read" in run_cli("run", str(missing), status=1).stderr


def test_a_different_study_of_the_same_name_is_refused(run_cli: RunCli, finished: None, tmp_path: Path) -> None:
    file = tmp_path / "digits.toml"
    file.write_text(
        'command = ["true"]\nminimize = "loss"\ntrials = 1\n[space.lr]\ntype = "int"\nlow = 1\nhigh = 2\n'
    )
    wrong = run_cli("run", str(file), status=1).stderr
    assert "study 'digits' exists and differs: lr: was Float, is now Int" in wrong


def test_version_help_and_usage_errors() -> None:
    runner = CliRunner()
    assert runner.invoke(cli, ["--version"]).output == f"thriftune {tt.__version__}\n"
    wrong = runner.invoke(cli, ["shwo", "digits"])
    assert wrong.exit_code == 2
    assert "there is no command 'shwo'; did you mean show?" in wrong.output
    assert "use one of run, resume, list" in runner.invoke(cli, ["xyz"]).output
    assert runner.invoke(cli, ["show"]).exit_code == 2
    assert runner.invoke(cli, ["list", "--nope"]).exit_code == 2
    help_page = runner.invoke(cli, ["--help"])
    assert help_page.exit_code == 0
    for command in ("run", "resume", "list", "show", "logs", "best", "stop", "delete", "export", "report"):
        assert f"  {command} " in help_page.output
        assert runner.invoke(cli, [command, "--help"]).exit_code == 0


def test_list_does_not_import_slow_packages(finished: None, store_path: Path) -> None:
    code = (
        "import sys\nfrom thriftune.cli import cli\n"
        f"cli(['list', '--store', {str(store_path)!r}], standalone_mode=False)\n"
        "print(sorted({'numpy', 'scipy', 'rich', 'cloudpickle'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_list_and_show_give_the_step_of_an_unfinished_front(run_cli: RunCli, store_path: Path) -> None:
    """The trials of a front may be at different steps; the lowest step counts."""
    spec = studies.spec("two", objectives=studies.TWO_OBJECTIVES, max_steps=9)
    entries = [
        entry
        for entry in studies.log_of_two_objectives((0.5, 3.0), (0.25, 2.0))
        if not isinstance(entry, ev.Ended | ev.Finish)
    ]
    entries.insert(-1, ev.Reported(104.0, 1, 1, 3, 3, {"loss": 0.1}))
    with open_store(store_path) as store:
        studies.write(store, spec, entries)
    assert "front of 2 (unfinished, step 2 of 9)" in run_cli("list").stdout
    assert "(unfinished, step 2 of 9)" in run_cli("show", "two").stdout
    (row,) = parse_json(run_cli("list", "--json").stdout)
    assert (row["front_size"], row["front_step"]) == (2, 2)


def test_a_finished_study_counts_its_unpromoted_trials_as_stopped(run_cli: RunCli, store_path: Path) -> None:
    *before, finish, stopped = studies.log()
    paused = [
        ev.Create(108.0, 3, {"lr": 0.3, "act": "relu"}),
        ev.Place(108.0, 3, 1, ev.THIS_MACHINE, 0),
        ev.Reported(108.1, 3, 1, 1, 1, {"loss": 3.0}, saved=True),
        ev.Pause(108.2, 3, 1, "by halving"),
        ev.Ended(108.3, 3, 1, 0.1, cut=True),
    ]
    with open_store(store_path) as store:
        studies.write(store, studies.spec("done", trials=4), [*before, *paused, finish, stopped])
        studies.write(store, studies.spec("stopped", trials=4), [*before, *paused, stopped])
    shown = run_cli("show", "done").stdout
    assert "4 of 4 ended: 2 completed, 1 stopped early, 1 failed" in shown
    assert ["3", "stopped", "early"] in [line.split()[:3] for line in shown.splitlines()]
    assert "paused" not in shown
    assert "stopped after step 1 by the stopping rule (halving)" in run_cli("show", "done", "--trial", 3).stdout
    assert "3 of 4 ended: 2 completed, 1 paused, 1 failed" in run_cli("show", "stopped").stdout
    assert "paused" in run_cli("show", "stopped", "--trial", 3).stdout
    listed = {line.split()[0]: line for line in run_cli("list").stdout.splitlines()}
    assert "4 of 4 (1 failed)" in listed["done"]
    assert "3 of 4 (1 failed)" in listed["stopped"]


def test_a_converged_trial_is_shown_as_converged(run_cli: RunCli, store_path: Path) -> None:
    *before, finish, stopped = studies.log()
    converged = [
        ev.Create(108.0, 3, {"lr": 0.3, "act": "relu"}),
        ev.Place(108.0, 3, 1, ev.THIS_MACHINE, 0),
        ev.Reported(108.1, 3, 1, 1, 1, {"loss": 0.01}),
        ev.Stop(108.2, 3, 1, "by early_curve", converged=True),
        ev.Ended(108.3, 3, 1, 0.1, cut=True),
    ]
    with open_store(store_path) as store:
        studies.write(store, studies.spec("flat"), [*before, *converged, finish, stopped])
    rows = [line.split() for line in run_cli("show", "flat").stdout.splitlines()]
    assert ["3", "converged", "0.01"] in [row[:3] for row in rows]
    assert run_cli("best", "flat").stdout.startswith("loss = 0.01  (trial 3)")


def test_terminal_escapes_are_exported_unchanged(run_cli: RunCli, store_path: Path) -> None:
    spec = studies.spec("odd")
    entries = [
        replace(entry, config={"lr": 0.1, "act": "\x1b[31mrelu"}) if isinstance(entry, ev.Create) else entry
        for entry in studies.log()
    ]
    space = tt.Space({"lr": tt.Float(0.001, 1.0, log=True), "act": tt.Choice(["\x1b[31mrelu", "tanh"])})
    with open_store(store_path) as store:
        studies.write(store, replace(spec, space=space), entries)
    rows = list(csv.DictReader(StringIO(run_cli("export", "odd").stdout)))
    assert {row["config.act"] for row in rows} == {"\x1b[31mrelu"}
