"""What all policies share: how machines are rented for trials, and given back."""

from __future__ import annotations

import math

import pytest

from tests.provisioning.desk import HOUR, Desk
from tests.provisioning.studies import Where, a_spec, run
from tests.support.tables import START
from thriftune.errors import SettingError
from thriftune.market.billing import EC2_SPOT, EC2_SPOT_2016
from thriftune.market.lifetime import Exponential
from thriftune.market.prices import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.fixed import CheapestSpot, OnDemand
from thriftune.provisioning.policies import policy
from thriftune.provisioning.renting_policy import RentingPolicy
from thriftune.provisioning.workload import Workload
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev

LIFE = Exponential(2.0)


def spot(terms: Workload | None = None, **settings: object) -> Desk:
    kind = MachineType("spot", 0.3, survival=LIFE, **settings)  # type: ignore[arg-type]
    return Desk(CheapestSpot([kind], terms or Workload(seconds_per_step=60.0)))


def policy_of(where: Desk) -> RentingPolicy:
    assert isinstance(where.policy, RentingPolicy)
    return where.policy


def test_what_is_left_is_counted_from_the_last_checkpoint_where_a_machine_may_be_lost() -> None:
    where = spot()
    where.begins()
    where.comes("spot-1")
    assert policy_of(where).steps_left(where.trial(0), where.history) == 100
    where.works(0, 1, 7, 10.0)
    where.works(0, 8, 9, 10.0, saved=False)
    assert policy_of(where).steps_left(where.trial(0), where.history) == 93


def test_what_is_left_is_counted_from_the_last_step_where_it_may_not() -> None:
    where = Desk(OnDemand([MachineType("stays", 1.0)], Workload()))
    where.begins()
    where.comes("stays-1")
    where.works(0, 1, 9, 10.0, saved=False)
    assert policy_of(where).steps_left(where.trial(0), where.history) == 91


def test_so_many_machines_as_trials_at_a_time() -> None:
    where = spot(Workload(3))
    assert where.begins() == ["rent spot-1", "rent spot-2", "rent spot-3"]


def test_a_machine_with_room_for_several_is_rented_once() -> None:
    where = spot(Workload(3), slots=2)
    assert where.begins() == ["rent spot-1", "rent spot-2"]
    assert len(where.comes("spot-1", slots=2)) == 2


def test_no_more_at_a_time_than_asked_for_whatever_room_there_is() -> None:
    where = spot(Workload(1), slots=4)
    where.begins()
    assert where.comes("spot-1", slots=4) == ["place 0/1 on spot-1"]


def test_a_machine_that_nobody_needs_goes_back() -> None:
    where = spot(Workload(2))
    where.begins()
    where.comes("spot-1")
    where.comes("spot-2")
    for trial in (0, 1):
        where.report(trial, 100, loss=0.1, saved=True)
    where.end(0)
    where.report(2, 100, loss=0.1, saved=True)
    where.end(2)  # trial 3 is the last
    assert where.end(1) == ["release spot-2"]


def test_one_that_its_provider_takes_for_nothing_is_left_to_it() -> None:
    for billing, told in ((EC2_SPOT, []), (MachineType("x", 1.0).billing, ["release spot-1"])):
        where = spot(billing=billing, notice_seconds=120.0)
        where.begins()
        where.comes("spot-1")
        where.now += 900.0
        where(ev.MachineNotice(where.now, "spot-1", where.now + 120.0))
        where.report(0, 5, loss=0.1, saved=True)
        ended = where.end(0, cut=True)
        assert [each for each in ended if each.startswith("release")] == told


def test_how_often_to_save() -> None:
    """Young and Daly: the square root of twice the time to save times the life."""
    terms = Workload(seconds_per_step=60.0, save_seconds=10.0)
    where = spot(terms)
    where.begins()
    where.comes("spot-1")
    every = policy_of(where).save_every(where.trial(0), "spot-1", where.history)
    assert every == pytest.approx(math.sqrt(2.0 * 10.0 * 2.0 * HOUR), rel=0.02)
    assert where.trial(0).save_every == every
    noticed = spot(terms, notice_seconds=70.0)
    noticed.begins()
    noticed.comes("spot-1")
    assert noticed.trial(0).save_every is None  # when it has to
    free = spot(Workload(seconds_per_step=60.0))
    free.begins()
    free.comes("spot-1")
    assert free.trial(0).save_every == 0.0  # at every step: it costs nothing


def test_a_new_driver_goes_on_as_the_last_one_would_have() -> None:
    where = spot(Workload(2))
    where.begins()
    where.comes("spot-1")
    where.works(0, 1, 5, 60.0)
    where.kill_driver()
    where._provisioner = CheapestSpot([MachineType("spot", 0.3, survival=LIFE)], Workload(2))
    where.policy = where._provisioner
    where.conductor = where._conductor()
    told = where(ev.DriverStarted(where.now, 2, "host"))
    assert [each for each in told if each.startswith("place")] != []


def test_machines_that_are_not_for_rent_are_no_matter() -> None:
    where = spot()
    where.start()
    assert list(where.history.fleet.renting) == ["spot-1"]


def test_each_kind_needs_a_name_of_its_own() -> None:
    with pytest.raises(SettingError, match="kinds: a, a: each needs a name of its own"):
        OnDemand([MachineType("a", 1.0), MachineType("a", 2.0)], Workload())


def test_one_that_is_taken_back_at_once_is_as_good_as_refused() -> None:
    where = spot()
    where.begins()
    where.comes("spot-1")
    where.passes(30.0)
    assert where.is_lost("spot-1") == []
    assert where.passes(301.0) == ["rent spot-2"]


def test_one_that_is_taken_back_soon_is_as_good_as_refused_unless_others_are_left_alone() -> None:
    for others in (0, 1):
        where = spot(Workload(2, seconds_per_step=60.0))
        where.begins()
        where.comes("spot-1")
        if others:
            where.comes("spot-2")
        where.passes(200.0)
        lost = where.is_lost("spot-1")
        assert ("rent spot-3" in lost) == bool(others)


def test_a_kind_is_seen_there_until_one_is_refused_and_again_when_one_comes() -> None:
    where = spot(Workload(2, seconds_per_step=60.0))
    policy = policy_of(where)
    kind = policy.kinds["spot"]
    where.begins()
    assert policy.last_seen_there(kind, where.history)
    where.refuses("spot-1")
    assert not policy.last_seen_there(kind, where.history)
    where.passes(1.0)
    where.comes("spot-2")
    assert policy.last_seen_there(kind, where.history)


@pytest.mark.parametrize("name", ["thrifty", "cheapest_spot", "step_cost", "reuse", "elastic", "uniform_progress"])
def test_trials_that_save_nothing_get_no_machine_that_may_be_taken_away(name: str) -> None:
    kinds = [MachineType("stays", 1.0), MachineType("spot", 0.3, survival=LIFE)]
    terms = Workload(trials=4, deadline_seconds=9 * HOUR, saves=False)
    with pytest.raises(SettingError, match="whenever spot is taken away; have trials save"):
        policy(name, kinds, terms)
    if name in ("thrifty", "elastic"):
        policy(name, kinds[:1], terms)
    policy("on_demand", kinds, terms)


@pytest.mark.parametrize("name", ["on_demand", "thrifty", "elastic"])
def test_a_machine_that_is_on_its_way_for_several_is_not_rented_again(name: str) -> None:
    kinds = [MachineType("big", 16.0, 16, queue=10.0, init=600.0)]
    flat = Curve(range(1, 6), [{"loss": 1.0}] * 5, [300.0] * 5)
    terms = Workload(16, 16, seconds_per_step=300.0)
    ran = run(lambda k, t: policy(name, k, t), Where(kinds, {}), terms, a_spec(16, steps=5), curves=lambda _: flat)
    assert len(ran.of(ev.MachineRented)) == 1


def test_what_was_done_by_an_attempt_that_was_lost_is_to_be_done_again() -> None:
    where = Desk(OnDemand([MachineType("stays", 1.0)], Workload()))
    where.begins()
    where.comes("stays-1")
    where.works(0, 1, 9, 10.0, saved=False)
    where.is_lost("stays-1")
    where.comes("stays-2")
    assert policy_of(where).steps_left(where.trial(0), where.history) == 100
    where.works(0, 1, 2, 10.0, saved=False)
    assert policy_of(where).steps_left(where.trial(0), where.history) == 98


def test_a_machine_that_is_never_lost_is_saved_on_only_at_the_end() -> None:
    """One that is never outbid, of which nobody knows how long it lives."""
    terms = Workload(seconds_per_step=60.0, save_seconds=10.0)
    prices = PriceSeries("m", "a", [START - HOUR], [1.0], end=START + 99 * HOUR)

    class Never:
        def probability(self, series: object, t: float, max_price: float) -> float:
            return 0.0

    where = Desk(CheapestSpot([MachineType("m", prices, revocation=Never())], terms))
    where.begins()
    where.comes("m-1")
    assert where.trial(0).save_every is None


def test_of_a_machine_that_is_taken_in_an_hour_that_is_not_billed_the_rest_is_used() -> None:
    kind = MachineType("m", 0.3, survival=LIFE, billing=EC2_SPOT_2016, notice_seconds=120.0)
    where = Desk(CheapestSpot([kind], Workload(seconds_per_step=60.0)))
    where.begins()
    where.comes("m-1")
    where.now += 5000.0
    where(ev.MachineNotice(where.now, "m-1", where.now + 120.0))
    assert "release m-1" not in where.end(0, cut=True)
