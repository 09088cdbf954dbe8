"""What is to be expected over two parameters? A model's prediction as a surface, with the trials on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from thriftune.common.text import escaped
from thriftune.errors import SettingError, ThriftuneError
from thriftune.results.importance import importance_of_model
from thriftune.results.surrogate import Surrogate
from thriftune.search.bayes.kernel import Array
from thriftune.show.figures import Shown
from thriftune.show.parameter_axis import ends, is_discrete, place, set_axis
from thriftune.show.plot_style import ACCENT, INK, drawing
from thriftune.space.parameters import Choice, Float, Int
from thriftune.space.space import Space
from thriftune.state.trial_record import State, TrialRecord

_FINE, _FINER = 48, 160
"""Points of a surface along each axis; and along one, where the other has few values."""

_LEVELS = 14


def draw_contour(shown: Shown, chosen: bool) -> Any:
    """Return the figure: the expected metric with all other parameters as in the best trial that has both.

    `chosen`: the user named the parameters; else they are the two most important ones.
    """
    model = Surrogate(shown.history, shown.metric)
    names = shown.params if chosen else tuple(list(importance_of_model(model))[:2])
    if len(names) != 2:
        raise SettingError(
            f"plot: a contour is over two parameters, and there are {len(names)}; give params=[...]"
        )
    x, y = names
    best = _reference(shown, names)
    space = shown.history.space
    surface_only = not (is_discrete(space, x) or is_discrete(space, y))
    points = _FINE if surface_only else _FINER
    (xs, us), (ys, vs) = _scale(space, x, points), _scale(space, y, points)
    U = np.repeat(np.array([space.to_unit(best.config)]), len(us) * len(vs), axis=0)
    across, up = np.meshgrid(us, vs)
    U[:, space.searched.index(x)], U[:, space.searched.index(y)] = across.ravel(), up.ravel()
    expected = model.predict(U).reshape(len(vs), len(us))
    title = f"{shown.name}: expected {escaped(shown.metric)} by {escaped(x)} and {escaped(y)}"
    with drawing(title, 7.0, 5.2) as figure:
        axes = figure.subplots()
        axes.grid(visible=False)
        if surface_only:
            surface = axes.contourf(xs, ys, expected, _LEVELS, cmap=shown.colours)
            axes.contour(xs, ys, expected, _LEVELS, colors="white", linewidths=0.4, alpha=0.6)
        else:
            surface = axes.pcolormesh(xs, ys, expected, cmap=shown.colours, shading="nearest")
        _draw_trials(axes, shown, names, surface)
        for which, name in (("x", x), ("y", y)):
            set_axis(axes, which, space, name)
        others = f", all others as in trial {best.id}" if len(space.searched) > 2 else ""
        axes.set_title(f"{shown.dark}{others}", fontsize=9)
        figure.colorbar(surface, ax=axes, label=escaped(shown.metric), pad=0.01)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def _reference(shown: Shown, names: tuple[str, ...]) -> TrialRecord:
    """Return the best trial in which both parameters are active."""
    for i in shown.better_first():
        if all(name in shown.trials[i].config for name in names):
            return shown.trials[i]
    raise ThriftuneError(f"plot: no trial has both {names[0]!r} and {names[1]!r}; choose two that go together")


def _scale(space: Space, name: str, points: int) -> tuple[Array, Array]:
    """Return the places of an axis at which the surface is computed, and the same as numbers in [0, 1]."""
    parameter, axis = space[name], space.axes[name]
    if is_discrete(space, name):
        values = axis.levels(axis.count or 1)
        return np.array([place(space, name, value) for value in values]), np.array([axis.unit(v) for v in values])
    assert isinstance(parameter, Float | Int)
    low, high = ends(parameter)
    places = np.geomspace(low, high, points) if parameter.log else np.linspace(low, high, points)
    inside = np.clip(places, parameter.low, parameter.high)
    if parameter.step is not None:
        return places, np.array([axis.unit(value) for value in inside])
    if parameter.log:
        inside = np.log(inside / parameter.low) / np.log(parameter.high / parameter.low)
    else:
        inside = (inside - parameter.low) / (parameter.high - parameter.low)
    return places, inside


def _draw_trials(axes: Any, shown: Shown, names: tuple[str, ...], surface: Any) -> None:
    space = shown.history.space
    there = [i for i in shown.better_first() if all(name in shown.trials[i].config for name in names)]

    def at(i: int) -> tuple[float, float]:
        x, y = (place(space, name, shown.trials[i].config[name]) for name in names)
        return x + _aside(space, names[0], i), y + _aside(space, names[1], i + 7)

    for label, cut in (("trial", False), ("stopped early", True)):
        some = [i for i in there if (shown.trials[i].state in (State.STOPPED, State.PAUSED)) == cut]
        if some:
            style: Any = {"s": 14, "marker": "D"} if cut else {"s": 30}
            xs, ys = zip(*map(at, some), strict=True)
            colours = [shown.values[i] for i in some]
            style |= {"edgecolors": "white", "linewidths": 0.9, "cmap": surface.cmap, "norm": surface.norm}
            axes.scatter(xs, ys, c=colours, label=label, zorder=3, **style)
    x, y = at(there[0])
    axes.plot(
        x, y, "o", markersize=11, mfc="none", mec=ACCENT, mew=2.2, linestyle="none", zorder=4,
        label=f"best (trial {shown.trials[there[0]].id})", color=INK,
    )  # fmt: skip


def _aside(space: Space, name: str, number: int) -> float:
    """Return how far beside its choice a trial stands, so that those of one choice do not hide each other."""
    return 0.5 * ((number * 0.6180339887498949) % 1.0) - 0.25 if isinstance(space[name], Choice) else 0.0
