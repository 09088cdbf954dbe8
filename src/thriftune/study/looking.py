"""How can one look at a study? As a data frame, by which parameters matter, in pictures, and in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.figure import Figure

    from thriftune.results.models import BestModel
    from thriftune.state.history import History
    from thriftune.state.spec import Spec


class _Looked(Protocol):
    """A Study or a Result."""

    @property
    def spec(self) -> Spec: ...

    @property
    def history(self) -> History: ...


class Looking:
    """The ways of looking at a study that Study and Result share."""

    __slots__ = ()

    @property
    def best_model(self: _Looked) -> BestModel:
        """The saved model with the best value at any step of any trial that has not failed.

        Stopped and running trials count, so that it may be another one than `best.checkpoint`, the best finished
        trial's. Raises NoCheckpoint if nothing was saved; NoBestTrial if no saved model meets the constraints, and
        with several objectives.
        """
        from thriftune.results.models import best_model

        return best_model(self.history)

    @property
    def attrs(self: _Looked) -> dict[str, Any]:
        """Return what users attached to the study, by name."""
        return dict(self.history.attrs)

    def importance(self: _Looked, metric: str | None = None) -> dict[str, float]:
        """Return how much each parameter matters, the most important first; the shares sum to 1.

        A share is the parameter's total effect on a model of the metric (by default the first objective): its own,
        and what it does together with others. Needs ten trials with a value, and two for each parameter.
        """
        from thriftune.results.importance import importance  # late: imports SciPy

        return importance(self.history, metric)

    def plot(
        self: _Looked, kind: str = "history", *, params: Sequence[str] | None = None, metric: str | None = None
    ) -> Figure:
        """Return a picture of the study, which a notebook shows; needs the extra `plot`.

        - "history": the best value so far and the learning curves; with several objectives, the front.
        - "slice": the metric against each parameter.
        - "contour": what a model expects over two parameters, by default the two that matter most.
        - "parallel": a line for each trial through all parameters.
        - "importance": how much each parameter matters.

        `params`: the parameters to draw, by default all. `metric`: by default the first objective. Save it with
        `.savefig("file.png")`.
        """
        from thriftune.show.figures import draw  # late: needs the extra

        figure: Figure = draw(self.spec, self.history, kind, params, metric)
        return figure

    def to_pandas(self: _Looked, *, reports: bool = False) -> pd.DataFrame:
        """Return the trials as a pandas data frame, one row a trial; needs the extra `pandas`.

        - `trial`, `state`, and `value`, which is what counts for the trial (not with several objectives).
        - A column for each metric: of the first objective the value that counts, of others the last.
        - A column for each parameter, empty where it is inactive.
        - `feasible` where there are constraints, `step` (the last), `value_step` (of the value), `seconds` on
          machines, `started` and `ended` in UTC, `attempts`, `failures`, `losses`, `origin`, and the last line of
          the `error`.
        - A column for each attribute of trials; `attrs_NAME` where the name stands for another column.

        Parameters and metrics keep their names. Where a name stands for two columns, a metric's is `metrics_NAME`
        beside one of the above, and a parameter's is `params_NAME` beside any other.

        `reports`: one row a report instead, with `trial`, `step`, a column for each metric, `time`, `attempt`, and
        whether a checkpoint was `saved`.
        """
        from thriftune.results.frames import reports_frame, trials_frame  # late: needs the extra

        return reports_frame(self.history) if reports else trials_frame(self.history)
