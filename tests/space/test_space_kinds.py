"""Steps, fixed values, ranges as conditions, and choices of tuples and lists, from the space to the trial."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import thriftune as tt
from tests import ROOT
from tests.space.test_space import same
from thriftune.cli import cli
from thriftune.errors import SpaceError
from thriftune.replay.curve_tables import read_table
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Fixed
from thriftune.space.space import Space
from thriftune.training.command_line import arguments

LAYERS = tt.Choice([(64, 64), (128,), [32, [16]]])


# --- steps ------------------------------------------------------------------------------------------------


def test_steps_are_decimal_and_reach_both_ends() -> None:
    space = Space({"x": tt.Float(0.0, 1.0, step=0.1), "batch": tt.Int(32, 512, step=32)})
    levels = [each["x"] for each in space.every()][::16]
    assert levels == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert space.size == 11 * 16
    assert [each["batch"] for each in space.every()][:16] == list(range(32, 513, 32))


def test_a_step_that_is_no_short_decimal_still_reaches_the_end() -> None:
    space = Space({"x": tt.Float(0, 1, step=1 / 3)})
    assert [each["x"] for each in space.every()] == [0.0, 1 / 3, pytest.approx(2 / 3), 1.0]


def test_a_value_beside_a_step_is_refused_and_one_with_a_rounding_error_is_not() -> None:
    space = Space({"x": tt.Float(0, 1, step=0.1), "n": tt.Int(1, 9, step=4)})
    assert space.check({"x": 0.1 + 0.2, "n": 5}) == {"x": 0.3, "n": 5}
    with pytest.raises(SpaceError, match=r"x: 0.34 is no step of 0.1 from 0.0; the nearest is 0.3"):
        space.check({"x": 0.34, "n": 5})
    with pytest.raises(SpaceError, match="n: 4 is no step of 4 from 1; the nearest is 5"):
        space.check({"x": 0.3, "n": 4})


def test_a_grid_of_few_points_takes_some_steps() -> None:
    assert [each["n"] for each in Space({"n": tt.Int(0, 100, step=10)}).grid(3)] == [0, 50, 100]


def test_steps_in_a_study_file(tmp_path: Path) -> None:
    space = Space.from_json({"n": {"type": "int", "low": 32, "high": 64, "step": 32}})
    assert space == Space({"n": tt.Int(32, 64, step=32)})
    assert space.difference(Space({"n": tt.Int(32, 64)})) == ["n: step was 32, is now None"]


@pytest.mark.parametrize("searcher", ["bayes", "random", "sobol", "grid"])
def test_every_searcher_suggests_steps_and_keeps_fixed_values(searcher: str) -> None:
    space = {
        "x": tt.Float(0.1, 0.9, step=0.2),
        "epochs": 10,
        "n": tt.Int(8, 64, step=8, when={"x": tt.between(0.3, 0.7)}),
        "layers": LAYERS,
    }
    study = tt.Study(space, minimize="loss", searcher=searcher, seed=3)
    seen = set()
    for _ in range(14):
        trial = study.ask()
        assert same(study.space.check(trial.config), trial.config)
        assert ("n" in trial) == (0.3 <= trial["x"] <= 0.7)
        assert trial["epochs"] == 10
        seen.add(study.space.key(trial.config))
        study.tell(trial, trial["x"] + len(trial["layers"]))
    assert len(seen) == 14


# --- fixed values -----------------------------------------------------------------------------------------


def test_a_plain_value_is_in_every_configuration_and_is_not_searched() -> None:
    space = Space({"lr": tt.Float(0, 1), "epochs": 10, "act": "relu", "none": None})
    assert space.dimensions == 1
    assert space.searched == ("lr",)
    assert space.from_unit([0.5]) == {"lr": 0.5, "epochs": 10, "act": "relu", "none": None}
    assert space.check({"lr": 0.5}) == space.from_unit([0.5]), "it need not be given"
    with pytest.raises(SpaceError, match="epochs: 11 is not its fixed value; use 10 or leave it out"):
        space.check({"lr": 0.5, "epochs": 11})
    with pytest.raises(SpaceError, match="True is not its fixed value"):
        Space({"x": tt.Float(0, 1), "one": 1}).check({"x": 0.5, "one": True})


def test_fixed_values_in_a_study_file() -> None:
    made = Space({"lr": tt.Float(0, 1), "epochs": 10, "layers": Fixed([64, 64])})
    plain: dict[str, Any] = {
        "lr": {"type": "float", "low": 0, "high": 1},
        "epochs": 10,
        "layers": {"value": [64, 64]},
    }
    assert Space.from_json(plain) == made
    assert Space.from_json(made.to_json()) == made
    assert Space.from_json({**plain, "epochs": {"value": 10}}) == made
    assert made.difference(Space({**made, "epochs": 20})) == ["epochs: value was 10, is now 20"]
    assert made.difference(Space({**made, "epochs": tt.Int(1, 20)})) == ["epochs: was fixed at 10, is now Int"]


@pytest.mark.parametrize(("given", "itself"), [(["relu", "tanh"], "[...]"), ((0, 1), "(...)"), ([], "[...]")])
def test_a_list_or_tuple_is_refused_and_a_choice_of_one_holds_it(given: Any, itself: str) -> None:
    kind = type(given).__name__
    with pytest.raises(SpaceError) as refused:
        Space({"lr": tt.Float(0, 1), "act": given})
    assert str(refused.value) == (
        f"act: a plain {kind} is ambiguous. To choose from it, write tt.Choice([...]); for a range, "
        f"tt.Float(low, high) or tt.Int(low, high); for the {kind} itself, tt.Choice([{itself}])"
    )
    space = Space({"lr": tt.Float(0, 1), "act": tt.Choice([given])})
    assert same(space.from_unit([0.5, 0.5]), {"lr": 0.5, "act": given})


def test_a_bare_list_in_a_study_file_is_refused() -> None:
    lr = {"type": "float", "low": 0, "high": 1}
    with pytest.raises(
        SpaceError, match=r"act: a plain list is ambiguous\. Write \[space.act\] and in it, to choose"
    ):
        Space.from_json({"lr": lr, "act": ["relu", "tanh"]})  # type: ignore[dict-item]
    assert Space.from_json({"lr": lr, "act": {"value": ["relu"]}}).from_unit([0.5])["act"] == ["relu"]


def test_a_fixed_value_may_decide_what_is_active() -> None:
    space = Space({"opt": "sgd", "momentum": tt.Float(0, 1, when={"opt": "sgd"})})
    assert space.from_unit([0.25]) == {"opt": "sgd", "momentum": 0.25}
    assert space.check_part({"momentum": 0.5}) == {"opt": "sgd", "momentum": 0.5}
    with pytest.raises(SpaceError, match="momentum: when can never hold; opt: 'adam' is not its fixed value"):
        Space({"opt": "sgd", "momentum": tt.Float(0, 1, when={"opt": "adam"})})


def test_the_same_study_with_another_fixed_value_asks_another_question(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    tt.Study({"x": tt.Float(0, 1), "epochs": 10}, minimize="loss", name="a", store=store)
    with pytest.raises(tt.ThriftuneError, match="epochs: value was 10, is now 20"):
        tt.Study({"x": tt.Float(0, 1), "epochs": 20}, minimize="loss", name="a", store=store)


@pytest.mark.parametrize("searcher", ["bayes", "random", "sobol", "grid"])
def test_a_fixed_value_does_not_change_what_is_suggested(searcher: str) -> None:
    space = {"lr": tt.Float(0, 1), "act": tt.Choice(["a", "b"])}
    suggested = []
    for fixed in ({}, {"epochs": 10, "seed": 8}):
        study = tt.Study({**fixed, **space}, minimize="loss", searcher=searcher, seed=5)
        for _ in range(8):
            trial = study.ask()
            suggested.append([trial["lr"], trial["act"]])
            study.tell(trial, trial["lr"])
    assert suggested[:8] == suggested[8:]


# --- ranges as conditions ---------------------------------------------------------------------------------


def test_a_range_includes_its_ends_and_chains() -> None:
    space = Space(
        {
            "m": tt.Float(0, 1),
            "n": tt.Int(1, 9, when={"m": tt.between(0.5, 0.9)}),
            "k": tt.Int(1, 2, when={"n": tt.between(2.5, 99)}),
        }
    )
    active = {m: list(space.from_unit([m, n, 0.5])) for m in (0.49, 0.5, 0.9, 0.91) for n in (0.99,)}
    assert active == {0.49: ["m"], 0.5: ["m", "n", "k"], 0.9: ["m", "n", "k"], 0.91: ["m"]}
    assert list(space.from_unit([0.5, 0.0, 0.5])) == ["m", "n"]
    assert space["k"].when == {"n": tt.between(3, 99)}, "of an Int, its whole numbers"
    with pytest.raises(SpaceError, match=r"n: is 3, but applies only when m is from 0.5 to 0.9; leave it out"):
        space.check({"m": 0.1, "n": 3})


def test_a_range_in_a_study_file() -> None:
    table = {
        "m": {"type": "float", "low": 0.0, "high": 1.0},
        "n": {"type": "int", "low": 1, "high": 9, "when": {"m": {"between": [0.5, 0.9]}}},
    }
    space = Space.from_json(table)
    assert space == Space({"m": tt.Float(0, 1), "n": tt.Int(1, 9, when={"m": tt.between(0.5, 0.9)})})
    assert space.to_json() == table
    table["n"]["when"] = {"m": {"between": [0.5]}}
    with pytest.raises(SpaceError, match=r"write m = \{between = \[low, high\]\}"):
        Space.from_json(table)


def test_the_example_of_the_documentation() -> None:
    text = (ROOT / "docs" / "study-file.md").read_text()
    blocks = [block for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL) if block.startswith("[space]")]
    (space,) = [Space.from_json(tomllib.loads(block)["space"]) for block in blocks]
    assert space.from_unit([0.0, 0.0, 0.6, 0.0]) == {
        "epochs": 10,
        "batch_size": 32,
        "layers": [64],
        "momentum": pytest.approx(0.594),
        "nesterov": True,
    }


def test_the_size_counts_ranges_of_large_numbers_at_once() -> None:
    n = tt.Int(0, 2**40 - 1)
    space = Space({"n": n, "a": tt.Int(1, 3, when={"n": tt.between(10, 2**39)})})
    active = 2**39 - 10 + 1
    assert space.size == 2**40 - active + 3 * active


# --- tuples and lists -------------------------------------------------------------------------------------


def train_layers(trial: tt.Trial) -> float:
    layers = trial["layers"]
    assert type(layers) is type((trial["kind"] == "list" and []) or layers)
    if isinstance(layers, list):
        layers.append(1)
        assert len(trial["layers"]) == len(layers) - 1, "each access gives a copy"
    (trial.folder / "seen").write_text(repr(trial["layers"]))
    assert repr(dict(**trial)["layers"]) == repr(trial.config["layers"]) == repr(trial["layers"])
    return float(len(repr(layers)))


def test_a_trial_gets_the_tuple_or_list_that_was_given(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    space = {"layers": LAYERS, "kind": "layers"}
    asked: list[dict[str, Any]] = [{"layers": [64, 64]}, {"layers": (128,)}, {"layers": [32, [16]]}]
    result = tt.tune(
        train_layers, space, minimize="loss", trials=3, store=store, name="a", enqueue=asked, progress=False
    )
    assert result.history.counts[tt.State.COMPLETED] == 3, [trial.error for trial in result.trials]
    again = tt.load("a", store)
    for trials in (result.trials, again.trials):
        assert [repr(trial.config["layers"]) for trial in trials] == ["(64, 64)", "(128,)", "[32, [16]]"]
        assert [Path(trial.folder, "seen").read_text() for trial in trials] == ["(64, 64)", "(128,)", "[32, [16]]"]
    assert again.space == result.history.space == Space(space)
    again.trials[2].config["layers"].append(1)
    assert again.space["layers"] == result.history.space["layers"], "a record's lists are its own"
    printed = CliRunner().invoke(cli, ["export", "a", "--store", str(store)]).output
    assert '"[64, 64]"' in printed
    (tmp_path / "t.csv").write_text(printed)
    read = read_table(tmp_path / "t.csv", [Objective("loss", False)], Space(space))
    assert [repr(config["layers"]) for config, _ in read.rows] == ["(64, 64)", "(128,)", "[32, [16]]"]
    exported = json.loads(
        CliRunner().invoke(cli, ["export", "a", "--store", str(store), "--format", "json"]).output
    )
    assert exported[2]["config"] == {"layers": [32, [16]], "kind": "layers"}


def test_a_command_gets_json_and_python_inside_it_the_tuple(tmp_path: Path) -> None:
    assert arguments(["run", "--layers={layers}"], {"layers": (64, 64)}) == ["run", "--layers=[64, 64]"]
    (tmp_path / "train.py").write_text(
        "import json, os, sys, thriftune as tt\n"
        "trial = tt.current_trial()\n"
        "assert json.loads(sys.argv[1]) == json.loads(os.environ['THRIFTUNE_CONFIG'])['layers'] == [64, 64]\n"
        "assert trial['layers'] == (64, 64), trial['layers']\n"
        "tt.report(loss=1.0)\n"
    )
    (tmp_path / "a.toml").write_text(
        f"command = ['{sys.executable}', 'train.py', '{{layers}}']\n"
        "minimize = 'loss'\ntrials = 1\n"
        "[space]\nepochs = 1\nx = {type = 'int', low = 1, high = 2}\n"
        "layers = {type = 'choice', choices = [{tuple = [64, 64]}]}\n"
    )
    ran = CliRunner().invoke(cli, ["run", str(tmp_path / "a.toml"), "--store", str(tmp_path / "s.db")])
    assert ran.exit_code == 0, ran.output
    assert "1 completed" in ran.output


def test_conditions_on_tuples() -> None:
    one = {"layers": LAYERS, "x": tt.Float(0, 1, when={"layers": (64, 64)})}
    some = {"layers": LAYERS, "x": tt.Float(0, 1, when={"layers": [(64, 64), [32, (16,)]]})}
    for made, active in ((one, [True, False, False]), (some, [True, False, True])):
        space = Space(made)
        assert ["x" in space.decode([*row, 0.5]) for row in np.eye(3)] == active
        assert Space.from_json(json.loads(json.dumps(space.to_json()))) == space


def test_a_warm_start_rounds_to_steps_and_finds_tuples() -> None:
    old = tt.Study({"x": tt.Float(0, 1), "layers": tt.Choice([[1], (2,)]), "n": tt.Int(1, 9)}, minimize="loss")
    for x, layers in ((0.12, [1]), (0.5, (2,)), (0.8, [1]), (0.9, (2,))):
        old.enqueue({"x": x, "layers": layers, "n": 3})
        old.tell(old.ask(), x)
    space = {"x": tt.Float(0, 1, step=0.1), "layers": tt.Choice([(1,), (2,), (3,)]), "n": 3}
    with pytest.warns(UserWarning, match="x: 1 value rounded"):
        new = tt.Study(space, minimize="loss", warm_start=old)
    assert new.ask()["layers"] in [(1,), (2,), (3,)]
