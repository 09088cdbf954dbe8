"""The figure of a study's history: best values, learning curves and fronts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli import studies
from thriftune.cli import cli
from thriftune.errors import MissingExtra, SettingError, ThriftuneError
from thriftune.show.history_plot import draw_history
from thriftune.show.plot_style import check_plot_path, save
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.state import events as ev
from thriftune.store.opening import open_store
from thriftune.study.result import Result

FIRST_BYTES = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def save_plot(study: Result, path: Path) -> None:
    """Write the history of a study to a file."""
    check_plot_path(path)
    save(draw_history(study.spec, study.history), path)


def result(entries: list[ev.Event] | None = None) -> Result:
    """Return the result of a study with this log, by default a finished one."""
    spec = studies.spec()
    return Result(spec, studies.fold(studies.log() if entries is None else entries, spec))


@pytest.mark.parametrize("kind", FIRST_BYTES)
def test_each_file_format_can_be_written(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"plot.{kind}"
    save_plot(result(), path)
    assert path.read_bytes().startswith(FIRST_BYTES[kind])


def figure_text(path: Path, study: Result) -> str:
    """Draw a study as SVG, and return the file's text."""
    mpl = pytest.importorskip("matplotlib")
    with mpl.rc_context({"svg.fonttype": "none"}):
        save_plot(study, path)
    return path.read_text()


def test_panels_without_data_are_left_out(tmp_path: Path) -> None:
    both = figure_text(tmp_path / "both.svg", result())
    for text in (
        "digits: best loss 0.666667 (trial 1)",
        "Best so far",
        "Learning curves",
        "failed",
        "trial 1: the best",
    ):
        assert text in both
    one_step = [entry for entry in studies.log() if not (isinstance(entry, ev.Reported) and entry.number > 1)]
    single = figure_text(tmp_path / "single.svg", result(one_step))
    assert "Best so far" in single
    assert "Learning curves" not in single
    running = figure_text(tmp_path / "running.svg", result(_two_steps()))
    assert "Best so far" not in running
    assert "Learning curves" in running


def test_a_trial_of_a_single_step_is_a_dot_among_the_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = pytest.importorskip("matplotlib.axes")
    style_by_length: dict[int, str] = {}
    original = axes.Axes.plot

    def plot(self: Any, x: Any, *more: Any, **style: Any) -> Any:
        if isinstance(x, tuple):
            style_by_length[len(x)] = more[1]
        return original(self, x, *more, **style)

    monkeypatch.setattr(axes.Axes, "plot", plot)
    save_plot(result(studies.log(finished=False)), tmp_path / "plot.svg")
    assert style_by_length == {1: "o", 3: "-"}


def two_objectives(
    rows: list[tuple[float, float]], constraint: str = "speed >= 2", maximize: bool = False
) -> Result:
    objectives = (Objective("loss", maximize), Objective("speed", True))
    spec = studies.spec(objectives=objectives, constraints=parse_constraints(constraint))
    return Result(spec, studies.fold(studies.log_of_two_objectives(*rows), spec))


ROWS = [(0.5, 300.0), (0.25, 2.0), (0.75, 2.0), (0.1, 1.0)]


@pytest.mark.parametrize("maximize", [False, True])
def test_the_front_is_drawn_by_the_first_two_objectives(tmp_path: Path, maximize: bool) -> None:
    text = figure_text(tmp_path / "two.svg", two_objectives(ROWS, maximize=maximize))
    for part in ("digits: front of 2 trials", "Front", "other trials", "misses a constraint", "front", "speed"):
        assert part in text
    assert "the front" in text
    assert "Best so far" not in text


def test_trials_that_miss_a_constraint_are_marked(tmp_path: Path) -> None:
    spec = studies.spec(constraints=parse_constraints("speed >= 2"))
    study = Result(spec, studies.fold(studies.log_of_two_objectives(*ROWS), spec))
    text = figure_text(tmp_path / "one.svg", study)
    assert "digits: best loss 0.25 (trial 1)" in text
    assert "misses a constraint" in text
    text = figure_text(tmp_path / "none.svg", two_objectives(ROWS, "speed >= 999"))
    assert "digits: no trial meets the constraints" in text
    assert "Learning curves" in text
    one_step = [entry for entry in studies.log_of_two_objectives(*ROWS) if getattr(entry, "number", 1) == 1]
    with pytest.raises(ThriftuneError, match="nothing to plot: none of 4 trials meets speed >= 999; the nearest"):
        save_plot(
            Result(study.spec, studies.fold(one_step, two_objectives([], "speed >= 999").spec)), tmp_path / "x.png"
        )


def _with_stopped_trial(entries: list[ev.Event], metrics: dict[str, float]) -> list[ev.Event]:
    """Add a trial that is stopped after one step, with the best values of all trials."""
    number = 1 + max(entry.trial for entry in entries if isinstance(entry, ev.Create))
    *before, _, _ = entries  # without Finish and DriverStopped
    return [
        *before,
        ev.Create(108.0, number, {"lr": 0.3, "act": "relu"}),
        ev.Place(108.0, number, 1, ev.THIS_MACHINE, 0),
        ev.Reported(108.1, number, 1, 1, 1, metrics),
        ev.Stop(108.2, number, 1, "by asha"),
        ev.Ended(108.3, number, 1, 0.1, cut=True),
    ]


def test_stopped_trials_with_fewer_steps_are_marked(tmp_path: Path) -> None:
    study = result(_with_stopped_trial(studies.log(), {"loss": 0.01}))
    text = figure_text(tmp_path / "one.svg", study)
    assert "digits: best loss 0.666667 (trial 1)" in text
    assert "fewer steps than these" in text
    assert "fewer steps" not in figure_text(tmp_path / "all.svg", result())
    spec = two_objectives([]).spec
    study = Result(
        spec,
        studies.fold(
            _with_stopped_trial(studies.log_of_two_objectives(*ROWS), {"loss": 0.01, "speed": 999}), spec
        ),
    )
    text = figure_text(tmp_path / "two.svg", study)
    assert "digits: front of 2 trials" in text
    assert "fewer steps than these" in text


def _two_steps() -> list[ev.Event]:
    """Return the log of a study whose only trial runs and has reported two steps."""
    return [
        ev.DriverStarted(1.0, 1, "here"),
        ev.MachineReady(1.0, ev.THIS_MACHINE, "x", 1, 1.0),
        ev.Create(1.0, 0, {"lr": 0.1, "act": "relu"}),
        ev.Place(1.0, 0, 1, ev.THIS_MACHINE, 0),
        ev.Reported(2.0, 0, 1, 1, 1, {"loss": 1000.0}),
        ev.Reported(3.0, 0, 1, 2, 2, {"loss": 0.5}),
    ]


def test_a_study_without_values_cannot_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ThriftuneError, match="nothing to plot: no trial of 'digits' has a value yet"):
        save_plot(result([]), tmp_path / "plot.png")


def test_other_file_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"plot: '.*plot.gif' must end in .png, .svg or .pdf"):
        save_plot(result(), tmp_path / "plot.gif")


def test_the_error_without_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'thriftune\[plot\]'"):
        save_plot(result(), tmp_path / "plot.png")


def test_show_writes_the_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    store, figure = tmp_path / "studies.db", tmp_path / "plot.png"
    with open_store(store) as opened:
        studies.write(opened, studies.spec(), studies.log())
    shown = CliRunner().invoke(cli, ["show", "digits", "--store", str(store), "--plot", str(figure)])
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", f"wrote {figure}\n")
    assert figure.exists()
