"""Tests of enqueued configurations: how users enqueue them, and how the conductor takes them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import thriftune as tt
from tests.support.tables import SPACE, Table
from thriftune.cli import cli
from thriftune.errors import NothingLeft, SettingError, SpaceError, StudyDamaged, StudyNotFound
from thriftune.search.grid import Grid
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.enqueued import checked_configs, complete_config
from thriftune.store.opening import open_store

LAYERS = Space(
    {
        "optimizer": tt.Choice(["adam", "sgd"]),
        "momentum": tt.Float(0.0, 0.9, when={"optimizer": "sgd"}),
        "width": tt.Int(1, 64),
    }
)


def train(trial: tt.Trial) -> float:
    return float(trial["lr"]) + float(trial["width"])


def tune(folder: Path, **settings: Any) -> tt.Result:
    space = {"lr": tt.Float(1e-4, 1.0, log=True), "width": tt.Int(16, 256)}
    known: dict[str, Any] = {"minimize": "loss", "trials": 4, "workers": 1, "name": "s", "seed": 0, **settings}
    return tt.tune(train, space, store=folder / "s.db", progress=False, **known)


# --- as users do it ---------------------------------------------------------------------------------------


def test_a_baseline_is_tried_first_and_counts_among_the_trials(tmp_path: Path) -> None:
    result = tune(tmp_path, enqueue=[{"lr": 0.1, "width": 64}, {"width": 16, "lr": 0.2}])
    assert [dict(trial.config) for trial in result.trials[:2]] == [
        {"lr": 0.1, "width": 64},
        {"lr": 0.2, "width": 16},
    ]
    assert [trial.origin for trial in result.trials] == ["enqueued", "enqueued", "searcher", "searcher"]
    assert result.finished == "all 4 trials done"


def test_running_the_script_again_does_not_try_the_baseline_again(tmp_path: Path) -> None:
    baseline = {"lr": 0.1, "width": 64}
    tune(tmp_path, trials=2, enqueue=[baseline])
    again = tune(tmp_path, trials=4, enqueue=[baseline, {"lr": 0.3, "width": 20}, {"lr": 0.3, "width": 20}])
    assert [trial.origin for trial in again.trials] == ["enqueued", "searcher", "enqueued", "searcher"]
    assert again.trials[2].config == {"lr": 0.3, "width": 20}


def test_configurations_beyond_the_limit_wait_for_a_higher_limit(tmp_path: Path) -> None:
    three = [{"lr": lr, "width": 16} for lr in (0.1, 0.2, 0.3)]
    tune(tmp_path, trials=1, enqueue=three)
    assert tt.load("s", tmp_path / "s.db").history.queue == three[1:]
    result = tune(tmp_path, trials=3)
    assert [trial.config["lr"] for trial in result.trials] == [0.1, 0.2, 0.3]


def test_parameters_left_open_are_drawn(tmp_path: Path) -> None:
    result = tune(tmp_path, trials=2, enqueue=[{"lr": 0.1}, {}])
    assert result.trials[0].config["lr"] == 0.1
    assert 16 <= result.trials[0].config["width"] <= 256
    assert set(result.trials[1].config) == {"lr", "width"}


@pytest.mark.parametrize(
    ("enqueue", "message"),
    [
        ([{"lr": 5.0, "width": 64}], r"enqueue: configuration 1, .*: lr: .*5\.0"),
        ([{"lr": 0.1}, {"lr": 0.1, "depth": 3}], "enqueue: configuration 2, .*: depth is not a parameter"),
        ([{"lr": 0.1, "width": "wide"}], "width: .*'wide'"),
        ({"lr": 0.1}, "enqueue: .* is not a list; give a list of configurations"),
        ([3], "a configuration maps names to values, which 3 does not"),
    ],
)
def test_an_invalid_configuration_is_refused_before_the_study_is_created(
    enqueue: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises((SpaceError, SettingError), match=message):
        tune(tmp_path, enqueue=enqueue)
    with pytest.raises(StudyNotFound):
        tt.load("s", tmp_path / "s.db")


SCRIPT = """
import os, signal, sys
from pathlib import Path
import thriftune as tt

FOLDER = Path(sys.argv[1])

def train(trial):
    with (FOLDER / "ran").open("a") as file:
        file.write(f"{trial['x']}\\n")
    if trial["x"] == 0.2 and trial.attempt == 1:
        os.kill(int((FOLDER / "driver").read_text()), signal.SIGKILL)
        signal.pause()
    return trial["x"]

if __name__ == "__main__":
    (FOLDER / "driver").write_text(str(os.getpid()))
    first = [{"x": 0.1}, {"x": 0.2}, {"x": 0.3}, {"x": 0.4}]
    tt.tune(train, {"x": tt.Float(0, 1)}, minimize="loss", trials=6, workers=1, seed=0, name="killed",
            store=FOLDER / "s.db", enqueue=first, progress=False)
"""


@pytest.mark.parametrize("how", ["script", "resume"])
def test_a_driver_killed_among_enqueued_trials_runs_each_of_them_once(how: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = [sys.executable, str(script), str(tmp_path)]
    assert subprocess.run(run, check=False).returncode == -signal.SIGKILL
    there = tt.load("killed", tmp_path / "s.db").history
    assert [trial.config["x"] for trial in there.trials] == [0.1, 0.2]
    assert len(there.queue) == 2
    if how == "resume":
        thriftune = str(Path(sys.executable).with_name("thriftune"))
        run = [thriftune, "resume", "killed", "--store", str(tmp_path / "s.db"), "--quiet"]
    subprocess.run(run, check=True)
    trials = tt.load("killed", tmp_path / "s.db").trials
    assert [trial.config["x"] for trial in trials[:4]] == [0.1, 0.2, 0.3, 0.4]
    assert [trial.origin for trial in trials] == ["enqueued"] * 4 + ["searcher"] * 2
    assert {trial.state for trial in trials} == {tt.State.COMPLETED}
    ran = Counter((tmp_path / "ran").read_text().split())
    assert [ran[str(x)] for x in (0.1, 0.2, 0.3, 0.4)] == [1, 2, 1, 1]  # the second was killed with the driver


def test_a_study_file_has_tables_of_enqueued_configurations(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        """
        command = ["echo", "loss={lr}"]
        minimize = "loss"
        trials = 3
        workers = 1
        store = "s.db"

        [[enqueue]]
        lr = 0.25

        [[enqueue]]
        lr = 0.5

        [space]
        lr = { type = "float", low = 0.0, high = 1.0 }

        [metrics]
        loss = "loss=(.+)"
        """
    )
    for _ in range(2):  # run again, it has nothing left to do
        assert CliRunner().invoke(cli, ["run", str(file), "--quiet"]).exit_code == 0
    trials = tt.load("study", tmp_path / "s.db").trials
    assert [trial.value for trial in trials[:2]] == [0.25, 0.5]
    assert [trial.origin for trial in trials] == ["enqueued", "enqueued", "searcher"]
    file.write_text(file.read_text().replace("lr = 0.5", "lr = 5"))
    refused = CliRunner().invoke(cli, ["run", str(file), "--name", "other"])
    assert "enqueue: configuration 2, {'lr': 5}: lr: " in refused.output


def test_ask_returns_enqueued_configurations_first_also_after_a_restart(tmp_path: Path) -> None:
    def study() -> tt.Study:
        return tt.Study({"x": tt.Float(0, 1)}, minimize="loss", seed=0, name="s", store=tmp_path / "s.db")

    first = study()
    assert first.enqueue({"x": 0.5})
    assert first.enqueue({"x": 0.25})
    assert not first.enqueue({"x": 0.5})
    assert first.ask()["x"] == 0.5
    again = study()
    assert not again.enqueue({"x": 0.5})  # it is being tried
    assert again.ask()["x"] == 0.25
    suggested = again.ask()
    assert suggested.origin == "searcher"
    assert not again.enqueue(dict(suggested.config))
    with pytest.raises(SpaceError, match=r"enqueue: .*x: .*2"):
        again.enqueue({"x": 2})


def test_a_used_up_grid_still_runs_enqueued_configurations_once() -> None:
    study = tt.Study({"x": tt.Choice([1, 2])}, minimize="loss", searcher="grid")
    study.enqueue({"x": 2})
    assert [study.ask()["x"], study.ask()["x"]] == [2, 1]
    with pytest.raises(NothingLeft):
        study.ask()
    study.enqueue({})
    assert study.ask()["x"] in (1, 2)


def test_a_log_with_a_configuration_of_another_space_is_damaged(tmp_path: Path) -> None:
    study = tt.Study({"x": tt.Float(0, 1)}, minimize="loss", name="s", store=tmp_path / "s.db")
    with open_store(tmp_path / "s.db") as store:
        store.append("s", study.history.entries, [ev.Enqueued(1.0, {"x": 7.0})])
    with pytest.raises(StudyDamaged, match=r"entry 1 cannot be where it is .*x: .*7\.0"):
        _ = study.trials


# --- the conductor ----------------------------------------------------------------------------------------


def test_the_queue_comes_before_the_searcher_and_after_waiting_trials() -> None:
    table = Table(slots=2, trials=5, retries=1)
    table(ev.Enqueued(table.now, {"lr": 0.01, "act": "relu"}))
    assert table.fail(0) == ["create 2", "place 2/1"]
    table.retry()
    assert table.report(1, 1, 0.5) + table.end(1) == ["place 0/2"]
    assert table.trial(2).config == {"lr": 0.01, "act": "relu"}
    assert table.trial(2).origin == ev.ENQUEUED
    assert not table.history.queue


def test_an_exhausted_searcher_does_not_end_a_study_with_a_queue() -> None:
    table = Table(space=Space({"act": tt.Choice(["relu", "tanh"])}), searcher=Grid(), trials=9)
    for number in range(2):
        table.report(number, 1, 0.5)
        table(ev.Enqueued(table.now, {})) if number else None
        table.end(number)
    assert len(table.history.trials) == 3
    table.report(2, 1, 0.5)
    assert table.end(2) == ["finish: the searcher has nothing left to suggest"]


def test_enqueueing_between_drives_adds_no_driven_time() -> None:
    table = Table(trials=3)
    table.report(0, 1, 0.5)
    table.kill_driver()
    table.now += 1000.0
    table(ev.Enqueued(table.now, {"lr": 0.01}))
    table.kill_driver()
    table.start()
    assert table.history.driven_seconds(table.now) == 0.0


# --- spaces -----------------------------------------------------------------------------------------------


def test_a_partial_configuration_is_checked() -> None:
    assert LAYERS.check_part({"width": 3, "optimizer": "sgd"}) == {"optimizer": "sgd", "width": 3}
    with pytest.raises(
        SpaceError, match=r"momentum: is 0.5, but applies only when optimizer is 'sgd'; give optimizer"
    ):
        LAYERS.check_part({"momentum": 0.5})
    with pytest.raises(SpaceError, match=r"momentum: is 0.5, but applies only .*; leave it out"):
        LAYERS.check_part({"optimizer": "adam", "momentum": 0.5})


def test_open_parameters_get_valid_values_that_depend_only_on_the_rng() -> None:
    for seed in range(30):
        config = complete_config(
            LAYERS, {"optimizer": "sgd", "momentum": 0.5}, np.random.default_rng(seed), lambda _: 0
        )
        assert LAYERS.check(config) == config
        assert config["momentum"] == 0.5
        assert config == complete_config(
            LAYERS, {"optimizer": "sgd", "momentum": 0.5}, np.random.default_rng(seed), lambda _: 0
        )


def test_an_untried_configuration_is_preferred() -> None:
    space = Space({"k": tt.Int(1, 3)})
    tried = [{"k": 1}, {"k": 3}]
    assert complete_config(space, {}, np.random.default_rng(0), lambda config: int(config in tried)) == {"k": 2}
    assert complete_config(space, {"k": 1}, np.random.default_rng(0), lambda _: 5) == {"k": 1}


def test_a_queue_is_a_list() -> None:
    assert checked_configs(SPACE, None) == []
    assert checked_configs(SPACE, ({"lr": 0.01},)) == [{"lr": 0.01}]
    with pytest.raises(SettingError, match="enqueue: 'lr' is not a list"):
        checked_configs(SPACE, "lr")
