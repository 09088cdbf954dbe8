"""Which pictures of a study are there, and what do they show? Needs the extra `plot` to draw one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from thriftune.errors import SettingError, ThriftuneError
from thriftune.show import describe as words
from thriftune.show.plot_style import check_matplotlib
from thriftune.space.objectives import join_with_and
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import TrialRecord

FIGURES = ("history", "slice", "contour", "parallel", "importance")


@dataclass(frozen=True)
class Shown:
    """What a picture shows of a study: a metric of the trials that have a value of it, by these parameters."""

    name: str  # of the study
    history: History
    metric: str
    maximize: bool | None  # None: the metric is no objective, and neither high nor low values are better
    params: tuple[str, ...]  # names of parameters; never empty
    trials: tuple[TrialRecord, ...]  # with a finite value of the metric; never empty
    values: tuple[float, ...]  # theirs

    def better_first(self) -> list[int]:
        """Return the indices of the trials, the best first; by the first objective, if the metric is none.

        Trials that meet the constraints and those that finished come before others.
        """
        history = self.history

        def key(i: int) -> tuple[bool, bool, float, int]:
            trial, value, maximize = self.trials[i], self.values[i], self.maximize
            if maximize is None:
                maximize, known = history.maximize, trial.value
                value = math.inf if known is None or not words.finite(known) else known
            low = -value if maximize and math.isfinite(value) else value
            return history.feasible(trial) is False, not trial.finished, low, trial.id

        return sorted(range(len(self.trials)), key=key)

    @property
    def colours(self) -> str:
        """The name of the colour map of the metric: dark is better, or lower if it is no objective."""
        return "viridis_r" if self.maximize else "viridis"

    @property
    def dark(self) -> str:
        """What dark colours mean."""
        return "dark is lower" if self.maximize is None else "dark is better"


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
            raise SettingError("plot: the history has no params, and shows the objectives; use another kind")
        from thriftune.show.history_plot import draw_history

        return draw_history(spec, history)
    if kind == "importance":
        from thriftune.show.importance_plot import draw_importance

        if params is not None:
            raise SettingError("plot: the importance is of all parameters; leave params out")
        return draw_importance(spec.name, history, metric)
    shown = _shown(spec, history, params, metric)
    if kind == "slice":
        from thriftune.show.slice_plot import draw_slices

        return draw_slices(shown)
    if kind == "parallel":
        from thriftune.show.parallel_plot import draw_parallel

        return draw_parallel(shown)
    from thriftune.show.contour_plot import draw_contour

    return draw_contour(shown, params is not None)


def _shown(spec: Spec, history: History, params: Sequence[str] | None, metric: str | None) -> Shown:
    from thriftune.results.surrogate import checked_metric

    metric = checked_metric(history, metric)
    names = _checked_params(history, params)
    told = [(trial, history.metric_of(trial, metric)) for trial in history.trials]
    there = [(trial, value) for trial, value in told if value is not None and words.finite(value)]
    if not there:
        raise ThriftuneError(f"there is nothing to plot: no trial of {spec.name!r} has a value of {metric!r} yet")
    maximize = next((each.maximize for each in history.objectives if each.metric == metric), None)
    trials, values = zip(*there, strict=True)
    return Shown(spec.name, history, metric, maximize, names, trials, values)


def _checked_params(history: History, params: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names to draw, by default of all parameters that vary."""
    space = history.space
    if params is None:
        return tuple(name for name in space.searched if space.axes[name].count != 1) or space.searched
    if isinstance(params, str):
        raise SettingError(f"plot: params {params!r} is no list; give one such as [{params!r}]")
    for name in params:
        if name not in space:
            close = get_close_matches(str(name), space.names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there is {join_with_and(space.names)}"
            raise SettingError(f"plot: there is no parameter {name!r}; {hint}")
        if name not in space.searched:
            others = join_with_and(space.searched)
            raise SettingError(f"plot: {name} is the same in all trials; there is {others}")
    if not params:
        raise SettingError("plot: params is empty; name some, or leave it out for all")
    return tuple(dict.fromkeys(params))
