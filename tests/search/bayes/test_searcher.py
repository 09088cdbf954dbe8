"""Tests Bayesian search as a whole: the searcher protocol, extreme inputs, and that it finds the optimum."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thriftune as tt
from tests.search.conformance import INFINITE, FakePast, SearcherConformance, rng, run
from thriftune.errors import SettingError
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.simulation_loop import run as simulated
from thriftune.search.bayes import Bayes
from thriftune.search.bayes.earlier_studies import EarlierStudyModels
from thriftune.search.bayes.unit_cube import Cube
from thriftune.search.protocol import Past, Searcher
from thriftune.space.objectives import Constraint, Objective
from thriftune.space.space import Space
from thriftune.state.earlier_results import EarlierStudy
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State
from thriftune.stopping import STOPPERS

LINE = Space({"x": tt.Float(0, 1), "y": tt.Float(0, 1)})
FAST: dict[str, Any] = {"draws": 2, "burn_in": 2, "thin": 1}  # short chains, for tests of everything else


def bowl(config: Any, at: float = 0.3) -> float:
    return float(sum((value - at) ** 2 for value in config.values()))


def search(past: FakePast, trials: int, searcher: Bayes | None = None, function: Any = bowl) -> FakePast:
    searcher = searcher or Bayes(**FAST)
    for _ in range(trials):
        config = searcher.suggest(past, rng(past))
        past.add(config, function(config))
    return past


class TestBayes(SearcherConformance):
    def searcher(self) -> Bayes:
        return Bayes(**FAST)


class TestBayesWithMostLikelyHyperparameters(SearcherConformance):
    def searcher(self) -> Bayes:
        return Bayes(hyperparameters="map", warp=False)


# --- the expected gain --------------------------------------------------------------------------------------


def gains(function: Any, trials: int, *, scale: float = 1.0, maximize: bool = False) -> list[float | None]:
    past = FakePast(LINE, maximize=maximize)
    searcher, expected = Bayes(**FAST), []
    for _ in range(trials):
        config = searcher.suggest(past, rng(past))
        expected.append(searcher.expected_gain(past))
        past.add(config, scale * function(config))
    return expected


def test_the_expected_gain_falls_as_the_best_point_is_found() -> None:
    expected = gains(bowl, 30)
    assert expected[:4] == [None] * 4  # the initial points fill the space
    known = [gain for gain in expected if gain is not None]
    assert len(known) == 26
    assert all(gain >= 0.0 for gain in known)
    assert max(known[-5:]) < 0.01 * max(known[:5])
    assert max(known[:5]) < 1.0  # like the values themselves


@pytest.mark.parametrize("scale", [1e6, 1e-6])
def test_the_expected_gain_is_in_the_units_of_the_objective(scale: float) -> None:
    plain, scaled = gains(bowl, 8), gains(bowl, 8, scale=scale)
    assert scaled[4] == pytest.approx(scale * (plain[4] or 0.0), rel=1e-3)


def test_the_expected_gain_does_not_depend_on_the_direction() -> None:
    assert gains(bowl, 6, scale=-1.0, maximize=True)[4] == pytest.approx(gains(bowl, 6)[4] or 0.0, rel=1e-6)


@pytest.mark.parametrize("level", [0.0, 1e300])
def test_the_expected_gain_of_a_constant_is_not_known(level: float) -> None:
    assert gains(lambda _: level, 7) == [None] * 7


def test_the_expected_gain_is_zero_once_all_configurations_were_tried() -> None:
    past = FakePast(Space({"n": tt.Int(1, 5)}))
    searcher = Bayes(**FAST)
    for _ in range(5):
        config = searcher.suggest(past, rng(past))
        past.add(config, config["n"])
    searcher.suggest(past, rng(past))
    assert searcher.expected_gain(past) == 0.0


# --- it finds the optimum -----------------------------------------------------------------------------------


def best(past: FakePast) -> float:
    return min(trial.value for trial in past.trials if trial.value is not None)


@pytest.mark.parametrize("maximize", [False, True])
def test_it_finds_the_bottom_of_a_bowl_and_the_top_of_a_hill(maximize: bool) -> None:
    sign = -1.0 if maximize else 1.0
    past = search(FakePast(LINE, maximize=maximize), 20, Bayes(), lambda config: sign * bowl(config))
    assert min(sign * (trial.value or 0.0) for trial in past.trials) < 1e-3


def test_it_searches_choices_ints_and_conditional_parameters() -> None:
    def value(config: Any) -> float:
        far = abs(math.log(config["lr"] / 0.01)) / 5 + abs(config["width"] - 64) / 100
        return float(far + (abs(config["momentum"] - 0.9) if config["opt"] == "sgd" else 0.5))

    bests = [best(search(FakePast(INFINITE, seed=seed), 40, Bayes(), value)) for seed in range(3)]
    assert np.median(bests) < 0.1  # the best of 40 random points has about 0.3


def test_it_averages_out_noise_larger_than_the_signal() -> None:
    noise = np.random.default_rng(0)
    past = search(FakePast(LINE), 60, function=lambda config: bowl(config) + noise.normal())
    late = [bowl(trial.config) for trial in past.trials[40:]]
    assert np.median(late) < 0.2  # random points have 0.25


def test_suggestions_keep_a_distance_to_running_trials() -> None:
    def mean_distance(fantasies: bool) -> float:
        past = search(FakePast(LINE), 6, Bayes())
        for _ in range(6):
            past.add(Bayes(fantasies=fantasies).suggest(past, rng(past)))
        pending = np.array([LINE.encode(trial.config) for trial in past.trials[-6:]])
        return float(np.linalg.norm(pending[:, None] - pending[None], axis=2).mean())

    assert mean_distance(True) > 2 * mean_distance(False)


# --- extreme inputs -----------------------------------------------------------------------------------------

EXTREMES: dict[str, list[float]] = {
    "constant": [1.0],
    "zero": [0.0],
    "huge": [1e300, 2.0, 1e-300],
    "both huge": [1e308, -1e308, 3.0],
    "tiny differences": [1.0, 1.0 + 1e-15],
    "tiny": [5e-324, 1e-310],
    "a heavy tail": [1.0, 1e3, 1e9, 1e27],
    "two levels": [0.0, 1.0],
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_values(name: str) -> None:
    values = EXTREMES[name]
    past = FakePast(INFINITE)
    searcher = Bayes(**FAST)
    for i in range(14):
        config = searcher.suggest(past, rng(past))
        past.add(config, values[i % len(values)])
    assert len({INFINITE.key(trial.config) for trial in past.trials}) == 14


def test_one_observation_and_many_running_trials() -> None:
    past = FakePast(LINE)
    search(past, 1)
    for _ in range(8):
        past.add(Bayes(**FAST).suggest(past, rng(past)))
    assert len({LINE.key(trial.config) for trial in past.trials}) == 9


def test_the_same_point_many_times_with_different_values() -> None:
    past = FakePast(LINE)
    for i in range(12):
        past.add({"x": 0.5, "y": 0.5}, float(i % 3))
    search(past, 3)
    assert len({LINE.key(trial.config) for trial in past.trials}) == 4


def test_the_region_of_failures_is_avoided_and_its_border_still_searched() -> None:
    past, searcher, failures = FakePast(LINE), Bayes(**FAST), []
    for _ in range(30):
        config = searcher.suggest(past, rng(past))
        past.add(config)
        fails = config["x"] < 0.4  # where the bowl is lowest
        failures.append(fails)
        past.end(past.trials[-1], None if fails else bowl(config))
    assert sum(failures) <= 10, "12 of 30 random points would fail"
    assert best(past) < 0.1**2 + 0.02, "the best point is right at the border"


def test_only_failures() -> None:
    past, searcher = FakePast(LINE), Bayes(**FAST)
    for _ in range(8):
        past.add(searcher.suggest(past, rng(past)))
        past.end(past.trials[-1], None)
    assert len({LINE.key(trial.config) for trial in past.trials}) == 8


def test_nan_counts_as_a_failure() -> None:
    past = search(FakePast(LINE), 6)
    past.add({"x": 0.1, "y": 0.2}, math.nan)
    search(past, 2)


def test_thousands_of_observations() -> None:
    past = FakePast(INFINITE)
    chance = np.random.default_rng(0)
    for _ in range(3000):
        config = INFINITE.sample(chance)
        past.add(config, math.log(config["lr"]) ** 2 + config["width"] / 512)
    assert Bayes().suggest(past, rng(past)) == Bayes().suggest(past.copy(), rng(past))


def parameters() -> st.SearchStrategy[Any]:
    numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 6))
    spans = st.floats(0, 1e6).map(lambda x: round(x, 6))
    return st.one_of(
        st.builds(lambda low, span: tt.Float(low, low + span), numbers, spans),
        st.builds(
            lambda low, times: tt.Float(low, low * times, log=True), st.floats(1e-9, 1e3), st.floats(1, 1e9)
        ),
        st.builds(lambda low, span: tt.Int(low, low + span), st.integers(-9, 9), st.integers(0, 5000)),
        st.builds(lambda low, times: tt.Int(low, low * times, log=True), st.integers(1, 9), st.integers(1, 999)),
        st.builds(lambda k: tt.Choice(list(range(k))), st.integers(1, 12)),
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(parameters(), min_size=1, max_size=5), st.integers(0, 3), st.randoms(use_true_random=False))
def test_any_space_and_any_values(drawn_parameters: list[Any], running: int, chance: Any) -> None:
    space = Space({f"p{i}": parameter for i, parameter in enumerate(drawn_parameters)})
    past = FakePast(space, seed=chance.randrange(1000))
    searcher = Bayes(**FAST)
    count = min(9, int(min(space.size, 9)))
    for i in range(count):
        config = searcher.suggest(past, rng(past))
        assert space.check(config) == config
        past.add(config)
        if i >= running:
            value = chance.choice([None, 0.0, 1.0, chance.gauss(0, 1), chance.gauss(0, 1) * 1e12])
            past.end(past.trials[i - running], value)
    assert len({space.key(trial.config) for trial in past.trials}) == count


# --- constraints, several objectives, cost ------------------------------------------------------------------


def test_a_constraint_is_learned_and_met() -> None:
    past = FakePast(LINE, constraints=[Constraint("size", 0.5, upper=False)])
    searcher = Bayes(**FAST)
    for _ in range(25):
        config = searcher.suggest(past, rng(past))
        past.add(config)
        past.end(past.trials[-1], bowl(config), size=config["x"])
    feasible = [trial for trial in past.trials if trial.config["x"] >= 0.5]
    assert min(trial.value or 0.0 for trial in feasible) < 0.2**2 + 0.02, "the best feasible point has x = 0.5"
    assert len([trial for trial in past.trials[10:] if trial.config["x"] >= 0.5]) >= 10


def test_suggestions_keep_a_distance_to_running_trials_under_constraints() -> None:
    def mean_distance(limit: float) -> float:
        past = FakePast(LINE, constraints=[Constraint("size", limit, upper=True)])
        searcher = Bayes(**FAST)
        for _ in range(8):
            config = searcher.suggest(past, rng(past))
            past.add(config)
            past.end(past.trials[-1], bowl(config), size=config["x"] + config["y"])
        for _ in range(6):
            past.add(searcher.suggest(past, rng(past)))
        pending = np.array([LINE.encode(trial.config) for trial in past.trials[-6:]])
        return float(np.linalg.norm(pending[:, None] - pending[None], axis=2).mean())

    assert min(mean_distance(limit) for limit in (0.5, 100.0)) > 0.1


def test_a_limit_on_a_metric_that_ranges_over_decades() -> None:
    past = FakePast(LINE, constraints=[Constraint("size", 10**1.5, upper=True)])
    searcher = Bayes(**FAST)
    for _ in range(25):
        config = searcher.suggest(past, rng(past))
        past.add(config)
        past.end(past.trials[-1], -config["x"] - config["y"], size=10 ** (3 * (config["x"] + config["y"])))
    feasible = [trial for trial in past.trials if trial.metrics["size"] <= 10**1.5]
    assert min(trial.value or 0.0 for trial in feasible) < -0.49, "the best feasible value is -0.5"


def test_a_trial_that_lacks_a_constrained_metric_still_counts() -> None:
    past = FakePast(LINE, constraints=[Constraint("size", 0.5, upper=False)])
    for i in range(8):
        past.add({"x": i / 10, "y": 0.5})
        past.end(past.trials[-1], float(i), **({"size": i / 10} if i % 2 else {}))
    assert Bayes(**FAST).suggest(past, rng(past)) is not None
    none = FakePast(LINE, constraints=[Constraint("size", 0.5, upper=False)])
    for i in range(8):
        none.add({"x": i / 10, "y": 0.5}, float(i))
    assert Bayes(**FAST).suggest(none, rng(none)) is not None


def test_hundreds_of_running_and_of_failed_trials() -> None:
    past = search(FakePast(LINE), 5)
    chance = np.random.default_rng(0)
    for i in range(1200):
        past.add(LINE.sample(chance))
        if i < 500:
            past.end(past.trials[-1], None)
    assert LINE.check(Bayes(**FAST).suggest(past, rng(past)))


def test_choices_of_hundreds_of_values() -> None:
    space = Space({"c": tt.Choice(list(range(500))), "d": tt.Choice(list(range(300))), "x": tt.Float(0, 1)})
    search(FakePast(space), 8, function=lambda config: (config["c"] + config["d"]) * config["x"])


def test_while_no_trial_is_feasible_it_searches_for_a_feasible_one() -> None:
    past = FakePast(LINE, constraints=[Constraint("size", 0.98, upper=False)])
    searcher = Bayes(**FAST)
    for _ in range(15):
        config = searcher.suggest(past, rng(past))
        past.add(config)
        past.end(past.trials[-1], bowl(config), size=(config["x"] + config["y"]) / 2)
    assert any(trial.metrics["size"] >= 0.98 for trial in past.trials)


def test_several_objectives_give_points_along_the_whole_front() -> None:
    past = FakePast(LINE, objectives=[Objective("loss", False), Objective("gain", True)])
    searcher = Bayes(**FAST)
    for _ in range(30):
        config = searcher.suggest(past, rng(past))
        past.add(config)
        x, y = config["x"], config["y"]
        past.end(past.trials[-1], x**2 + (y - 0.5) ** 2, gain=-((1 - x) ** 2) - (y - 0.5) ** 2)
    near = [trial.config["x"] for trial in past.trials[5:] if abs(trial.config["y"] - 0.5) < 0.1]
    assert len(near) > 12, "all good points have y = 0.5"
    assert min(near) < 0.2
    assert max(near) > 0.8


def test_a_cost_aware_search_prefers_the_cheaper_of_two_equal_optima() -> None:
    def total(searcher: Bayes) -> float:
        past = FakePast(LINE)
        for _ in range(20):
            config = searcher.suggest(past, rng(past))
            past.add(config)
            past.trials[-1].seconds = 1.0 + 100.0 * config["x"]
            past.end(past.trials[-1], (abs(config["x"] - 0.5) - 0.3) ** 2 + (config["y"] - 0.5) ** 2)
        return sum(trial.seconds for trial in past.trials)

    assert total(Bayes(cost_aware=True)) < 0.8 * total(Bayes())


def test_a_cost_aware_search_needs_no_durations() -> None:
    past = search(FakePast(LINE), 6)
    assert Bayes(cost_aware=True).suggest(past, rng(past)) == Bayes().suggest(past, rng(past))
    past.trials[0].seconds = 3.0  # the durations of the others are 0
    assert LINE.check(Bayes(cost_aware=True).suggest(past, rng(past)))


def test_extreme_values_of_several_objectives() -> None:
    past = FakePast(LINE, objectives=[Objective("loss", False), Objective("gain", True)])
    for i in range(8):
        past.add({"x": i / 10, "y": 0.5})
        past.end(past.trials[-1], 1.7e308 * (-1) ** i, gain=-1.7e308 * (-1) ** i)
    with np.errstate(all="raise", under="ignore"):
        assert LINE.check(Bayes(**FAST).suggest(past, rng(past)))


# --- warm start ---------------------------------------------------------------------------------------------


def earlier_study(function: Any, space: Space = LINE, maximize: bool = False, count: int = 40) -> EarlierStudy:
    chance = np.random.default_rng(1)
    configs = [space.sample(chance) for _ in range(count)]
    return EarlierStudy("old", space, "loss", maximize, tuple((config, function(config)) for config in configs))


def far(config: Any) -> float:
    return bowl(config, at=0.87)


def test_a_related_study_helps_from_the_start() -> None:
    cold = best(search(FakePast(LINE), 8, Bayes(), far))
    for maximize in (False, True):
        sign = -1.0 if maximize else 1.0
        old = earlier_study(lambda config, sign=sign: sign * 1000.0 * (far(config) + 7.0), maximize=maximize)
        assert best(search(FakePast(LINE, earlier=[old]), 8, Bayes(), far)) < 0.5 * cold


def test_a_study_does_not_affect_parameters_that_it_did_not_vary() -> None:
    narrow = Space({"x": tt.Float(0, 1)})
    old = earlier_study(lambda config: (config["x"] - 0.87) ** 2, narrow)
    models = EarlierStudyModels([old], LINE, Cube(LINE).layout)
    X = np.array([[0.2, 0.1], [0.2, 0.9], [0.7, 0.5]])
    mean, gradient = models.mean_with_gradient(X)
    assert mean[0] == mean[1] > mean[2]
    assert mean == pytest.approx(models.mean(X))
    assert (gradient[:, 0, 1] == 0).all()
    ahead = models.mean(X + np.array([1e-6, 0.0]))
    assert gradient[:, :, 0] == pytest.approx((ahead - mean) / 1e-6, rel=1e-3)


def test_an_unrelated_study_is_soon_ignored() -> None:
    past = search(FakePast(LINE, earlier=[earlier_study(lambda config: -far(config))]), 25, Bayes(), far)
    assert best(past) < 1e-3


@pytest.mark.parametrize(
    "old",
    [
        EarlierStudy("empty", LINE, "loss", False, ()),
        EarlierStudy("failed", LINE, "loss", False, (({"x": 0.1, "y": 0.1}, None),)),
        earlier_study(bowl, Space({"other": tt.Float(0, 1)})),
        earlier_study(lambda config: config["x"], Space({"x": tt.Float(0, 1), "z": tt.Choice(["a", "b"])})),
        earlier_study(lambda config: 1.0),
    ],
    ids=["empty", "failed", "nothing in common", "some in common", "constant"],
)
def test_earlier_studies_of_every_kind(old: EarlierStudy) -> None:
    past = search(FakePast(LINE, earlier=[old, earlier_study(bowl)]), 8)
    assert len({LINE.key(trial.config) for trial in past.trials}) == 8


# --- trials that were cut short -------------------------------------------------------------------------------

STEPS = 9


def loss_at(config: Any, step: int) -> float:
    """Return a loss that falls with each step, most for large x, so that early losses rank differently."""
    return bowl(config) + (1.0 + 0.2 * float(config["x"])) / step


def falling(config: Any) -> Curve:
    steps = range(1, STEPS + 1)
    return Curve(steps, [{"loss": loss_at(config, step)} for step in steps], [1.0] * STEPS)


def cut_short(searcher: Searcher, rule: str = "asha", seed: int = 0, trials: int = 30) -> tt.Result:
    """Simulate a study of these curves."""
    objectives = (Objective("loss", False),)
    spec = Spec("cut", LINE, objectives, seed, max_steps=STEPS, stopping=rule, trials=trials, workers=3)
    return simulated(spec, falling, searcher, STOPPERS.make(rule, {}))


class LastValueIsFinal:
    """A searcher that treats the last value of each ended trial as its final value."""

    def __init__(self) -> None:
        self._searcher = Bayes(**FAST)

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        changed = FakePast(past.space, past.seed, past.maximize, past.objectives)
        for trial in past.trials:
            changed.add(trial.config)
        changed.trials = [replace(t, state=State.COMPLETED if t.state.ended else t.state) for t in past.trials]
        changed.ended = [changed.trials[trial.id] for trial in past.ended]
        return self._searcher.suggest(changed, rng)


class ComparedWithNew:
    """A searcher that asserts that a new Bayes makes the same suggestion."""

    def __init__(self) -> None:
        self._searcher = Bayes(**FAST)

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        same_rng = deepcopy(rng)
        config = self._searcher.suggest(past, rng)
        assert Bayes(**FAST).suggest(past, same_rng) == config
        return config


def test_the_last_value_of_a_trial_cut_short_is_not_its_final_value() -> None:
    def regret(searcher: Searcher, seed: int) -> float:
        """Return the difference between the best final loss of the searcher's configurations and the optimum."""
        lowest = loss_at({"x": 0.3 - 0.2 / (2 * STEPS), "y": 0.3}, STEPS)
        trials = cut_short(searcher, seed=seed).trials
        assert sum(trial.state is State.STOPPED for trial in trials) > 10
        return min(loss_at(trial.config, STEPS) for trial in trials) - lowest

    with_estimates = np.median([regret(Bayes(**FAST), seed) for seed in range(5)])
    with_last_values = np.median([regret(LastValueIsFinal(), seed) for seed in range(5)])
    assert with_estimates < 1e-3
    assert with_estimates < 0.2 * with_last_values


@pytest.mark.parametrize("rule", ["asha", "median", "hyperband"])
def test_a_study_with_trials_cut_short_is_deterministic(rule: str) -> None:
    first, second = cut_short(ComparedWithNew(), rule, trials=25), cut_short(Bayes(**FAST), rule, trials=25)
    assert {trial.state for trial in first.trials} & {State.STOPPED, State.PAUSED}
    assert first.trials == second.trials


def add_trials(past: FakePast, lengths: list[int], state: State, function: Any) -> FakePast:
    """Add trials of these lengths in steps; the last two are running."""
    chance = np.random.default_rng(0)
    for number, length in enumerate(lengths):
        past.add(config := past.space.sample(chance))
        curve = [function(config, step) for step in range(1, length + 1)]
        ended = State.COMPLETED if length == STEPS else state
        past.report(past.trials[-1], curve, ended if number < len(lengths) - 2 else State.RUNNING, float(number))
    return past


LENGTHS = [1, 3, 1, 9, 1, 3, 1, 9, 3, 9, 1, 9, 3, 1, 9, 5, 1]


@pytest.mark.parametrize("state", [State.STOPPED, State.PAUSED])
@pytest.mark.parametrize("name", [*EXTREMES, "nan", "infinite"])
def test_extreme_values_at_every_level(name: str, state: State) -> None:
    values = {"nan": [1.0, math.nan, 3.0], "infinite": [-math.inf, 2.0, math.inf, 0.0], **EXTREMES}[name]
    numbers = iter(range(1000))
    past = add_trials(FakePast(INFINITE), LENGTHS, state, lambda *_: values[next(numbers) % len(values)])
    for trial in past.ended:  # as in a study
        if not math.isfinite(trial.value or 0.0):
            trial.state = State.FAILED
    for _ in range(3):
        config = Bayes(**FAST).suggest(past, rng(past))
        assert INFINITE.check(config) == config
        assert not past.times(config)
        past.add(config)


@pytest.mark.parametrize(
    "lengths", [[1] * 6, [1, 2, 3, 4, 5, 6], [3, 3], [9, 9, 9, 1, 1], [1, 1, 1, 1, 1, 9, 9, 9]]
)
def test_few_trials_at_few_levels(lengths: list[int]) -> None:
    for state in (State.STOPPED, State.PAUSED):
        past = add_trials(FakePast(LINE), lengths, state, loss_at)
        assert LINE.check(Bayes(**FAST).suggest(past, rng(past)))


def test_trials_cut_short_with_a_warm_start_a_constraint_and_cost() -> None:
    past = FakePast(LINE, earlier=[earlier_study(bowl)], constraints=[Constraint("size", 0.5, upper=False)])
    add_trials(past, LENGTHS, State.STOPPED, loss_at)
    for trial in past.trials:
        trial.metrics["size"] = trial.config["x"]
        trial.seconds = float(trial.step)
    searcher = Bayes(cost_aware=True, **FAST)
    for _ in range(4):
        config = searcher.suggest(past, rng(past))
        assert Bayes(cost_aware=True, **FAST).suggest(past.copy(), rng(past)) == config
        past.add(config)
    assert len({LINE.key(trial.config) for trial in past.trials}) == len(LENGTHS) + 4


def test_with_several_objectives_trials_cut_short_count_with_their_last_values() -> None:
    objectives = [Objective("loss", False), Objective("gain", True)]
    past = add_trials(FakePast(LINE, objectives=objectives), LENGTHS, State.STOPPED, loss_at)
    for trial in past.ended:
        trial.metrics["gain"] = trial.config["x"]
        trial.values = (trial.value or 0.0, trial.config["x"])
    ended = past.copy()
    for trial in ended.ended:
        trial.state = State.COMPLETED
    assert Bayes(**FAST).suggest(past, rng(past)) == Bayes(**FAST).suggest(ended, rng(past))


def test_hundreds_of_trials_most_of_them_cut_short() -> None:
    past = add_trials(FakePast(LINE), LENGTHS * 40, State.STOPPED, loss_at)
    config = Bayes(**FAST).suggest(past, rng(past))
    assert Bayes(**FAST).suggest(past.copy(), rng(past)) == config


# --- resuming -------------------------------------------------------------------------------------------------


def test_a_resumed_study_continues_with_the_same_suggestions(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"minimize": "loss", "seed": 3}
    old = tt.Study(INFINITE, name="old", store=tmp_path, **settings)
    for _ in range(6):
        old.tell(trial := old.ask(), math.log(trial["lr"]))
    uninterrupted = tt.Study(INFINITE, warm_start=old, **settings)
    names: dict[str, Any] = {"name": "s", "store": tmp_path}
    tt.Study(INFINITE, warm_start=old, **settings, **names)
    for i in range(16):
        value = float(i * 7 % 11)
        expected = uninterrupted.ask()
        resumed = (study := tt.Study(INFINITE, **settings, **names)).ask()  # from a new searcher
        assert expected.config == resumed.config
        if i % 5 == 4:
            uninterrupted.tell(expected, failed="so")
            study.tell(resumed, failed="so")
        elif i % 3:
            uninterrupted.tell(expected, value)
            study.tell(resumed, value)


# --- options --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial": 0}, "initial: 0 is too small; use 1 or more"),
        ({"draws": 2.5}, "draws: 2.5 must be a whole number"),
        ({"thin": True}, "thin: True must be"),
        ({"hyperparameters": "guess"}, "'guess' must be 'slice' or 'map'"),
        ({"warp": "no"}, "warp 'no' must be true or false"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Bayes(**options)


def test_bayes_is_the_default_searcher() -> None:
    study = tt.Study({"x": tt.Float(0, 1)}, minimize="loss", seed=0)
    assert study.spec.searcher == "bayes"
    for _ in range(10):
        study.tell(trial := study.ask(), (trial["x"] - 0.7) ** 2)
    assert (study.best.value or 1.0) < 1e-4


def test_suggestions_have_plain_python_values() -> None:
    for config in run(Bayes(**FAST), FakePast(INFINITE), 10, running=3):
        assert all(type(value) in (str, int, float) for value in config.values())
