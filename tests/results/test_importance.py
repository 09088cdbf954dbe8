"""Tests importance with functions whose Sobol indices are known, through studies and the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import thriftune as tt
from tests.support.tables import Table
from thriftune.cli import cli
from thriftune.errors import SettingError, ThriftuneError
from thriftune.results.importance import importance
from thriftune.results.surrogate import Surrogate, compress_outliers
from thriftune.space.parameters import Parameter
from thriftune.state import events as ev
from thriftune.state.history import History

Function = Callable[[Mapping[str, Any]], float]


def random_study(
    space: Mapping[str, Any], function: Function, trials: int, seed: int = 0, **settings: Any
) -> tt.Study:
    study = tt.Study(space, **{"minimize": "loss", **settings})
    rng = np.random.default_rng(seed)
    for _ in range(trials):
        config = study.space.sample(rng)
        study.history.apply(ev.ResultAdded(1.0, config, {study.spec.metric: function(config)}))
    return study


def floats(count: int, low: float = 0.0, high: float = 1.0) -> dict[str, Parameter]:
    return {f"x{i}": tt.Float(low, high) for i in range(1, count + 1)}


def ishigami(config: Mapping[str, Any]) -> float:
    x = config
    return float(math.sin(x["x1"]) + 7 * math.sin(x["x2"]) ** 2 + 0.1 * x["x3"] ** 4 * math.sin(x["x1"]))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ishigami(seed: int) -> None:
    """The total effects are 0.558, 0.442, 0.244 and 0 of the variance; x3 has an effect only together with x1."""
    study = random_study(floats(4, -math.pi, math.pi), ishigami, 250, seed)
    found = study.importance()
    total = 0.558 + 0.442 + 0.244
    for name, exact in (("x1", 0.558), ("x2", 0.442), ("x3", 0.244)):
        assert found[name] == pytest.approx(exact / total, abs=0.1), name
    assert found["x4"] < 0.03
    assert sum(found.values()) == pytest.approx(1.0)
    assert list(found.values()) == sorted(found.values(), reverse=True)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_additive_function_with_noise_and_dummies(seed: int) -> None:
    noise = np.random.default_rng(seed + 100)

    def function(config: Mapping[str, Any]) -> float:
        return float(4.0 * config["x1"] + 2.0 * config["x2"] + config["x3"] + 0.1 * noise.standard_normal())

    found = random_study(floats(6), function, 30, seed).importance()
    for name, exact in (("x1", 16 / 21), ("x2", 4 / 21), ("x3", 1 / 21)):
        assert found[name] == pytest.approx(exact, abs=0.08), name
    assert max(found["x4"], found["x5"], found["x6"]) < 0.03


def test_importance_with_log_scales_choices_ints_and_constants() -> None:
    space = {
        "lr": tt.Float(1e-5, 1.0, log=True),
        "layers": tt.Int(1, 4),
        "act": tt.Choice(["relu", "tanh", "gelu"]),
        "fixed": tt.Float(0.5, 0.5),
    }
    effects = {"relu": 0.0, "tanh": 1.0, "gelu": 2.0}

    def function(config: Mapping[str, Any]) -> float:
        return float(math.log10(config["lr"]) / 5 * 3 + effects[config["act"]])

    found = random_study(space, function, 60).importance()
    # On its log scale, lr has the variance 9/12; act has 2/3.
    assert found["lr"] == pytest.approx(0.75 / (0.75 + 2 / 3), abs=0.08)
    assert found["act"] == pytest.approx(2 / 3 / (0.75 + 2 / 3), abs=0.08)
    assert found["layers"] < 0.03
    assert found["fixed"] == 0.0


def test_fixed_values_have_no_importance_and_stepped_floats_do() -> None:
    space: dict[str, Any] = {
        "metric": "auc",
        "x": tt.Float(0.0, 1.0, step=0.1),
        "epochs": 10,
        "y": tt.Float(0.0, 1.0),
    }
    found = random_study(space, lambda config: 3 * config["x"] + config["y"], 60).importance()
    assert list(found) == ["x", "y"]
    assert found["x"] == pytest.approx(0.9, abs=0.05)


def test_a_conditional_parameter_counts_where_it_is_active() -> None:
    space = {
        "x": tt.Float(0, 1),
        "optimizer": tt.Choice(["adam", "sgd"]),
        "momentum": tt.Float(0, 1, when={"optimizer": "sgd"}),
    }

    def function(config: Mapping[str, Any]) -> float:
        return float(config["x"] + 2.0 * (config.get("momentum", 0.5) - 0.5))

    found = random_study(space, function, 100).importance()
    # The total effects are 1/12 for x, half of 4/12 for momentum, and half of that for the optimizer.
    assert found["momentum"] > found["x"] > 0.1
    assert found["optimizer"] < found["momentum"]


def test_importance_is_deterministic_and_independent_of_sign_and_scale() -> None:
    def function(config: Mapping[str, Any]) -> float:
        return float(3 * config["x1"] + config["x2"] ** 2)

    study = random_study(floats(3), function, 40)
    assert study.importance() == study.importance() == study.result.importance()
    other = random_study(
        floats(3), lambda config: 5.0 - 1e6 * function(config), 40, maximize="loss", minimize=None
    )
    assert other.importance() == pytest.approx(study.importance(), abs=0.02)


def test_one_diverged_trial_does_not_hide_the_others() -> None:
    def function(config: Mapping[str, Any]) -> float:
        return 1e9 if config["x2"] > 0.97 else float(config["x1"])

    study = random_study(floats(2), function, 50, seed=3)
    assert sum(trial.value == 1e9 for trial in study.trials) in (1, 2, 3)
    assert study.importance()["x1"] > 0.1, "with the raw values, its share would be 1e-17"


def test_only_far_outliers_are_compressed() -> None:
    values = np.linspace(0.0, 1.0, 21)
    assert (compress_outliers(values) == values).all()
    with_outliers = np.append(values, [1e12, -1e12])
    compressed = compress_outliers(with_outliers)
    assert (compressed[:-2] == values).all()
    assert 1.0 < compressed[-2] < 100.0
    assert -100.0 < compressed[-1] < 0.0
    equal_quartiles = np.array([0.0] * 9 + [5.0])
    assert (compress_outliers(equal_quartiles) == equal_quartiles).all()


def test_failed_trials_are_left_out_and_trials_cut_short_are_estimated() -> None:
    table = Table(slots=12, trials=40, max_steps=4, stopping="median")
    for number in range(40):
        lr = math.log10(table.trial(number).config["lr"])
        table.report(number, 1, lr + 1.0)
        if number % 10 == 9:
            table.fail(number)
            table.fail(number)
        elif number % 2:
            table(ev.Stop(table.now, number, 1, "by median"))
            table.end(number, cut=True)
        else:
            table.report(number, 4, lr)
            table.end(number)
    found = importance(table.history)
    assert found["lr"] > 0.9


def test_several_objectives_and_other_metrics() -> None:
    study = tt.Study(floats(2), minimize=["loss", "size"])
    rng = np.random.default_rng(0)
    for _ in range(20):
        config = study.space.sample(rng)
        study.history.apply(
            ev.ResultAdded(1.0, config, {"loss": config["x1"], "size": config["x2"], "sum": sum(config.values())})
        )
    assert list(study.importance()) == ["x1", "x2"]
    assert list(study.importance("size")) == ["x2", "x1"]
    assert study.importance("sum")["x1"] == pytest.approx(0.5, abs=0.1)
    with pytest.raises(SettingError, match="metric: 'speed' was not reported; use one of loss, size, sum"):
        study.importance("speed")


@pytest.mark.parametrize("trials", [0, 1, 9])
def test_the_error_for_too_few_trials_says_how_many_are_needed(trials: int) -> None:
    study = random_study(floats(2), lambda config: float(config["x1"]), trials)
    message = f"over 2 parameters needs 10 trials with a value; the study has {trials}$"
    with pytest.raises(ThriftuneError, match=message):
        study.importance()
    single = random_study(floats(1), lambda config: float(config["x1"]), trials)
    with pytest.raises(ThriftuneError, match="over 1 parameter needs 10 trials"):
        single.importance()
    wide = random_study(floats(8), lambda config: float(config["x1"]), 12)
    with pytest.raises(ThriftuneError, match="over 8 parameters needs 16 trials"):
        wide.importance()


def test_equal_values_are_refused() -> None:
    study = random_study(floats(2), lambda config: 0.5, 20)
    with pytest.raises(ThriftuneError, match="all 20 trials have the same 'loss', so no parameter has an effect"):
        study.importance()


def test_a_model_predicts_the_observed_values(tmp_path: Path) -> None:
    study = random_study(floats(2), lambda config: 100.0 + 10.0 * config["x1"], 30)
    history: History = study.history
    expected = Surrogate(history).predict(np.array([[0.0, 0.5], [0.5, 0.5], [1.0, 0.5]]))
    assert expected == pytest.approx([100.0, 105.0, 110.0], abs=0.5)


def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    study = tt.Study(floats(2), minimize="loss", name="s", store=store)
    rng = np.random.default_rng(0)
    for _ in range(12):
        config = study.space.sample(rng)
        study.add(config, config["x2"])
    result = CliRunner().invoke(cli, ["importance", "s", "--store", store])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "importance for loss"
    assert [line.split()[0] for line in lines[1:]] == ["x2", "x1"]
    assert lines[1].endswith("%")
    as_json = json.loads(CliRunner().invoke(cli, ["importance", "s", "--store", store, "--json"]).output)
    assert as_json["metric"] == "loss"
    assert sum(as_json["importance"].values()) == pytest.approx(1.0)
    refused = CliRunner().invoke(cli, ["importance", "s", "--store", store, "--metric", "acc"])
    assert refused.exit_code == 1
    assert "metric: 'acc' was not reported" in refused.output


def test_values_that_are_too_large_are_refused() -> None:
    study = random_study(floats(1), lambda config: math.copysign(1.7e308, config["x1"] - 0.5), 20)
    with pytest.raises(ThriftuneError, match="has values beyond 1e\\+100"):
        study.importance()
