"""Figures of a study by its parameters, drawn from Python and on the command line."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import thriftune as tt
from tests.cli import studies
from thriftune.cli import cli
from thriftune.errors import MissingExtra, SettingError, ThriftuneError
from thriftune.show.figures import FIGURES
from thriftune.space.objectives import parse_constraints
from thriftune.state import events as ev

pytest.importorskip("matplotlib")

SPACE: dict[str, Any] = {
    "lr": tt.Float(1e-5, 1e-1, log=True),
    "width": tt.Int(16, 512, log=True),
    "layers": tt.Int(1, 4),
    "optimizer": tt.Choice(["adam", "sgd", None, True, "a very long name of a choice"]),
    "momentum": tt.Float(0.0, 0.99, when={"optimizer": "sgd"}),
    "fixed": tt.Float(0.5, 0.5),
    "metric": "auc",
    "dropout": tt.Float(0.0, 0.5, step=0.1),
    "batch": tt.Int(32, 128, step=32),
    "shape": tt.Choice([(64, 64), (128,)]),
}


def study(trials: int = 24, *, name: str | None = None, store: Any = None, **settings: Any) -> tt.Study:
    """Return a study of made-up trials; every ninth has failed."""
    made_up = tt.Study(SPACE, **{"minimize": "loss", **settings}, name=name, store=store)
    rng = np.random.default_rng(0)
    for number in range(trials):
        config = made_up.space.sample(rng)
        loss = (math.log10(config["lr"]) + 3) ** 2 + abs(config["layers"] - 2) + config.get("momentum", 0.3)
        if number % 9 == 8:
            made_up.add(config, failed="diverged")
        else:
            made_up.add(config, {"loss": loss, "acc": 1.0 / (1.0 + loss), "size": config["width"]})
    return made_up


def texts(figure: Any) -> str:
    """Draw the figure, and return all its texts."""
    from matplotlib.text import Text

    figure.canvas.draw()
    return "\n".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("kind", FIGURES)
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_every_kind_can_be_drawn_and_shown_in_a_notebook(kind: str, direction: str) -> None:
    settings: dict[str, Any] = {"minimize": None, direction: "loss"}
    figure = study(**settings).plot(kind)
    assert "loss" in texts(figure)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_a_slice_has_a_panel_for_each_parameter_that_varies() -> None:
    output = texts(study().plot("slice"))
    for name in ("lr", "width", "layers", "optimizer", "momentum"):
        assert name in output
    assert "fixed" not in output
    assert "active in" in output
    assert "failed" in output
    assert "a very long..." in output
    fixed = study().plot("slice", params=["fixed"])
    assert "fixed" in texts(fixed)


def test_stopped_running_and_single_trials_are_drawn() -> None:
    spec = studies.spec(trials=None, max_steps=3)
    entries = [
        *studies.log(finished=False),
        ev.Stop(110.0, 3, 1, "by median"),
        ev.Ended(111.0, 3, 1, 1.0, True),
    ]
    result = tt.Result(spec, studies.fold(entries, spec))
    assert "stopped early" in texts(result.plot("slice"))
    assert "trial 1: the best" in texts(result.plot("parallel"))
    one = tt.Study({"x": tt.Float(0, 1)}, minimize="loss")
    one.tell(one.ask(), 0.5)
    for kind in ("slice", "parallel", "history"):
        assert "loss" in texts(one.plot(kind))


def test_the_best_trial_does_not_depend_on_the_metric_that_is_shown() -> None:
    spec = studies.spec(constraints=parse_constraints("gap <= 1"))
    entries: list[ev.Event] = [
        ev.ResultAdded(1.0, {"lr": 0.01, "act": "relu"}, {"loss": 0.1, "gap": 2.0}),
        ev.ResultAdded(1.0, {"lr": 0.02, "act": "relu"}, {"loss": 0.2, "gap": 0.5}),
        ev.ResultAdded(1.0, {"lr": 0.03, "act": "tanh"}, {"loss": 0.3, "gap": 0.1}),
    ]
    result = tt.Result(spec, studies.fold(entries, spec))
    assert "trial 1: the best" in texts(result.plot("parallel"))
    shown = texts(result.plot("parallel", metric="gap"))
    assert "trial 1: the best" in shown
    assert "gap (dark is lower)" in shown


def test_a_contour_shows_the_most_important_parameters_or_the_named_ones() -> None:
    made_up = study(40)
    first, second = list(made_up.importance())[:2]
    assert f"expected loss by {first} and {second}" in texts(made_up.plot("contour"))
    output = texts(made_up.plot("contour", params=["momentum", "width"], metric="acc"))
    assert "expected acc by momentum and width" in output
    assert "dark is lower, all others as in trial" in output
    assert "expected loss by optimizer and layers" in texts(
        made_up.plot("contour", params=["optimizer", "layers"])
    )
    with pytest.raises(SettingError, match="a contour needs two parameters, not 1"):
        made_up.plot("contour", params=["lr"])


def test_a_contour_of_parameters_that_are_never_active_together_is_refused() -> None:
    space = {
        "kind": tt.Choice(["a", "b"]),
        "x": tt.Float(0, 1, when={"kind": "a"}),
        "y": tt.Float(0, 1, when={"kind": "b"}),
    }
    made_up = tt.Study(space, minimize="loss")
    rng = np.random.default_rng(0)
    for _ in range(14):
        config = made_up.space.sample(rng)
        made_up.add(config, config.get("x", 0.2))
    with pytest.raises(ThriftuneError, match="no trial has both 'x' and 'y'"):
        made_up.plot("contour", params=["x", "y"])


def test_several_objectives_are_drawn_one_at_a_time() -> None:
    made_up = study(minimize=["loss", "size"], maximize="acc")
    for metric in ("loss", "size", "acc"):
        for kind in ("slice", "contour", "parallel", "importance"):
            assert metric in texts(made_up.plot(kind, metric=metric))
    assert "acc (dark is better)" in texts(made_up.plot("parallel", metric="acc"))


def test_only_some_of_many_trials_are_drawn_as_lines() -> None:
    made_up = tt.Study({"x": tt.Float(0, 1), "y": tt.Float(0, 1)}, minimize="loss")
    rng = np.random.default_rng(0)
    for _ in range(1200):
        config = made_up.space.sample(rng)
        made_up.history.apply(ev.ResultAdded(1.0, config, {"loss": config["x"]}))
    axes = made_up.plot("parallel").axes[0]
    assert 400 < len(axes.lines) < 520


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("pie", {}, "plot: there is no kind 'pie'; use history, slice"),
        ("slice", {"params": ["widht"]}, "there is no parameter 'widht'; did you mean width"),
        ("slice", {"params": ["q"]}, "there is no parameter 'q'; the space has lr, width"),
        ("slice", {"params": []}, "params is empty"),
        ("slice", {"params": "lr"}, r"params 'lr' is not a list; give one such as \['lr'\]"),
        ("parallel", {"metric": "speed"}, "metric: 'speed' was not reported"),
        ("history", {"params": ["lr"]}, "the history shows the objectives"),
        ("importance", {"params": ["lr"]}, "the importance is of all parameters"),
    ],
)
def test_wrong_settings_are_refused_with_a_suggestion(kind: str, settings: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        study().plot(kind, **settings)


@pytest.mark.parametrize("kind", FIGURES)
def test_the_error_for_an_empty_study_gives_the_reason(kind: str) -> None:
    with pytest.raises(
        ThriftuneError, match=r"nothing to plot: no trial|needs 16 trials with a value; the study has 0"
    ):
        study(0).plot(kind)


def test_the_error_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'thriftune\[plot\]'"):
        study(2).plot("slice")


def test_the_command_writes_every_kind(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    study(name="s", store=store)
    for kind in FIGURES:
        path = tmp_path / f"{kind}.svg"
        done = CliRunner().invoke(cli, ["show", "s", "--store", store, "--plot", str(path), "--kind", kind])
        assert done.exit_code == 0, done.output
        assert path.read_text().startswith("<?xml")
    path = tmp_path / "two.png"
    command = ["show", "s", "--store", store, "--plot", str(path), "--kind", "contour", "--params", "lr, width"]
    assert CliRunner().invoke(cli, [*command, "--metric", "acc"]).exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    refused = CliRunner().invoke(cli, ["show", "s", "--store", store, "--kind", "slice"])
    assert refused.exit_code == 2
    assert "--plot FILE" in refused.output
    refused = CliRunner().invoke(cli, ["show", "s", "--store", store, "--plot", str(path), "--params", "lr"])
    assert "the history shows the objectives" in refused.output


def test_a_fixed_parameter_has_no_axis() -> None:
    with pytest.raises(SettingError, match="metric is the same in all trials; the parameters that vary are lr"):
        study().plot("slice", params=["metric"])
    for kind in ("slice", "parallel"):
        assert "metric" not in texts(study().plot(kind))


def test_a_contour_over_parameters_with_steps() -> None:
    assert "dropout" in texts(study().plot("contour", params=["dropout", "lr"]))
    assert "128" in texts(study().plot("contour", params=["batch", "shape"]))


def test_a_known_result_on_the_front_has_no_curve(tmp_path: Path) -> None:
    def train(trial: tt.Trial) -> None:
        for step in trial.steps():
            trial.report(a=trial["x"] / step, b=(1.0 - trial["x"]) / step)

    known = [({"x": 0.5}, {"a": 0.1, "b": 0.1})]
    result = tt.tune(
        train, {"x": tt.Float(0, 1)}, minimize=["a", "b"], max_steps=2, trials=3, known=known,
        store=tmp_path / "s.db", progress=False,
    )  # fmt: skip
    assert "front" in texts(result.plot())
