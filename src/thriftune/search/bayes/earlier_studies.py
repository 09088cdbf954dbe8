"""Models of the sources of a warm start; the mean of each is a trend of the new study's model.

The weight of each source is one more hyperparameter, learned and integrated out like the others. An
unrelated study explains nothing of the new observations, and its weight soon falls to almost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thriftune.search.bayes.hyperparameters import most_likely, select_observations
from thriftune.search.bayes.kernel import Array, Booleans, ThetaLayout
from thriftune.search.bayes.normalization import normalise
from thriftune.search.bayes.posterior import Posterior
from thriftune.state.earlier_results import FEWEST, EarlierStudy, TranslatedTrials, translate

if TYPE_CHECKING:
    from thriftune.space.space import Space

MAX_TRIALS = 200
"""The most trials in the model of one study. Measured values come first, then estimated ones."""


class _Trials(NamedTuple):
    """Trials for the model of one source."""

    configs: list[dict[str, Any]]
    values: Array  # (n,) lower is better
    variances: Array  # (n,) relative to the variance of the measured values; 0 for a measured value


def _select(trials: TranslatedTrials, maximize: bool) -> tuple[_Trials, _Trials]:
    """Return the trials for the model of a source: those with measured and those with estimated values."""
    values = np.array([np.nan if value is None else value for value in trials.values], dtype=float)
    values *= -1.0 if maximize else 1.0
    variances = np.array(trials.variances)

    def select(mask: Booleans, most: int) -> _Trials:
        indices = np.flatnonzero(mask & ~np.isnan(values))
        indices = indices[select_observations(values[indices], most)]
        return _Trials([trials.configs[i] for i in indices], values[indices], variances[indices])

    measured = select(variances == 0.0, MAX_TRIALS)
    return measured, select(variances > 0.0, MAX_TRIALS - len(measured.values))


class EarlierStudyModels:
    """A Trend of all usable sources, and their best configurations."""

    def __init__(self, earlier: Sequence[EarlierStudy], space: Space, layout: ThetaLayout) -> None:
        # Each model, with its column mask (D,): 1 for the columns that the source varied, else 0.
        self._models: list[tuple[Posterior, Array]] = []
        self._ranked: list[list[dict[str, Any]]] = []  # by study: its configurations, best first
        for study in earlier:
            trials = translate(study, space)
            measured, estimated = _select(trials, study.maximize)
            if len(measured.values) < FEWEST:
                continue
            column_mask = np.ones(space.dimensions)
            for name in trials.missing:
                column_mask[space.columns[name]] = 0.0
            y = normalise(measured.values, robust=True)
            if not y.any():  # all values are the same, so no configuration is best
                continue
            configs = measured.configs + estimated.configs
            X = column_mask * np.array([space.encode(config) for config in configs])
            # Learn theta from the measured values. Estimates lie in their range and are scaled in the same way.
            theta = most_likely(layout, X[: len(y)], y)
            order = np.argsort(measured.values)
            y = np.concatenate([y, np.interp(estimated.values, measured.values[order], y[order])])
            variances = np.concatenate([measured.variances, estimated.variances])
            model = Posterior(layout, theta, X, y, extra_variance=variances)
            self._models.append((model, column_mask))
            self._ranked.append([configs[i] for i in np.argsort(model.mean_at_inputs[0], kind="stable")])

    def __len__(self) -> int:
        """Return the number of usable sources."""
        return len(self._models)

    def best(self) -> list[dict[str, Any]]:
        """Return the best configuration of each study, then the second best of each, and so on."""
        depth = max(map(len, self._ranked), default=0)
        return [ranked[i] for i in range(depth) for ranked in self._ranked if i < len(ranked)]

    def mean(self, X: Array) -> Array:
        return np.stack([model.predict(mask * X)[0][0] for model, mask in self._models], axis=1)

    def mean_with_gradient(self, X: Array) -> tuple[Array, Array]:
        predictions = [(model.predict_with_gradient(mask * X), mask) for model, mask in self._models]
        means = np.stack([mean[0] for (mean, _, _, _), _ in predictions], axis=1)
        return means, np.stack([mask * gradient[0] for (_, _, gradient, _), mask in predictions], axis=1)
