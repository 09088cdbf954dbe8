"""The trials, the metric and the parameters that one figure of a study shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from thriftune.errors import SettingError, ThriftuneError
from thriftune.results.surrogate import checked_metric
from thriftune.show.describe import is_finite
from thriftune.space.objectives import join_with_and
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.state.trial_record import TrialRecord


@dataclass(frozen=True)
class PlottedTrials:
    """The trials of a study that have a value of one metric.

    A figure plots them against `params`.
    """

    study: str
    history: History
    metric: str
    maximize: bool | None  # None: the metric is no objective, so neither high nor low values are better
    params: tuple[str, ...]  # names of parameters; never empty
    trials: tuple[TrialRecord, ...]  # all and only trials with a finite value of the metric; never empty
    values: tuple[float, ...]  # of the metric, one for each of `trials`

    def best_first(self) -> list[int]:
        """Return the indices of the trials, the best first.

        Trials that meet the constraints come before others, then finished trials before unfinished ones. If the
        metric is no objective, the first objective decides which trial is better.
        """
        history = self.history

        def key(i: int) -> tuple[bool, bool, float, int]:
            trial, value, maximize = self.trials[i], self.values[i], self.maximize
            if maximize is None:
                maximize = history.maximize
                value = trial.value if trial.value is not None and math.isfinite(trial.value) else math.inf
            cost = -value if maximize and math.isfinite(value) else value
            return history.feasible(trial) is False, not trial.finished, cost, trial.id

        return sorted(range(len(self.trials)), key=key)

    @property
    def color_map(self) -> str:
        """The name of the metric's colour map.

        Dark is better, or lower if the metric is no objective.
        """
        return "viridis_r" if self.maximize else "viridis"

    @property
    def color_note(self) -> str:
        """The meaning of dark colours, for a label."""
        return "dark is lower" if self.maximize is None else "dark is better"


def plotted_trials(
    spec: Spec, history: History, params: Sequence[str] | None, metric: str | None
) -> PlottedTrials:
    """Return the trials to plot, with a metric and some parameters.

    The defaults are the first objective and all parameters that vary.
    Raises SettingError for an unknown metric or parameter, and ThriftuneError if no trial has a value.
    """
    metric = checked_metric(history, metric)
    names = _checked_params(history, params)
    values_by_trial = [(trial, history.metric_of(trial, metric)) for trial in history.trials]
    finite = [(trial, value) for trial, value in values_by_trial if value is not None and is_finite(value)]
    if not finite:
        raise ThriftuneError(f"there is nothing to plot: no trial of {spec.name!r} has a value of {metric!r} yet")
    maximize = next((each.maximize for each in history.objectives if each.metric == metric), None)
    trials, values = zip(*finite, strict=True)
    return PlottedTrials(spec.name, history, metric, maximize, names, trials, values)


def _checked_params(history: History, params: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the parameters to draw, by default all that vary."""
    space = history.space
    if params is None:
        return tuple(name for name in space.searched if space.scales[name].count != 1) or space.searched
    if isinstance(params, str):
        raise SettingError(f"plot: params {params!r} is not a list; give one such as [{params!r}]")
    for name in params:
        if name not in space:
            close = get_close_matches(str(name), space.names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the space has {join_with_and(space.names)}"
            raise SettingError(f"plot: there is no parameter {name!r}; {hint}")
        if name not in space.searched:
            others = join_with_and(space.searched)
            raise SettingError(f"plot: {name} is the same in all trials; the parameters that vary are {others}")
    if not params:
        raise SettingError("plot: params is empty; name some, or leave it out for all")
    return tuple(dict.fromkeys(params))
