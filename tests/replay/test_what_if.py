"""Policies compared on the same cloud: what each paid, whether it was in time, and the least there was to pay."""

from __future__ import annotations

import math
from typing import Any

import pytest

import thriftune as tt
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.planning.machine_types import MachineType
from thriftune.replay.preemptions import Available, Drawn, Fate
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.traces import Trace
from thriftune.replay.what_if import Compared
from thriftune.space.parameters import Float
from thriftune.stopping.early_curve import EarlyCurve
from thriftune.stopping.halving import SuccessiveHalving
from thriftune.stopping.protocol import Verdict

HOUR = 3600.0
LIFE = Exponential(3.0)
KINDS = [
    MachineType("spot", 0.3, survival=LIFE, queue=30.0, init=30.0, on_demand_price=1.0),
    MachineType("stays", 1.0, queue=30.0, init=30.0),
]


def lives(seed: int) -> dict[str, Fate]:
    return {"spot": Drawn(LIFE, seed)}


TRACE = Trace(KINDS, lives, 0.0, math.inf)


def curve(config: Any) -> Curve:
    steps = 20
    return Curve(
        range(1, steps + 1), [{"loss": config["x"] + 1.0 / s} for s in range(1, steps + 1)], [360.0] * steps
    )


def compared(policies: list[str], **others: Any) -> list[Compared]:
    given: dict[str, Any] = {
        "space": {"x": Float(0.0, 1.0)}, "minimize": "loss", "trials": 4, "max_steps": 20, "workers": 4,
        "stopping": "none", "seeds": 3, "restart_seconds": 20.0, "save_seconds": 5.0,
    }  # fmt: skip
    return tt.simulate(curve, cloud=TRACE, policies=policies, **{**given, **others})


def test_each_policy_has_its_cost_and_the_least_there_is() -> None:
    thrifty, on_demand = compared(["thrifty", "on_demand"], deadline="5h")
    assert on_demand.cost == pytest.approx(4 * 2.0, rel=0.05)
    assert 1.0 <= (thrifty.oracle_ratio or 0.0) < 1.5
    assert thrifty.cost < 0.5 * on_demand.cost
    assert (thrifty.deadline_met, on_demand.deadline_met) == (1.0, 1.0)
    assert (on_demand.steps_lost, on_demand.cost_spread) == (0.0, 0.0)
    for each in thrifty.outcomes:
        assert each.replayed.dollars == pytest.approx(each.replayed.result.ledger.dollars)
        assert each.replayed.dollars >= each.oracle_dollars
        assert all(trial.step == 20 for trial in each.replayed.result.trials)


def test_the_same_again_is_the_same_and_seeds_differ() -> None:
    (first,), (again,) = compared(["thrifty"]), compared(["thrifty"])
    assert first.to_json() == again.to_json()
    assert len({each.replayed.dollars for each in first.outcomes}) == 3


def test_a_policy_that_is_late_goes_on_to_its_end() -> None:
    (late,) = compared(["cheapest_spot"], deadline="2h")
    assert late.deadline_met == 0.0
    assert late.duration > 2 * HOUR
    assert late.to_json()["times"] == 3


def test_steps_may_take_longer_than_recorded() -> None:
    (quick,), (slow,) = compared(["on_demand"]), compared(["on_demand"], slower=3.0)
    assert slow.duration / quick.duration == pytest.approx(3.0, rel=0.02)
    with pytest.raises(SettingError, match="slower: 0 must be a finite number, above 0"):
        compared(["on_demand"], slower=0)


def test_rules_work_there_too() -> None:
    (cut,), (whole,) = (compared(["thrifty"], stopping=rule, trials=12) for rule in ("halving", "none"))
    assert cut.cost < 0.8 * whole.cost


def test_at_the_end_of_a_trace_a_study_is_not_whole() -> None:
    short = Trace(KINDS, lives, 0.0, 1.5 * HOUR)
    (found,) = tt.simulate(
        curve, cloud=short, policies=["on_demand"], space={"x": Float(0.0, 1.0)}, minimize="loss", trials=2,
        max_steps=20, workers=2, stopping="none", seeds=1,
    )  # fmt: skip
    assert not found.outcomes[0].replayed.whole
    assert found.deadline_met == 0.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"policies": ["cheap"]}, "policy 'cheap' is not known; use one of thrifty, on_demand"),
        ({"policies": ["thrifty"], "seeds": 0}, "seeds: 0 must be a whole number"),
        ({"policies": ["uniform_progress"]}, "uniform_progress: goes by a deadline; give one"),
    ],
)
def test_what_cannot_be_is_said(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        compared(**wrong)


def test_a_deadline_beyond_the_trace() -> None:
    short = Trace(KINDS, lives, 0.0, 5.0 * HOUR)
    with pytest.raises(SettingError, match="the trace has 5 h to begin and end in"):
        tt.simulate(
            curve, cloud=short, policies=["thrifty"], space={"x": Float(0.0, 1.0)}, minimize="loss", trials=2,
            max_steps=20, deadline="4h",
        )  # fmt: skip


def test_a_plan_is_followed_in_the_stages_that_the_rule_makes() -> None:
    (short,), (long,) = (
        compared(
            ["elastic"], stopping=SuccessiveHalving(8, min_steps=4, eta=2), trials=8, workers=8, deadline=limit
        )
        for limit in ("2h40m", "12h")
    )
    assert (short.deadline_met, long.deadline_met) == (1.0, 1.0)
    assert long.cost < short.cost
    assert long.duration > short.duration


class Own:
    """A rule that nobody else knows."""

    def judge(self, trial: Any, history: Any) -> Verdict:
        return Verdict.STOP if trial.step == 10 else Verdict.GO_ON

    def promote(self, history: Any, more: bool) -> None: ...


@pytest.mark.parametrize("rule", ["none", "auto", "asha", "hyperband", "median", Own()])
def test_a_plan_is_followed_whatever_the_rule(rule: Any) -> None:
    (found,) = compared(["elastic"], stopping=rule, trials=9, deadline="12h")
    assert found.deadline_met == 1.0
    assert all(each.replayed.result.finished == "all 9 trials done" for each in found.outcomes)


@pytest.mark.parametrize("policy", ["step_cost", "thrifty", "reuse"])
def test_theta_and_how_many_go_on_hold_whatever_is_taken_away(policy: str) -> None:
    """SpotTune's Algorithm 1 whole: all go to theta of the steps, the predicted best to the end."""
    rule = EarlyCurve(theta=0.5, top=2)
    (found,) = compared([policy], trials=8, workers=8, stopping=rule, seeds=4)
    taken = 0
    for each in found.outcomes:
        result = each.replayed.result
        taken += sum(row.taken_away for row in result.ledger.rows)
        steps = sorted(trial.step for trial in result.trials)
        assert steps == [10] * 6 + [20] * 2
        by_start = sorted(result.trials, key=lambda trial: trial.config["x"])
        assert {trial.id for trial in result.trials if trial.step == 20} == {t.id for t in by_start[:2]}
        assert result.best.config == by_start[0].config
        assert all(trial.error is None for trial in result.trials)  # to lose a machine is no failure
    assert taken > 0


def test_trials_that_never_got_a_machine_cost_nothing_and_are_not_done() -> None:
    never = Trace(KINDS[:1], lambda _: {"spot": Available([0.0], [0], 4e5)}, 0.0, 3e5)
    (found,) = tt.simulate(
        curve, cloud=never, policies=["cheapest_spot"], space={"x": Float(0.0, 1.0)}, minimize="loss", trials=2,
        max_steps=20, seeds=1,
    )  # fmt: skip
    assert (found.cost, found.finished, found.deadline_met) == (0.0, 0.0, 0.0)


def test_another_seed_meets_other_machines() -> None:
    (one,), (same,), (other,) = (compared(["thrifty"], seed=seed) for seed in (0, 0, 77))
    assert one.cost == same.cost != other.cost


def test_without_checkpoints_what_is_set_aside_begins_anew() -> None:
    rule = EarlyCurve(theta=0.5, top=2)
    saves, saves_not = (
        compared(["on_demand"], trials=8, workers=8, stopping=rule, save_seconds=each)[0] for each in (0.0, None)
    )
    assert saves.cost < saves_not.cost


def test_what_will_never_be_done_ends_all_the_same() -> None:
    brief = Exponential(0.005)
    cloud = Trace(
        [MachineType("spot", 0.3, survival=brief)], lambda seed: {"spot": Drawn(brief, seed)}, 0.0, math.inf
    )
    (found,) = tt.simulate(
        curve, cloud=cloud, policies=["cheapest_spot"], space={"x": Float(0.0, 1.0)}, minimize="loss", trials=1,
        max_steps=20, seeds=1,
    )  # fmt: skip
    assert (found.finished, found.deadline_met) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"policies": []}, "must be a list of names"), ({"policies": "thrifty"}, "must be a list of names")],
)
def test_what_is_no_list_of_policies(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        compared(**given)


@pytest.mark.parametrize("cloud", [5, ""])
def test_what_is_no_cloud(cloud: Any) -> None:
    with pytest.raises(SettingError, match="must be a Trace, or the path"):
        tt.simulate(curve, cloud=cloud, space={"x": Float(0.0, 1.0)}, minimize="loss", trials=1, max_steps=20)
