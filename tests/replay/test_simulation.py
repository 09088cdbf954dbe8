"""Tests of simulate(): studies, tables and functions replayed on a virtual clock."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thriftune as tt
from thriftune.errors import SettingError
from thriftune.replay.curve_tables import read_table
from thriftune.replay.recordings import LeftOut, Recording, recording_from_result
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.simulation_loop import run
from thriftune.search.random import Random
from thriftune.show.describe import best_or_front
from thriftune.space.objectives import Objective
from thriftune.space.space import Space
from thriftune.state.events import Config
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State

STEPS = 9
LOSS = (Objective("loss", False),)


def a_curve(config: Any) -> Curve:
    return Curve(range(1, STEPS + 1), [{"loss": config["x"] + 1 / k} for k in range(1, STEPS + 1)], [2.0] * STEPS)


def train(trial: tt.Trial) -> None:
    for step in trial.steps():
        if trial["x"] > 0.8 and step == 2:
            raise ValueError("too far")
        trial.report(loss=trial["x"] + 1 / step)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tt.Result:
    """Run a real study."""
    store = tmp_path_factory.mktemp("simulate") / "s.db"
    space = {"x": tt.Float(0.0, 1.0)}
    arguments = {"searcher": "random", "seed": 3, "retries": 0, "name": "done", "store": store, "progress": False}
    arguments |= {"minimize": "loss", "stopping": "none"}
    return tt.tune(train, space, trials=12, max_steps=STEPS, **arguments)  # type: ignore[arg-type]


# --- a study ----------------------------------------------------------------------------------------------


def test_replay_of_a_study_gives_the_same_trials(done: tt.Result) -> None:
    again = tt.simulate(done, stopping="none", workers=2)
    assert [trial.config for trial in again.trials] == [trial.config for trial in done.trials]
    assert [trial.state for trial in again.trials] == [trial.state for trial in done.trials]
    assert [[r.metrics for r in t.reports] for t in again.trials] == [
        [r.metrics for r in t.reports] for t in done.trials
    ]
    assert any(trial.state is State.FAILED for trial in again.trials)
    assert again.best.value == done.best.value


def test_stopping_rule_takes_fewer_steps(done: tt.Result) -> None:
    again = tt.simulate(done, stopping="asha")
    assert again.best.value == done.best.value
    assert sum(t.step for t in again.trials) < sum(t.step for t in done.trials)
    assert again.spec.stopping == "asha"


def test_recording_has_the_times_of_the_study(done: tt.Result) -> None:
    recording, left_out = recording_from_result(done)
    assert left_out.total == 0
    for (_, curve), trial in zip(recording.rows, done.trials, strict=True):
        assert len(curve.seconds) == len(trial.reports)
        assert all(seconds >= 0.0 for seconds in curve.seconds)
        later = [b.at - a.at for a, b in zip(trial.reports, trial.reports[1:], strict=False)]
        assert list(curve.seconds[1:]) == pytest.approx(later)


def test_stopped_trials_are_left_out(done: tt.Result) -> None:
    stopped = tt.simulate(done, stopping="asha")
    recording, left_out = recording_from_result(stopped)
    assert len(recording.rows) + left_out.total == len(stopped.trials)
    assert left_out == LeftOut(unfinished=stopped.history.counts[State.STOPPED])
    study = tt.Study({"x": tt.Float(0, 1)}, minimize="loss")
    with pytest.raises(SettingError, match="has no completed or failed trial, so it has nothing to replay"):
        tt.simulate(study)


def test_ask_and_tell_study_can_be_replayed() -> None:
    study = tt.Study({"x": tt.Float(0, 1)}, minimize="loss", searcher="random", seed=0)
    for _ in range(3):
        trial = study.ask()
        study.tell(trial, trial["x"])
    assert tt.simulate(study).best.value == study.best.value


def test_suggestions_become_the_nearest_recorded_configurations(done: tt.Result) -> None:
    again = tt.simulate(done, searcher="sobol", seed=5)
    assert len(again.trials) == len(done.trials)
    known = {trial.config["x"] for trial in done.trials}
    assert {trial.config["x"] for trial in again.trials} == known
    assert [t.config for t in again.trials] != [t.config for t in done.trials]


# --- limits, cost -----------------------------------------------------------------------------------------


def test_function_is_replayed_within_the_limits() -> None:
    space = {"x": tt.Float(0.0, 1.0)}
    result = tt.simulate(a_curve, space=space, minimize="loss", trials=5, workers=2, price_per_hour=3600.0)
    assert [trial.step for trial in result.trials] == [STEPS] * 5
    assert result.seconds == 3 * STEPS * 2.0
    assert result.cost.dollars == pytest.approx(result.seconds)
    cut = tt.simulate(a_curve, space=space, minimize="loss", deadline=10, max_steps=4)
    assert [trial.step for trial in cut.trials] == [4, 1]
    assert cut.finished == "deadline reached"


def test_resumed_trials_take_the_restart_time() -> None:
    space = {"x": tt.Float(0.0, 1.0)}
    times = [
        tt.simulate(
            a_curve, space=space, minimize="loss", trials=9, max_steps=STEPS, restart_seconds=seconds,
            stopping=tt.stopping.SuccessiveHalving(9),
        ).seconds
        for seconds in (0.0, 1.0)
    ]  # fmt: skip
    assert times[1] - times[0] == 4.0  # three trials are promoted, and then one of them again


def test_same_seed_gives_the_same_run() -> None:
    space = {"x": tt.Float(0.0, 1.0)}
    runs = [
        tt.simulate(a_curve, space=space, minimize="loss", trials=20, stopping="asha", seed=4) for _ in range(2)
    ]
    assert runs[0].trials == runs[1].trials


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        (a_curve, {}, "to simulate a function, give its space= and a limit"),
        (3, {}, "3 is no study, table or function"),
        (
            "curves.txt",
            {"minimize": "loss"},
            "curves.txt: a table is a file of one of these types: .csv, .parquet, .npz",
        ),
        (Recording, {"stopping": "never"}, "stopping 'never' is not known"),
        (lambda _: [1], {"space": {"x": tt.Float(0, 1)}, "minimize": "x", "trials": 1}, "it must return a Curve"),
    ],
)
def test_invalid_sources_are_refused(source: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        tt.simulate(source, **arguments)


# --- tables -----------------------------------------------------------------------------------------------


def test_csv_table_with_the_columns_of_export(tmp_path: Path) -> None:
    with (tmp_path / "t.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["trial", "step", "at", "config.lr", "config.act", "config.n", "metrics.loss"])
        rows.writerow([0, 1, 10.0, 1e-4, "relu", 3, 0.5])
        rows.writerow([0, 2, 12.0, 1e-4, "relu", 3, 0.4])
        rows.writerow([1, 2, 11.0, 1.0, "tanh", 7, 0.2])
        rows.writerow([1, 1, 10.0, 1.0, "tanh", 7, 0.3])
    recording = read_table(tmp_path / "t.csv", LOSS)
    assert recording.space == tt.Space(
        {"lr": tt.Float(1e-4, 1.0, log=True), "act": tt.Choice(["relu", "tanh"]), "n": tt.Int(3, 7)}
    )
    (_, first), (config, second) = recording.rows
    assert config == {"lr": 1.0, "act": "tanh", "n": 7}
    assert (list(first.seconds), list(second.steps)) == ([2.0, 2.0], [1, 2])
    assert [m["loss"] for m in second.metrics] == [0.3, 0.2]
    assert tt.simulate(tmp_path / "t.csv", minimize="loss").best.value == 0.2


def test_npz_table(tmp_path: Path) -> None:
    values = np.array([[0.9, 0.8, 0.7], [0.9, np.nan, np.nan], [0.3, 0.2, 0.1]])
    np.savez(tmp_path / "t.npz", values=values, seconds=np.array([1.0, 2.0, 3.0]), lr=np.array([0.1, 0.2, 0.3]))
    result = tt.simulate(tmp_path / "t.npz", minimize="loss")
    assert [trial.state for trial in result.trials] == [State.COMPLETED, State.FAILED, State.COMPLETED]
    assert result.trials[1].error == "loss is nan at step 2"
    assert result.best.config == {"lr": 0.3}
    assert result.seconds == 3 * 1.0 + 2.0 + 3 * 3.0


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"loss": np.ones(3)}, r"needs an array 'values' \(trials, steps\); its arrays: loss \(3,\)"),
        ({"values": np.ones((3, 0)), "x": np.ones(3)}, r"needs an array 'values'"),
        (
            {"values": np.ones((3, 2)), "x": np.ones(3), "seconds": np.ones((2, 2))},
            r"'seconds' \(2, 2\) must have",
        ),
        ({"values": np.ones((3, 2))}, "has no parameter; add an array for each"),
        ({"values": np.ones((3, 2)), "x": np.ones(2)}, r"must have 3 values, one a trial, unlike x \(2,\)"),
        ({"values": np.full((3, 2), np.nan), "x": np.ones(3)}, "no trial reported a value"),
        ({"values": np.ones((3, 2)), "x": np.ones(3), "seconds": -np.ones(3)}, "takes -1.0 seconds"),
        ({"values": np.ones((3, 2)), "x": np.array([{}] * 3, dtype=object)}, "array 'x' holds Python objects"),
    ],
)
def test_invalid_npz_tables_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(SettingError, match=message):
        read_table(tmp_path / "t.npz", LOSS)


def test_text_file_named_npz_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_text("1 2 3")
    with pytest.raises(SettingError, match=r"t.npz: is not an npz file"):
        read_table(tmp_path / "t.npz", LOSS)


def test_csv_without_rows_or_metric_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("trial,step,loss\n")
    with pytest.raises(SettingError, match=r"empty.csv: the table has no row"):
        read_table(tmp_path / "empty.csv", LOSS)
    (tmp_path / "other.csv").write_text("trial,step,accuracy,config.x\n0,1,0.5,1\n")
    with pytest.raises(
        SettingError, match=r"has no column 'loss'; its columns are trial, step, accuracy, config\.x"
    ):
        read_table(tmp_path / "other.csv", LOSS)


# --- special cases ------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["halving", "hyperband", "early_curve", "auto", tt.stopping.ASHA(how="pause")])
def test_rules_that_wait_for_more_trials_finish(done: tt.Result, rule: Any) -> None:
    assert tt.simulate(done, stopping=rule, workers=1).finished


def test_each_trial_of_a_repeated_configuration_is_replayed(tmp_path: Path) -> None:
    lines = ["trial,step,config.x,loss", *(f"{trial},1,{trial % 2},{trial / 10}" for trial in range(6))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    result = tt.simulate(tmp_path / "t.csv", minimize="loss", stopping="none")
    assert [trial.value for trial in result.trials] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    again = tt.simulate(tmp_path / "t.csv", minimize="loss", stopping="none", searcher="random")
    assert sorted(trial.value or 0.0 for trial in again.trials) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]


def a_table(folder: Path, rows: list[str], columns: str = "trial,step,config.x,metrics.loss") -> Path:
    (folder / "t.csv").write_text("\n".join([columns, *rows]))
    return folder / "t.csv"


def test_table_leaves_out_paused_trials_and_waiting_time(
    tmp_path: Path,
) -> None:
    rows = ["0,COMPLETED,1,1,0.0,0.5,9", "0,COMPLETED,2,1,1.0,0.5,8", "0,COMPLETED,3,2,99.0,0.5,7"]
    rows += ["1,PAUSED,1,1,1.0,0.1,1"]
    table = a_table(tmp_path, rows, "trial,state,step,attempt,at,config.x,loss")
    result = tt.simulate(table, minimize="loss", stopping="none", space={"x": tt.Float(0, 1)})
    assert [trial.value for trial in result.trials] == [7.0]
    assert result.seconds == pytest.approx(3.0)
    with pytest.raises(SettingError, match="the table has no completed or failed trial"):
        tt.simulate(a_table(tmp_path, ["1,PAUSED,1,0.1,1"], "trial,state,step,config.x,loss"), minimize="loss")


def test_reports_without_the_objective_and_nan_values(tmp_path: Path) -> None:
    rows = ["0,1,0.5,3", "0,2,0.5,", "0,3,0.5,1", "1,1,0.6,2", "1,2,0.6,nan", "1,3,0.6,0"]
    result = tt.simulate(a_table(tmp_path, rows), minimize="loss", stopping="none")
    assert [(str(trial.state), len(trial.reports)) for trial in result.trials] == [("COMPLETED", 3), ("FAILED", 1)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0,1.5,0.5,3"], r"trial 0: its steps must be whole numbers from 1, each once; they are \[1.5\]"),
        (["0,1,0.5,3", "0,1,0.5,3"], r"each once; they are \[1, 1\]"),
        (["0,1,0.5,high"], "loss is 'high' at step 1; it must be a number"),
        (["0"], "its steps must be whole numbers"),
    ],
)
def test_invalid_rows_are_refused(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        tt.simulate(a_table(tmp_path, rows), minimize="loss")


def test_study_takes_no_other_objective(done: tt.Result) -> None:
    with pytest.raises(SettingError, match="a study has its own objectives"):
        tt.simulate(done, maximize="loss")


def test_best_is_a_finished_trial_even_if_an_unfinished_one_has_a_lower_value() -> None:
    """Use a loss that increases, so that every trial has its best value at its first step."""

    def curve(config: Config) -> Curve:
        steps = range(1, 11)
        return Curve(steps, [{"loss": 0.1 * step + config["x"]} for step in steps], [0.1] * 10)

    spec = Spec("s", Space({"x": tt.Float(0.0, 1e-3)}), LOSS, 1, max_steps=10, deadline_seconds=3.55)
    result = run(spec, curve, Random(), None)
    assert result.finished == "deadline reached"
    cut = result.trials[-1]
    assert cut.state is State.STOPPED
    assert result.best.finished
    assert result.best.value == pytest.approx(1.0, abs=1e-3)
    assert cut.value is not None
    assert result.best.value is not None
    assert cut.value < result.best.value
    assert best_or_front(result.history).text == f"loss {result.best.value:.6g} (trial {result.best.id})"


def test_unfinished_best_trial_shows_its_step() -> None:
    def curve(config: Config) -> Curve:
        steps = range(1, 11)
        return Curve(steps, [{"loss": config["x"] - 0.1 * step} for step in steps], [1.0] * 10)

    space = Space({"x": tt.Float(0.0, 1.0)})
    spec = Spec("s", space, LOSS, 1, max_steps=10, deadline_seconds=3.5, workers=2)
    result = run(spec, curve, Random(), None)
    assert not result.best.finished
    assert result.best.step == 4
    assert best_or_front(result.history).text.endswith(f"(trial {result.best.id}, stopped at step 4 of 10)")
