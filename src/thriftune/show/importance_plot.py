"""Draw the importance of parameters as bars."""

from __future__ import annotations

from typing import Any

from thriftune.common.text import escaped
from thriftune.results.importance import importance
from thriftune.results.surrogate import checked_metric
from thriftune.show.plot_style import ACCENT, drawing
from thriftune.state.history import History


def draw_importance(study: str, history: History, metric: str | None) -> Any:
    """Return the figure: a bar for each parameter, the most important one on top."""
    shares = importance(history, metric)
    shown_metric = escaped(checked_metric(history, metric))
    names = [escaped(name) for name in shares][::-1]
    percents = [100.0 * share for share in shares.values()][::-1]
    with drawing(f"{study}: what matters for {shown_metric}", 6.4, max(2.0, 0.34 * len(names) + 1.2)) as figure:
        axes = figure.subplots()
        bars = axes.barh(names, percents, color=ACCENT, height=0.62)
        axes.bar_label(bars, [f"{value:.1f} %" for value in percents], padding=4, fontsize=9)
        axes.set(xlabel=f"share of the variance of {shown_metric}, %", xlim=(0, 1.15 * max(percents)))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    return figure
