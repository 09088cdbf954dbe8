"""Which parameters matter? Each one's share of what makes trials differ, by the total effects of Sobol.

The total effect of a parameter (Homma and Saltelli 1996) is the part of the variance over the space that is left
when all others are fixed: its own effect, and all that it does together with others. The estimator is Jansen's
(1999), on the expected values of the model of surrogate.py. An inactive parameter changes nothing there, so one
with a condition counts for as much as it matters where it is active.
"""

from __future__ import annotations

import numpy as np

from thriftune.errors import ThriftuneError
from thriftune.results.surrogate import Surrogate
from thriftune.search.bayes.kernel import Array
from thriftune.state.history import History

_POINTS = 512
"""Pairs of points of the space; a power of two, as the Sobol sequence asks."""


def importance(history: History, metric: str | None = None) -> dict[str, float]:
    """Return each parameter's share of the variance of a metric, the most important first; they sum to 1.

    `metric`: by default the first objective. Raises ThriftuneError if too few trials have a value.
    """
    return shares(Surrogate(history, metric))


def shares(model: Surrogate) -> dict[str, float]:
    """Return each parameter's total effect on the predictions of a model, scaled so that they sum to 1."""
    effects = total_effects(model)
    total = float(effects.sum())
    if total <= 0.0:
        raise ThriftuneError(f"no parameter has an effect on {model.metric!r} that can be told from noise")
    found = {name: float(effect) / total for name, effect in zip(model.space.searched, effects, strict=True)}
    order = {name: i for i, name in enumerate(model.space.searched)}
    return dict(sorted(found.items(), key=lambda each: (-each[1], order[each[0]])))


def total_effects(model: Surrogate) -> Array:
    """Return the variance that is left when all parameters but one are fixed, for each parameter."""
    from scipy.stats import qmc  # takes most of a second to import

    p = len(model.space.searched)
    points = qmc.Sobol(2 * p, scramble=True, seed=np.random.default_rng(0)).random(_POINTS)
    A, B = points[:, :p], points[:, p:]
    changed = [A]
    for i in range(p):
        one = A.copy()
        one[:, i] = B[:, i]
        changed.append(one)
    base, *others = np.split(model.predict(np.concatenate(changed)), p + 1)
    return np.array([0.5 * float(np.mean((base - other) ** 2)) for other in others])
