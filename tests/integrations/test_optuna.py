"""Tests ThriftuneSampler with Optuna's own suite, in real studies, and with a searcher that records its past."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import hypothesis
import numpy as np
import optuna
import pytest
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.testing import pytest_samplers
from optuna.trial import FixedTrial, FrozenTrial, Trial, TrialState, create_trial

from thriftune.errors import SettingError
from thriftune.integrations.optuna import ThriftuneSampler
from thriftune.integrations.optuna.translation import Translation
from thriftune.search.protocol import Past
from thriftune.space.objectives import feasible
from thriftune.state.trial_record import State

IGNORE_UNUSUAL = "ignore:.*(not divisible by `step`|out of range|Choices for a categorical)"
pytestmark = [pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")]


@pytest.fixture(autouse=True)
def _errors_only() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


# --- Optuna's own suite -----------------------------------------------------------------------------------


class _WithThriftuneSampler:
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: ThriftuneSampler(seed=1)


@pytest.mark.filterwarnings("ignore:.*is drawn at random")
class TestBasics(_WithThriftuneSampler, pytest_samplers.BasicSamplerTestCase):
    pass


class TestRelative(_WithThriftuneSampler, pytest_samplers.RelativeSamplerTestCase):
    pass


class TestSeveralObjectives(_WithThriftuneSampler, pytest_samplers.MultiObjectiveSamplerTestCase):
    pass


# --- the past that a searcher sees ------------------------------------------------------------------------


class Spy:
    """A searcher that records the past it receives, and suggests random configurations."""

    past: Past

    def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, Any]:
        self.past = past
        return past.space.sample(rng)


def spied(study: Study, **settings: Any) -> Spy:
    """Give the study a sampler whose searcher is a Spy, and return the Spy."""
    sampler, spy = ThriftuneSampler(seed=0, **settings), Spy()
    sampler._searcher = spy
    study.sampler = sampler
    return spy


X: dict[str, BaseDistribution] = {"x": FloatDistribution(0.0, 1.0)}


def add(study: Study, x: float, value: float | None = None, **more: Any) -> None:
    study.add_trial(create_trial(params={"x": x}, distributions=dict(X), value=value, **more))


def test_the_searcher_sees_trials_in_their_states() -> None:
    study = optuna.create_study()
    add(study, 0.1, 3.0)
    add(study, 0.2, state=TrialState.FAIL)
    add(study, 0.3, math.inf)
    add(study, 0.4, state=TrialState.PRUNED, intermediate_values={1: 9.0, 2: 7.0})
    add(study, 0.5, state=TrialState.PRUNED)
    add(study, 0.6, state=TrialState.PRUNED, intermediate_values={1: math.nan})
    add(study, 0.7, state=TrialState.RUNNING)
    study.enqueue_trial({"x": 0.8})
    study.enqueue_trial({"other": 1.0})
    spy = spied(study)
    study._storage.create_new_trial(study._study_id)  # runs, and has no parameter yet
    trial = study.ask()  # the first enqueued trial
    assert trial.suggest_float("x", 0.0, 1.0) == 0.8
    study.ask().suggest_float("x", 0.0, 1.0)  # the second enqueued trial, which does not fix x
    past = spy.past
    assert [(record["x"], record.state, record.value) for record in past.trials] == [
        (0.1, State.COMPLETED, 3.0),
        (0.2, State.FAILED, None),
        (0.3, State.FAILED, None),
        (0.4, State.STOPPED, 7.0),
        (0.5, State.FAILED, None),
        (0.6, State.FAILED, None),
        (0.7, State.RUNNING, None),
        (0.8, State.RUNNING, None),
    ]
    assert [record.id for record in past.ended] == [0, 1, 2, 3, 4, 5]
    assert past.times({"x": 0.8}) == 1
    assert past.times({"x": 0.9}) == 0
    assert not past.maximize


def test_enqueued_trials_are_pending_before_they_run() -> None:
    study = optuna.create_study()
    add(study, 0.1, 3.0)
    spy = spied(study)
    trial = study.ask()
    study.enqueue_trial({"x": 0.8})
    trial.suggest_float("x", 0.0, 1.0)
    assert [(record["x"], record.state) for record in spy.past.trials] == [
        (0.1, State.COMPLETED),
        (0.8, State.WAITING),
    ]


@pytest.mark.parametrize("maximize", [False, True])
def test_a_pruned_trial_is_no_better_than_the_median_of_those_completed_before(maximize: bool) -> None:
    sign = -1.0 if maximize else 1.0
    study = optuna.create_study(direction="maximize" if maximize else "minimize")
    add(study, 0.0, state=TrialState.PRUNED, intermediate_values={1: sign * 0.5})
    for value in (5.0, 1.0, 2.0, 4.0):
        add(study, value / 10, sign * value)
    add(study, 0.6, state=TrialState.PRUNED, intermediate_values={1: sign * 0.5})
    add(study, 0.7, state=TrialState.PRUNED, intermediate_values={1: sign * 8.0})
    add(study, 0.8, sign * 100.0)  # does not change the median for the trials before it
    spy = spied(study)
    study.ask().suggest_float("x", 0.0, 1.0)
    values = [record.value for record in spy.past.trials]
    assert values == [sign * each for each in (0.5, 5.0, 1.0, 2.0, 4.0, 3.0, 8.0, 100.0)]
    assert spy.past.maximize is maximize


def test_trials_end_in_the_order_of_their_ends() -> None:
    study = optuna.create_study()
    add(study, 0.1, 1.0)
    spy = spied(study)
    trials = [study.ask(X) for _ in range(3)]
    for number in (1, 2, 0):
        study.tell(trials[number], 0.0)
    study.ask(X)
    assert [record.id for record in spy.past.ended] == [0, 2, 3, 1]
    assert [record.id for record in spy.past.trials] == [0, 1, 2, 3]
    assert all(record.seconds >= 0.0 for record in spy.past.ended)


def test_records_are_cached_while_the_space_is_the_same() -> None:
    study = optuna.create_study()
    spy = spied(study)
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=3)
    before = spy.past
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=1)
    assert spy.past.space is before.space
    assert all(a is b for a, b in zip(before.ended, spy.past.ended, strict=False))


def test_trials_with_values_outside_the_space_are_left_out() -> None:
    study = optuna.create_study()
    space: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1), "n": IntDistribution(0, 8, step=2)}
    space["c"] = CategoricalDistribution(["a", "b"])
    wide: dict[str, BaseDistribution] = {**space, "x": FloatDistribution(0, 9), "n": IntDistribution(0, 9)}
    for params in ({"x": 7.0, "n": 2}, {"x": 0.5, "n": 3}, {"x": 0.5, "n": 9}, {"x": 0.5, "n": 4}):
        frozen = create_trial(params={**params, "c": "b"}, distributions=wide, state=TrialState.FAIL)
        study.add_trial(frozen)
    study.enqueue_trial({"x": 0.3, "n": 2, "c": "z"})
    study.add_trial(create_trial(params={"x": 0.1, "n": 0, "c": "a"}, distributions=space, value=1.0))
    spy = spied(study)
    study._storage.create_new_trial(study._study_id)
    running = study._storage.get_trial(study._storage.create_new_trial(study._study_id))
    study.sampler.sample_relative(study, running, space)
    assert [dict(record.config) for record in spy.past.trials] == [
        {"x": 0.5, "n": 2, "c": 1},
        {"x": 0.1, "n": 0, "c": 0},
    ]


def test_failed_trials_that_are_retried_do_not_count_as_failures() -> None:
    study = optuna.create_study()
    add(study, 0.1, 1.0)
    add(study, 0.2, state=TrialState.FAIL)
    add(study, 0.3, state=TrialState.FAIL)
    optuna.storages.RetryHeartbeatStaleTrialCallback()(study, study.trials[1])
    spy = spied(study)
    trial = study.ask()
    assert trial.suggest_float("x", 0.0, 1.0) == 0.2
    study.ask().suggest_float("x", 0.0, 1.0)
    assert [(r["x"], r.state) for r in spy.past.trials] == [
        (0.1, State.COMPLETED),
        (0.3, State.FAILED),
        (0.2, State.RUNNING),
    ]


def test_the_searcher_sees_several_objectives() -> None:
    study = optuna.create_study(directions=["minimize", "maximize"])
    spy = spied(study)

    def objective(trial: Trial) -> tuple[float, float]:
        x = trial.suggest_float("x", 0.0, 1.0)
        if trial.number == 2:
            raise optuna.TrialPruned
        return x, x * x

    study.optimize(objective, n_trials=4)
    past = spy.past
    assert [each.maximize for each in past.objectives] == [False, True]
    assert [record.state for record in past.trials] == [State.COMPLETED, State.COMPLETED, State.FAILED]
    x = past.trials[1]["x"]
    assert past.trials[1].values == (x, x * x)
    assert past.trials[1].value == x


def test_constraints_func_decides_which_trials_are_feasible() -> None:
    def limits(trial: FrozenTrial) -> tuple[float, float]:
        return trial.params["x"] - 0.5, -math.inf

    study = optuna.create_study()
    spy = spied(study, constraints_func=limits)
    study.enqueue_trial({"x": 0.2})
    study.enqueue_trial({"x": 0.8})
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=3)
    assert study.trials[1].system_attrs["constraints"] == pytest.approx((0.3, -math.inf))
    past = spy.past
    assert [each.met_by(0.0) for each in past.constraints] == [True, True]
    assert [each.met_by(0.1) for each in past.constraints] == [False, False]
    assert [feasible(record.metrics, past.constraints) for record in past.ended] == [True, False]
    assert all(math.isfinite(value) for record in past.ended for value in record.metrics.values())


def test_constraints_that_the_objective_sets_and_trials_without_them() -> None:
    study = optuna.create_study()
    add(study, 0.1, 1.0)
    add(study, 0.2, 1.0, constraints={"memory": 2.0})
    add(study, 0.3, 1.0, constraints={"memory": -2.0, "time": 1.0})
    add(study, 0.4, 1.0, constraints={"memory": 0.0})
    spy = spied(study)
    study.ask(X)
    past = spy.past
    assert len(past.constraints) == 2
    assert [feasible(record.metrics, past.constraints) for record in past.ended] == [True, False, False, True]


def test_the_past_has_all_trials_under_hyperband() -> None:
    study = optuna.create_study(study_name="one", pruner=optuna.pruners.HyperbandPruner(1, 9))
    spy = spied(study)

    def objective(trial: Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        for step in range(9):
            trial.report(x, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x

    study.optimize(objective, n_trials=12)
    assert len(spy.past.trials) == 11


# --- distributions ----------------------------------------------------------------------------------------

TOO_MANY_VALUES: list[BaseDistribution] = [
    IntDistribution(0, 10**15),
    IntDistribution(1, 10**15, log=True),
    IntDistribution(-(10**15), 10**15, step=10),
]
"""Distributions with more values than an Int can have."""


@st.composite
def distributions(draw: st.DrawFn) -> BaseDistribution:
    def ends(numbers: st.SearchStrategy[Any]) -> tuple[Any, Any]:
        low, high = sorted((draw(numbers), draw(numbers)))
        return low, high

    match draw(st.sampled_from(["float", "log", "step", "int", "log int", "choice", "too many"])):
        case "float":
            low, high = ends(st.floats(-1e6, 1e6, allow_subnormal=False))
            return FloatDistribution(low, high)
        case "log":
            low, high = ends(st.floats(1e-9, 1e6))
            return FloatDistribution(low, high, log=True)
        case "step":
            # With much smaller steps, Optuna warns about its own values.
            low, high = ends(st.decimals(-1000, 1000, places=2).map(float))
            return FloatDistribution(low, high, step=draw(st.sampled_from([0.1, 0.25, 0.3, 1e-3, 7.0])))
        case "int":
            low, high = ends(st.integers(-(10**13), 10**13))
            return IntDistribution(low, high, step=draw(st.integers(100, 1000)))
        case "log int":
            low, high = ends(st.integers(1, 10**9))
            return IntDistribution(low, high, log=True)
        case "choice":
            values = st.sampled_from([None, "a", "b", 2, 3.5, math.nan, (1, 2)])
            return CategoricalDistribution(draw(st.lists(values, min_size=1, unique_by=repr)))  # type: ignore[arg-type]
    return draw(st.sampled_from(TOO_MANY_VALUES))


@pytest.mark.filterwarnings(IGNORE_UNUSUAL)
@hypothesis.given(distributions(), st.integers(0, 2**32))
@hypothesis.settings(max_examples=100, deadline=None)
def test_every_distribution_converts_there_and_back(distribution: BaseDistribution, seed: int) -> None:
    translation = Translation({"it": distribution})
    space, rng = translation.space, np.random.default_rng(seed)
    for config in (space.from_unit([0.0]), space.from_unit([1.0]), space.sample(rng), space.sample(rng)):
        params = translation.params(config)
        again = translation.config(create_trial(params=params, distributions={"it": distribution}, value=0.0))
        assert again is not None
        value = translation.params(again)["it"]
        assert value is params["it"] or value == params["it"]
        assert type(value) is type(params["it"])
        if distribution not in TOO_MANY_VALUES:
            assert again == config


def test_steps_are_the_decimals_that_a_user_would_write() -> None:
    translation = Translation({"x": FloatDistribution(-0.2, 1.0, step=0.1), "n": IntDistribution(3, 9, step=2)})
    assert [translation.params(config) for config in translation.space.every()] == [
        {"x": x, "n": n}
        for x in (-0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        for n in (3, 5, 7, 9)
    ]


@pytest.mark.filterwarnings(IGNORE_UNUSUAL)
def test_every_distribution_in_one_study() -> None:
    choices = (None, True, "b", 2.5, (1, 2))

    def objective(trial: Trial) -> float:
        trial.suggest_categorical("c", choices)  # type: ignore[arg-type]
        trial.suggest_categorical("one", ["only"])
        trial.suggest_int("n", -6, 6, step=3)
        trial.suggest_int("log n", 1, 1000, log=True)
        trial.suggest_int("seed", 0, 2**60)
        trial.suggest_float("step", -1.0, 1.0, step=0.1)
        return trial.suggest_float("lr", 1e-5, 1.0, log=True) + trial.suggest_float("x", -1.0, 1.0)

    study = optuna.create_study(sampler=ThriftuneSampler(seed=0))
    study.optimize(objective, n_trials=7)
    assert all(trial.state is TrialState.COMPLETE for trial in study.trials)
    for trial in study.trials:
        for name, distribution in trial.distributions.items():
            assert distribution._contains(distribution.to_internal_repr(trial.params[name]))
    assert "thriftune:suggested" in study.trials[-1].system_attrs


# --- studies ----------------------------------------------------------------------------------------------


def bowl(trial: Trial | FixedTrial) -> float:
    return (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2 + (trial.suggest_float("y", 0.0, 1.0) - 0.8) ** 2


@pytest.fixture(params=["memory", "sqlite", "journal"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], BaseStorage]:
    """Return a function that opens the same storage; a storage on disk gets a new object with each call."""
    memory = InMemoryStorage()
    return {
        "memory": lambda: memory,
        "sqlite": lambda: RDBStorage(f"sqlite:///{tmp_path}/studies.db"),
        "journal": lambda: JournalStorage(JournalFileBackend(str(tmp_path / "studies.log"))),
    }[str(request.param)]


def test_a_resumed_study_continues_with_the_same_suggestions(storage: Callable[[], BaseStorage]) -> None:
    def objective(trial: Trial) -> float:
        if trial.number == 3:
            raise ValueError("fails")
        value = bowl(trial)
        trial.report(value, 1)
        if trial.number == 4:
            raise optuna.TrialPruned
        return value

    whole = optuna.create_study(sampler=ThriftuneSampler(seed=7))
    whole.optimize(objective, n_trials=9, catch=ValueError)
    study = optuna.create_study(storage=storage(), study_name="it", sampler=ThriftuneSampler(seed=7))
    study.optimize(objective, n_trials=6, catch=ValueError)
    study = optuna.load_study(storage=storage(), study_name="it", sampler=ThriftuneSampler(seed=7))
    study.optimize(objective, n_trials=3, catch=ValueError)
    assert [trial.params for trial in study.trials] == [trial.params for trial in whole.trials]
    other = optuna.create_study(sampler=ThriftuneSampler(seed=8))
    other.optimize(objective, n_trials=3)
    assert other.trials[2].params != whole.trials[2].params


def test_workers_see_the_suggestions_of_other_workers(storage: Callable[[], BaseStorage]) -> None:
    first = optuna.create_study(storage=storage(), study_name="it", sampler=ThriftuneSampler(seed=7))
    first.optimize(bowl, n_trials=1)
    second = optuna.load_study(storage=storage(), study_name="it", sampler=ThriftuneSampler(seed=7))
    spy = spied(second)
    running = first.ask()
    x = running.suggest_float("x", 0.0, 1.0)  # the objective has not requested y yet, but its value is known
    second.ask().suggest_float("x", 0.0, 1.0)
    (pending,) = (record for record in spy.past.trials if not record.state.ended)
    assert pending["x"] == x
    assert running.suggest_float("y", 0.0, 1.0) == pending["y"]


def test_a_suggestion_that_another_worker_takes_at_the_same_time_is_replaced() -> None:
    storage = InMemoryStorage()
    samplers = [ThriftuneSampler(seed=0) for _ in range(2)]
    first = optuna.create_study(storage=storage, study_name="s", sampler=samplers[0])
    second = optuna.load_study(storage=storage, study_name="s", sampler=samplers[1])
    first.add_trial(create_trial(params={"n": 0}, distributions={"n": IntDistribution(0, 9)}, value=1.0))
    suggested: list[int] = []

    class Smallest:
        """Suggests the smallest untried number; the other worker takes it during the first suggestion."""

        def __init__(self, other_worker: Callable[[], object] | None) -> None:
            self.other_worker = other_worker

        def suggest(self, past: Past, rng: np.random.Generator) -> dict[str, int]:
            smallest = next(n for n in range(10) if not past.times({"n": n}))
            if self.other_worker is not None:
                other_worker, self.other_worker = self.other_worker, None
                other_worker()
            suggested.append(smallest)
            return {"n": smallest}

    samplers[1]._searcher = Smallest(None)
    samplers[0]._searcher = Smallest(lambda: second.ask().suggest_int("n", 0, 9))
    taken = first.ask().suggest_int("n", 0, 9)
    assert (taken, suggested) == (2, [1, 1, 2])


def test_two_threads_run_distinct_trials() -> None:
    study = optuna.create_study(sampler=ThriftuneSampler(seed=0))
    study.optimize(bowl, n_trials=12, n_jobs=2)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 12
    assert all(trial.state is TrialState.COMPLETE for trial in study.trials)


def test_one_sampler_for_several_studies() -> None:
    sampler = ThriftuneSampler(seed=3)
    runs = []
    for _ in range(2):
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: trial.suggest_float("other", 0.0, 9.0), n_trials=2)
        study = optuna.create_study(sampler=sampler)
        study.optimize(bowl, n_trials=6)
        runs.append([trial.params for trial in study.trials])
    assert runs[0] == runs[1]


def test_a_sampler_can_be_pickled() -> None:
    study = optuna.create_study(sampler=ThriftuneSampler(seed=3, initial=2))
    study.optimize(bowl, n_trials=4)
    copied = pickle.loads(pickle.dumps(study))
    for each in (study, copied):
        each.optimize(bowl, n_trials=1)
    assert copied.trials[-1].params == study.trials[-1].params


def test_options_are_those_of_bayes() -> None:
    with pytest.raises(SettingError, match="initial"):
        ThriftuneSampler(initial=-1)
    with pytest.raises(TypeError, match="no_such"):
        ThriftuneSampler(no_such=1)
    for seed in (-1, 0.5):
        with pytest.raises(SettingError, match=f"seed {seed} must be"):
            ThriftuneSampler(seed=seed)  # type: ignore[arg-type]


def test_parameters_of_only_some_trials_are_drawn_at_random_with_one_warning_each() -> None:
    def objective(trial: Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        if trial.suggest_categorical("deep", [True, False]):
            x += trial.suggest_float("y", 0.0, 1.0)
        return x + trial.suggest_int("n", 0, 5 + trial.number)

    runs = []
    for _ in range(2):
        study = optuna.create_study(sampler=ThriftuneSampler(seed=0))
        study.enqueue_trial({"deep": True})
        study.enqueue_trial({"deep": False})
        with pytest.warns(UserWarning, match="is drawn at random") as warned:
            study.optimize(objective, n_trials=10)
        assert sorted(str(each.message).partition(":")[0] for each in warned) == ["n", "y"]
        runs.append([trial.params for trial in study.trials])
    assert runs[0] == runs[1]
    assert len({params["n"] / (5 + number) for number, params in enumerate(runs[0])}) > 3


def test_fixed_parameters_keep_their_values() -> None:
    study = optuna.create_study(sampler=ThriftuneSampler(seed=0))
    study.optimize(bowl, n_trials=2)
    study.enqueue_trial({"y": 0.125})
    study.optimize(bowl, n_trials=1)
    assert study.trials[2].params["y"] == 0.125
    study.sampler = PartialFixedSampler({"x": 0.75}, study.sampler)
    study.optimize(bowl, n_trials=4)
    assert {trial.params["x"] for trial in study.trials[3:]} == {0.75}
    assert len({trial.params["y"] for trial in study.trials[3:]}) == 4


def test_no_configuration_is_suggested_twice_while_untried_ones_are_left() -> None:
    study = optuna.create_study(sampler=ThriftuneSampler(seed=0))
    study.optimize(lambda t: t.suggest_int("n", 0, 2) + t.suggest_categorical("c", [0, 1, 2]), n_trials=9)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 9


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_the_sampler_beats_random_search(direction: Literal["minimize", "maximize"]) -> None:
    sign = 1.0 if direction == "minimize" else -1.0

    def best(sampler: BaseSampler) -> float:
        study = optuna.create_study(direction=direction, sampler=sampler)
        study.optimize(lambda trial: sign * bowl(trial), n_trials=16)
        return sign * study.best_value

    assert best(ThriftuneSampler(seed=0)) < 0.2 * min(best(RandomSampler(seed=seed)) for seed in range(3))


def test_the_sampler_learns_constraints() -> None:
    study = optuna.create_study(sampler=ThriftuneSampler(seed=0, constraints_func=lambda t: [0.5 - t.params["x"]]))
    study.optimize(bowl, n_trials=16)
    later = study.trials[8:]
    assert sum(trial.params["x"] >= 0.5 for trial in later) >= len(later) / 2
    assert min(bowl(FixedTrial(trial.params)) for trial in study.trials if trial.params["x"] >= 0.5) < 0.06


def test_two_objectives_have_a_front() -> None:
    def objective(trial: Trial) -> tuple[float, float]:
        x = trial.suggest_float("x", -2.0, 2.0)
        y = trial.suggest_float("y", -2.0, 2.0)
        return x**2 + y**2, (x - 1) ** 2 + y**2

    study = optuna.create_study(directions=["minimize", "minimize"], sampler=ThriftuneSampler(seed=0))
    study.optimize(objective, n_trials=16)
    assert len(study.best_trials) >= 3


def test_the_error_without_optuna_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['optuna'] = None; sys.modules['optuna.distributions'] = None\n"
        "from thriftune.errors import MissingExtra\n"
        "try:\n    import thriftune.integrations.optuna\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert result.stdout == "ThriftuneSampler needs optuna; install it with: pip install 'thriftune[optuna]'\n"
