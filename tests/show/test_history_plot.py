from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli import studies
from thriftune.cli import cli
from thriftune.errors import MissingExtra, SettingError, ThriftuneError
from thriftune.results.result import Result
from thriftune.show.history_plot import draw_history
from thriftune.show.plot_style import check_plot_path, save
from thriftune.space.objectives import Objective, parse_constraints
from thriftune.state import events as ev
from thriftune.store.opening import open_store

BEGINNINGS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def save_plot(of: Result, path: Path) -> None:
    check_plot_path(path)
    save(draw_history(of.spec, of.history), path)


def result(entries: list[ev.Event] | None = None) -> Result:
    spec = studies.spec()
    return Result(spec, studies.fold(studies.log() if entries is None else entries, spec))


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_kinds(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"plot.{kind}"
    save_plot(result(), path)
    assert path.read_bytes().startswith(BEGINNINGS[kind])


def words_of(path: Path, of: Result) -> str:
    mpl = pytest.importorskip("matplotlib")
    with mpl.rc_context({"svg.fonttype": "none"}):
        save_plot(of, path)
    return path.read_text()


def test_two_panels_or_one(tmp_path: Path) -> None:
    both = words_of(tmp_path / "both.svg", result())
    for text in (
        "digits: best loss 0.666667 (trial 1)",
        "Best so far",
        "Learning curves",
        "failed",
        "trial 1: the best",
    ):
        assert text in both
    one_step = [entry for entry in studies.log() if not (isinstance(entry, ev.Reported) and entry.number > 1)]
    single = words_of(tmp_path / "single.svg", result(one_step))
    assert "Best so far" in single
    assert "Learning curves" not in single
    running = words_of(tmp_path / "running.svg", result(_first_steps()))
    assert "Best so far" not in running
    assert "Learning curves" in running


def test_a_trial_of_a_single_step_is_a_dot_among_the_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = pytest.importorskip("matplotlib.axes")
    drawn: dict[int, str] = {}
    real = axes.Axes.plot

    def plot(self: Any, x: Any, *more: Any, **style: Any) -> Any:
        if isinstance(x, tuple):
            drawn[len(x)] = more[1]
        return real(self, x, *more, **style)

    monkeypatch.setattr(axes.Axes, "plot", plot)
    save_plot(result(studies.log(finished=False)), tmp_path / "plot.svg")
    assert drawn == {1: "o", 3: "-"}


def two(rows: list[tuple[float, float]], constraint: str = "speed >= 2", maximize: bool = False) -> Result:
    wanted = (Objective("loss", maximize), Objective("speed", True))
    spec = studies.spec(objectives=wanted, constraints=parse_constraints(constraint))
    return Result(spec, studies.fold(studies.log_of_two_objectives(*rows), spec))


ROWS = [(0.5, 300.0), (0.25, 2.0), (0.75, 2.0), (0.1, 1.0)]


@pytest.mark.parametrize("maximize", [False, True])
def test_the_front_is_drawn_by_the_first_two_objectives(tmp_path: Path, maximize: bool) -> None:
    drawn = words_of(tmp_path / "two.svg", two(ROWS, maximize=maximize))
    for text in ("digits: front of 2 trials", "Front", "other trials", "misses a constraint", "front", "speed"):
        assert text in drawn
    assert "the front" in drawn
    assert "Best so far" not in drawn


def test_trials_that_miss_a_constraint(tmp_path: Path) -> None:
    spec = studies.spec(constraints=parse_constraints("speed >= 2"))
    of = Result(spec, studies.fold(studies.log_of_two_objectives(*ROWS), spec))
    drawn = words_of(tmp_path / "one.svg", of)
    assert "digits: best loss 0.25 (trial 1)" in drawn
    assert "misses a constraint" in drawn
    drawn = words_of(tmp_path / "none.svg", two(ROWS, "speed >= 999"))
    assert "digits: no trial meets the constraints" in drawn
    assert "Learning curves" in drawn
    one_step = [entry for entry in studies.log_of_two_objectives(*ROWS) if getattr(entry, "number", 1) == 1]
    with pytest.raises(ThriftuneError, match="nothing to plot: none of 4 trials meets speed >= 999; the nearest"):
        save_plot(Result(of.spec, studies.fold(one_step, two([], "speed >= 999").spec)), tmp_path / "x.png")


def _with_a_cut_trial(entries: list[ev.Event], metrics: dict[str, float]) -> list[ev.Event]:
    """One more trial, which is stopped after a step whose values are better than all others'."""
    number = 1 + max(entry.trial for entry in entries if isinstance(entry, ev.Create))
    *before, _, _ = entries  # that the study is finished, and that the driver stopped
    return [
        *before,
        ev.Create(108.0, number, {"lr": 0.3, "act": "relu"}),
        ev.Place(108.0, number, 1, ev.THIS_MACHINE, 0),
        ev.Reported(108.1, number, 1, 1, 1, metrics),
        ev.Stop(108.2, number, 1, "by asha"),
        ev.Ended(108.3, number, 1, 0.1, cut=True),
    ]


def test_trials_that_do_not_compete_are_marked(tmp_path: Path) -> None:
    of = result(_with_a_cut_trial(studies.log(), {"loss": 0.01}))
    drawn = words_of(tmp_path / "one.svg", of)
    assert "digits: best loss 0.666667 (trial 1)" in drawn
    assert "fewer steps than these" in drawn
    assert "fewer steps" not in words_of(tmp_path / "all.svg", result())
    spec = two([]).spec
    of = Result(
        spec,
        studies.fold(_with_a_cut_trial(studies.log_of_two_objectives(*ROWS), {"loss": 0.01, "speed": 999}), spec),
    )
    drawn = words_of(tmp_path / "two.svg", of)
    assert "digits: front of 2 trials" in drawn
    assert "fewer steps than these" in drawn


def _first_steps() -> list[ev.Event]:
    """One trial has made two steps; none has ended."""
    return [
        ev.DriverStarted(1.0, 1, "here"),
        ev.MachineReady(1.0, ev.THIS_MACHINE, "x", 1, 1.0),
        ev.Create(1.0, 0, {"lr": 0.1, "act": "relu"}),
        ev.Place(1.0, 0, 1, ev.THIS_MACHINE, 0),
        ev.Reported(2.0, 0, 1, 1, 1, {"loss": 1000.0}),
        ev.Reported(3.0, 0, 1, 2, 2, {"loss": 0.5}),
    ]


def test_nothing_to_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ThriftuneError, match="nothing to plot: no trial of 'digits' has a value yet"):
        save_plot(result([]), tmp_path / "plot.png")


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"plot: '.*plot.gif' must end in .png, .svg or .pdf"):
        save_plot(result(), tmp_path / "plot.gif")


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'thriftune\[plot\]'"):
        save_plot(result(), tmp_path / "plot.png")


def test_show_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    store, picture = tmp_path / "studies.db", tmp_path / "plot.png"
    with open_store(store) as opened:
        studies.write(opened, studies.spec(), studies.log())
    shown = CliRunner().invoke(cli, ["show", "digits", "--store", str(store), "--plot", str(picture)])
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", f"wrote {picture}\n")
    assert picture.exists()
