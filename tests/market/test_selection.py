"""Tests of step costs: the papers' formulas, simulations and invariants."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.market.known_lifetimes import Bathtub, Exponential, Machine, Steps, Uniform
from thriftune.errors import SettingError
from thriftune.market.billing import EC2_SPOT_2016, HOURLY, PER_SECOND, Billing
from thriftune.market.running_time import expected_hours, scispot_eq9
from thriftune.market.selection import (
    TO_THE_MOMENT,
    Candidate,
    OfferStepCost,
    Stint,
    rank,
    scispot_eq11,
    spottune_eq2,
    step_cost,
)

MACHINES: list[Machine] = [Exponential(), Uniform(), Bathtub()]
FOREVER = Exponential(rate=1e-15)


def offer(survival: Machine, **changes: object) -> Candidate:
    return replace(Candidate("m4.large", 0.1, 30.0, survival), **changes)  # type: ignore[arg-type]


def components(cost: OfferStepCost) -> list[float]:
    return [cost.work, cost.lost, cost.checkpoints, cost.restarts, cost.rounding, cost.refund]


def refunding(hours: float) -> Billing:
    """Return exact billing that refunds machines preempted within `hours`."""
    return replace(TO_THE_MOMENT, refunded_first_seconds=3600.0 * hours)


# --- the papers' formulas


@pytest.mark.parametrize("p", [0.0, 0.25, 0.9])
def test_the_cost_equals_spottunes_formula_in_its_case(p: float) -> None:
    """SpotTune's case is a stint of an hour with a refund.

    A loss comes with probability p at its end.
    """
    machine = Steps((1.0,), (p,))
    cost = step_cost(offer(machine, billing=refunding(1.0), notice_seconds=120.0), Stint(hours=1.0))
    assert cost.dollars == pytest.approx(spottune_eq2(30.0, 0.1, p))
    assert cost.dollars == pytest.approx(30.0 / 3600 * (1 - p) * 0.1)
    assert cost.failure_probability == pytest.approx(p)


def test_a_preemption_is_an_advantage_only_with_a_refund() -> None:
    often, seldom = Steps((1.0,), (0.9,)), Steps((1.0,), (0.1,))
    stint = Stint(hours=1.0, checkpoint_seconds=60.0, restart_seconds=60.0)
    offers = [offer(often, name="often"), offer(seldom, name="seldom")]
    assert [cost.name for cost in rank(offers, stint)] == ["seldom", "often"]
    refunded = [replace(one, billing=refunding(1.0), notice_seconds=120.0) for one in offers]
    assert [cost.name for cost in rank(refunded, stint)] == ["often", "seldom"]


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_the_cost_equals_scispots_formula_in_its_case(machine: Machine) -> None:
    """SciSpot's case is a job that starts again after every loss.

    It has 240 steps of 30 s on four machines.
    """
    cost = step_cost(offer(machine, machines=4), Stint(steps=240))
    E = float(expected_hours(machine, 2.0))
    assert 240 * cost.dollars == pytest.approx(scispot_eq11(4, 0.1, E))
    assert 240 * cost.seconds == pytest.approx(3600 * E)
    rare = Exponential(rate=1e-6)
    as_printed = scispot_eq11(1, 0.1, float(scispot_eq9(rare, 2.0)))
    assert 240 * step_cost(offer(rare), Stint(steps=240)).dollars == pytest.approx(as_printed, rel=1e-9)


# --- by hand


def test_the_components_for_a_machine_that_is_never_lost() -> None:
    # In 1 h: a minute for the restart, then three times 14 min of work and a minute for a checkpoint, then 13 min.
    stint = Stint(hours=1.0, checkpoint_every_seconds=840, checkpoint_seconds=60, restart_seconds=60)
    cost = step_cost(offer(FOREVER), stint)
    useful = 3 * 14 + 13
    assert components(cost) == pytest.approx(
        [0.1 / 120, 0.0, 0.1 / 120 * 4 / useful, 0.1 / 120 / useful, 0.0, 0.0], abs=1e-12
    )
    assert cost.dollars == pytest.approx(0.1 / useful * 30 / 60)
    # With steps for 28 min only, the stint ends after the second segment.
    short = step_cost(offer(FOREVER), replace(stint, steps=56))
    assert short.seconds == pytest.approx(30.0 * 31 / 28)


def test_the_components_for_a_machine_that_lives_40_minutes() -> None:
    stint = Stint(hours=1.0, checkpoint_every_seconds=840, checkpoint_seconds=60, restart_seconds=60)
    machine = Steps((40 / 60,), (1.0,))
    # Minutes: 1 restart, 14 work, 1 checkpoint, 14 work, 1 checkpoint, 9 lost.
    cost = step_cost(offer(machine), stint)
    assert components(cost) == pytest.approx([0.1 / 120 * x / 28 for x in (28, 9, 2, 1, 0, 0)], abs=1e-12)
    with_notice = step_cost(offer(machine, notice_seconds=60), stint)  # the last of the 9 minutes is a checkpoint
    assert components(with_notice) == pytest.approx([0.1 / 120 * x / 36 for x in (36, 1, 2, 1, 0, 0)], abs=1e-12)
    short_notice = step_cost(offer(machine, notice_seconds=59), stint)  # too short for a checkpoint
    assert short_notice == cost
    refunded = step_cost(offer(machine, billing=refunding(1.0)), stint)
    assert refunded.dollars == pytest.approx(0.0, abs=1e-12)
    assert refunded.refund == pytest.approx(-0.1 / 120 * 40 / 28)
    assert step_cost(offer(machine, billing=refunding(0.5)), stint) == cost  # preempted too late for a refund


def test_costs_include_the_billing_rule() -> None:
    """Hourly billing charges 60 minutes, or none after a preemption.

    The machine lives 40 minutes, 28 of them useful.
    """
    stint = Stint(hours=1.0, checkpoint_every_seconds=840, checkpoint_seconds=60, restart_seconds=60)
    machine = Steps((40 / 60,), (1.0,))
    hourly = step_cost(offer(machine, billing=HOURLY), stint)
    assert hourly.rounding == pytest.approx(0.1 / 120 * 20 / 28, rel=2e-3)
    assert hourly.dollars == pytest.approx(0.1 / 120 * 60 / 28, rel=2e-3)
    free = step_cost(offer(machine, billing=EC2_SPOT_2016), stint)
    assert free.dollars == pytest.approx(0.0, abs=1e-9)
    never = step_cost(offer(FOREVER, billing=HOURLY), Stint(hours=1.5))
    assert never.rounding == pytest.approx(0.1 / 120 * 30 / 90)
    short = step_cost(offer(FOREVER, billing=PER_SECOND), Stint(steps=1))  # 30 s, billed as a minute
    assert short.dollars == pytest.approx(0.1 / 60)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize(
    "billing", [HOURLY, EC2_SPOT_2016, PER_SECOND, Billing(refunded_first_seconds=3600)], ids=str
)
def test_billing_effects_equal_a_simulation(machine: Machine, billing: Billing) -> None:
    until, n = 5.0, 6000
    lives = machine.draw(n, np.random.default_rng(5))
    revoked, lived = lives <= until, np.minimum(lives, until)
    billed = np.where(
        revoked, billing.billed_seconds(3600 * lived, revoked=True), billing.billed_seconds(3600 * lived)
    )
    cost = step_cost(offer(machine, billing=billing, notice_seconds=120), Stint(hours=until))
    expected = cost.dollars / (0.1 / 3600) / 30.0 * 3600 * lived.mean()
    assert expected == pytest.approx(
        billed.mean(), abs=4 * billed.std() / math.sqrt(n) + 4 * 3600 * lived.std() / math.sqrt(n)
    )


def test_a_step_costs_infinity_if_no_work_is_saved() -> None:
    cost = step_cost(offer(Bathtub()), Stint(steps=1e6))
    assert cost.dollars == math.inf
    assert cost.failure_probability == 1.0
    assert [cost.name for cost in rank([offer(Bathtub()), offer(FOREVER, name="b")], Stint(steps=1e6))] == [
        "b",
        "m4.large",
    ]


# --- simulations


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize(("notice", "refund"), [(0.0, 0.0), (120.0, 1.0)])
def test_step_costs_equal_a_simulation(machine: Machine, notice: float, refund: float) -> None:
    every, save, start, until = 1.5, 0.03, 0.1, 5.0
    dollars, saved = [], []
    for life in machine.draw(6000, np.random.default_rng(5)):
        revoked = life <= until
        dollars.append(0.0 if revoked and life <= refund else 0.1 * min(life, until))
        # Follow the segments until the loss or the end of the stint.
        now, done, safe = start, 0.0, 0.0
        while now < until - 1e-9:
            work = min(every, until - save - now)
            if now + work + save < life or not revoked:
                now, done = now + work + save, done + work
                safe = done
            else:
                safe += max(0.0, min(work, life - save - now)) if notice else 0.0
                break
        saved.append(safe)
    ratio = np.mean(dollars) / np.mean(saved)
    error = 4 * np.std(np.array(dollars) - ratio * np.array(saved)) / math.sqrt(6000) / np.mean(saved)
    stint = Stint(
        hours=until,
        checkpoint_every_seconds=3600 * every,
        checkpoint_seconds=3600 * save,
        restart_seconds=3600 * start,
    )
    cost = step_cost(offer(machine, notice_seconds=notice, billing=refunding(refund)), stint)
    assert cost.dollars == pytest.approx(ratio / 120, abs=error / 120)


# --- invariants


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(MACHINES),
    st.floats(0.5, 30.0),
    st.floats(60.0, 1e5),
    st.floats(0.0, 300.0),
    st.floats(0.0, 600.0),
    st.sampled_from([0.0, 30.0, 120.0, math.inf]),
    st.sampled_from([0.0, 1.0, 1e6]),
)
def test_invariants(
    machine: Machine, hours: float, every: float, save: float, start: float, notice: float, refund: float
) -> None:
    stint = Stint(hours=hours, checkpoint_every_seconds=every, checkpoint_seconds=save, restart_seconds=start)
    candidate = offer(machine, notice_seconds=notice, billing=refunding(refund))
    cost = step_cost(candidate, stint)
    if math.isinf(cost.dollars):
        return
    assert sum(components(cost)) == pytest.approx(cost.dollars, abs=1e-12)
    assert min(components(cost)[:5]) >= -1e-9 * cost.work
    assert cost.refund <= 0.0
    assert cost.dollars >= -1e-9 * cost.work  # a refund is never larger than the bill
    assert cost.seconds >= 30.0 - 1e-6
    plain = step_cost(replace(candidate, billing=refunding(0.0)), stint)
    assert plain.dollars >= 0.1 / 120 - 1e-12
    assert plain.dollars >= cost.dollars - 1e-12
    unwarned = step_cost(replace(candidate, notice_seconds=0.0), stint)
    assert unwarned.lost >= cost.lost - 1e-9 * abs(unwarned.lost)
    assert step_cost(replace(candidate, price_per_hour=0.2), stint).dollars == pytest.approx(
        2 * cost.dollars, abs=1e-12
    )
    assert step_cost(replace(candidate, machines=2), stint).dollars == pytest.approx(2 * cost.dollars, abs=1e-12)


def test_offers_of_equal_cost_keep_their_order() -> None:
    offers = [offer(FOREVER, name=name) for name in "cab"]
    assert [cost.name for cost in rank(offers, Stint(hours=1.0))] == ["c", "a", "b"]
    assert rank([], Stint(hours=1.0)) == []


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(SettingError, match="a stint has no end"):
        Stint()
    with pytest.raises(SettingError, match=r"hours 0\.1: a restart and a checkpoint alone take 0\.2 h"):
        Stint(hours=0.1, restart_seconds=600, checkpoint_seconds=120)
    with pytest.raises(SettingError, match=r"a stint of 1\.66667e\+10 segments is too long"):
        step_cost(offer(FOREVER), Stint(steps=1e12, checkpoint_every_seconds=1800))
    with pytest.raises(SettingError, match=r"m4\.large: price_per_hour -1"):
        offer(FOREVER, price_per_hour=-1.0)
    with pytest.raises(SettingError, match=r"m4\.large: seconds_per_step 0 must be a number above 0"):
        offer(FOREVER, seconds_per_step=0.0)
    with pytest.raises(SettingError, match=r"m4\.large: seconds_per_step 'one' must be a number above 0"):
        offer(FOREVER, seconds_per_step="one")
    with pytest.raises(SettingError, match=r"m4\.large: billing 'ec2' must be a Billing"):
        offer(FOREVER, billing="ec2")
