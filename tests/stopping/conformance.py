"""What every stopping rule must do, whatever it goes by. A new rule inherits this class and is done."""

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
from thriftune.replay.simulation import drive, run
from thriftune.search.random import Random as RandomSearch
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.reports import furthest
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State, TrialRecord
from thriftune.stopping import STOPPERS
from thriftune.stopping.protocol import Stopper, Verdict

SPACE = Space({"x": Float(0.0, 1.0), "speed": Float(0.5, 2.0)})
STEPS = 30


def curve(config: ev.Config, sign: float = 1.0, every: int = 1) -> Curve:
    """Falls at a pace of its own to a level of its own; some cross."""
    x, pace = config["x"], 1.0 + 9.0 * ((7.0 * config["x"]) % 1.0)
    steps = range(every, STEPS + 1, every)
    metrics = [{"loss": sign * (x + math.exp(-step / pace)), "other": 1.0} for step in steps]
    return Curve(steps, metrics, [config["speed"] * every] * len(steps))


def a_spec(*, maximize: bool = False, **settings: Any) -> Spec:
    given = {"trials": 40, "max_steps": STEPS, "workers": 4, **settings}
    return Spec("simulated", SPACE, (Objective("loss", maximize),), given.pop("seed", 1), **given)


class Watched:
    """A rule, and at every turn a fresh one of the same kind, which must say the same of the same history."""

    def __init__(self, make: Callable[[], Stopper]) -> None:
        self._make = make
        self._rule = make()
        self.said: list[tuple[Any, ...]] = []

    def judge(self, trial: TrialRecord, history: History) -> Verdict:
        verdict = self._rule.judge(trial, history)
        assert self._make().judge(trial, history) is verdict
        self.said.append((trial.id, trial.step, verdict))
        return verdict

    def promote(self, history: History, more: bool) -> int | None:
        promoted = self._rule.promote(history, more)
        assert self._make().promote(history, more) == promoted
        assert promoted is None or history.trials[promoted].state is State.PAUSED
        self.said.append((promoted,))
        return promoted


class StopperConformance:
    """To be parametrized by `make`, which makes a fresh rule, the same each time."""

    def test_every_study_ends_and_a_fresh_rule_agrees_at_every_turn(self, make: Callable[[], Stopper]) -> None:
        for workers in (1, 4, 50):
            watched = Watched(make)
            result = run(a_spec(workers=workers), curve, RandomSearch(), watched)
            result.history.validate()
            assert result.finished == "all 40 trials done"
            assert all(trial.state.ended or trial.state is State.PAUSED for trial in result.trials)
            assert any(trial.state is State.COMPLETED for trial in result.trials)

    def test_the_same_seed_gives_the_same_run(self, make: Callable[[], Stopper]) -> None:
        runs = [run(a_spec(), curve, RandomSearch(), make()) for _ in range(2)]
        assert runs[0].trials == runs[1].trials

    def test_what_is_maximized_is_judged_as_its_opposite_is(self, make: Callable[[], Stopper]) -> None:
        down, up = Watched(make), Watched(make)
        run(a_spec(), curve, RandomSearch(), down)
        run(a_spec(maximize=True), lambda config: curve(config, -1.0), RandomSearch(), up)
        assert down.said == up.said

    def test_reports_that_lack_the_metric_are_passed_over(self, make: Callable[[], Stopper]) -> None:
        def sparse(config: ev.Config) -> Curve:
            whole = curve(config)
            metrics = [m if i % 3 == 2 else {"other": 1.0} for i, m in enumerate(whole.metrics)]
            return Curve(whole.steps, metrics, whole.seconds)

        result = run(a_spec(), sparse, RandomSearch(), Watched(make))
        assert result.finished == "all 40 trials done"

    def test_steps_need_not_follow_each_other(self, make: Callable[[], Stopper]) -> None:
        result = run(a_spec(), lambda config: curve(config, every=7), RandomSearch(), Watched(make))
        assert result.finished == "all 40 trials done"

    def test_trials_that_fail_hold_nothing_up(self, make: Callable[[], Stopper]) -> None:
        def frail(config: ev.Config) -> Curve:
            whole = curve(config)
            if config["x"] > 0.5:
                return whole
            count = int(config["x"] * 2 * STEPS) + 1
            return Curve(whole.steps[:count], whole.metrics[:count], whole.seconds[:count], "it broke")

        result = run(a_spec(retries=0), frail, RandomSearch(), Watched(make))
        assert result.finished == "all 40 trials done"
        assert any(trial.state is State.FAILED for trial in result.trials)

    def test_a_retry_that_tells_other_values_is_read_as_a_fresh_rule_reads_it(
        self, make: Callable[[], Stopper]
    ) -> None:
        attempts: Counter[float] = Counter()

        def frail(config: ev.Config) -> Curve:
            x = config["x"]
            attempts[x] += 1
            whole = curve(config)
            if x < 0.3 or attempts[x] > 1:
                return whole
            # The first attempt goes far, tells far better values than the second will, and fails.
            count = int(x * STEPS)
            better = [{"loss": each["loss"] - 2.0 * x} for each in whole.metrics[:count]]
            return Curve(whole.steps[:count], better, whole.seconds[:count], "it broke")

        spec, clock = a_spec(retries=2), VirtualClock()
        conductor = Conductor(spec, spec.new_history(), RandomSearch(), PresentMachines(), Watched(make))
        machine = ev.MachineReady(0.0, ev.THIS_MACHINE, "simulated", 4, 0.0)
        drive(conductor, SimulatedEngine(frail, clock, save_seconds=None), clock, [machine])
        history = conductor.history
        history.validate()
        assert history.finish_reason == "all 40 trials done"
        assert history.rewrites

    @settings(max_examples=10, deadline=None)
    @given(seed=st.integers(0, 2**16))
    def test_a_fresh_rule_agrees_in_whatever_parts_and_order_trials_report(
        self, make: Callable[[], Stopper], seed: int
    ) -> None:
        """Steps are reported in several parts, without the metric, again, and anew after failures."""
        rng = Random(seed)
        spec = a_spec(trials=12, workers=4, retries=100, max_steps=20)
        history = spec.new_history()
        conductor = Conductor(spec, history, RandomSearch(), PresentMachines(), Watched(make))
        machine = ev.MachineReady(0.0, ev.THIS_MACHINE, "simulated", 4, 0.0)
        conductor.handle([ev.DriverStarted(0.0, 1, "host"), machine], 0.0)
        told: Counter[tuple[int, int]] = Counter()  # reports, by trial and attempt
        for now in range(1, 400):
            if not history.running:
                break
            trial = history.trials[rng.choice(list(history.running))]
            attempt = trial.id, trial.attempts
            last = furthest(trial)
            if trial.end_request or last >= 20:
                event: ev.Event = ev.Ended(now, *attempt, 0.0, cut=bool(trial.end_request))
            elif rng.random() < 0.05:
                event = ev.Failed(now, *attempt, "raised", "it broke", "")
            elif rng.random() < 0.05:
                event = ev.Lost(now, *attempt, "gone")
            else:
                told[attempt] += 1
                step = max(1, last + rng.choice((0, 1, 1, 2)))
                metrics = {"other": 1.0} if rng.random() < 0.4 else {"loss": rng.random()}
                event = ev.Reported(now, *attempt, told[attempt], step, metrics, rng.random() < 0.3)
            conductor.handle([event], now)
        history.validate()

    def test_a_deadline_ends_it(self, make: Callable[[], Stopper]) -> None:
        result = run(a_spec(trials=None, deadline_seconds=100.0), curve, RandomSearch(), make())
        assert result.finished == "deadline reached"
        assert 100.0 <= result.seconds <= 100.0 + GRACE_SECONDS

    def test_constant_and_equal_curves_do_not_confuse_it(self, make: Callable[[], Stopper]) -> None:
        flat = Curve(range(1, STEPS + 1), [{"loss": 0.5}] * STEPS, [1.0] * STEPS)
        result = run(a_spec(), lambda _: flat, RandomSearch(), Watched(make))
        assert result.finished == "all 40 trials done"

    def test_it_is_made_again_from_what_is_written(self, make: Callable[[], Stopper]) -> None:
        rule = make()
        name, options = STOPPERS.written(rule)
        again = STOPPERS.make(name, options)
        assert type(again) is type(rule)
        assert STOPPERS.written(again) == (name, options)

    @settings(max_examples=10, deadline=None)
    @given(seed=st.integers(0, 2**16), workers=st.integers(1, 20), trials=st.integers(1, 60))
    def test_on_any_curves(self, make: Callable[[], Stopper], seed: int, workers: int, trials: int) -> None:
        def anything(config: ev.Config) -> Curve:
            rng = np.random.default_rng(int(config["x"] * 2**32) + seed)
            values = rng.standard_normal(STEPS).cumsum() * 10.0 ** rng.integers(-3, 4)
            return Curve(range(1, STEPS + 1), [{"loss": float(v)} for v in values], rng.random(STEPS).tolist())

        spec = a_spec(seed=seed, workers=workers, trials=trials)
        result = run(spec, anything, RandomSearch(), Watched(make))
        result.history.validate()
        assert len(result.trials) == trials
