"""Tests of comparisons of policies on the same cloud: costs, deadlines and lower bounds."""

from __future__ import annotations

import math
from typing import Any

import pytest

import thriftune as tt
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.planning.machine_types import MachineType
from thriftune.replay.preemptions import AvailabilityPreemptions, LifetimePreemptions, Preemptions
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.traces import Trace
from thriftune.replay.what_if import PolicySummary
from thriftune.space.parameters import Float
from thriftune.stopping.early_curve import EarlyCurve
from thriftune.stopping.protocol import Verdict
from thriftune.stopping.successive_halving import SuccessiveHalving

HOUR = 3600.0
SURVIVAL = Exponential(3.0)
KINDS = [
    MachineType("spot", 0.3, survival=SURVIVAL, queue=30.0, init=30.0, on_demand_price=1.0),
    MachineType("stays", 1.0, queue=30.0, init=30.0),
]


def preemptions(seed: int) -> dict[str, Preemptions]:
    return {"spot": LifetimePreemptions(SURVIVAL, seed)}


TRACE = Trace(KINDS, preemptions, 0.0, math.inf)


def curve(config: Any) -> Curve:
    steps = 20
    return Curve(
        range(1, steps + 1), [{"loss": config["x"] + 1.0 / s} for s in range(1, steps + 1)], [360.0] * steps
    )


def summaries(policies: list[str], **others: Any) -> list[PolicySummary]:
    settings: dict[str, Any] = {
        "space": {"x": Float(0.0, 1.0)}, "minimize": "loss", "trials": 4, "max_steps": 20, "workers": 4,
        "stopping": "none", "seeds": 3, "restart_seconds": 20.0, "save_seconds": 5.0,
    }  # fmt: skip
    return tt.simulate(curve, cloud=TRACE, policies=policies, **{**settings, **others})


def test_each_policy_has_its_cost_and_a_lower_bound() -> None:
    thrifty, on_demand = summaries(["thrifty", "on_demand"], deadline="5h")
    assert on_demand.cost == pytest.approx(4 * 2.0, rel=0.05)
    assert 1.0 <= (thrifty.oracle_ratio or 0.0) < 1.5
    assert thrifty.cost < 0.5 * on_demand.cost
    assert (thrifty.deadline_met, on_demand.deadline_met) == (1.0, 1.0)
    assert (on_demand.steps_lost, on_demand.cost_spread) == (0.0, 0.0)
    for each in thrifty.outcomes:
        assert each.replayed.dollars == pytest.approx(each.replayed.result.ledger.dollars)
        assert each.replayed.dollars >= each.oracle_dollars
        assert all(trial.step == 20 for trial in each.replayed.result.trials)


def test_runs_are_reproducible_and_seeds_differ() -> None:
    (first,), (again,) = summaries(["thrifty"]), summaries(["thrifty"])
    assert first.to_json() == again.to_json()
    assert len({each.replayed.dollars for each in first.outcomes}) == 3


def test_late_study_runs_to_its_end() -> None:
    (late,) = summaries(["cheapest_spot"], deadline="2h")
    assert late.deadline_met == 0.0
    assert late.duration > 2 * HOUR
    assert late.to_json()["times"] == 3


def test_slower_multiplies_the_duration() -> None:
    (quick,), (slow,) = summaries(["on_demand"]), summaries(["on_demand"], slower=3.0)
    assert slow.duration / quick.duration == pytest.approx(3.0, rel=0.02)
    with pytest.raises(SettingError, match="slower: 0 must be a finite number, above 0"):
        summaries(["on_demand"], slower=0)


def test_stopping_rule_cuts_the_cost() -> None:
    (cut,), (full,) = (summaries(["thrifty"], stopping=rule, trials=12) for rule in ("halving", "none"))
    assert cut.cost < 0.8 * full.cost


def test_study_cut_by_the_end_of_the_trace_is_not_completed() -> None:
    short = Trace(KINDS, preemptions, 0.0, 1.5 * HOUR)
    (found,) = tt.simulate(
        curve, cloud=short, policies=["on_demand"], space={"x": Float(0.0, 1.0)}, minimize="loss", trials=2,
        max_steps=20, workers=2, stopping="none", seeds=1,
    )  # fmt: skip
    assert not found.outcomes[0].replayed.completed
    assert found.deadline_met == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policies": ["cheap"]}, "policy 'cheap' is not known; use one of thrifty, on_demand"),
        ({"policies": ["thrifty"], "seeds": 0}, "seeds: 0 is too small"),
        ({"policies": ["uniform_progress"]}, "uniform_progress: needs a deadline; give deadline="),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        summaries(**arguments)


def test_deadline_longer_than_the_trace_is_refused() -> None:
    short = Trace(KINDS, preemptions, 0.0, 5.0 * HOUR)
    with pytest.raises(SettingError, match="the trace has 5 h for a run, which is too short"):
        tt.simulate(
            curve, cloud=short, policies=["thrifty"], space={"x": Float(0.0, 1.0)}, minimize="loss", trials=2,
            max_steps=20, deadline="4h",
        )  # fmt: skip


def test_elastic_policy_plans_the_stages_of_the_rule() -> None:
    (short,), (long,) = (
        summaries(
            ["elastic"], stopping=SuccessiveHalving(8, min_steps=4, eta=2), trials=8, workers=8, deadline=limit
        )
        for limit in ("2h40m", "12h")
    )
    assert (short.deadline_met, long.deadline_met) == (1.0, 1.0)
    assert long.cost < short.cost
    assert long.duration > short.duration


class OwnRule:
    """A user's own stopping rule."""

    def judge(self, trial: Any, history: Any) -> Verdict:
        return Verdict.STOP if trial.step == 10 else Verdict.GO_ON

    def promote(self, history: Any, more: bool) -> None: ...


@pytest.mark.parametrize("rule", ["none", "auto", "asha", "hyperband", "median", OwnRule()])
def test_elastic_policy_works_with_any_rule(rule: Any) -> None:
    (found,) = summaries(["elastic"], stopping=rule, trials=9, deadline="12h")
    assert found.deadline_met == 1.0
    assert all(each.replayed.result.finished == "all 9 trials done" for each in found.outcomes)


@pytest.mark.parametrize("policy", ["step_cost", "thrifty", "reuse"])
def test_early_curve_trains_the_right_trials_despite_preemptions(policy: str) -> None:
    """Test SpotTune's Algorithm 1: all trials train to theta of the steps, and the predicted best to the end."""
    rule = EarlyCurve(theta=0.5, top=2)
    (found,) = summaries([policy], trials=8, workers=8, stopping=rule, seeds=4)
    preempted = 0
    for each in found.outcomes:
        result = each.replayed.result
        preempted += sum(row.taken_away for row in result.ledger.rows)
        steps = sorted(trial.step for trial in result.trials)
        assert steps == [10] * 6 + [20] * 2
        by_start = sorted(result.trials, key=lambda trial: trial.config["x"])
        assert {trial.id for trial in result.trials if trial.step == 20} == {t.id for t in by_start[:2]}
        assert result.best.config == by_start[0].config
        assert all(trial.error is None for trial in result.trials)  # a preemption is no failure
    assert preempted > 0


def test_study_without_machines_costs_nothing_and_is_not_completed() -> None:
    never = Trace(KINDS[:1], lambda _: {"spot": AvailabilityPreemptions([0.0], [0], 4e5)}, 0.0, 3e5)
    (found,) = tt.simulate(
        curve, cloud=never, policies=["cheapest_spot"], space={"x": Float(0.0, 1.0)}, minimize="loss", trials=2,
        max_steps=20, seeds=1,
    )  # fmt: skip
    assert (found.cost, found.finished, found.deadline_met) == (0.0, 0.0, 0.0)


def test_another_seed_gives_another_cost() -> None:
    (one,), (same,), (other,) = (summaries(["thrifty"], seed=seed) for seed in (0, 0, 77))
    assert one.cost == same.cost != other.cost


def test_without_checkpoints_paused_trials_start_again() -> None:
    rule = EarlyCurve(theta=0.5, top=2)
    saves, saves_not = (
        summaries(["on_demand"], trials=8, workers=8, stopping=rule, save_seconds=each)[0] for each in (0.0, None)
    )
    assert saves.cost < saves_not.cost


def test_study_that_cannot_complete_is_stopped() -> None:
    brief = Exponential(0.005)
    cloud = Trace(
        [MachineType("spot", 0.3, survival=brief)],
        lambda seed: {"spot": LifetimePreemptions(brief, seed)},
        0.0,
        math.inf,
    )
    (found,) = tt.simulate(
        curve, cloud=cloud, policies=["cheapest_spot"], space={"x": Float(0.0, 1.0)}, minimize="loss", trials=1,
        max_steps=20, seeds=1,
    )  # fmt: skip
    assert (found.finished, found.deadline_met) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"policies": []}, "must be a list of names"), ({"policies": "thrifty"}, "must be a list of names")],
)
def test_policies_must_be_a_list(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        summaries(**settings)


@pytest.mark.parametrize("cloud", [5, ""])
def test_cloud_must_be_a_trace_or_a_path(cloud: Any) -> None:
    with pytest.raises(SettingError, match="must be a Trace, or the path"):
        tt.simulate(curve, cloud=cloud, space={"x": Float(0.0, 1.0)}, minimize="loss", trials=1, max_steps=20)
