"""What machines cost and what came of it: row by row, and in sum what the cloud charges."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli import studies
from tests.support import rentals
from thriftune.market.billing import Billing
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.results.ledger import Ledger, Row
from thriftune.results.result import Result
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import State

# --- the sum ----------------------------------------------------------------------------------------------


def to_the_cent(dollars: float) -> Decimal:
    """Half a cent counts as one, also where floats have made it a hair less."""
    return Decimal(repr(round(dollars, 9))).quantize(Decimal("0.01"), ROUND_HALF_UP)


def check_sum(ledger: Ledger, cloud: SimulatedCloud) -> None:
    """Of the machines that are gone: those that are not have no bill, and their cloud has charged nothing."""
    billed = Ledger([row for row in ledger.rows if not row.estimated])
    assert len(billed.rows) == len(cloud.bills)
    assert billed.dollars == math.fsum(bill.dollars for bill in cloud.bills)
    assert billed.refunded == math.fsum(float(bill.refunded) for bill in cloud.bills)
    assert billed.dollars == pytest.approx(cloud.bill.dollars, rel=1e-14)
    assert to_the_cent(billed.dollars) == cloud.bill.rounded
    assert ledger.dollars == pytest.approx(billed.dollars + ledger.estimated_dollars)
    for row in billed.rows:
        if row.seconds > 1e-3:
            again = row.price_per_hour * row.seconds / 3600.0 - row.refunded + row.data
            assert again == pytest.approx(row.dollars, abs=1e-9)


def live(cloud: SimulatedCloud, seed: int, turns: int) -> History:
    """So many times, a machine is rented or given back, and whatever happens meanwhile; at the end, all are."""
    history = studies.spec().new_history()
    rng = np.random.default_rng((seed, 3))
    now, rented = 0.0, 0

    def tell(events: list[ev.Event]) -> None:
        for event in events:
            history.apply(event)

    for _ in range(turns):
        now += float(rng.exponential(200.0)) if rng.random() < 0.9 else 0.0
        tell(cloud.poll_events(now))
        if rng.random() < 0.6 or not rented:
            rented += 1
            offer = cloud.kinds[int(rng.integers(len(cloud.kinds)))].name
            rent = ev.Rent(now, f"m{rented}", offer, rentals.MAX_PRICES[rng.integers(4)])
            tell([rent, *cloud.rent(rent.machine, rent.offer, rent.max_price, now)])
        else:
            machine = f"m{rng.integers(max(1, rented - 20), rented + 1)}"
            tell([ev.Release(now, machine), *cloud.release(machine, now)])
        if rng.random() < 0.02:
            check_sum(Ledger.of(history, now), cloud)
    for machine in [*history.machines, *history.fleet.renting]:
        tell(cloud.release(machine, now))
    history.validate()
    return history


def test_the_sum_of_thousands_of_lives_is_what_the_cloud_charges() -> None:
    lives = taken = refunded = 0
    for seed in range(20):
        cloud = rentals.cloud(seed)
        ledger = Ledger.of(live(cloud, seed, 400), 1e9)
        assert not any(row.estimated or row.there for row in ledger.rows)
        check_sum(ledger, cloud)
        lives += len(ledger.rows)
        taken += sum(row.taken_away for row in ledger.rows)
        refunded += sum(row.refunded > 0.0 for row in ledger.rows)
    assert lives > 3000
    assert taken > 500
    assert refunded > 100


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.builds(
        Billing,
        granularity_seconds=st.sampled_from([0.001, 1.0, 60.0, 3600.0]),
        least_seconds=st.sampled_from([0.0, 60.0, 600.0]),
        price_held_seconds=st.sampled_from([0.0, 3600.0]),
        refunded_first_seconds=st.sampled_from([0.0, 60.0, 3600.0]),
        unfinished_is_free=st.booleans(),
        dollars_per_gb=st.sampled_from([0.0, 0.09]),
    ),
)
def test_the_sum_is_the_charge_under_any_rules(seed: int, billing: Billing) -> None:
    cloud = rentals.cloud(seed, billing)
    check_sum(Ledger.of(live(cloud, seed, 40), 1e9), cloud)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_of_a_whole_study_the_sum_is_the_charge_and_every_step_is_accounted_for(seed: int) -> None:
    history, cloud, now = rentals.study(seed)
    ledger = Ledger.of(history, now)
    check_sum(ledger, cloud)
    assert ledger.estimated_dollars == 0.0
    assert ledger.dollars == pytest.approx(history.dollars(now))
    assert all(trial.state is State.COMPLETED for trial in history.trials)
    kept = sum(trial.step for trial in history.trials)
    assert ledger.steps_done - ledger.steps_lost == pytest.approx(kept)
    assert 0.0 <= ledger.revoked_dollars <= ledger.lost_dollars * (1 + 1e-12) <= ledger.dollars * (1 + 1e-12)
    for row in ledger.rows:
        assert row.since <= row.end <= now
        assert all(row.since <= work.since <= work.until <= row.end for work in row.work)
        assert row.steps_lost <= row.steps_done


# --- what came of it --------------------------------------------------------------------------------------


def folded(*entries: ev.Event) -> History:
    return studies.fold([ev.DriverStarted(0.0, 1, "here"), *entries], studies.spec(max_steps=10, trials=9))


def there(machine: str, at: float = 0.0, *, slots: int = 1, price: float = 3.6) -> list[ev.Event]:
    """A machine of 3.6 dollars an hour, a tenth of a cent a second; on demand three times that."""
    return [
        ev.MachineRented(at, machine, "spot", price, 10.8),
        ev.MachineReady(at, machine, "spot", slots, price),
    ]


def placed(trial: int, attempt: int, at: float, *machines: str, step: int = 0) -> list[ev.Event]:
    workers = {name: machines.count(name) for name in machines}
    first = [] if attempt > 1 else [ev.Create(at, trial, {"lr": 0.1, "act": "relu"})]
    return [*first, ev.Place(at, trial, attempt, machines[0], step, workers)]


def reports(trial: int, attempt: int, at: float, steps: range, saved: int = 0) -> list[ev.Event]:
    """One every ten seconds, the first after ten; `saved`: the only step that is."""
    return [
        ev.Reported(at + 10.0 * i, trial, attempt, i, step, {"loss": 1.0}, step == saved)
        for i, step in enumerate(steps, 1)
    ]


def gone(machine: str, at: float, dollars: float, refunded: float = 0.0) -> list[ev.Event]:
    return [ev.MachineLost(at, machine, "taken away"), ev.MachineBilled(at, machine, dollars, 0.0, refunded)]


def given_back(machine: str, at: float, dollars: float, data: float = 0.0) -> list[ev.Event]:
    return [ev.MachineReleased(at, machine), ev.MachineBilled(at, machine, dollars, data)]


def test_a_machine_that_is_taken_away_loses_what_was_not_saved() -> None:
    history = folded(
        *there("a"),
        *placed(0, 1, 0.0, "a"),
        *reports(0, 1, 0.0, range(1, 9), saved=6),
        *gone("a", 80.0, 0.08),
        *there("b", 100.0),
        *placed(0, 2, 100.0, "b", step=6),
        *reports(0, 2, 100.0, range(7, 11)),
        ev.Ended(140.0, 0, 2, 40.0),
        *given_back("b", 150.0, 0.06, data=0.01),
    )
    ledger = Ledger.of(history, 200.0)
    a, b = ledger.rows
    assert (a.machine, a.since, a.until, a.taken_away, a.estimated) == ("a", 0.0, 80.0, True, False)
    assert (a.steps_done, a.steps_lost) == (8.0, 2.0)
    assert (b.steps_done, b.steps_lost, b.taken_away) == (4.0, 0.0, False)
    assert [(work.trial, work.attempt, work.revoked) for row in ledger.rows for work in row.work] == [
        (0, 1, True),
        (0, 2, False),
    ]
    assert a.lost_dollars == a.revoked_dollars == pytest.approx(0.02)
    assert ledger.lost_share == ledger.revoked_share == pytest.approx(0.02 / 0.14)
    assert a.on_demand_dollars == pytest.approx(60.0 * 10.8 / 3600.0)
    assert b.on_demand_dollars == pytest.approx(50.0 * 10.8 / 3600.0 + 0.01)
    assert b.price_per_hour == pytest.approx(3.6)


def test_what_was_refunded_is_not_lost() -> None:
    history = folded(
        *there("a"), *placed(0, 1, 0.0, "a"), *reports(0, 1, 0.0, range(1, 5)), *gone("a", 50.0, 0.0, 0.05)
    )
    (row,) = Ledger.of(history, 99.0).rows
    assert (row.dollars, row.refunded, row.steps_lost, row.lost_dollars) == (0.0, 0.05, 4.0, 0.0)
    assert row.price_per_hour == pytest.approx(3.6)  # before it was let off
    assert Ledger.of(history, 99.0).lost_share == 0.0


def test_a_machine_that_is_taken_away_in_the_first_step_or_before_it_is_all_lost() -> None:
    early = folded(*there("a"), *placed(0, 1, 5.0, "a"), *gone("a", 10.0, 0.01))
    assert Ledger.of(early, 99.0).revoked_share == 1.0
    rented = ev.MachineRented(0.0, "a", "spot", 3.6)
    never = folded(rented, *gone("a", 10.0, 0.01))
    assert Ledger.of(never, 99.0).revoked_share == 1.0
    assert Ledger.of(never, 99.0).on_demand_dollars == 0.0
    idle = folded(*there("a"), *gone("a", 10.0, 0.01))
    assert Ledger.of(idle, 99.0).revoked_share == 0.0
    back = folded(rented, *given_back("a", 10.0, 0.01))
    assert Ledger.of(back, 99.0).revoked_share == 0.0


def test_steps_are_shared_by_the_workers_on_each_machine() -> None:
    history = folded(
        *there("a", slots=4),
        *there("b", slots=4),
        *placed(0, 1, 0.0, "a", "a", "a", "b"),
        *reports(0, 1, 0.0, range(1, 9), saved=4),
        *gone("b", 80.0, 0.08),
        *given_back("a", 80.0, 0.08),
    )
    a, b = Ledger.of(history, 99.0).rows
    assert (a.steps_done, a.steps_lost) == (6.0, 3.0)
    assert (b.steps_done, b.steps_lost) == (2.0, 1.0)
    assert not a.taken_away
    assert a.revoked_dollars == pytest.approx(0.04)  # lost since the other one was


def test_a_slow_trial_counts_for_more_than_a_quick_one() -> None:
    """Of the machine's time one trial had 90 seconds for a step, which is lost, and another 10 for eight."""
    history = folded(
        *there("a"),
        *placed(0, 1, 0.0, "a"),
        *[ev.Reported(float(step), 0, 1, step, step, {"loss": 1.0}) for step in range(1, 9)],
        ev.Ended(10.0, 0, 1, 10.0),
        *placed(1, 1, 10.0, "a"),
        ev.Reported(99.0, 1, 1, 1, 1, {"loss": 1.0}),
        *gone("a", 100.0, 0.1),
    )
    (row,) = Ledger.of(history, 100.0).rows
    assert (row.steps_done, row.steps_lost) == (9.0, 1.0)
    assert row.revoked_dollars == pytest.approx(0.09)


def test_what_a_failure_loses_is_not_lost_to_a_revocation() -> None:
    history = folded(
        *there("a"),
        *placed(0, 1, 0.0, "a"),
        *reports(0, 1, 0.0, range(1, 5), saved=3),
        ev.Failed(40.0, 0, 1, "raised", "boom"),
        *placed(0, 2, 40.0, "a", step=3),
        *reports(0, 2, 40.0, range(4, 6)),
        *given_back("a", 80.0, 0.08),
    )
    ledger = Ledger.of(history, 99.0)
    assert (ledger.steps_done, ledger.steps_lost) == (6.0, 3.0)
    assert ledger.lost_dollars == pytest.approx(0.08 * (10.0 + 40.0) / 80.0)
    assert ledger.revoked_dollars == 0.0
    assert ledger.on_demand_dollars == pytest.approx(80.0 * 10.8 / 3600.0)


@pytest.mark.parametrize("promoted", [False, True])
def test_what_is_set_aside_is_lost_only_if_it_is_taken_up_again(promoted: bool) -> None:
    history = folded(
        *there("a"),
        *placed(0, 1, 0.0, "a"),
        *reports(0, 1, 0.0, range(1, 4)),
        ev.Pause(30.0, 0, 1, "asha"),
        ev.Ended(30.0, 0, 1, 30.0, cut=True),
        *([ev.Promote(40.0, 0)] if promoted else []),
    )
    assert Ledger.of(history, 99.0).steps_lost == (3.0 if promoted else 0.0)


def test_what_is_there_is_an_estimate_until_now() -> None:
    history = folded(
        *there("a"), *placed(0, 1, 10.0, "a"), *reports(0, 1, 10.0, range(1, 4)), *there("b", 20.0, price=36.0)
    )
    ledger = Ledger.of(history, 50.0)
    a, b = ledger.rows
    assert (a.until, a.there, a.estimated, a.seconds) == (None, True, True, 50.0)
    assert (a.dollars, b.dollars) == pytest.approx((0.05, 0.3))
    assert ledger.estimated_dollars == ledger.dollars == pytest.approx(0.35)
    assert (a.steps_done, a.steps_lost) == (3.0, 0.0)
    assert [(work.since, work.until) for work in a.work] == [(10.0, 50.0)]
    released = folded(*there("a"), ev.MachineReleased(40.0, "a"))
    (row,) = Ledger.of(released, 50.0).rows  # its bill may come
    assert (row.estimated, row.there, row.until) == (True, False, 40.0)
    assert row.dollars == pytest.approx(0.04)


def test_this_machine_has_a_row_for_every_drive() -> None:
    ready = ("this machine", "AWS c7i.large", 2, 0.36)
    history = folded(
        ev.MachineReady(0.0, *ready),
        *placed(0, 1, 1.0, ev.THIS_MACHINE),
        *reports(0, 1, 1.0, range(1, 5), saved=2),
        ev.DriverStarted(1000.0, 2, "here"),  # the first one was killed
        ev.MachineReady(1000.0, *ready),
        *placed(0, 2, 1000.0, ev.THIS_MACHINE, step=2),
        *reports(0, 2, 1000.0, range(3, 11)),
        ev.Ended(1100.0, 0, 2, 100.0),
        ev.DriverStopped(1110.0),
    )
    ledger = Ledger.of(history, 1110.0)
    assert ledger.own
    assert [(row.since, row.until, row.steps_done, row.steps_lost) for row in ledger.rows] == [
        (0.0, 41.0, 4.0, 2.0),
        (1000.0, 1110.0, 8.0, 0.0),
    ]
    assert ledger.dollars == ledger.on_demand_dollars == pytest.approx(151.0 * 0.36 / 3600.0)
    assert ledger.lost_dollars == pytest.approx(20.5 * 0.36 / 3600.0)
    assert ledger.revoked_dollars == 0.0


def test_a_study_without_machines_costs_nothing() -> None:
    ledger = Ledger.of(studies.spec().new_history(), 5.0)
    assert (ledger.dollars, ledger.on_demand_dollars, ledger.lost_share) == (0.0, 0.0, 0.0)
    assert ledger.to_json()["machines"] == []


def test_a_result_has_its_ledger_and_a_program_gets_all_of_it() -> None:
    spec = studies.spec()
    ledger = Result(spec, studies.fold(studies.log(), spec)).ledger
    told = ledger.to_json()
    (machine,) = told["machines"]
    assert told["dollars"] == machine["dollars"] == pytest.approx(0.001)
    assert (machine["since"], machine["until"], machine["estimated"]) == (100.0, 110.0, True)
    assert {*told} - {"machines"} == {
        name for name, what in vars(Ledger).items() if isinstance(what, property)
    } - {"own"}
    assert {*machine} < {*Row.__slots__, *vars(Row)}
