"""Which configuration next, in view of all that has been seen? That of the highest expected improvement.

SageMaker AMT, section 4: a Gaussian process models what has been seen, its hyperparameters are integrated out, and
running trials count with values that the model makes up for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from thriftune.errors import SettingError
from thriftune.search.bayes.acquisition import Cheap, LogBelow, LogEI, Term, Worth
from thriftune.search.bayes.climb import best_points
from thriftune.search.bayes.cube import Cube
from thriftune.search.bayes.hyperparameters import Learned, Sampling, learned, learned_at, most_likely, spread_out
from thriftune.search.bayes.kernel import Array, Booleans, Indices, Layout
from thriftune.search.bayes.observations import Level, Observations, Reader
from thriftune.search.bayes.outputs import LARGEST, eased, from_limit, normalised
from thriftune.search.bayes.posterior import Posterior, centred
from thriftune.search.bayes.sources import Sources
from thriftune.search.bayes.threads import one_thread
from thriftune.search.bayes.unfinished import Guesses, guesses
from thriftune.search.random import Random
from thriftune.search.sobol import Sobol
from thriftune.state.events import KNOWN

if TYPE_CHECKING:
    from thriftune.search.protocol import Past

MODELLED = 400
"""Observations in the model at most: the best, and an even part of the others."""

MORE_IF_CUT = 4
"""Where trials are cut they are cheap, and little is known of each: so many times as many fill the space first."""

GUESSED = 200
"""Of trials that were cut, in the model at most."""

ROWS = 1000
"""In the models of all draws of theta together, about; each has two at least."""

NEAR = 4
"""The best observations so far, around which more points are looked at."""

T = TypeVar("T")


class Bayes:
    """Suggests where the improvement to be expected is largest; in the beginning, points that fill the space.

    - `initial`: how many points that is; four times as many where trials are stopped early.
    - `hyperparameters`: "slice" integrates them out by slice sampling, "map" takes the most likely ones.
    - `warp`: learn a warping of each number's scale.
    - `robust`: pull in the tail of bad values.
    - `fantasies`: running trials count with values that the model makes up for them.
    - `cost_aware`: the largest improvement a second, as learned from how long trials took.
    - `draws`, `burn_in`, `thin`: lengths of the slice sampling; AMT's are 10, 250 and 5.
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
        thin: int = 3,
    ) -> None:
        for name, number, least in (
            ("initial", initial, 1),
            ("draws", draws, 1),
            ("burn_in", burn_in, 0),
            ("thin", thin, 1),
        ):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise SettingError(f"bayes: {name} {number!r} must be a whole number, at least {least}")
        switches = {"warp": warp, "robust": robust, "fantasies": fantasies, "cost_aware": cost_aware}
        for name, switch in switches.items():
            if not isinstance(switch, bool):
                raise SettingError(f"bayes: {name} {switch!r} must be true or false")
        if hyperparameters not in ("slice", "map"):
            raise SettingError(f"bayes: hyperparameters {hyperparameters!r} must be 'slice' or 'map'")
        self.options = {
            "initial": initial,
            "hyperparameters": hyperparameters,
            **switches,
            "draws": draws,
            "burn_in": burn_in,
            "thin": thin,
        }
        self._initial = initial
        self._warp = warp
        self._robust = robust
        self._fantasies = fantasies
        self._cost_aware = cost_aware
        self._sampling = Sampling(draws, burn_in, thin) if hyperparameters == "slice" else None
        self._reader = Reader()
        self._gain: float | None = None  # of the last suggestion
        self._caches: dict[str, tuple[Any, Any]] = {}  # by what they hold: what it was made of, and it

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        self._gain = None
        with one_thread():
            cube = self._cached("cube", past.space, lambda: Cube(past.space))
            sources = self._sources(past, cube)
            seen = self._reader.read(past)
            initial = self._initial * (MORE_IF_CUT if seen.cut else 1)
            if len(past.trials) < initial or len(seen.target.trials) < 2:
                return self._first(past, sources, rng)
            worth, near = self._worth(past, cube, sources, seen, rng)
            for row in best_points(cube, worth, near, rng):
                config = past.space.from_unit(row.tolist())
                if not past.times(config):
                    self._gain = self._in_units(worth.gain(cube.columns(row[None])[0]), past, seen)
                    return config
            self._gain = 0.0  # whatever may be worth trying was tried
            return Random().suggest(past, rng)

    def expected_gain(self, past: Past) -> float | None:  # noqa: ARG002 (it is that of the last suggestion)
        """Return the expected improvement of the last suggestion; None for a point that only fills the space."""
        return self._gain

    def _in_units(self, gain: float | None, past: Past, seen: Observations) -> float | None:
        """Return an improvement in the objective's units, of which the model's are a multiple below the median."""
        if gain is None or len(past.objectives) > 1:
            return None
        values = seen.target.values[:, 0]
        values = np.clip(values[spread_out(values, MODELLED)], -LARGEST, LARGEST)
        y = normalised(values, robust=self._robust)
        low, middle = np.argsort(y, kind="stable")[[0, (len(y) - 1) // 2]]
        if y[middle] <= y[low]:  # half of the values are the same
            return None
        return gain * float((values[middle] - values[low]) / (y[middle] - y[low]))

    def _first(self, past: Past, sources: Sources, rng: np.random.Generator) -> dict[str, Any]:
        """The middle of the space, and then points that fill it; by turns with what past studies did best with, so
        that it can soon be told whether these have anything to say."""
        number = len(past.trials)
        if number % 2 == 0:
            for config in sources.best():
                if not past.times(config):
                    return config.copy()
        middle = past.space.from_unit([0.5] * len(past.space.searched))
        if number <= 1 and not past.times(middle):
            return middle
        return Sobol().suggest(past, rng)

    # --- the objective

    def _worth(
        self, past: Past, cube: Cube, sources: Sources, seen: Observations, rng: np.random.Generator
    ) -> tuple[Worth, Array]:
        """What each point is worth, and the points near which it may be highest."""
        target = seen.target
        layout = self._layout(cube, len(sources))
        trend = sources if len(sources) else None
        goal = _goal(target.values, rng)
        chosen = spread_out(goal, MODELLED)
        y = normalised(goal[chosen], robust=self._robust)
        thetas = self._learned(past, layout, target, goal, trend).pick(rng)
        # Failures are as bad as the worst, which keeps the search away from where they are at no cost. Theta is
        # learned without them: where they end tells nothing of how f varies.
        failed = seen.failed[-MODELLED:]
        pending = seen.pending[-MODELLED:] if self._fantasies else seen.pending[:0]
        guessed = self._guesses(seen, chosen, y)
        X = np.concatenate([target.X[chosen], failed, guessed.X, pending])
        # The more observations, the surer theta, and the dearer each draw of it.
        count = min(len(thetas), max(2, ROWS // len(X)))
        thetas = thetas[np.linspace(0, len(thetas) - 1, count).round().astype(np.intp)]
        z = rng.standard_normal((len(thetas), len(pending)))
        known = np.concatenate([y, np.full(len(failed), y.max()), guessed.y])
        unsure = np.concatenate([np.zeros(len(y) + len(failed)), guessed.variance])
        model = Posterior(layout, thetas, X, known, z, trend, unsure)
        others, allowed = self._constraints(past, cube, seen, pending, rng)
        others += self._cost(past, cube, seen)
        # What is pending may well become the best.
        feasible = seen.feasible[chosen]
        eligible = np.concatenate([feasible, np.zeros(len(failed) + len(guessed.y), dtype=bool), allowed])
        improvement = LogEI(model, model.known[:, eligible].min(axis=1)) if eligible.any() else None
        best = np.argsort(np.where(feasible, y, np.inf), kind="stable")[:NEAR]
        near = np.array([past.space.to_unit(target.trials[chosen[i]].config) for i in best])
        return Worth(improvement, others, model), near

    def _guesses(self, seen: Observations, chosen: Indices, y: Array) -> Guesses:
        """Of what would have come of trials that were cut."""
        there = {seen.target.trials[i].id: float(each) for i, each in zip(chosen, y, strict=True)}
        found = guesses(seen.levels[:-1], there, robust=self._robust)
        if not len(found.y):
            return Guesses(seen.target.X[:0], found.y, found.variance)
        best = spread_out(found.y, GUESSED)
        return Guesses(*(part[best] for part in found))

    def _learned(self, past: Past, layout: Layout, target: Level, goal: Array, trend: Sources | None) -> Learned:
        """Learned from as many of the first observations as learned_at() says, so that it is the same after a
        resume. Of several objectives every goal is another one."""
        n = learned_at(len(goal)) if len(past.objectives) == 1 else len(goal)
        X = target.X[:n]

        def learn() -> Learned:
            y = normalised(goal[:n], robust=self._robust)
            known = None if trend is None else centred(trend.at(X))
            return learned(layout, X, y, self._sampling, np.random.default_rng((past.seed, n)), known)

        made_of = (past.seed, past.space, tuple(past.earlier), X.tobytes(), goal[:n].tobytes())
        return self._cached("theta", made_of, learn)

    # --- what else counts

    def _constraints(
        self, past: Past, cube: Cube, seen: Observations, pending: Array, rng: np.random.Generator
    ) -> tuple[list[Term], Booleans]:
        """How likely each is met; and which of the pending meet all, by values made up for them, too."""
        layout = self._layout(cube, 0)
        terms: list[Term] = []
        allowed = np.ones(len(pending), dtype=bool)
        for constraint in past.constraints:
            metrics = np.array([trial.metrics.get(constraint.metric, np.nan) for trial in seen.ended])
            told = np.isfinite(metrics)  # a trial that was stopped early may lack it
            if not told.any():
                continue
            sign = 1.0 if constraint.upper else -1.0
            normal = partial(from_limit, limit=sign * constraint.limit)
            X, values = seen.X[told], sign * metrics[told]
            y = normal(values)
            chosen = spread_out(np.abs(y), MODELLED)  # near the limit it matters most
            theta = self._most_likely(str(constraint), past, layout, X, values, normal)
            z = rng.standard_normal((1, len(pending)))
            model = Posterior(layout, theta, np.concatenate([X[chosen], pending]), y[chosen], z)
            terms.append(LogBelow(model, 0.0))
            allowed &= model.known[0, len(chosen) :] <= 0.0
        return terms, allowed

    def _cost(self, past: Past, cube: Cube, seen: Observations) -> list[Term]:
        ran = np.array([trial.origin != KNOWN for trial in seen.ended], dtype=bool)
        seconds = np.array([trial.seconds for trial in seen.ended])[ran]
        if len(seen.levels) > 1:  # those that were cut did not take as long as they would have
            seconds /= [max(1, trial.step) for trial, did in zip(seen.ended, ran, strict=True) if did]
        if not self._cost_aware or not (seconds > 0.0).any():
            return []
        logs = np.log(np.maximum(seconds, seconds[seconds > 0.0].min()))  # a clock may say 0
        normal = partial(normalised, robust=False)
        layout = self._layout(cube, 0)
        X = seen.X[ran]
        theta = self._most_likely("cost", past, layout, X, logs, normal)
        chosen = spread_out(logs, MODELLED)
        model = Posterior(layout, theta, X[chosen], normal(logs[chosen]))
        return [Cheap(model, float(logs[chosen].std()))]

    def _most_likely(
        self, name: str, past: Past, layout: Layout, X: Array, values: Array, normal: Callable[[Array], Array]
    ) -> Array:
        n = learned_at(len(values))
        made_of = (past.space, X[:n].tobytes(), values[:n].tobytes())
        return self._cached(name, made_of, lambda: most_likely(layout, X[:n], normal(values[:n])))

    # --- what is kept: only caches

    def _sources(self, past: Past, cube: Cube) -> Sources:
        layout = self._layout(cube, 0)
        made_of = (past.space, tuple(past.earlier))
        return self._cached("sources", made_of, lambda: Sources(past.earlier, past.space, layout))

    def _layout(self, cube: Cube, sources: int) -> Layout:
        layout = replace(cube.layout, sources=sources)
        return layout if self._warp else replace(layout, warped=layout.warped[:0])

    def _cached(self, name: str, made_of: Any, make: Callable[[], T]) -> T:
        found = self._caches.get(name)
        if found is None or found[0] != made_of:
            found = self._caches[name] = (made_of, make())
        made: T = found[1]
        return made


def _goal(values: Array, rng: np.random.Generator) -> Array:
    """(n,) what is to be minimised.

    Of several objectives, ParEGO's (Knowles 2006): each suggestion weighs them anew, and what counts is the worst
    of the weighted, and a little their sum.
    """
    if values.shape[1] == 1:
        return values[:, 0]
    weights = rng.dirichlet(np.ones(values.shape[1]))
    # A diverged trial would else leave all others alike.
    pulled_in = np.stack([eased(np.clip(column, -LARGEST, LARGEST)) for column in values.T], axis=1)
    low, high = pulled_in.min(axis=0), pulled_in.max(axis=0)
    scaled = (pulled_in - low) / np.where(high > low, high - low, 1.0) * weights
    goal: Array = scaled.max(axis=1) + 0.05 * scaled.sum(axis=1)
    return goal
