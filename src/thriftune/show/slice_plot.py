"""What does each parameter do? A panel for each, with the metric of every trial at the parameter's value."""

from __future__ import annotations

import math
from typing import Any

from thriftune.common.text import escaped
from thriftune.results.curves import wants_log
from thriftune.show.figures import Shown
from thriftune.show.parameter_axis import is_discrete, place, set_axis, set_log
from thriftune.show.plot_style import ACCENT, INK, WARNING, drawing
from thriftune.space.parameters import Choice
from thriftune.state.trial_record import State, TrialRecord

_COLUMNS = 4
_JITTER = 0.22
"""Trials of one choice stand beside each other within so much to both sides."""

_GOLDEN = 0.6180339887498949  # spreads consecutive numbers evenly over [0, 1)


def draw_slices(shown: Shown) -> Any:
    """Return the figure: trials coloured by their number, those that were stopped marked, the best with a ring."""
    count = len(shown.params)
    columns = min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    title = f"{shown.name}: {escaped(shown.metric)} by parameter"
    with drawing(title, max(3.4 * columns + 1.0, 5.6), 3.0 * rows + 0.9) as figure:
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        panels = list(grid.flat)
        points = None
        for name, axes in zip(shown.params, panels, strict=False):
            points = _slice(axes, shown, name) or points
        for axes in panels[count:]:
            axes.remove()
        for axes in grid[:, 0]:
            axes.set_ylabel(escaped(shown.metric))
        if wants_log(shown.values):
            set_log(panels[0], "y")
        _legend(figure, shown)
        if points is not None and len(shown.history.trials) > 1:
            bar = figure.colorbar(points, ax=panels[:count], label="trial", aspect=30, pad=0.01)
            bar.ax.yaxis.get_major_locator().set_params(integer=True)
    return figure


def _slice(axes: Any, shown: Shown, name: str) -> Any:
    """Draw one panel; return something that has its colours, if there is any."""
    space = shown.history.space
    at = [(trial, value) for trial, value in zip(shown.trials, shown.values, strict=True) if name in trial.config]
    points = None
    for stopped in (True, False):
        some = [(trial, value) for trial, value in at if (trial.state in _CUT) == stopped]
        if some:
            xs = [_beside(shown, name, trial) for trial, _ in some]
            colours = [trial.id for trial, _ in some]
            style: Any = {
                "marker": "_" if stopped else "o",
                "s": 30 if stopped else 22,
                "zorder": 2 + (not stopped),
            }
            limits = {"vmin": 0, "vmax": max(1, len(shown.history.trials) - 1), "cmap": "viridis_r"}
            points = axes.scatter(xs, [value for _, value in some], c=colours, **style, **limits)
            points.set_linewidth(1.6 if stopped else 0.0)
    best = shown.trials[shown.better_first()[0]]
    if name in best.config:
        y = shown.values[shown.trials.index(best)]
        axes.plot(_beside(shown, name, best), y, "o", markersize=9, mfc="none", mec=ACCENT, mew=1.8, zorder=4)
    failed = [each for each in shown.history.trials if each.state is State.FAILED and name in each.config]
    if failed:
        # On the axis itself: a failed trial has no value to stand at.
        across = axes.get_xaxis_transform()
        xs = [_beside(shown, name, trial) for trial in failed]
        axes.plot(xs, [0.0] * len(xs), "x", color=WARNING, transform=across, clip_on=False, zorder=5)
    set_axis(axes, "x", space, name)
    if len(at) < len(shown.trials):
        axes.set_title(f"active in {len(at)} of {len(shown.trials)} trials", fontsize=9)
    return points


_CUT = (State.STOPPED, State.PAUSED)


def _beside(shown: Shown, name: str, trial: TrialRecord) -> float:
    """Return where a trial stands: those with one of few values stand beside each other."""
    space = shown.history.space
    x = place(space, name, trial.config[name])
    if not is_discrete(space, name):
        return x
    parameter = space[name]
    aside = _JITTER * (2.0 * ((trial.id * _GOLDEN) % 1.0) - 1.0)
    return x + aside if isinstance(parameter, Choice) or not getattr(parameter, "log", False) else x


def _legend(figure: Any, shown: Shown) -> None:
    from matplotlib.lines import Line2D  # late: needs the extra

    grey: str = INK
    bare: Any = {"linestyle": "none"}
    marks = [Line2D([], [], marker="o", color=grey, label="finished", markersize=5, **bare)]
    if any(trial.state in _CUT for trial in shown.trials):
        marks.append(Line2D([], [], marker="_", color=grey, label="stopped early", mew=1.6, **bare))
    if any(trial.state is State.FAILED for trial in shown.history.trials):
        marks.append(Line2D([], [], marker="x", color=WARNING, label="failed", **bare))
    marks.append(Line2D([], [], marker="o", mfc="none", mec=ACCENT, mew=1.8, label="best", markersize=8, **bare))
    if any(not trial.state.ended and trial.state is not State.PAUSED for trial in shown.trials):
        marks[0].set_label("finished or running")
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
