"""What every stopping rule must do. A new rule's tests inherit StopperConformance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune.loop.conductor import GRACE_SECONDS, Conductor
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.replay.simulated_engine import Curve, SimulatedEngine, VirtualClock
from thriftune.replay.simulation_loop import drive, run
from thriftune.search.random import Random as RandomSearch
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.reports import last_step_of_attempt
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping import STOPPERS
from thriftune.stopping.protocol import Stopper, Verdict

SPACE = Space({"x": Float(0.0, 1.0), "speed": Float(0.5, 2.0)})
STEPS = 30


def curve(config: ev.Config, sign: float = 1.0, every: int = 1) -> Curve:
    """Return a loss that falls at a pace and to a level set by the configuration; some curves cross."""
    x, pace = config["x"], 1.0 + 9.0 * ((7.0 * config["x"]) % 1.0)
    steps = range(every, STEPS + 1, every)
    metrics = [{"loss": sign * (x + math.exp(-step / pace)), "other": 1.0} for step in steps]
    return Curve(steps, metrics, [config["speed"] * every] * len(steps))


def make_spec(*, maximize: bool = False, **settings: Any) -> Spec:
    given = {"trials": 40, "max_steps": STEPS, "workers": 4, **settings}
    return Spec("simulated", SPACE, (Objective("loss", maximize),), given.pop("seed", 1), **given)


class CheckedRule:
    """A rule compared at every call with a fresh one of the same kind."""

    def __init__(self, make: Callable[[], Stopper]) -> None:
        self._make = make
        self._rule = make()
        self.answers: list[tuple[Any, ...]] = []

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        verdict = self._rule.judge(trial, history)
        assert self._make().judge(trial, history) is verdict
        self.answers.append((trial.id, trial.step, verdict))
        return verdict

    def promote(self, history: History, more: bool) -> int | None:
        promoted = self._rule.promote(history, more)
        assert self._make().promote(history, more) == promoted
        assert promoted is None or history.trials[promoted].state is State.PAUSED
        self.answers.append((promoted,))
        return promoted


class StopperConformance:
    """Tests parametrized by `make`, which returns a fresh rule, the same each time."""

    def test_every_study_ends_and_a_fresh_rule_agrees_at_every_call(self, make: Callable[[], Stopper]) -> None:
        for workers in (1, 4, 50):
            watched = CheckedRule(make)
            result = run(make_spec(workers=workers), curve, RandomSearch(), watched)
            result.history.validate()
            assert result.finished == "all 40 trials done"
            assert all(trial.state.ended or trial.state is State.PAUSED for trial in result.trials)
            assert any(trial.state is State.COMPLETED for trial in result.trials)

    def test_the_same_seed_gives_the_same_run(self, make: Callable[[], Stopper]) -> None:
        runs = [run(make_spec(), curve, RandomSearch(), make()) for _ in range(2)]
        assert runs[0].trials == runs[1].trials

    def test_maximising_judges_like_minimising_the_negative(self, make: Callable[[], Stopper]) -> None:
        down, up = CheckedRule(make), CheckedRule(make)
        run(make_spec(), curve, RandomSearch(), down)
        run(make_spec(maximize=True), lambda config: curve(config, -1.0), RandomSearch(), up)
        assert down.answers == up.answers

    def test_reports_without_the_metric_are_ignored(self, make: Callable[[], Stopper]) -> None:
        def sparse(config: ev.Config) -> Curve:
            full = curve(config)
            metrics = [m if i % 3 == 2 else {"other": 1.0} for i, m in enumerate(full.metrics)]
            return Curve(full.steps, metrics, full.seconds)

        result = run(make_spec(), sparse, RandomSearch(), CheckedRule(make))
        assert result.finished == "all 40 trials done"

    def test_steps_need_not_follow_each_other(self, make: Callable[[], Stopper]) -> None:
        result = run(make_spec(), lambda config: curve(config, every=7), RandomSearch(), CheckedRule(make))
        assert result.finished == "all 40 trials done"

    def test_failed_trials_do_not_block_others(self, make: Callable[[], Stopper]) -> None:
        def frail(config: ev.Config) -> Curve:
            full = curve(config)
            if config["x"] > 0.5:
                return full
            count = int(config["x"] * 2 * STEPS) + 1
            return Curve(full.steps[:count], full.metrics[:count], full.seconds[:count], "it broke")

        result = run(make_spec(retries=0), frail, RandomSearch(), CheckedRule(make))
        assert result.finished == "all 40 trials done"
        assert any(trial.state is State.FAILED for trial in result.trials)

    def test_a_retry_that_reports_other_values_is_judged_like_new(self, make: Callable[[], Stopper]) -> None:
        attempts: Counter[float] = Counter()

        def frail(config: ev.Config) -> Curve:
            x = config["x"]
            attempts[x] += 1
            full = curve(config)
            if x < 0.3 or attempts[x] > 1:
                return full
            # The first attempt reports far better values than the second will, and fails late.
            count = int(x * STEPS)
            better = [{"loss": each["loss"] - 2.0 * x} for each in full.metrics[:count]]
            return Curve(full.steps[:count], better, full.seconds[:count], "it broke")

        spec, clock = make_spec(retries=2), VirtualClock()
        conductor = Conductor(spec, spec.new_history(), RandomSearch(), PresentMachines(), CheckedRule(make))
        machine = ev.MachineReady(0.0, ev.THIS_MACHINE, "simulated", 4, 0.0)
        drive(conductor, SimulatedEngine(frail, clock, save_seconds=None), clock, [machine])
        history = conductor.history
        history.validate()
        assert history.finish_reason == "all 40 trials done"
        assert history.rewritten_values

    @settings(max_examples=10, deadline=None)
    @given(seed=st.integers(0, 2**16))
    def test_a_fresh_rule_agrees_whatever_the_parts_and_order_of_reports(
        self, make: Callable[[], Stopper], seed: int
    ) -> None:
        """Steps are reported in several parts, without the metric, again, and anew after failures."""
        rng = Random(seed)
        spec = make_spec(trials=12, workers=4, retries=100, max_steps=20)
        history = spec.new_history()
        conductor = Conductor(spec, history, RandomSearch(), PresentMachines(), CheckedRule(make))
        machine = ev.MachineReady(0.0, ev.THIS_MACHINE, "simulated", 4, 0.0)
        conductor.handle([ev.DriverStarted(0.0, 1, "host"), machine], 0.0)
        reports: Counter[tuple[int, int]] = Counter()  # reports, by trial and attempt
        for now in range(1, 400):
            if not history.running:
                break
            trial = history.trials[rng.choice(list(history.running))]
            attempt = trial.id, trial.attempts
            last = last_step_of_attempt(trial)
            if trial.end_request or last >= 20:
                event: ev.Event = ev.Ended(now, *attempt, 0.0, cut=bool(trial.end_request))
            elif rng.random() < 0.05:
                event = ev.Failed(now, *attempt, "raised", "it broke", "")
            elif rng.random() < 0.05:
                event = ev.Lost(now, *attempt, "gone")
            else:
                reports[attempt] += 1
                step = max(1, last + rng.choice((0, 1, 1, 2)))
                metrics = {"other": 1.0} if rng.random() < 0.4 else {"loss": rng.random()}
                event = ev.Reported(now, *attempt, reports[attempt], step, metrics, rng.random() < 0.3)
            conductor.handle([event], now)
        history.validate()

    def test_a_deadline_ends_the_study(self, make: Callable[[], Stopper]) -> None:
        result = run(make_spec(trials=None, deadline_seconds=100.0), curve, RandomSearch(), make())
        assert result.finished == "deadline reached"
        assert 100.0 <= result.seconds <= 100.0 + GRACE_SECONDS

    def test_constant_and_equal_curves_are_handled(self, make: Callable[[], Stopper]) -> None:
        flat = Curve(range(1, STEPS + 1), [{"loss": 0.5}] * STEPS, [1.0] * STEPS)
        result = run(make_spec(), lambda _: flat, RandomSearch(), CheckedRule(make))
        assert result.finished == "all 40 trials done"

    def test_a_rule_is_rebuilt_from_its_written_form(self, make: Callable[[], Stopper]) -> None:
        rule = make()
        name, options = STOPPERS.name_and_options(rule)
        again = STOPPERS.make(name, options)
        assert type(again) is type(rule)
        assert STOPPERS.name_and_options(again) == (name, options)

    @settings(max_examples=10, deadline=None)
    @given(seed=st.integers(0, 2**16), workers=st.integers(1, 20), trials=st.integers(1, 60))
    def test_every_study_ends_on_random_curves(
        self, make: Callable[[], Stopper], seed: int, workers: int, trials: int
    ) -> None:
        def random_walk(config: ev.Config) -> Curve:
            rng = np.random.default_rng(int(config["x"] * 2**32) + seed)
            values = rng.standard_normal(STEPS).cumsum() * 10.0 ** rng.integers(-3, 4)
            return Curve(range(1, STEPS + 1), [{"loss": float(v)} for v in values], rng.random(STEPS).tolist())

        spec = make_spec(seed=seed, workers=workers, trials=trials)
        result = run(spec, random_walk, RandomSearch(), CheckedRule(make))
        result.history.validate()
        assert len(result.trials) == trials
