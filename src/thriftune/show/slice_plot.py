"""Draw slices: a panel for each parameter, with the metric of every trial at the parameter's value."""

from __future__ import annotations

import math
from typing import Any

from thriftune.common.text import escaped
from thriftune.results.curves import wants_log
from thriftune.show.parameter_axis import (
    axis_position,
    is_discrete,
    set_log_axis,
    set_parameter_axis,
    spread_offset,
)
from thriftune.show.plot_style import ACCENT, INK, WARNING, drawing
from thriftune.show.plotted_trials import PlottedTrials
from thriftune.space.parameters import Choice
from thriftune.state.trial_record import State, TrialRecord

_COLUMNS = 4
_JITTER = 0.22
"""Largest distance of a trial from its value on a discrete axis, whose values are 1 apart."""

_STOPPED_EARLY = (State.STOPPED, State.PAUSED)


def draw_slices(plotted: PlottedTrials) -> Any:
    """Return the figure, with a panel for each parameter.

    Colours are trial numbers, bars are stopped trials, a ring marks the best.
    """
    count = len(plotted.params)
    columns = min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    title = f"{plotted.study}: {escaped(plotted.metric)} by parameter"
    with drawing(title, max(3.4 * columns + 1.0, 5.6), 3.0 * rows + 0.9) as figure:
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        panels = list(grid.flat)
        points = None
        for name, axes in zip(plotted.params, panels, strict=False):
            points = _draw_panel(axes, plotted, name) or points
        for axes in panels[count:]:
            axes.remove()
        for axes in grid[:, 0]:
            axes.set_ylabel(escaped(plotted.metric))
        if wants_log(plotted.values):
            set_log_axis(panels[0], "y")
        _draw_legend(figure, plotted)
        if points is not None and len(plotted.history.trials) > 1:
            bar = figure.colorbar(points, ax=panels[:count], label="trial", aspect=30, pad=0.01)
            bar.ax.yaxis.get_major_locator().set_params(integer=True)
    return figure


def _draw_panel(axes: Any, plotted: PlottedTrials, name: str) -> Any:
    """Draw one panel, and return its points for the colour bar.

    Return None if the panel has no points.
    """
    space = plotted.history.space
    active = [
        (trial, value) for trial, value in zip(plotted.trials, plotted.values, strict=True) if name in trial.config
    ]
    points = None
    for stopped in (True, False):
        drawn = [(trial, value) for trial, value in active if (trial.state in _STOPPED_EARLY) == stopped]
        if drawn:
            xs = [_x_position(plotted, name, trial) for trial, _ in drawn]
            colors = [trial.id for trial, _ in drawn]
            style: Any = {
                "marker": "_" if stopped else "o",
                "s": 30 if stopped else 22,
                "zorder": 2 + (not stopped),
            }
            color_range = {"vmin": 0, "vmax": max(1, len(plotted.history.trials) - 1), "cmap": "viridis_r"}
            points = axes.scatter(xs, [value for _, value in drawn], c=colors, **style, **color_range)
            points.set_linewidth(1.6 if stopped else 0.0)
    best = plotted.best_first()[0]
    trial = plotted.trials[best]
    if name in trial.config:
        x, y = _x_position(plotted, name, trial), plotted.values[best]
        axes.plot(x, y, "o", markersize=9, mfc="none", mec=ACCENT, mew=1.8, zorder=4)
    failed = [each for each in plotted.history.trials if each.state is State.FAILED and name in each.config]
    if failed:
        # A failed trial has no value, so its cross is on the axis itself.
        on_axis = axes.get_xaxis_transform()
        xs = [_x_position(plotted, name, trial) for trial in failed]
        axes.plot(xs, [0.0] * len(xs), "x", color=WARNING, transform=on_axis, clip_on=False, zorder=5)
    set_parameter_axis(axes, "x", space, name)
    if len(active) < len(plotted.trials):
        axes.set_title(f"active in {len(active)} of {len(plotted.trials)} trials", fontsize=9)
    return points


def _x_position(plotted: PlottedTrials, name: str, trial: TrialRecord) -> float:
    """Return the trial's position on the axis.

    Trials with the same value of a discrete parameter are side by side.
    """
    space = plotted.history.space
    x = axis_position(space, name, trial.config[name])
    if not is_discrete(space, name):
        return x
    parameter = space[name]
    has_even_steps = isinstance(parameter, Choice) or not getattr(parameter, "log", False)
    return x + _JITTER * spread_offset(trial.id) if has_even_steps else x


def _draw_legend(figure: Any, plotted: PlottedTrials) -> None:
    from matplotlib.lines import Line2D  # late: needs the extra

    no_line: Any = {"linestyle": "none"}
    marks = [Line2D([], [], marker="o", color=INK, label="finished", markersize=5, **no_line)]
    if any(trial.state in _STOPPED_EARLY for trial in plotted.trials):
        marks.append(Line2D([], [], marker="_", color=INK, label="stopped early", mew=1.6, **no_line))
    if any(trial.state is State.FAILED for trial in plotted.history.trials):
        marks.append(Line2D([], [], marker="x", color=WARNING, label="failed", **no_line))
    ring: Any = {"marker": "o", "mfc": "none", "mec": ACCENT, "mew": 1.8, "markersize": 8}
    marks.append(Line2D([], [], label="best", **ring, **no_line))
    if any(not trial.state.ended and trial.state is not State.PAUSED for trial in plotted.trials):
        marks[0].set_label("finished or running")
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
