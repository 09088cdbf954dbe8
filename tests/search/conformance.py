"""Tests for every searcher: its test class inherits SearcherConformance and defines searcher()."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from thriftune.search.protocol import Searcher
from thriftune.space.objectives import Constraint, Objective
from thriftune.space.parameters import Choice, Float, Int
from thriftune.space.space import Space
from thriftune.state.earlier_results import EarlierStudy
from thriftune.state.events import Config
from thriftune.state.trial_record import Report, State, TrialRecord

INFINITE = Space(
    {
        "opt": Choice(["sgd", "adam"]),
        "lr": Float(1e-4, 1e-1, log=True),
        "momentum": Float(0, 0.99, when={"opt": "sgd"}),
        "width": Int(8, 512, log=True),
    }
)
FINITE = Space(
    {
        "opt": Choice(["sgd", "adam", None]),
        "layers": Int(1, 3, when={"opt": ["sgd", "adam"]}),
        "nesterov": Choice([True, False], when={"opt": "sgd"}),
        "never": Float(0, 1, when={"opt": "adam", "nesterov": True}),
    }
)
LOPSIDED = Space(
    {"deep": Choice([False, True])}
    | {f"deep{i}": Choice([False, True], when={"deep" if i == 1 else f"deep{i - 1}": True}) for i in range(1, 12)}
)
"""A space in which half of all random draws give the same configuration, and a quarter another one."""

SPACES = {"infinite": INFINITE, "finite": FINITE, "lopsided": LOPSIDED}


@dataclass
class FakePast:
    """A past that a test builds: trials with a value, and running trials."""

    space: Space
    seed: int = 0
    maximize: bool = False
    objectives: Sequence[Objective] = ()  # by default one, whose direction `maximize` sets
    constraints: Sequence[Constraint] = ()
    trials: list[TrialRecord] = field(default_factory=list)
    ended: list[TrialRecord] = field(default_factory=list)
    earlier: list[EarlierStudy] = field(default_factory=list)
    _tried: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.objectives = self.objectives or (Objective("loss", self.maximize),)

    def times(self, config: Config) -> int:
        return self._tried[self.space.key(config)]

    def add(self, config: Config, value: float | None = None) -> None:
        """Add a trial with this value, or a running trial."""
        self.trials.append(TrialRecord(len(self.trials), config, created_at=0.0, state=State.RUNNING))
        self._tried[self.space.key(config)] += 1
        if value is not None:
            self.end(self.trials[-1], value)

    def end(self, trial: TrialRecord, value: float | None, **more: float) -> None:
        """End a trial with this value of the first objective and these other metrics; None makes it fail."""
        trial.value = value
        trial.metrics = more if value is None else {self.objectives[0].metric: value, **more}
        names = [objective.metric for objective in self.objectives]
        if all(name in trial.metrics for name in names):
            trial.values = tuple(trial.metrics[name] for name in names)
        trial.state = State.FAILED if value is None else State.COMPLETED
        self.ended.append(trial)

    def report(self, trial: TrialRecord, values: Sequence[float], state: State, start: float = 0.0) -> None:
        """Give a trial these values of the first objective, one for each step and second, and a state."""
        metric = self.objectives[0].metric
        steps = enumerate(values, 1)
        trial.reports = [Report(step, {metric: value}, start + step, 1, True, value) for step, value in steps]
        trial.ended_at = start + len(values) if state.ended else None
        if state.ended:
            self.end(trial, values[-1])
        trial.state = state

    def copy(self) -> FakePast:
        trials = [
            replace(t, config=dict(t.config), metrics=dict(t.metrics), reports=[*t.reports]) for t in self.trials
        ]
        ended = [trials[trial.id] for trial in self.ended]
        return replace(self, trials=trials, ended=ended, earlier=[*self.earlier], _tried=Counter(self._tried))


def rng(past: FakePast) -> np.random.Generator:
    return np.random.default_rng([past.seed, len(past.trials)])


def value_of(space: Space, config: Config) -> float:
    return float(np.square(space.encode(config) - 0.3).sum())


def run(searcher: Searcher, past: FakePast, trials: int, running: int = 0) -> list[Config]:
    """Return at most `trials` suggestions; the last `running` of them are running while the next one is made."""
    suggested: list[Config] = []
    for _ in range(trials):
        config = searcher.suggest(past, rng(past))
        if config is None:
            break
        suggested.append(config)
        past.add(config)
        if len(past.trials) > running:
            oldest = past.trials[-1 - running]
            past.end(oldest, value_of(past.space, oldest.config))
    return suggested


class SearcherConformance:
    """Tests of the Searcher protocol."""

    exhausts: ClassVar[bool] = False
    """True if the searcher suggests nothing once all configurations are tried, False if it repeats them."""

    def searcher(self) -> Searcher:
        """Return a new searcher."""
        raise NotImplementedError

    @pytest.fixture(params=list(SPACES))
    def space(self, request: pytest.FixtureRequest) -> Space:
        return SPACES[request.param]

    def test_every_suggestion_is_valid_and_plain(self, space: Space) -> None:
        for config in run(self.searcher(), FakePast(space), 30):
            assert repr(space.check(config)) == repr(config)
            assert repr(json.loads(json.dumps(config))) == repr(config)

    def test_the_same_past_gives_the_same_suggestion(self, space: Space) -> None:
        past = FakePast(space, seed=7)
        run(self.searcher(), past, 8, running=2)
        searcher = self.searcher()
        first = searcher.suggest(past, rng(past))
        assert searcher.suggest(past.copy(), rng(past)) == first

    def test_a_used_searcher_suggests_the_same_as_a_new_one(self, space: Space) -> None:
        old, past = self.searcher(), FakePast(space, seed=7)
        run(old, FakePast(INFINITE, seed=3), 5)
        for _ in range(12):
            config = old.suggest(past, rng(past))
            assert self.searcher().suggest(past.copy(), rng(past)) == config
            if config is None:
                break
            past.add(config, value_of(space, config))

    def test_a_suggestion_does_not_change_the_past(self, space: Space) -> None:
        past = FakePast(space)
        run(self.searcher(), past, 6)
        before = repr(past)
        self.searcher().suggest(past, rng(past))
        assert repr(past) == before

    def test_a_caller_may_change_the_suggestion(self) -> None:
        searcher, past = self.searcher(), FakePast(FINITE)
        config = searcher.suggest(past, rng(past))
        expected = repr(config)
        assert isinstance(config, dict)
        config["opt"] = "spoiled"
        assert repr(searcher.suggest(past, rng(past))) == expected

    @pytest.mark.parametrize("running", [0, 4, math.inf])
    def test_no_repeat_while_anything_is_untried(self, space: Space, running: float) -> None:
        most = 60 if space.size == math.inf else int(space.size)
        past = FakePast(space)
        suggested = run(self.searcher(), past, most, running=int(min(running, most)))
        assert len({space.key(c) for c in suggested}) == len(suggested) == most

    def test_configurations_of_other_trials_are_not_repeated(self) -> None:
        everything = list(FINITE.every())
        past = FakePast(FINITE)
        for config in everything[1::2]:
            past.add(config)
        suggested = run(self.searcher(), past, len(everything[::2]))
        assert {FINITE.key(c) for c in suggested} == {FINITE.key(c) for c in everything[::2]}

    def test_after_all_configurations_were_tried(self) -> None:
        past = FakePast(FINITE)
        suggested: Sequence[Config] = run(self.searcher(), past, 3 * int(FINITE.size))
        counts = Counter(FINITE.key(c) for c in suggested)
        assert len(counts) == FINITE.size
        assert set(counts.values()) == ({1} if self.exhausts else {3})
