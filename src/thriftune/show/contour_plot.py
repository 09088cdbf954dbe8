"""Draw a contour plot: what a model expects over two parameters, with the trials on top."""

from __future__ import annotations

from typing import Any

import numpy as np

from thriftune.common.text import escaped
from thriftune.errors import SettingError, ThriftuneError
from thriftune.results.importance import importance_of_model
from thriftune.results.surrogate import Surrogate
from thriftune.search.bayes.kernel import Array
from thriftune.show.parameter_axis import (
    axis_limits,
    axis_position,
    is_discrete,
    set_parameter_axis,
    spread_offset,
)
from thriftune.show.plot_style import ACCENT, INK, drawing
from thriftune.show.plotted_trials import PlottedTrials
from thriftune.space.parameters import Choice, Float, Int
from thriftune.space.space import Space
from thriftune.state.trial_record import State, TrialRecord

_GRID_POINTS = 48
"""Points of the surface along each axis, if both parameters are continuous."""

_GRID_POINTS_BESIDE_DISCRETE = 160
"""Points along a continuous axis if the other parameter is discrete: the grid then has few rows."""

_LEVELS = 14
_JITTER = 0.25
"""Largest distance of a trial from its choice, which has a width of 1."""

_Y_JITTER_SHIFT = 7
"""Added to the trial's index for the y axis, so that the two offsets of a trial differ."""


def draw_contour(plotted: PlottedTrials, chosen: bool) -> Any:
    """Return the figure: the metric that a model expects over two parameters.

    All other parameters have the values of the best trial that has both parameters. `chosen`: the user named the
    parameters; else the two most important ones are drawn.
    """
    model = Surrogate(plotted.history, plotted.metric)
    names = plotted.params if chosen else tuple(list(importance_of_model(model))[:2])
    if len(names) != 2:
        raise SettingError(
            f"plot: a contour needs two parameters, not {len(names)}; name them with params=[...] (--params A,B)"
        )
    x, y = names
    best = _best_with_both(plotted, names)
    space = plotted.history.space
    is_smooth = not (is_discrete(space, x) or is_discrete(space, y))
    points = _GRID_POINTS if is_smooth else _GRID_POINTS_BESIDE_DISCRETE
    (xs, x_units), (ys, y_units) = _grid(space, x, points), _grid(space, y, points)
    units = np.repeat(np.array([space.to_unit(best.config)]), len(x_units) * len(y_units), axis=0)
    x_grid, y_grid = np.meshgrid(x_units, y_units)
    units[:, space.searched.index(x)], units[:, space.searched.index(y)] = x_grid.ravel(), y_grid.ravel()
    expected = model.predict(units).reshape(len(y_units), len(x_units))
    title = f"{plotted.study}: expected {escaped(plotted.metric)} by {escaped(x)} and {escaped(y)}"
    with drawing(title, 7.0, 5.2) as figure:
        axes = figure.subplots()
        axes.grid(visible=False)
        if is_smooth:
            surface = axes.contourf(xs, ys, expected, _LEVELS, cmap=plotted.color_map)
            axes.contour(xs, ys, expected, _LEVELS, colors="white", linewidths=0.4, alpha=0.6)
        else:
            surface = axes.pcolormesh(xs, ys, expected, cmap=plotted.color_map, shading="nearest")
        _draw_trials(axes, plotted, names, surface)
        set_parameter_axis(axes, "x", space, x)
        set_parameter_axis(axes, "y", space, y)
        others = f", all others as in trial {best.id}" if len(space.searched) > 2 else ""
        axes.set_title(f"{plotted.color_note}{others}", fontsize=9)
        figure.colorbar(surface, ax=axes, label=escaped(plotted.metric), pad=0.01)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def _best_with_both(plotted: PlottedTrials, names: tuple[str, ...]) -> TrialRecord:
    """Return the best trial in which both parameters are active."""
    for i in plotted.best_first():
        if all(name in plotted.trials[i].config for name in names):
            return plotted.trials[i]
    raise ThriftuneError(
        f"plot: no trial has both {names[0]!r} and {names[1]!r}; choose two parameters that are active together"
    )


def _grid(space: Space, name: str, points: int) -> tuple[Array, Array]:
    """Return the positions on an axis at which to compute the surface.

    Also return their values in the unit interval.
    """
    parameter, scale = space[name], space.scales[name]
    if is_discrete(space, name):
        values = scale.levels(scale.count or 1)
        choices = [axis_position(space, name, value) for value in values]
        return np.array(choices), np.array([scale.unit(value) for value in values])
    assert isinstance(parameter, Float | Int)
    low, high = axis_limits(parameter)
    positions = np.geomspace(low, high, points) if parameter.log else np.linspace(low, high, points)
    clipped = np.clip(positions, parameter.low, parameter.high)
    if parameter.step is not None:
        return positions, np.array([scale.unit(value) for value in clipped])
    if parameter.log:
        return positions, np.log(clipped / parameter.low) / np.log(parameter.high / parameter.low)
    return positions, (clipped - parameter.low) / (parameter.high - parameter.low)


def _draw_trials(axes: Any, plotted: PlottedTrials, names: tuple[str, ...], surface: Any) -> None:
    space = plotted.history.space
    with_both = [i for i in plotted.best_first() if all(name in plotted.trials[i].config for name in names)]

    def position(i: int) -> tuple[float, float]:
        x, y = (axis_position(space, name, plotted.trials[i].config[name]) for name in names)
        return x + _jitter(space, names[0], i), y + _jitter(space, names[1], i + _Y_JITTER_SHIFT)

    for label, stopped_early in (("trial", False), ("stopped early", True)):
        drawn = [
            i for i in with_both if (plotted.trials[i].state in (State.STOPPED, State.PAUSED)) == stopped_early
        ]
        if drawn:
            style: Any = {"s": 14, "marker": "D"} if stopped_early else {"s": 30}
            xs, ys = zip(*map(position, drawn), strict=True)
            colors = [plotted.values[i] for i in drawn]
            style |= {"edgecolors": "white", "linewidths": 0.9, "cmap": surface.cmap, "norm": surface.norm}
            axes.scatter(xs, ys, c=colors, label=label, zorder=3, **style)
    x, y = position(with_both[0])
    axes.plot(
        x, y, "o", markersize=11, mfc="none", mec=ACCENT, mew=2.2, linestyle="none", zorder=4,
        label=f"best (trial {plotted.trials[with_both[0]].id})", color=INK,
    )  # fmt: skip


def _jitter(space: Space, name: str, number: int) -> float:
    """Return a trial's offset from its choice on the axis.

    Offsets keep trials with the same choice from hiding each other.
    """
    return _JITTER * spread_offset(number) if isinstance(space[name], Choice) else 0.0
