"""Bayesian search: suggest the configuration with the highest expected improvement.

The method is that of SageMaker AMT, section 4. A Gaussian process models all observations, its hyperparameters are
integrated out, and running trials count with values that the model makes up for them (fantasies).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from thriftune.common.checks import check_whole
from thriftune.errors import SettingError
from thriftune.search.bayes.acquisition import (
    Acquisition,
    AcquisitionTerm,
    LogEI,
    LogProbabilityBelow,
    NegativeLogCost,
)
from thriftune.search.bayes.acquisition_search import rank_points
from thriftune.search.bayes.earlier_studies import EarlierStudyModels
from thriftune.search.bayes.final_values import Estimates, estimate_cut_short
from thriftune.search.bayes.hyperparameters import (
    Sampling,
    ThetaDraws,
    draw_thetas,
    last_learned_count,
    most_likely,
    select_observations,
)
from thriftune.search.bayes.kernel import Array, Booleans, Indices, ThetaLayout
from thriftune.search.bayes.normalization import LARGEST, compress_tail, normalise, scaled_distance_to_limit
from thriftune.search.bayes.observations import ObservationReader, Observations, StepLevel
from thriftune.search.bayes.one_thread import one_thread
from thriftune.search.bayes.posterior import Posterior, centred
from thriftune.search.bayes.unit_cube import Cube
from thriftune.search.random import Random
from thriftune.search.sobol import Sobol
from thriftune.state.events import KNOWN

if TYPE_CHECKING:
    from thriftune.search.protocol import Past

MAX_MODELLED = 400
"""The most observations in the model: the best ones, and an even part of the others."""

INITIAL_FACTOR_IF_CUT_SHORT = 4
"""The factor on the number of initial points if trials are cut short. Such trials are cheap, and each tells
little."""

MAX_ESTIMATED = 200
"""The most trials that were cut short in the model."""

MAX_TOTAL_ROWS = 1000
"""The models of all draws of theta have about this many rows in total. At least MIN_DRAWS draws are used."""

MIN_DRAWS = 2
"""With fewer draws, theta would not be integrated out at all."""

NEAR_BEST = 4
"""The number of best observations near which more points are tried."""

SUM_SHARE = 0.05
"""The share of the objectives' sum in ParEGO's goal, as in its paper."""

T = TypeVar("T")


class Bayes:
    """Suggest the configuration with the highest expected improvement, after a few points that fill the space.

    - `initial`: the number of points that fill the space; four times as many if trials are stopped early.
    - `hyperparameters`: "slice" integrates them out by slice sampling, "map" takes the most likely ones.
    - `warp`: learn a warping of each number's scale.
    - `robust`: compress the tail of bad values.
    - `fantasies`: count running trials with values that the model makes up for them.
    - `cost_aware`: maximise the improvement per second, with a model of how long trials take.
    - `draws`, `burn_in`, `thin`: the lengths of the slice sampling; AMT's are 10, 250 and 5.
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
        for name, number, lowest in (
            ("initial", initial, 1),
            ("draws", draws, 1),
            ("burn_in", burn_in, 0),
            ("thin", thin, 1),
        ):
            check_whole(f"bayes: {name}", number, lowest)
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
        self._reader = ObservationReader()
        self._expected_gain: float | None = None  # of the last suggestion
        self._caches: dict[str, tuple[Any, Any]] = {}  # by name: (the inputs of the cached object, the object)

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        self._expected_gain = None
        with one_thread():
            cube = self._cached("cube", past.space, lambda: Cube(past.space))
            earlier = self._earlier_models(past, cube)
            observations = self._reader.read(past)
            initial = self._initial * (INITIAL_FACTOR_IF_CUT_SHORT if observations.has_cut_short else 1)
            if len(past.trials) < initial or len(observations.target.trials) < 2:
                return self._initial_point(past, earlier, rng)
            acquisition, near = self._acquisition(past, cube, earlier, observations, rng)
            for row in rank_points(cube, acquisition, near, rng):
                config = past.space.from_unit(row.tolist())
                if not past.times(config):
                    gain = acquisition.expected_gain(cube.encode(row[None])[0])
                    self._expected_gain = self._in_objective_units(gain, past, observations)
                    return config
            self._expected_gain = 0.0  # every promising point has been tried
            return Random().suggest(past, rng)

    def expected_gain(self, past: Past) -> float | None:  # noqa: ARG002 (the protocol's)
        """Return the expected improvement of the last suggestion; None for a point that only fills the space."""
        return self._expected_gain

    def _in_objective_units(self, gain: float | None, past: Past, observations: Observations) -> float | None:
        """Convert a gain in normalised values to the objective's units; None if it is not known.

        Below the median, normalised values are a linear function of the objective's values.
        """
        if gain is None or len(past.objectives) > 1:
            return None
        values = observations.target.values[:, 0]
        values = np.clip(values[select_observations(values, MAX_MODELLED)], -LARGEST, LARGEST)
        y = normalise(values, robust=self._robust)
        low, middle = np.argsort(y, kind="stable")[[0, (len(y) - 1) // 2]]
        if y[middle] <= y[low]:  # half of the values are the same
            return None
        return gain * float((values[middle] - values[low]) / (y[middle] - y[low]))

    def _initial_point(self, past: Past, earlier: EarlierStudyModels, rng: np.random.Generator) -> dict[str, Any]:
        """Return the middle of the space first, then points that fill it.

        In a warm start, these alternate with the best configurations of the sources, so that the model
        soon learns whether those studies are related.
        """
        number = len(past.trials)
        if number % 2 == 0:
            for config in earlier.best():
                if not past.times(config):
                    return config.copy()
        middle = past.space.from_unit([0.5] * len(past.space.searched))
        if number <= 1 and not past.times(middle):
            return middle
        return Sobol().suggest(past, rng)

    # --- the objective

    def _acquisition(
        self,
        past: Past,
        cube: Cube,
        earlier: EarlierStudyModels,
        observations: Observations,
        rng: np.random.Generator,
    ) -> tuple[Acquisition, Array]:
        """Return the acquisition function, and the best points (U), near which it may be highest."""
        target = observations.target
        layout = self._layout(cube, len(earlier))
        trend = earlier if len(earlier) else None
        goal = _goal(target.values, rng)
        chosen = select_observations(goal, MAX_MODELLED)
        y = normalise(goal[chosen], robust=self._robust)
        thetas = self._thetas(past, layout, target, goal, trend).pick(rng)
        # A failed trial counts with the worst value, which keeps the search away from the region. Theta is learned
        # without failures: the border of that region says nothing about how f varies.
        failed = observations.failed[-MAX_MODELLED:]
        pending = observations.pending[-MAX_MODELLED:] if self._fantasies else observations.pending[:0]
        estimates = self._estimates(observations, chosen, y)
        X = np.concatenate([target.X[chosen], failed, estimates.X, pending])
        # With more observations, theta is less uncertain and each draw of it takes longer.
        count = min(len(thetas), max(MIN_DRAWS, MAX_TOTAL_ROWS // len(X)))
        thetas = thetas[np.linspace(0, len(thetas) - 1, count).round().astype(np.intp)]
        z = rng.standard_normal((len(thetas), len(pending)))
        values = np.concatenate([y, np.full(len(failed), y.max()), estimates.y])
        extra_variance = np.concatenate([np.zeros(len(y) + len(failed)), estimates.variance])
        model = Posterior(layout, thetas, X, values, z, trend, extra_variance)
        other_terms, pending_feasible = self._constraint_terms(past, cube, observations, pending, rng)
        other_terms += self._cost_terms(past, cube, observations)
        # A pending trial may become the best, too.
        feasible = observations.feasible[chosen]
        neither = np.zeros(len(failed) + len(estimates.y), dtype=bool)
        eligible = np.concatenate([feasible, neither, pending_feasible])
        best_values = model.mean_at_inputs[:, eligible].min(axis=1) if eligible.any() else None
        improvement = None if best_values is None else LogEI(model, best_values)
        best = np.argsort(np.where(feasible, y, np.inf), kind="stable")[:NEAR_BEST]
        near = np.array([past.space.to_unit(target.trials[chosen[i]].config) for i in best])
        return Acquisition(improvement, other_terms, model), near

    def _estimates(self, observations: Observations, chosen: Indices, y: Array) -> Estimates:
        """Return estimates for trials that were cut short; `y` holds the values of the chosen target trials."""
        target = observations.target
        modelled = {target.trials[i].id: float(value) for i, value in zip(chosen, y, strict=True)}
        estimates = estimate_cut_short(observations.levels[:-1], modelled, robust=self._robust)
        if not len(estimates.y):
            return Estimates(target.X[:0], estimates.y, estimates.variance)
        selected = select_observations(estimates.y, MAX_ESTIMATED)
        return Estimates(*(array[selected] for array in estimates))

    def _thetas(
        self, past: Past, layout: ThetaLayout, target: StepLevel, goal: Array, trend: EarlierStudyModels | None
    ) -> ThetaDraws:
        """Return draws of theta, learned from the first last_learned_count() observations.

        They are therefore the same after a resume. With several objectives, every goal is a different function, so
        theta is learned from all observations.
        """
        n = last_learned_count(len(goal)) if len(past.objectives) == 1 else len(goal)
        X = target.X[:n]

        def learn() -> ThetaDraws:
            y = normalise(goal[:n], robust=self._robust)
            trend_at_X = None if trend is None else centred(trend.mean(X))
            return draw_thetas(layout, X, y, self._sampling, np.random.default_rng((past.seed, n)), trend_at_X)

        inputs = (past.seed, past.space, tuple(past.earlier), X.tobytes(), goal[:n].tobytes())
        return self._cached("theta", inputs, learn)

    # --- constraints and cost

    def _constraint_terms(
        self, past: Past, cube: Cube, observations: Observations, pending: Array, rng: np.random.Generator
    ) -> tuple[list[AcquisitionTerm], Booleans]:
        """Return the log probability of meeting each constraint, and which pending points meet all of them.

        A pending point counts with values that the models make up for it.
        """
        layout = self._layout(cube, 0)
        terms: list[AcquisitionTerm] = []
        pending_feasible = np.ones(len(pending), dtype=bool)
        for constraint in past.constraints:
            metrics = np.array([trial.metrics.get(constraint.metric, np.nan) for trial in observations.ended])
            has_metric = np.isfinite(metrics)  # a trial that was stopped early may lack it
            if not has_metric.any():
                continue
            sign = 1.0 if constraint.upper else -1.0
            scale = partial(scaled_distance_to_limit, limit=sign * constraint.limit)
            X, values = observations.X[has_metric], sign * metrics[has_metric]
            y = scale(values)
            chosen = select_observations(np.abs(y), MAX_MODELLED)  # prefers the values near the limit
            theta = self._most_likely(str(constraint), past, layout, X, values, scale)
            z = rng.standard_normal((1, len(pending)))
            model = Posterior(layout, theta, np.concatenate([X[chosen], pending]), y[chosen], z)
            terms.append(LogProbabilityBelow(model, 0.0))
            pending_feasible &= model.mean_at_inputs[0, len(chosen) :] <= 0.0
        return terms, pending_feasible

    def _cost_terms(self, past: Past, cube: Cube, observations: Observations) -> list[AcquisitionTerm]:
        """Return the negative log cost if the search is cost-aware and any trial's duration is known."""
        has_run = np.array([trial.origin != KNOWN for trial in observations.ended], dtype=bool)
        seconds = np.array([trial.seconds for trial in observations.ended])[has_run]
        if len(observations.levels) > 1:  # a trial that was cut short took less than its full time: count per step
            steps = [max(1, trial.step) for trial, ran in zip(observations.ended, has_run, strict=True) if ran]
            seconds /= steps
        if not self._cost_aware or not (seconds > 0.0).any():
            return []
        log_seconds = np.log(np.maximum(seconds, seconds[seconds > 0.0].min()))  # a clock may measure 0 seconds
        scale = partial(normalise, robust=False)
        layout = self._layout(cube, 0)
        X = observations.X[has_run]
        theta = self._most_likely("cost", past, layout, X, log_seconds, scale)
        chosen = select_observations(log_seconds, MAX_MODELLED)
        model = Posterior(layout, theta, X[chosen], scale(log_seconds[chosen]))
        return [NegativeLogCost(model, float(log_seconds[chosen].std()))]

    def _most_likely(
        self,
        name: str,
        past: Past,
        layout: ThetaLayout,
        X: Array,
        values: Array,
        scale: Callable[[Array], Array],
    ) -> Array:
        """Return the most likely theta for scaled values at X; `name` is its key in the cache."""
        n = last_learned_count(len(values))
        inputs = (past.space, X[:n].tobytes(), values[:n].tobytes())
        return self._cached(name, inputs, lambda: most_likely(layout, X[:n], scale(values[:n])))

    # --- caches, the only state between suggestions

    def _earlier_models(self, past: Past, cube: Cube) -> EarlierStudyModels:
        layout = self._layout(cube, 0)
        inputs = (past.space, tuple(past.earlier))
        return self._cached("earlier", inputs, lambda: EarlierStudyModels(past.earlier, past.space, layout))

    def _layout(self, cube: Cube, earlier_count: int) -> ThetaLayout:
        layout = replace(cube.layout, earlier_count=earlier_count)
        return layout if self._warp else replace(layout, warped_columns=layout.warped_columns[:0])

    def _cached(self, name: str, inputs: Any, compute: Callable[[], T]) -> T:
        """Return the object cached under a name; compute it again if its inputs have changed."""
        cached = self._caches.get(name)
        if cached is None or cached[0] != inputs:
            cached = self._caches[name] = (inputs, compute())
        result: T = cached[1]
        return result


def _goal(values: Array, rng: np.random.Generator) -> Array:
    """Return the values to be minimised (n,), given those of each objective (n, objectives).

    With several objectives, each call draws new weights, as ParEGO does (Knowles 2006). The goal is the largest of
    the weighted objectives plus a small part of their sum.
    """
    if values.shape[1] == 1:
        return values[:, 0]
    weights = rng.dirichlet(np.ones(values.shape[1]))
    # With the tail of a diverged trial, all other trials would be scaled to nearly the same value.
    compressed = np.stack([compress_tail(np.clip(column, -LARGEST, LARGEST)) for column in values.T], axis=1)
    low, high = compressed.min(axis=0), compressed.max(axis=0)
    scaled = (compressed - low) / np.where(high > low, high - low, 1.0) * weights
    goal: Array = scaled.max(axis=1) + SUM_SHARE * scaled.sum(axis=1)
    return goal
