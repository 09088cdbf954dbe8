"""What do past studies tell of this one? For each, a model of its own; its mean is a trend of the new model.

How much a source counts is one more hyperparameter, learned and integrated out like the others: what an unrelated
study says explains nothing of the new observations, and soon counts for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thriftune.search.bayes.hyperparameters import most_likely, spread_out
from thriftune.search.bayes.kernel import Array, Booleans, Layout
from thriftune.search.bayes.outputs import normalised
from thriftune.search.bayes.posterior import Posterior
from thriftune.state.earlier_results import FEWEST, EarlierStudy, TranslatedTrials, translate

if TYPE_CHECKING:
    from thriftune.space.space import Space

MOST = 200
"""Trials in the model of a source at most; measured ones first, then those whose value is a guess."""


class _Trials(NamedTuple):
    configs: list[dict[str, Any]]
    values: Array  # lower is better
    variances: Array  # relative to that of measured values


def _chosen(told: TranslatedTrials, maximize: bool) -> tuple[_Trials, _Trials]:
    """Return the trials that the model of a source is made of: measured ones, and guesses."""
    values = np.array([np.nan if value is None else value for value in told.values], dtype=float)
    values *= -1.0 if maximize else 1.0
    variances = np.array(told.variances)

    def some(which: Booleans, most: int) -> _Trials:
        there = np.flatnonzero(which & ~np.isnan(values))
        there = there[spread_out(values[there], most)]
        return _Trials([told.configs[i] for i in there], values[there], variances[there])

    measured = some(variances == 0.0, MOST)
    return measured, some(variances > 0.0, MOST - len(measured.values))


class Sources:
    """The trends of all sources, and their best configurations."""

    def __init__(self, earlier: Sequence[EarlierStudy], space: Space, layout: Layout) -> None:
        self._models: list[tuple[Posterior, Array]] = []  # and which columns they know of: 1, or 0
        self._ranked: list[list[dict[str, Any]]] = []
        for source in earlier:
            told = translate(source, space)
            measured, guessed = _chosen(told, source.maximize)
            if len(measured.values) < FEWEST:
                continue
            knows = np.ones(space.dimensions)
            for name in told.missing:
                knows[space.columns[name]] = 0.0
            y = normalised(measured.values, robust=True)
            if not y.any():  # all the same: it knows no best
                continue
            configs = measured.configs + guessed.configs
            X = knows * np.array([space.encode(config) for config in configs])
            # Theta is learned from what was measured. A guess lies within that, and is scaled like it.
            theta = most_likely(layout, X[: len(y)], y)
            order = np.argsort(measured.values)
            y = np.concatenate([y, np.interp(guessed.values, measured.values[order], y[order])])
            unsure = np.concatenate([measured.variances, guessed.variances])
            model = Posterior(layout, theta, X, y, unsure=unsure)
            self._models.append((model, knows))
            self._ranked.append([configs[i] for i in np.argsort(model.known[0], kind="stable")])

    def __len__(self) -> int:
        return len(self._models)

    def best(self) -> list[dict[str, Any]]:
        """Configurations worth trying first: the best of each source, then the second best, and so on."""
        depth = max(map(len, self._ranked), default=0)
        return [ranked[i] for i in range(depth) for ranked in self._ranked if i < len(ranked)]

    def at(self, X: Array) -> Array:
        return np.stack([model.predict(knows * X)[0][0] for model, knows in self._models], axis=1)

    def with_slope(self, X: Array) -> tuple[Array, Array]:
        told = [(model.predict_with_slope(knows * X), knows) for model, knows in self._models]
        level = np.stack([mean[0] for (mean, _, _, _), _ in told], axis=1)
        return level, np.stack([knows * slope[0] for (_, _, slope, _), knows in told], axis=1)
