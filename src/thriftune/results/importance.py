"""The importance of parameters: each one's share of the variance of a metric, by Sobol's total effects.

The total effect of a parameter (Homma and Saltelli 1996) is the part of the variance over the space that is left
when all other parameters are fixed. It includes the parameter's interactions with others. The estimator is
Jansen's (1999), on the expected values of the model of surrogate.py. An inactive parameter changes no expected
value there, so a parameter with a condition has only the effects of the region where it is active.
"""

from __future__ import annotations

import numpy as np

from thriftune.errors import ThriftuneError
from thriftune.results.surrogate import Surrogate
from thriftune.search.bayes.kernel import Array
from thriftune.state.history import History

_POINTS = 512
"""The number of pairs of points of the space; a power of two, as the Sobol sequence needs."""


def importance(history: History, metric: str | None = None) -> dict[str, float]:
    """Return each parameter's share of the variance of a metric, the most important first; they sum to 1.

    `metric`: by default the first objective. Raises ThriftuneError if too few trials have a value.
    """
    return importance_of_model(Surrogate(history, metric))


def importance_of_model(model: Surrogate) -> dict[str, float]:
    """Return each parameter's total effect on the predictions of a model, scaled so that they sum to 1."""
    effects = total_effects(model)
    total = float(effects.sum())
    if total <= 0.0:
        raise ThriftuneError(
            f"no parameter has an effect on {model.metric!r} that can be distinguished from noise; run more trials"
        )
    shares = {name: float(effect) / total for name, effect in zip(model.space.searched, effects, strict=True)}
    order = {name: i for i, name in enumerate(model.space.searched)}
    return dict(sorted(shares.items(), key=lambda share: (-share[1], order[share[0]])))


def total_effects(model: Surrogate) -> Array:
    """Return for each parameter the variance that is left when all other parameters are fixed."""
    from scipy.stats import qmc  # takes most of a second to import

    p = len(model.space.searched)
    points = qmc.Sobol(2 * p, scramble=True, seed=np.random.default_rng(0)).random(_POINTS)
    A, B = points[:, :p], points[:, p:]
    changed = [A]
    for i in range(p):
        one_changed = A.copy()
        one_changed[:, i] = B[:, i]
        changed.append(one_changed)
    base, *others = np.split(model.predict(np.concatenate(changed)), p + 1)
    return np.array([0.5 * float(np.mean((base - other) ** 2)) for other in others])
