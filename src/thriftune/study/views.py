"""Ways to view a study: data frames, parameter importance, plots and the best saved model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.figure import Figure

    from thriftune.results.models import BestModel
    from thriftune.state.history import History
    from thriftune.state.spec import Spec


class _Viewed(Protocol):
    """A Study or a Result."""

    @property
    def spec(self) -> Spec: ...

    @property
    def history(self) -> History: ...


class StudyViews:
    """The views of a study that Study and Result share."""

    __slots__ = ()

    @property
    def best_model(self: _Viewed) -> BestModel:
        """The saved model with the best value at any step of any trial that has not failed.

        Stopped and running trials count, so this may differ from `best.checkpoint`, which is the model of the best
        finished trial. Raises NoCheckpoint if nothing was saved. Raises NoBestTrial if no saved model meets the
        constraints, or if the study has several objectives.
        """
        from thriftune.results.models import best_model

        return best_model(self.history)

    @property
    def attrs(self: _Viewed) -> dict[str, Any]:
        """Return what users attached to the study, by name."""
        return dict(self.history.attrs)

    def importance(self: _Viewed, metric: str | None = None) -> dict[str, float]:
        """Return the share of each parameter in the metric's variation, the most important parameter first.

        A share is the parameter's total effect on a model of the metric: its own effect and its interactions with
        other parameters. The shares sum to 1. The metric is by default the first objective. Needs ten trials with
        a value, and two for each parameter.
        """
        from thriftune.results.importance import importance  # late: imports SciPy

        return importance(self.history, metric)

    def plot(
        self: _Viewed, kind: str = "history", *, params: Sequence[str] | None = None, metric: str | None = None
    ) -> Figure:
        """Return a plot of the study; needs the extra `plot`. A notebook displays it.

        - "history": the best value so far and the learning curves; with several objectives, the front.
        - "slice": the metric against each parameter.
        - "contour": a model's prediction over two parameters, by default the two most important ones.
        - "parallel": a line for each trial through all parameters.
        - "importance": the share of each parameter, see importance().

        `params`: the parameters to plot, by default all. `metric`: by default the first objective. Save the plot
        with `.savefig("file.png")`.
        """
        from thriftune.show.figures import draw  # needs the extra `plot`

        figure: Figure = draw(self.spec, self.history, kind, params, metric)
        return figure

    def to_pandas(self: _Viewed, *, reports: bool = False) -> pd.DataFrame:
        """Return the trials as a pandas data frame, one row a trial; needs the extra `pandas`.

        - `trial`, `state`, and `value`, the trial's objective value (only with a single objective).
        - A column for each metric: for the first objective the trial's value, for other metrics the last one.
        - A column for each parameter, empty where it is inactive.
        - `feasible` if the study has constraints, `step` (the last), `value_step` (of the value), `seconds` on
          machines, `started` and `ended` in UTC, `attempts`, `failures`, `losses`, `origin`, and the last line of
          the `error`.
        - A column for each attribute of trials; `attrs_NAME` if another column has that name.

        Parameters and metrics keep their names, except where two columns would have the same name. A metric with
        the name of one of the columns above becomes `metrics_NAME`. A parameter with the name of any other column
        becomes `params_NAME`.

        `reports`: return one row a report instead, with `trial`, `step`, a column for each metric, `time`,
        `attempt`, and whether a checkpoint was `saved`.
        """
        from thriftune.results.frames import reports_frame, trials_frame  # late: needs the extra

        return reports_frame(self.history) if reports else trials_frame(self.history)
