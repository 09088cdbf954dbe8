"""Draw the figures of a study: one function for all kinds. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thriftune.errors import SettingError
from thriftune.show.plot_style import check_matplotlib
from thriftune.state.history import History
from thriftune.state.spec import Spec

FIGURES = ("history", "slice", "contour", "parallel", "importance")

# The modules that draw are imported when a figure is drawn: the command line only needs the names of the kinds.


def draw(spec: Spec, history: History, kind: str, params: Sequence[str] | None, metric: str | None) -> Any:
    """Return a figure of this kind.

    Raises SettingError for a kind, a metric or a parameter that does not exist, and ThriftuneError if there is
    nothing to draw yet.
    """
    if kind not in FIGURES:
        raise SettingError(f"plot: there is no kind {kind!r}; use {', '.join(FIGURES)}")
    check_matplotlib()
    if kind == "history":
        if params is not None or (metric is not None and metric != history.metric):
            raise SettingError(
                "plot: the history shows the objectives, without parameters; leave out params and metric, or use "
                "another kind"
            )
        from thriftune.show.history_plot import draw_history

        return draw_history(spec, history)
    if kind == "importance":
        from thriftune.show.importance_plot import draw_importance

        if params is not None:
            raise SettingError("plot: the importance is of all parameters; leave params out")
        return draw_importance(spec.name, history, metric)
    from thriftune.show.plotted_trials import plotted_trials

    plotted = plotted_trials(spec, history, params, metric)
    if kind == "slice":
        from thriftune.show.slice_plot import draw_slices

        return draw_slices(plotted)
    if kind == "parallel":
        from thriftune.show.parallel_plot import draw_parallel

        return draw_parallel(plotted)
    from thriftune.show.contour_plot import draw_contour

    return draw_contour(plotted, params is not None)
