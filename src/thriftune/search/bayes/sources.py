"""What do past studies tell of this one? For each, a model of its own; its mean is a trend of the new model.

How much a source counts is one more hyperparameter, learned and integrated out like the others: what an unrelated
study says explains nothing of the new observations, and soon counts for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from thriftune.earlier import FEWEST, Earlier, translate
from thriftune.search.bayes.hyperparameters import most_likely, spread_out
from thriftune.search.bayes.kernel import Array, Layout
from thriftune.search.bayes.outputs import normalised
from thriftune.search.bayes.posterior import Posterior

if TYPE_CHECKING:
    from thriftune.space import Space

MOST = 200
"""Trials of a source that are looked at."""


class Sources:
    """The trends of all sources, and their best configurations."""

    def __init__(self, earlier: Sequence[Earlier], space: Space, layout: Layout) -> None:
        self._models: list[tuple[Posterior, Array]] = []  # and which columns they know of: 1, or 0
        self._ranked: list[list[dict[str, Any]]] = []
        for source in earlier:
            told = translate(source, space)
            known = [(c, v) for c, v in zip(told.configs, told.values, strict=True) if v is not None]
            if len(known) < FEWEST:
                continue
            values = np.array([v for _, v in known]) * (-1.0 if source.maximize else 1.0)
            chosen = spread_out(values, MOST)
            knows = np.ones(space.dimensions)
            for name in told.missing:
                knows[space.columns[name]] = 0.0
            X = knows * np.array([space.encode(known[i][0]) for i in chosen])
            y = normalised(values[chosen], robust=True)
            if not y.any():  # all the same: it knows no best
                continue
            model = Posterior(layout, most_likely(layout, X, y), X, y)
            self._models.append((model, knows))
            order = np.argsort(model.known[0], kind="stable")
            self._ranked.append([known[chosen[i]][0] for i in order])

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
