"""Bayesian search, as SageMaker AMT does it (section 4): a Gaussian process of what has been seen, its hyperparameters
integrated out, and the point of the highest expected improvement next."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from thriftune.errors import SettingError
from thriftune.search.bayes.acquisition import Cheap, LogBelow, LogEI, Term, Worth
from thriftune.search.bayes.climb import best_points
from thriftune.search.bayes.cube import Cube
from thriftune.search.bayes.hyperparameters import Sampling, learned_at, most_likely, sampled, spread_out
from thriftune.search.bayes.kernel import Array, Layout
from thriftune.search.bayes.observations import Observations, Reader
from thriftune.search.bayes.outputs import normalised
from thriftune.search.bayes.posterior import Posterior
from thriftune.search.bayes.sources import Sources
from thriftune.search.random import Random
from thriftune.search.sobol import Sobol

if TYPE_CHECKING:
    from thriftune.search import Past

MODELLED = 400
"""Observations in the model at most."""


class Bayes:
    """Suggests where the improvement to be expected is largest; in the beginning, points that fill the space.

    - `initial`: how many points that is.
    - `hyperparameters`: "slice" integrates them out by slice sampling, "map" takes the most likely ones.
    - `warp`: learn a warping of each numeric parameter's scale.
    - `robust`: pull in the tail of bad values.
    - `fantasies`: running trials count with values that the model makes up for them.
    - `cost_aware`: the largest improvement a second, as learned from the trials' durations, not the largest.
    - `draws`, `burn_in`, `thin`: of the slice sampling.
    """

    def __init__(
        self,
        *,
        initial: int = 4,
        hyperparameters: Literal["slice", "map"] = "slice",
        warp: bool = True,
        robust: bool = True,
        fantasies: bool = True,
        cost_aware: bool = False,
        draws: int = 8,
        burn_in: int = 10,
        thin: int = 2,
    ) -> None:
        for name, value, least in (
            ("initial", initial, 1),
            ("draws", draws, 1),
            ("burn_in", burn_in, 0),
            ("thin", thin, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise SettingError(f"bayes: {name} {value!r} must be a whole number, at least {least}")
        if hyperparameters not in ("slice", "map"):
            raise SettingError(f"bayes: hyperparameters {hyperparameters!r} must be 'slice' or 'map'")
        self.initial = initial
        self.hyperparameters = hyperparameters
        self.warp = warp
        self.robust = robust
        self.fantasies = fantasies
        self.cost_aware = cost_aware
        self.sampling = Sampling(draws, burn_in, thin)
        self._reader = Reader()
        self._caches: dict[str, tuple[Any, Any]] = {}  # by what they hold: what it was made of, and it

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        cube = self._cached("cube", past.space, lambda: Cube(past.space))
        sources = self._sources(past, cube)
        seen = self._reader.read(past)
        if len(past.trials) < self.initial or len(seen.trials) < 2:
            return self._first(past, cube, sources, rng)
        worth, near = self._worth(past, cube, sources, seen, rng)
        for row in best_points(cube, worth, near, rng):
            config = cube.config(row.tolist())
            if not past.times(config):
                return config
        return Random().suggest(past, rng)

    def _first(self, past: Past, cube: Cube, sources: Sources, rng: np.random.Generator) -> dict[str, Any]:
        """What past studies did best with; else the middle of the space, and then points that fill it."""
        for config in sources.best():
            if not past.times(config):
                return config.copy()
        if not past.trials:
            return cube.config([0.5] * cube.p)
        return Sobol().suggest(past, rng)

    def _worth(
        self, past: Past, cube: Cube, sources: Sources, seen: Observations, rng: np.random.Generator
    ) -> tuple[Worth, Array]:
        """What each point is worth, and the points near which it may be highest."""
        layout = self._layout(cube, len(sources))
        trend = sources if len(sources) else None
        goal = _goal(seen.values, rng)
        n = len(goal) if seen.values.shape[1] > 1 else learned_at(len(goal))
        known = None if trend is None else trend.at(seen.X[:n])

        def learn() -> Array:
            y = normalised(goal[:n], robust=self.robust)
            if self.hyperparameters == "map":
                return most_likely(layout, seen.X[:n], y, known)
            return sampled(layout, seen.X[:n], y, self.sampling, np.random.default_rng((past.seed, n)), known)

        thetas = self._cached("thetas", (past.seed, seen.X[:n].tobytes(), goal[:n].tobytes()), learn)
        chosen = spread_out(goal, MODELLED)
        # The more observations, the surer theta, and the dearer each draw of it.
        thetas = thetas[: max(2, min(len(thetas), 1200 // len(chosen)))]
        y = normalised(goal[chosen], robust=self.robust)
        X, z = seen.X[chosen], None
        if self.fantasies and len(seen.pending):
            X = np.concatenate([X, seen.pending])
            z = rng.standard_normal((len(thetas), len(seen.pending)))
        model = Posterior(layout, thetas, X, y, z, trend)
        eligible = seen.feasible[chosen]
        if z is not None:
            eligible = np.concatenate([eligible, np.full(len(seen.pending), not past.constraints)])
        objective = LogEI(model, model.known[:, eligible].min(axis=1)) if eligible.any() else None
        near = np.argsort(np.where(seen.feasible[chosen], y, y + 1e3), kind="stable")[:4]
        rows = np.array([cube.row(seen.trials[chosen[i]].config) for i in near])
        return Worth(objective, self._others(past, cube, seen, thetas), model), rows

    def _others(self, past: Past, cube: Cube, seen: Observations, thetas: Array) -> list[Term]:
        """What else counts: constraints, failures, cost."""
        plain = self._layout(cube, 0, warp=False)
        terms: list[Term] = []
        for constraint in past.constraints:
            sign = 1.0 if constraint.upper else -1.0
            told = sign * np.array([trial.metrics[constraint.metric] for trial in seen.trials])
            terms.append(self._below(str(constraint), plain, seen.X, told, sign * constraint.limit))
        if len(seen.failed):
            # Failures alone say too little to learn length scales from: those of the objective serve.
            theta = np.concatenate([thetas[:, : plain.size].mean(axis=0)])[None]
            theta[:, plain.SIGNAL], theta[:, plain.NOISE] = np.log(0.25), np.log(0.01)
            X = np.concatenate([seen.X, seen.failed])
            y = np.concatenate([np.zeros(len(seen.X)), np.ones(len(seen.failed))])
            recent = spread_out(-y, MODELLED)
            terms.append(LogBelow(Posterior(plain, theta, X[recent], y[recent]), 0.5))
        if self.cost_aware:
            seconds = np.array([trial.seconds for trial in seen.trials])
            if (seconds > 0).all():
                logs = np.log(seconds)
                chosen = spread_out(logs, MODELLED)
                y = normalised(logs[chosen], robust=False)
                theta = self._fitted("cost", plain, seen.X, logs)
                terms.append(Cheap(Posterior(plain, theta, seen.X[chosen], y), float(logs[chosen].std())))
        return terms

    def _below(self, name: str, layout: Layout, X: Array, told: Array, limit: float) -> Term:
        chosen = spread_out(np.abs(told - limit), MODELLED)  # near the limit it matters most
        theta = self._fitted(name, layout, X, told)
        at = normalised(np.append(told[chosen], limit), robust=False)
        return LogBelow(Posterior(layout, theta, X[chosen], at[:-1] - at[:-1].mean()), float(at[-1] - at[:-1].mean()))

    def _fitted(self, name: str, layout: Layout, X: Array, values: Array) -> Array:
        n = learned_at(len(values))
        made_of = (X[:n].tobytes(), values[:n].tobytes())
        return self._cached(
            name, made_of, lambda: most_likely(layout, X[:n], normalised(values[:n], robust=False))
        )

    def _sources(self, past: Past, cube: Cube) -> Sources:
        layout = self._layout(cube, 0)
        return self._cached(
            "sources", (past.space, tuple(past.earlier)), lambda: Sources(past.earlier, past.space, layout)
        )

    def _layout(self, cube: Cube, sources: int, *, warp: bool | None = None) -> Layout:
        layout = cube.layout
        if not (self.warp if warp is None else warp):
            layout = replace(layout, warped=layout.warped[:0])
        return replace(layout, sources=sources)

    def _cached(self, name: str, made_of: Any, make: Any) -> Any:
        found = self._caches.get(name)
        if found is None or found[0] != made_of:
            found = self._caches[name] = (made_of, make())
        return found[1]


def _goal(values: Array, rng: np.random.Generator) -> Array:
    """(n,) what is to be minimised. Of several objectives, ParEGO's: each suggestion weighs them anew, and what
    counts is the worst of the weighted (Knowles 2006)."""
    if values.shape[1] == 1:
        return values[:, 0]
    weights = rng.dirichlet(np.ones(values.shape[1]))
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = (values - low) / np.where(high > low, high - low, 1.0) * weights
    goal: Array = scaled.max(axis=1) + 0.05 * scaled.sum(axis=1)
    return goal
