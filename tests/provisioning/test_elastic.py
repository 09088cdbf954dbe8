"""A plan that is followed stage by stage, and made anew when reality departs from it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provisioning.conformance import check, check_machines, check_rents
from tests.provisioning.desk import Desk
from tests.provisioning.studies import (
    FOREVER,
    Ran,
    Where,
    a_spec,
    by_chance,
    by_price,
    by_room,
    curve,
    on_demand,
    run,
)
from tests.support.tables import replayed
from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential
from thriftune.market.prices import PriceSeries
from thriftune.planning import JobSpec, replanning, successive_halving
from thriftune.planning.allocation import StageAllocation
from thriftune.planning.machine_types import MachineType
from thriftune.planning.replanning import CurrentStage
from thriftune.provisioning.elastic import Elastic
from thriftune.provisioning.policies import policy
from thriftune.provisioning.renting_policy import PATIENCE_SECONDS
from thriftune.provisioning.workload import Workload
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import State
from thriftune.stopping.halving import SuccessiveHalving

TRIALS, STEPS = 8, 14
JOB = successive_halving(TRIALS, 2, STEPS, 2)  # 8 trials to step 2, 4 to step 6, 2 to step 14
SLOW, QUICK = on_demand("slow"), on_demand("quick", 3.0, 2.0)
STEP_SECONDS = 100.0


def rule() -> SuccessiveHalving:
    return SuccessiveHalving(TRIALS, min_steps=2, eta=2)


def terms(deadline: float | None = 3000.0, **others: Any) -> Workload:
    given: dict[str, Any] = {"at_a_time": TRIALS, "trials": TRIALS, "job": JOB, "seconds_per_step": STEP_SECONDS}
    return Workload(
        **{**given, "deadline_seconds": deadline, "restart_seconds": 5.0, "save_seconds": 2.0, **others}
    )


def even(config: ev.Config) -> Curve:
    """All trials take as promised."""
    told = [{"loss": config["x"] + 1.0 / step} for step in range(1, STEPS + 1)]
    return Curve(range(1, STEPS + 1), told, [STEP_SECONDS] * STEPS)


def halved(
    kinds: Sequence[MachineType] = (SLOW, QUICK), its: Workload | None = None, slower: float = 1.0, **others: Any
) -> Ran:
    given = {"curves": even, "pace": lambda kind: slower / kind.speed, "rule": rule, **others}
    return run(Elastic, Where(kinds), its or terms(), a_spec(TRIALS, steps=STEPS), **given)


def seconds(ran: Ran) -> float:
    return ran.history.driven_seconds(ran.now)


def most_at_a_time(ran: Ran) -> int:
    running: set[int] = set()
    most = 0
    for entry in ran.log:
        if isinstance(entry, ev.Place):
            running.add(entry.trial)
        elif isinstance(entry, (ev.Ended, ev.Lost, ev.Failed)):
            running.discard(entry.trial)
        most = max(most, len(running))
    return most


def is_whole(ran: Ran) -> bool:
    """As the rule has it: so many trials came to the ends of stages."""
    last = sorted(trial.step for trial in ran.history.trials)
    return last == [2, 2, 2, 2, 6, 6, 14, 14]


# --- it follows the plan


@pytest.mark.parametrize("deadline", [1700.0, 2400.0, 3000.0, 5000.0, 9000.0])
def test_where_all_is_as_promised_it_is_in_time_and_costs_what_was_planned(deadline: float) -> None:
    ran = halved(its=terms(deadline))
    assert is_whole(ran)
    assert seconds(ran) <= deadline
    check(ran)
    first = Elastic([SLOW, QUICK], terms(deadline))
    history = replayed(ran.spec, ran.log[:1])
    planned = first._plans(history)
    first.now(history)
    plan = planned._made[0].plan
    assert ran.ledger.dollars == pytest.approx(plan.cost, rel=0.05)  # restarts are planned where trials begin, too
    assert seconds(ran) == pytest.approx(plan.duration, rel=0.05)


def test_the_longer_the_deadline_the_cheaper() -> None:
    costs = [halved(its=terms(deadline)).ledger.dollars for deadline in (700.0, 1000.0, 1700.0, 5000.0)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.65 * costs[0]


def test_without_a_deadline_it_is_the_cheapest() -> None:
    ran = halved(its=terms(None))
    assert ran.offers() == {"slow": 1}  # machines that come cost their start
    assert most_at_a_time(ran) == 1
    assert ran.ledger.dollars <= halved(its=terms(9000.0)).ledger.dollars


def test_what_cannot_be_in_time_is_as_quick_as_can_be() -> None:
    late, quickest = halved(its=terms(300.0)), halved(its=terms(760.0))
    assert set(late.offers()) == {"quick"}
    assert late.offers()["quick"] == TRIALS
    assert seconds(late) == seconds(quickest) > 300.0


@pytest.mark.parametrize(
    ("at_a_time", "are"), [(1, 1), (3, 3), (5, 4), (8, 8)]
)  # of 5, 8 trials have two turns, too
def test_never_more_trials_at_a_time_than_there_may_be(at_a_time: int, are: int) -> None:
    ran = halved(its=terms(300.0, at_a_time=at_a_time))
    assert most_at_a_time(ran) == are
    assert is_whole(ran)
    check(ran)


def test_brackets_come_one_after_the_other() -> None:
    job = JOB + JOB
    its = terms(6000.0, job=job, trials=2 * TRIALS)
    ran = run(
        Elastic, Where([SLOW]), its, a_spec(2 * TRIALS, steps=STEPS), curves=even, rule=rule
    )  # fmt: skip
    assert seconds(ran) <= 6000.0
    first_end = max(trial.past_attempts[-1].ended_at for trial in ran.history.trials[:TRIALS])
    assert all(trial.past_attempts[0].started_at >= first_end for trial in ran.history.trials[TRIALS:])


# --- and makes it anew


def without_replanning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replanning, "MOST_DEVIATION", math.inf)


def test_machines_that_are_slower_than_promised_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    anew = halved(slower=1.5)
    without_replanning(monkeypatch)
    stubborn = halved(slower=1.5)
    assert seconds(stubborn) > 3000.0 >= seconds(anew)
    assert is_whole(anew)
    assert is_whole(stubborn)


def test_machines_that_are_faster_than_promised_make_it_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    its = terms(1200.0)
    anew = halved(its=its, slower=0.6)
    without_replanning(monkeypatch)
    stubborn = halved(its=its, slower=0.6)
    assert anew.ledger.dollars < 0.95 * stubborn.ledger.dollars
    assert seconds(anew) <= 1200.0


def test_what_is_only_nearly_as_promised_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    anew = halved(slower=1.03)
    without_replanning(monkeypatch)
    assert anew.log == halved(slower=1.03).log


def test_a_price_that_has_moved_is_looked_at_when_a_stage_begins() -> None:
    falls = PriceSeries("quick", "a", [-10.0, 100.0], [3.0, 1.0], end=FOREVER)
    ran = halved([SLOW, replace(QUICK, price=falls)], its=terms(2400.0))
    kinds = {
        step: {ran.cloud.kind_of(each.machine).name for each in ran.of(ev.Place) if each.resume_step == step}
        for step in (0, 2, 6)
    }
    assert kinds == {0: {"slow"}, 2: {"quick"}, 6: {"quick"}}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cloud", [by_chance, by_price, by_room])
def test_trials_of_all_speeds_on_machines_that_come_and_go(cloud: Any, seed: int) -> None:
    its = terms(20_000.0, seconds_per_step=320.0, seed=seed)
    spec = a_spec(TRIALS, steps=STEPS)
    ran = run(Elastic, cloud(seed), its, spec, curves=lambda config: curve(config, STEPS), rule=rule)
    assert is_whole(ran)
    assert seconds(ran) <= 20_000.0
    check(ran)


# --- trials that fail or end early


def fails(config: ev.Config) -> Curve:
    found = even(config)
    if config["x"] < 0.4:
        return Curve([1], [{"loss": 1.0}], [STEP_SECONDS], "it broke")
    return found


def ends_early(config: ev.Config) -> Curve:
    found = even(config)
    if 0.1 < config["x"] < 0.35:
        return Curve(found.steps[:3], found.metrics[:3], found.seconds[:3])
    return found


@pytest.mark.parametrize("curves", [fails, ends_early])
def test_fewer_trials_than_planned_go_on(curves: Any) -> None:
    ran = halved(curves=curves)
    counts = ran.history.counts
    assert counts[State.FAILED if curves is fails else State.COMPLETED] > 2
    assert any(trial.step == STEPS for trial in ran.history.trials)
    assert seconds(ran) <= 3000.0
    check(ran)


def test_where_all_fail_nothing_more_is_rented() -> None:
    broken = Curve([1], [{"loss": 1.0}], [STEP_SECONDS], "it broke")
    ran = halved(curves=lambda _: broken)
    assert ran.history.counts[State.FAILED] == TRIALS
    check(ran)


# --- a driver that is killed


class Watched(Elastic):
    """Which choice was followed in which stage, by all drivers."""

    followed: defaultdict[int, list[StageAllocation]] = defaultdict(list)

    def now(self, history: History) -> CurrentStage:
        found = super().now(history)
        known = self.followed[found.number]
        if found.choice not in known:
            known.append(found.choice)
        return found


@settings(max_examples=8, deadline=None)
@given(kills=st.lists(st.integers(1, 120), max_size=4), slower=st.sampled_from([0.6, 1.0, 1.5]), data=st.data())
def test_a_stage_has_one_plan_whoever_drives_it(kills: list[int], slower: float, data: st.DataObject) -> None:
    """And whoever looks at any part of the log finds the same."""
    Watched.followed.clear()
    where = data.draw(st.sampled_from([Where([SLOW, QUICK]), by_chance(1)]))
    its = terms(4000.0)
    spec = a_spec(TRIALS, steps=STEPS)
    ran = run(
        Watched, where, its, spec, kill_after=kills, curves=even, pace=lambda kind: slower / kind.speed, rule=rule
    )
    assert is_whole(ran)
    check_machines(ran)
    check_rents(ran)
    assert sorted(Watched.followed) == [0, 1, 2]
    assert all(len(choices) == 1 for choices in Watched.followed.values())
    for length in data.draw(st.lists(st.integers(1, len(ran.log)), min_size=4, max_size=4)):
        found = Elastic(where.kinds, its).now(replayed(spec, ran.log[:length]))
        assert [found.choice] == Watched.followed[found.number]


@settings(max_examples=10, deadline=None)
@given(turn=st.integers(1, 100))
def test_a_study_that_is_resumed_is_as_quick_as_it_can_still_be(turn: int) -> None:
    """What a killed driver costs are the steps that were not saved, and a start."""
    resumed = halved(slower=1.5, kill_after=[turn])
    assert is_whole(resumed)
    assert seconds(resumed) <= 3000.0 + 8.0 * 1.5 * STEP_SECONDS


# --- event by event


def desk(*kinds: MachineType, **its: Any) -> Desk:
    return Desk(Elastic(kinds, terms(**its)), trials=TRIALS, max_steps=STEPS, stopper=rule())


def through(where: Desk, trials: Sequence[int], last: int) -> list[str]:
    """They come to the end of their stage."""
    told: list[str] = []
    for trial in trials:
        told += where.report(trial, last, loss=0.1 * trial, saved=True)
        told += where.end(trial, cut=last < STEPS)
    return told


def started(where: Desk, count: int, kind: str = "slow") -> None:
    told = where.begins()
    assert told == [f"rent {kind}-{number}" for number in range(1, count + 1)]
    for number in range(1, count + 1):
        where.comes(f"{kind}-{number}")


def test_machines_go_when_neither_this_stage_nor_the_next_has_a_use_for_them() -> None:
    where = desk(SLOW, deadline=1560.0)  # all at a time
    started(where, TRIALS)
    where.now += 200.0
    told = [through(where, [trial], 2) for trial in range(TRIALS)]
    kept = [each for each in told if each == [f"pause {told.index(each)}/1"]]
    assert len(kept) == 3, "the last four machines stay for the next stage"
    assert [line for each in told for line in each if line.startswith("release")] == [
        f"release slow-{number}" for number in (1, 2, 3, 4)
    ]
    assert [line for line in told[-1] if line.startswith("place")] == [
        f"place {trial}/2 on slow-{machine} from 2" for trial, machine in zip(range(4), (5, 6, 7, 8), strict=True)
    ]


def test_a_machine_that_is_lost_is_rented_again() -> None:
    where = desk(SLOW, deadline=1560.0)
    started(where, TRIALS)
    where.passes(400.0)
    assert where.is_lost("slow-3") == ["rent slow-9"]
    assert where.comes("slow-9") == ["place 2/2 on slow-9"]


def test_where_there_is_none_it_is_asked_for_again_and_then_another_kind() -> None:
    where = desk(SLOW, QUICK, deadline=None)
    assert where.begins() == ["rent slow-1"]
    assert where.refuses("slow-1") == []
    assert where.passes(PATIENCE_SECONDS - 1.0) == []
    assert where.passes(1.0) == ["rent slow-2"]
    assert where.refuses("slow-2") == ["rent quick-3"]
    assert where.comes("quick-3") == ["place 0/1 on quick-3"]


def test_of_the_others_the_cheapest_that_is_as_fast() -> None:
    others = [on_demand("snail", 0.99, 0.5), on_demand("same", 1.5), on_demand("dear", 4.0), QUICK]
    where = desk(on_demand("best", 0.5), *others, deadline=None)
    where.begins()
    where.refuses("best-1")
    where.passes(PATIENCE_SECONDS)
    assert where.refuses("best-2") == ["rent same-3"]
    assert where.refuses("same-3") == ["rent quick-4"]  # for as many dollars a step as same, and less than dear
    assert where.refuses("quick-4") == ["rent dear-5"]
    assert where.refuses("dear-5") == ["rent snail-6"]
    assert where.refuses("snail-6") == []


def test_another_kind_has_one_trial_when_the_planned_one_is_there_again() -> None:
    where = desk(SLOW, QUICK, deadline=None)
    where.begins()
    where.refuses("slow-1")
    where.passes(PATIENCE_SECONDS)
    where.refuses("slow-2")
    where.passes(PATIENCE_SECONDS)
    where.comes("quick-3")
    where.now += 100.0
    told = through(where, [0], 2)
    assert told == ["pause 0/1", "create 1", "rent slow-4", "release quick-3"]


def test_a_machine_that_is_lost_at_once_counts_as_refused() -> None:
    where = desk(SLOW, deadline=None)
    started(where, 1)
    where.passes(60.0)
    assert where.is_lost("slow-1") == []
    assert where.passes(PATIENCE_SECONDS - 1.0) == []
    assert where.passes(2.0) == ["rent slow-2"]


# --- what it is told


def test_a_study_without_stages_is_one() -> None:
    its = Workload(2, 6, deadline_seconds=6200.0, seconds_per_step=STEP_SECONDS)
    ran = run(Elastic, Where([SLOW, QUICK]), its, a_spec(6, steps=20), curves=lambda config: curve(config, 20))
    assert ran.history.counts[State.COMPLETED] == 6
    assert most_at_a_time(ran) == 2


def test_kinds_that_are_taken_away_by_their_price_are_not_used() -> None:
    where = by_price(0)
    ran = run(Elastic, where, terms(20_000.0), a_spec(TRIALS, steps=STEPS), curves=even, rule=rule)
    assert set(ran.offers()) == {"stays"}
    with pytest.raises(SettingError, match="elastic: all kinds of machines are taken away by their price"):
        Elastic(where.kinds[:2], terms())


def test_spot_machines_are_planned_with_as_long_as_they_live() -> None:
    short, long = (
        MachineType("short", 0.7, survival=Exponential(0.01)),
        MachineType("long", 0.7, survival=Exponential(9.0)),
    )
    assert desk(short, long, SLOW, deadline=None).begins() == ["rent long-1"]
    assert desk(short, SLOW, deadline=None).begins() == ["rent slow-1"]


def test_what_it_must_know() -> None:
    with pytest.raises(SettingError, match="elastic: a plan must know how many trials there are"):
        policy("elastic", [SLOW], Workload())
    where = Desk(policy("elastic", [SLOW], Workload(trials=4)), max_steps=None)
    with pytest.raises(SettingError, match="elastic: a plan must know how many steps a trial has"):
        where.begins()
    assert Desk(policy("elastic", [SLOW], Workload(job=JobSpec.of([(2, 3)])))).begins() == ["rent slow-1"]
