"""What is to be expected of a plan: by hand, and against the plan carried out many times over."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.market.known_lifetimes import Exponential
from thriftune.planning import CloudProfile, JobSpec, Latency, Profile, successive_halving
from thriftune.planning.allocation import Allocation, StageAllocation, fair
from thriftune.planning.cloud_profile import BillingMode
from thriftune.planning.cost_model import CostModel, released
from thriftune.planning.executions import Durations, Executions, executions

CLOUD = CloudProfile(2, 3600.0, queue=10.0, init=5.0)  # a dollar a second
PROFILE = Profile({1: 4.0, 2: 3.0}, startup=1.0, checkpoint=2.0)
SPEC = JobSpec.of([(4, 10), (2, 20)])


def held(cloud: CloudProfile, *stages: tuple[int, int, int]) -> list[StageAllocation]:
    """Machines, trials at a time, and workers of each, by stage."""
    return [
        StageAllocation(cloud, machines, Allocation(at_a_time, workers)) for machines, at_a_time, workers in stages
    ]


def totals(model: CostModel, choices: Sequence[StageAllocation]) -> tuple[float, float]:
    told = model.predict(choices)
    return math.fsum(each.seconds for each in told), math.fsum(each.dollars for each in told)


def carried_out(model: CostModel, choices: Sequence[StageAllocation], samples: int, seed: int = 0) -> Executions:
    return executions(model.spec, model.profile, choices, samples, np.random.default_rng(seed))


# --- by hand


def test_machines_that_are_billed() -> None:
    """Two machines, 43 s of training; then one of them, both trials of one worker side by side."""
    first, then = CostModel(SPEC, PROFILE).predict(held(CLOUD, (2, 4, 1), (1, 2, 1)))
    assert first.seconds == pytest.approx(10 + 5 + 43)
    assert first.dollars == pytest.approx(2 * (5 + 43))  # from the moment they are handed over
    assert then.seconds == pytest.approx(1 + 80 + 2)
    assert then.dollars == pytest.approx(83)


def test_machines_that_are_there_are_billed_while_others_are_waited_for() -> None:
    first, then = CostModel(SPEC, PROFILE).predict(held(CLOUD, (1, 2, 1), (2, 2, 2)))
    assert first.seconds == pytest.approx(15 + 2 * 43)  # two turns
    assert then.seconds == pytest.approx(15 + 63)
    assert then.dollars == pytest.approx((15 + 63) + (5 + 63))


def test_functions_that_are_billed() -> None:
    by_use = replace(CLOUD, billing="per_function", minimum=1000.0)
    first, then = CostModel(SPEC, PROFILE).predict(held(by_use, (2, 4, 1), (9, 2, 2)))
    assert first.dollars == pytest.approx(4 * 43 / 2)  # a slot is half of a machine
    assert then.dollars == pytest.approx(2 * 63)
    assert then.seconds == pytest.approx(15 + 63)


def test_every_machine_gets_the_dataset_once() -> None:
    cloud, model = replace(CLOUD, data_price=0.5), CostModel(SPEC, replace(PROFILE, data_gb=10.0))
    plain = CostModel(SPEC, PROFILE)
    for stages, new in ((((2, 4, 1), (1, 2, 1)), [2, 0]), (((2, 4, 1), (4, 2, 2)), [2, 2])):
        more = [
            told.dollars - without.dollars
            for told, without in zip(
                model.predict(held(cloud, *stages)), plain.predict(held(CLOUD, *stages)), strict=True
            )
        ]
        assert more == pytest.approx([5.0 * n for n in new])
    own = replace(cloud, data_gb=1.0)  # of the cloud's own size, where it says one
    assert totals(model, held(own, (2, 4, 1), (1, 2, 1)))[1] == pytest.approx(96 + 83 + 2 * 0.5)


def test_another_kind_of_machine_is_rented_anew() -> None:
    other = CloudProfile(2, 2 * 3600.0, queue=1.0, init=2.0, speed=2.0, name="other")
    first, then = CostModel(SPEC, PROFILE).predict([*held(CLOUD, (2, 4, 1)), *held(other, (1, 2, 1))])
    assert first.seconds == pytest.approx(58)
    assert then.seconds == pytest.approx(1 + 2 + 1 + 40 + 2)
    assert then.dollars == pytest.approx(2 * (2 + 43))


def test_what_is_missing_to_the_minimum_is_paid_when_a_machine_goes() -> None:
    cloud, model = replace(CLOUD, minimum=100.0), CostModel(SPEC, PROFILE)
    seconds, dollars = totals(model, held(cloud, (2, 4, 1), (1, 2, 1)))
    # One goes at 48 s of its life; the other stays for 48 + 83 s.
    assert (seconds, dollars) == pytest.approx((58 + 83, 100 + 131))
    dear = replace(CLOUD, minimum=1000.0)
    assert totals(model, held(dear, (2, 4, 1), (1, 2, 1)))[1] == pytest.approx(2000)
    assert totals(model, held(dear, (1, 2, 1), (2, 2, 2)))[1] == pytest.approx(2000)


def test_the_oldest_go_first() -> None:
    assert released([(2, 90.0), (3, 10.0)], 1, 60.0) == ([(1, 90.0), (3, 10.0)], 0.0)
    assert released([(2, 90.0), (3, 10.0)], 3, 60.0) == ([(2, 10.0)], 50.0)
    assert released([(2, 90.0), (3, 10.0)], 5, 60.0) == ([], 150.0)
    assert released([(2, 90.0)], 0, 60.0) == ([(2, 90.0)], 0.0)


def test_nothing_is_remembered_of_machines_that_are_gone() -> None:
    """Another kind of machine, at the same place in memory, is another one."""
    model = CostModel(SPEC, PROFILE)
    once: dict[float, float] = {}
    for rate in (1e-3, 5.0) * 3:
        cloud = replace(CLOUD, survival=Exponential(rate=rate))
        told = model.train_seconds(0, cloud, Allocation(4, 1))
        assert once.setdefault(rate, told) == told
        del cloud
        gc.collect()


# --- carried out many times over


@st.composite
def plans(draw: st.DrawFn, *, random: bool) -> tuple[CostModel, list[StageAllocation]]:
    part = st.floats(0.05, 0.8) if random else st.just(0.0)
    stages = draw(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 20)), min_size=1, max_size=4))
    profile = Profile(
        {1: 4.0, 2: 2.4, 4: 1.8},
        std=4.0 * draw(part),
        startup=draw(st.floats(0.0, 5.0)),
        checkpoint=draw(st.floats(0.0, 5.0)),
        data_gb=draw(st.sampled_from([0.0, 5.0])),
    )
    clouds = [
        CloudProfile(
            draw(st.sampled_from([1, 2, 4])),
            draw(st.floats(1.0, 20.0)),
            queue=Latency(12.0, 12.0 * draw(part)),
            init=Latency(20.0, 20.0 * draw(part)),
            billing=draw(st.sampled_from(["per_instance", "per_function"])),
            # Where anything is random: far from every age that a machine may be let go at, below or above.
            minimum=draw(st.sampled_from([0.0, 1.0, 1e5] if random else [0.0, 60.0, 300.0])),
            data_price=draw(st.sampled_from([0.0, 0.1])),
            speed=draw(st.floats(0.5, 2.0)),
            name=name,
        )
        for name in ("one", "other")
    ]
    choices = []
    for trials, _ in stages:
        cloud, allocation = draw(st.sampled_from(clouds)), draw(st.sampled_from(fair(trials, 4)))
        choices.append(
            StageAllocation(cloud, cloud.machines_for(*allocation) + draw(st.integers(0, 2)), allocation)
        )
    return CostModel(JobSpec.of(stages), profile), choices


@settings(max_examples=100, deadline=None)
@given(plans(random=False))
def test_where_nothing_is_random_the_prediction_is_what_happens(
    plan: tuple[CostModel, list[StageAllocation]],
) -> None:
    model, choices = plan
    told, expected = carried_out(model, choices, 2), model.predict(choices)
    assert told.seconds == pytest.approx(math.fsum(each.seconds for each in expected))
    assert told.dollars == pytest.approx(math.fsum(each.dollars for each in expected))
    ends = np.cumsum([each.seconds for each in expected])
    assert told.ends[:, 0].tolist() == pytest.approx(ends.tolist())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(plans(random=True))
def test_the_prediction_is_the_mean_of_what_may_happen(plan: tuple[CostModel, list[StageAllocation]]) -> None:
    model, choices = plan
    told = carried_out(model, choices, 3000)
    for expected, seen in zip(totals(model, choices), (told.seconds, told.dollars), strict=True):
        # The prediction has an error of its own: the longest of many trials is drawn as well, 1,000 times.
        error = 4.0 * float(seen.std()) * math.sqrt(1 / 3000 + 1 / 1000)
        assert expected == pytest.approx(seen.mean(), abs=error + 1e-3 * expected)


@pytest.mark.parametrize("billing", ["per_instance", "per_function"])
def test_so_it_is_on_machines_that_are_taken_away(billing: BillingMode) -> None:
    cloud = replace(CLOUD, survival=Exponential(rate=8.0), billing=billing)
    model = CostModel(JobSpec.of([(4, 100), (2, 200)]), replace(PROFILE, std=1.0))
    choices = held(cloud, (1, 2, 1), (2, 2, 2))
    told = carried_out(model, choices, 4000)
    for expected, seen in zip(totals(model, choices), (told.seconds, told.dollars), strict=True):
        error = 4.0 * float(seen.std()) * math.sqrt(1 / 4000 + 1 / 200)
        assert expected == pytest.approx(seen.mean(), abs=error)
        assert float(seen.std()) < 0.5 * expected  # so that four errors tell something


def test_a_minimum_near_the_age_at_which_machines_go_is_told_by_the_average_age() -> None:
    """Half of the machines go before it and pay it, the others are older: the mean is above what is told."""
    cloud = CloudProfile(1, 3600.0, minimum=400.0)
    model = CostModel(JobSpec.of([(1, 100)]), Profile({1: 4.0}, std=2.0))
    choices = held(cloud, (1, 1, 1))
    seen = carried_out(model, choices, 20_000).dollars
    assert 400.0 <= totals(model, choices)[1] <= seen.mean() * 1.02


# --- stragglers


def test_all_wait_for_the_slowest() -> None:
    """The longest of n normal draws, by tables of order statistics."""
    for trials, above in ((2, 0.5642), (4, 1.0294), (8, 1.4236)):
        model = CostModel(JobSpec.of([(trials, 10)]), Profile({1: 4.0}, std=0.4))
        told = model.train_seconds(0, CLOUD, Allocation(trials, 1))
        assert told == pytest.approx(10 * (4.0 + 0.4 * above), rel=0.01)
        assert model.train_seconds(0, CLOUD, Allocation(1, 1)) == pytest.approx(10 * 4.0 * trials, rel=0.01)


def test_per_function_pays_for_no_waiting() -> None:
    """RubberBand 6.1.1: what stragglers leave idle is billed by the machine only."""
    spec = successive_halving(16, 4, 60)
    by_use = replace(CLOUD, billing="per_function")
    dollars = []
    for std in (0.0, 2.0):
        model = CostModel(spec, Profile({1: 4.0}, std=std))
        for cloud in (CLOUD, by_use):
            choices = [
                StageAllocation(cloud, -(-stage.trials // 2), Allocation(stage.trials, 1)) for stage in spec.stages
            ]
            dollars.append(totals(model, choices)[1])
    machine, function, machine_late, function_late = dollars
    assert machine_late > 1.3 * machine
    assert function_late == pytest.approx(function, rel=0.02)


# --- executions


def test_the_same_seed_gives_the_same_executions() -> None:
    model = CostModel(SPEC, replace(PROFILE, std=1.0))
    choices = held(replace(CLOUD, init=Latency(5.0, 3.0)), (2, 4, 1), (1, 2, 1))
    one, same, other = (carried_out(model, choices, 50, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.seconds, same.seconds)
    np.testing.assert_array_equal(one.dollars, same.dollars)
    assert (one.seconds != other.seconds).any()
    assert len(one) == 50
    np.testing.assert_array_equal(one.ends[-1], one.seconds)
    assert (np.diff(one.ends, axis=0) > 0.0).all()


def test_the_probability_of_a_deadline_is_the_part_that_makes_it() -> None:
    told = Executions(np.array([10.0, 20.0, 30.0, 40.0]), np.zeros(4), np.zeros((1, 4)))
    assert [told.probability(at) for at in (5.0, 10.0, 25.0, 40.0)] == [0.0, 0.25, 0.5, 1.0]


# --- how much it varies


@pytest.mark.parametrize("survival", [None, Exponential(0.05)])
def test_the_variance_is_that_of_plans_carried_out(survival: Exponential | None) -> None:
    cloud = replace(CLOUD, queue=Latency(10.0, 5.0), init=Latency(5.0, 4.0), survival=survival)
    model = CostModel(SPEC, replace(PROFILE, std=1.0))
    choices = held(cloud, (1, 2, 1), (2, 2, 2))  # one new machine a stage: of several the longest varies less
    seen = float(carried_out(model, choices, 20_000).seconds.var())
    assert model.total_variance(choices) == pytest.approx(seen, rel=0.25 if survival else 0.1)


def test_without_anything_random_nothing_varies() -> None:
    assert CostModel(SPEC, PROFILE).total_variance(held(CLOUD, (1, 2, 1), (2, 2, 2))) == 0.0


def test_durations_are_those_of_executions() -> None:
    cloud = replace(CLOUD, queue=Latency(10.0, 5.0), init=Latency(5.0, 4.0))
    model = CostModel(SPEC, replace(PROFILE, std=1.0))
    durations = Durations(model, 20_000)
    for choices in (held(cloud, (1, 2, 1), (2, 2, 2)), held(cloud, (3, 4, 1), (1, 1, 2))):
        told, seen = durations.of(choices), carried_out(model, choices, 20_000).seconds
        parts = [0.05, 0.5, 0.95]
        assert np.quantile(told, parts) == pytest.approx(np.quantile(seen, parts), rel=0.01)
        np.testing.assert_array_equal(told, durations.of(choices))


def test_so_many_trials_that_they_even_out_are_drawn_less_often() -> None:
    noisy = replace(PROFILE, std=1.0)
    seconds = CostModel(JobSpec.of([(20_000, 10)]), noisy).predict(held(CLOUD, (10, 20, 1)))[0].seconds
    assert seconds == pytest.approx(15 + 1000 * 43, rel=0.01)
