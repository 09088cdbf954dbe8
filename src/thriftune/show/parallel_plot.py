"""Draw parallel coordinates: a line for each trial, through the values of all its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from thriftune.common.text import escaped
from thriftune.results.curves import wants_log
from thriftune.show.parameter_axis import set_log_axis, short_label
from thriftune.show.plot_style import ACCENT, INK, drawing
from thriftune.show.plotted_trials import PlottedTrials
from thriftune.space.parameters import Choice, Float, Int
from thriftune.state.trial_record import State

_MAX_LINES = 500
"""More lines than this merge into a surface. Of more trials, the best half of this number is drawn, and an even
selection of the others."""

_INACTIVE = -0.12
"""Height at which a line crosses the axis of a parameter that is inactive in the trial; values are at 0 to 1."""

_TICKS = 5
_OUTLIERS = 0.05
"""Share of the worst trials that all have the same colour, so that they do not use up most of the colour map."""


def draw_parallel(plotted: PlottedTrials) -> Any:
    """Return the figure, with a line for each trial.

    Dark lines are better. The best is on top in the accent colour.
    """
    drawn = _drawn_trials(plotted)
    count = len(plotted.params)
    title = f"{plotted.study}: {escaped(plotted.metric)} by configuration"
    with drawing(title, max(6.2, 1.5 * count + 2.2), 4.4) as figure:
        axes = figure.subplots()
        _draw_lines(figure, axes, plotted, drawn)
        for i, name in enumerate(plotted.params):
            _draw_axis(axes, i, plotted, name)
        axes.plot([], [], color=ACCENT, linewidth=2.4, label=f"trial {plotted.trials[drawn[0]].id}: the best")
        figure.legend(loc="outside lower center")
        axes.set_xticks(range(count), [escaped(name) for name in plotted.params])
        any_inactive = any(name not in trial.config for trial in plotted.trials for name in plotted.params)
        axes.set(xlim=(-0.25, count - 0.35), ylim=(_INACTIVE - 0.06 if any_inactive else -0.04, 1.04))
        axes.set_yticks([])
        axes.grid(visible=False)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.xaxis.tick_top()
        axes.tick_params(axis="x", length=0, pad=2)
    return figure


def _drawn_trials(plotted: PlottedTrials) -> list[int]:
    """Return the indices of the trials to draw, the best first."""
    order = plotted.best_first()
    if len(order) <= _MAX_LINES:
        return order
    half = _MAX_LINES // 2
    rest = order[half:]
    return [*order[:half], *rest[:: -(-len(rest) // half)]]


def _draw_lines(figure: Any, axes: Any, plotted: PlottedTrials, drawn: list[int]) -> None:
    """Draw a line for each trial, the best last, and the colour bar."""
    from matplotlib.cm import ScalarMappable  # late: needs the extra
    from matplotlib.colors import LogNorm, Normalize

    values = np.array([plotted.values[i] for i in drawn])
    low = float(np.quantile(values, _OUTLIERS) if plotted.maximize else values.min())
    high = float(values.max() if plotted.maximize else np.quantile(values, 1.0 - _OUTLIERS))
    norm: Any = LogNorm if wants_log([low, high]) else Normalize
    colors: Any = ScalarMappable(norm(low, high, clip=True), plotted.color_map)
    count = len(plotted.params)
    for rank, i in reversed(list(enumerate(drawn))):
        config = plotted.trials[i].config
        heights = [_height(plotted, name, config) for name in plotted.params]
        stopped_early = plotted.trials[i].state in (State.STOPPED, State.PAUSED)
        color = colors.to_rgba(plotted.values[i])
        style: dict[str, Any] = {"color": color, "alpha": 0.35 if stopped_early else 0.75}
        if rank == 0:
            style = {"color": ACCENT, "linewidth": 2.4}
        if count == 1:  # a line with a single point is only visible with a marker
            style |= {"marker": "o", "markersize": 4}
        axes.plot(range(count), heights, **{"linewidth": 1.0, **style})
    label, clipped_end = f"{escaped(plotted.metric)} ({plotted.color_note})", "min" if plotted.maximize else "max"
    bar = figure.colorbar(colors, ax=axes, label=label, pad=0.01, extend=clipped_end)
    if norm is LogNorm:
        set_log_axis(bar.ax, "y")


def _height(plotted: PlottedTrials, name: str, config: Any) -> float:
    return plotted.history.space.scales[name].unit(config[name]) if name in config else _INACTIVE


def _draw_axis(axes: Any, x: int, plotted: PlottedTrials, name: str) -> None:
    """Draw the vertical line of one parameter, and the labels of its values."""
    scale, parameter = plotted.history.space.scales[name], plotted.history.space[name]
    axes.plot([x, x], [0.0, 1.0], color=INK, linewidth=1.0, zorder=1.5)
    if isinstance(parameter, Choice):
        labelled = list(parameter.choices)
    else:
        assert isinstance(parameter, Float | Int)
        labelled = list(dict.fromkeys(scale.value(i / (_TICKS - 1)) for i in range(_TICKS)))
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6}
    for value in labelled:
        text = f"{value:.3g}" if isinstance(value, float) else short_label(value)
        axes.text(x + 0.04, scale.unit(value), text, fontsize=8, va="center", color=INK, zorder=10, bbox=box)
    if any(name not in trial.config for trial in plotted.trials):
        style: Any = {"fontsize": 8, "va": "center", "color": INK, "style": "italic", "zorder": 10}
        axes.text(x + 0.04, _INACTIVE, "inactive", bbox=box, **style)
