"""Which values go together? Parallel coordinates: a line for each trial, through all its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from thriftune.common.text import escaped
from thriftune.results.curves import wants_log
from thriftune.show.figures import Shown
from thriftune.show.parameter_axis import set_log, short
from thriftune.show.plot_style import ACCENT, INK, drawing
from thriftune.space.parameters import Choice, Float, Int
from thriftune.state.trial_record import State

_MOST_LINES = 500
"""More lines than this are a surface. Of more trials half are the best, the others evenly chosen."""

_INACTIVE = -0.12
"""Where a line passes an axis whose parameter the trial does not have."""

_TICKS = 5


def draw_parallel(shown: Shown) -> Any:
    """Return the figure: dark lines are better ones, and the best is on top in the accent's colour."""
    order = _drawn(shown)
    count = len(shown.params)
    title = f"{shown.name}: {escaped(shown.metric)} by configuration"
    with drawing(title, max(6.2, 1.5 * count + 2.2), 4.4) as figure:
        axes = figure.subplots()
        _lines(figure, axes, shown, order)
        for i, name in enumerate(shown.params):
            _axis(axes, i, shown, name)
        axes.plot([], [], color=ACCENT, linewidth=2.4, label=f"trial {shown.trials[order[0]].id}: the best")
        figure.legend(loc="outside lower center")
        axes.set_xticks(range(count), [escaped(name) for name in shown.params])
        inactive = any(name not in trial.config for trial in shown.trials for name in shown.params)
        axes.set(xlim=(-0.25, count - 0.35), ylim=(_INACTIVE - 0.06 if inactive else -0.04, 1.04))
        axes.set_yticks([])
        axes.grid(visible=False)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.xaxis.tick_top()
        axes.tick_params(axis="x", length=0, pad=2)
    return figure


def _drawn(shown: Shown) -> list[int]:
    """Return the indices of the trials to draw, the best first."""
    order = shown.better_first()
    if len(order) <= _MOST_LINES:
        return order
    half = _MOST_LINES // 2
    rest = order[half:]
    return [*order[:half], *rest[:: -(-len(rest) // half)]]


def _lines(figure: Any, axes: Any, shown: Shown, order: list[int]) -> None:
    """Draw a line for each trial, the best last, and the colour bar."""
    from matplotlib.cm import ScalarMappable  # late: needs the extra
    from matplotlib.colors import LogNorm, Normalize

    values = np.array([shown.values[i] for i in order])
    # A few bad trials must not take most of the colours.
    low = float(np.quantile(values, 0.05) if shown.maximize else values.min())
    high = float(values.max() if shown.maximize else np.quantile(values, 0.95))
    kind: Any = LogNorm if wants_log([low, high]) else Normalize
    colours: Any = ScalarMappable(kind(low, high, clip=True), shown.colours)
    count = len(shown.params)
    for rank, i in reversed(list(enumerate(order))):
        config = shown.trials[i].config
        ys = [_height(shown, name, config) for name in shown.params]
        cut = shown.trials[i].state in (State.STOPPED, State.PAUSED)
        style: dict[str, Any] = {"color": colours.to_rgba(shown.values[i]), "alpha": 0.35 if cut else 0.75}
        if rank == 0:
            style = {"color": ACCENT, "linewidth": 2.4}
        if count == 1:  # a line of a single point would not be seen
            style |= {"marker": "o", "markersize": 4}
        axes.plot(range(count), ys, **{"linewidth": 1.0, **style})
    label, end = f"{escaped(shown.metric)} ({shown.dark})", "min" if shown.maximize else "max"
    bar = figure.colorbar(colours, ax=axes, label=label, pad=0.01, extend=end)
    if kind is LogNorm:
        set_log(bar.ax, "y")


def _height(shown: Shown, name: str, config: Any) -> float:
    return shown.history.space.axes[name].unit(config[name]) if name in config else _INACTIVE


def _axis(axes: Any, x: int, shown: Shown, name: str) -> None:
    """Draw the line of one parameter, and the labels of its values."""
    axis, parameter = shown.history.space.axes[name], shown.history.space[name]
    axes.plot([x, x], [0.0, 1.0], color=INK, linewidth=1.0, zorder=1.5)
    if isinstance(parameter, Choice):
        labelled = list(parameter.choices)
    else:
        assert isinstance(parameter, Float | Int)
        labelled = list(dict.fromkeys(axis.value(i / (_TICKS - 1)) for i in range(_TICKS)))
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6}
    for value in labelled:
        text = f"{value:.3g}" if isinstance(value, float) else short(value)
        axes.text(x + 0.04, axis.unit(value), text, fontsize=8, va="center", color=INK, zorder=10, bbox=box)
    if any(name not in trial.config for trial in shown.trials):
        style: Any = {"fontsize": 8, "va": "center", "color": INK, "style": "italic", "zorder": 10}
        axes.text(x + 0.04, _INACTIVE, "inactive", bbox=box, **style)
