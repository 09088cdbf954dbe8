"""Tests the ledger: its rows, and that they add up to what the cloud charges."""

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
from thriftune.results.cost_ledger import Ledger, LedgerRow
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import State
from thriftune.study.result import Result

# --- the sum ----------------------------------------------------------------------------------------------


def round_to_cents(dollars: float) -> Decimal:
    """Round half a cent up, also where a floating-point error made it slightly less."""
    return Decimal(repr(round(dollars, 9))).quantize(Decimal("0.01"), ROUND_HALF_UP)


def check_sum(ledger: Ledger, cloud: SimulatedCloud) -> None:
    """Assert that the billed rows add up to the cloud's charge. Machines that are still present have no bill."""
    billed = Ledger([row for row in ledger.rows if not row.estimated])
    assert len(billed.rows) == len(cloud.bills)
    assert billed.dollars == math.fsum(bill.dollars for bill in cloud.bills)
    assert billed.refunded == math.fsum(float(bill.refunded) for bill in cloud.bills)
    assert billed.dollars == pytest.approx(cloud.bill.dollars, rel=1e-14)
    assert round_to_cents(billed.dollars) == cloud.bill.rounded
    assert ledger.dollars == pytest.approx(billed.dollars + ledger.estimated_dollars)
    for row in billed.rows:
        if row.seconds > 1e-3:
            again = row.price_per_hour * row.seconds / 3600.0 - row.refunded + row.data
            assert again == pytest.approx(row.dollars, abs=1e-9)


def run_rentals(cloud: SimulatedCloud, seed: int, actions: int) -> History:
    """Rent or release a machine `actions` times, with the cloud's events in between, then release all machines."""
    history = studies.spec().new_history()
    rng = np.random.default_rng((seed, 3))
    now, rented = 0.0, 0

    def apply(events: list[ev.Event]) -> None:
        for event in events:
            history.apply(event)

    for _ in range(actions):
        now += float(rng.exponential(200.0)) if rng.random() < 0.9 else 0.0
        apply(cloud.poll_events(now))
        if rng.random() < 0.6 or not rented:
            rented += 1
            offer = cloud.kinds[int(rng.integers(len(cloud.kinds)))].name
            rent = ev.Rent(now, f"m{rented}", offer, rentals.MAX_PRICES[rng.integers(4)])
            apply([rent, *cloud.rent(rent.machine, rent.offer, rent.max_price, now)])
        else:
            machine = f"m{rng.integers(max(1, rented - 20), rented + 1)}"
            apply([ev.Release(now, machine), *cloud.release(machine, now)])
        if rng.random() < 0.02:
            check_sum(Ledger.of(history, now), cloud)
    for machine in [*history.machines, *history.fleet.renting]:
        apply(cloud.release(machine, now))
    history.validate()
    return history


def test_the_sum_of_thousands_of_lives_is_what_the_cloud_charges() -> None:
    lives = preempted = refunded = 0
    for seed in range(20):
        cloud = rentals.cloud(seed)
        ledger = Ledger.of(run_rentals(cloud, seed, 400), 1e9)
        assert not any(row.estimated or row.is_present for row in ledger.rows)
        check_sum(ledger, cloud)
        lives += len(ledger.rows)
        preempted += sum(row.taken_away for row in ledger.rows)
        refunded += sum(row.refunded > 0.0 for row in ledger.rows)
    assert lives > 3000
    assert preempted > 500
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
    check_sum(Ledger.of(run_rentals(cloud, seed, 40), 1e9), cloud)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_sum_of_a_whole_study_is_the_charge_and_every_step_is_accounted_for(seed: int) -> None:
    history, cloud, now = rentals.study(seed)
    ledger = Ledger.of(history, now)
    check_sum(ledger, cloud)
    assert ledger.estimated_dollars == 0.0
    assert ledger.dollars == pytest.approx(history.dollars(now))
    assert all(trial.state is State.COMPLETED for trial in history.trials)
    final_steps = sum(trial.step for trial in history.trials)
    assert ledger.steps_done - ledger.steps_lost == pytest.approx(final_steps)
    assert 0.0 <= ledger.revoked_dollars <= ledger.lost_dollars * (1 + 1e-12) <= ledger.dollars * (1 + 1e-12)
    for row in ledger.rows:
        assert row.since <= row.end <= now
        assert all(row.since <= work.since <= work.until <= row.end for work in row.work)
        assert row.steps_lost <= row.steps_done


# --- work, losses and estimates ---------------------------------------------------------------------------


def history_of(*entries: ev.Event) -> History:
    return studies.fold([ev.DriverStarted(0.0, 1, "here"), *entries], studies.spec(max_steps=10, trials=9))


def arrival(machine: str, at: float = 0.0, *, slots: int = 1, price: float = 3.6) -> list[ev.Event]:
    """Return the events of a machine at 3.6 dollars an hour, 0.001 a second; on-demand costs three times that."""
    return [
        ev.MachineRented(at, machine, "spot", price, 10.8),
        ev.MachineReady(at, machine, "spot", slots, price),
    ]


def placed(trial: int, attempt: int, at: float, *machines: str, step: int = 0) -> list[ev.Event]:
    workers = {name: machines.count(name) for name in machines}
    first = [] if attempt > 1 else [ev.Create(at, trial, {"lr": 0.1, "act": "relu"})]
    return [*first, ev.Place(at, trial, attempt, machines[0], step, workers)]


def reports(trial: int, attempt: int, at: float, steps: range, saved: int = 0) -> list[ev.Event]:
    """Return a report every ten seconds, the first ten seconds after `at`; only the step `saved` is saved."""
    return [
        ev.Reported(at + 10.0 * i, trial, attempt, i, step, {"loss": 1.0}, step == saved)
        for i, step in enumerate(steps, 1)
    ]


def preemption(machine: str, at: float, dollars: float, refunded: float = 0.0) -> list[ev.Event]:
    return [ev.MachineLost(at, machine, "taken away"), ev.MachineBilled(at, machine, dollars, 0.0, refunded)]


def release(machine: str, at: float, dollars: float, data: float = 0.0) -> list[ev.Event]:
    return [ev.MachineReleased(at, machine), ev.MachineBilled(at, machine, dollars, data)]


def test_a_preemption_loses_the_steps_that_were_not_saved() -> None:
    history = history_of(
        *arrival("a"),
        *placed(0, 1, 0.0, "a"),
        *reports(0, 1, 0.0, range(1, 9), saved=6),
        *preemption("a", 80.0, 0.08),
        *arrival("b", 100.0),
        *placed(0, 2, 100.0, "b", step=6),
        *reports(0, 2, 100.0, range(7, 11)),
        ev.Ended(140.0, 0, 2, 40.0),
        *release("b", 150.0, 0.06, data=0.01),
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


def test_a_refund_is_not_lost() -> None:
    history = history_of(
        *arrival("a"), *placed(0, 1, 0.0, "a"), *reports(0, 1, 0.0, range(1, 5)), *preemption("a", 50.0, 0.0, 0.05)
    )
    (row,) = Ledger.of(history, 99.0).rows
    assert (row.dollars, row.refunded, row.steps_lost, row.lost_dollars) == (0.0, 0.05, 4.0, 0.0)
    assert row.price_per_hour == pytest.approx(3.6)  # before the refund
    assert Ledger.of(history, 99.0).lost_share == 0.0


def test_a_machine_preempted_before_its_first_step_is_lost_completely() -> None:
    early = history_of(*arrival("a"), *placed(0, 1, 5.0, "a"), *preemption("a", 10.0, 0.01))
    assert Ledger.of(early, 99.0).revoked_share == 1.0
    rented = ev.MachineRented(0.0, "a", "spot", 3.6)
    never = history_of(rented, *preemption("a", 10.0, 0.01))
    assert Ledger.of(never, 99.0).revoked_share == 1.0
    assert Ledger.of(never, 99.0).on_demand_dollars == 0.0
    idle = history_of(*arrival("a"), *preemption("a", 10.0, 0.01))
    assert Ledger.of(idle, 99.0).revoked_share == 0.0
    back = history_of(rented, *release("a", 10.0, 0.01))
    assert Ledger.of(back, 99.0).revoked_share == 0.0


def test_steps_are_shared_by_the_workers_on_each_machine() -> None:
    history = history_of(
        *arrival("a", slots=4),
        *arrival("b", slots=4),
        *placed(0, 1, 0.0, "a", "a", "a", "b"),
        *reports(0, 1, 0.0, range(1, 9), saved=4),
        *preemption("b", 80.0, 0.08),
        *release("a", 80.0, 0.08),
    )
    a, b = Ledger.of(history, 99.0).rows
    assert (a.steps_done, a.steps_lost) == (6.0, 3.0)
    assert (b.steps_done, b.steps_lost) == (2.0, 1.0)
    assert not a.taken_away
    assert a.revoked_dollars == pytest.approx(0.04)  # lost because the other machine was preempted


def test_lost_dollars_depend_on_the_time_of_the_lost_steps() -> None:
    """One trial used 90 seconds of the machine for one step, which is lost, and another 10 seconds for eight."""
    history = history_of(
        *arrival("a"),
        *placed(0, 1, 0.0, "a"),
        *[ev.Reported(float(step), 0, 1, step, step, {"loss": 1.0}) for step in range(1, 9)],
        ev.Ended(10.0, 0, 1, 10.0),
        *placed(1, 1, 10.0, "a"),
        ev.Reported(99.0, 1, 1, 1, 1, {"loss": 1.0}),
        *preemption("a", 100.0, 0.1),
    )
    (row,) = Ledger.of(history, 100.0).rows
    assert (row.steps_done, row.steps_lost) == (9.0, 1.0)
    assert row.revoked_dollars == pytest.approx(0.09)


def test_the_loss_of_a_failure_does_not_count_as_lost_to_revocations() -> None:
    history = history_of(
        *arrival("a"),
        *placed(0, 1, 0.0, "a"),
        *reports(0, 1, 0.0, range(1, 5), saved=3),
        ev.Failed(40.0, 0, 1, "raised", "boom"),
        *placed(0, 2, 40.0, "a", step=3),
        *reports(0, 2, 40.0, range(4, 6)),
        *release("a", 80.0, 0.08),
    )
    ledger = Ledger.of(history, 99.0)
    assert (ledger.steps_done, ledger.steps_lost) == (6.0, 3.0)
    assert ledger.lost_dollars == pytest.approx(0.08 * (10.0 + 40.0) / 80.0)
    assert ledger.revoked_dollars == 0.0
    assert ledger.on_demand_dollars == pytest.approx(80.0 * 10.8 / 3600.0)


@pytest.mark.parametrize("promoted", [False, True])
def test_a_paused_trial_loses_steps_only_if_it_is_promoted(promoted: bool) -> None:
    history = history_of(
        *arrival("a"),
        *placed(0, 1, 0.0, "a"),
        *reports(0, 1, 0.0, range(1, 4)),
        ev.Pause(30.0, 0, 1, "asha"),
        ev.Ended(30.0, 0, 1, 30.0, cut=True),
        *([ev.Promote(40.0, 0)] if promoted else []),
    )
    assert Ledger.of(history, 99.0).steps_lost == (3.0 if promoted else 0.0)


def test_a_machine_that_is_still_present_has_an_estimate_until_now() -> None:
    history = history_of(
        *arrival("a"), *placed(0, 1, 10.0, "a"), *reports(0, 1, 10.0, range(1, 4)), *arrival("b", 20.0, price=36.0)
    )
    ledger = Ledger.of(history, 50.0)
    a, b = ledger.rows
    assert (a.until, a.is_present, a.estimated, a.seconds) == (None, True, True, 50.0)
    assert (a.dollars, b.dollars) == pytest.approx((0.05, 0.3))
    assert ledger.estimated_dollars == ledger.dollars == pytest.approx(0.35)
    assert (a.steps_done, a.steps_lost) == (3.0, 0.0)
    assert [(work.since, work.until) for work in a.work] == [(10.0, 50.0)]
    released = history_of(*arrival("a"), ev.MachineReleased(40.0, "a"))
    (row,) = Ledger.of(released, 50.0).rows  # its bill may come
    assert (row.estimated, row.is_present, row.until) == (True, False, 40.0)
    assert row.dollars == pytest.approx(0.04)


def test_this_machine_has_a_row_for_each_drive() -> None:
    ready = ("this machine", "AWS c7i.large", 2, 0.36)
    history = history_of(
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
    assert ledger.is_own_machine
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


def test_the_json_of_a_ledger_has_all_its_sums() -> None:
    spec = studies.spec()
    ledger = Result(spec, studies.fold(studies.log(), spec)).ledger
    data = ledger.to_json()
    (machine,) = data["machines"]
    assert data["dollars"] == machine["dollars"] == pytest.approx(0.001)
    assert (machine["since"], machine["until"], machine["estimated"]) == (100.0, 110.0, True)
    assert {*data} - {"machines"} == {
        name for name, what in vars(Ledger).items() if isinstance(what, property)
    } - {"is_own_machine"}
    assert {*machine} < {*LedgerRow.__slots__, *vars(LedgerRow)}
