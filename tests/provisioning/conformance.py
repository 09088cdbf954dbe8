"""What every policy that rents must do, whatever it goes by. A new policy inherits this class and is done."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provisioning.studies import STEPS, Make, Ran, Where, a_spec, run
from tests.support.tables import replayed, state
from thriftune.provisioning.workload import Workload
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev
from thriftune.state.trial_record import State

Cloud = Callable[[int], Where]

TRIALS = 4


def terms(at_a_time: int = 2, seed: int = 0) -> Workload:
    """By a deadline that leaves two hours to one trial."""
    return Workload(
        at_a_time,
        TRIALS,
        deadline_seconds=6.0 * 3600.0,
        seconds_per_step=320.0,
        restart_seconds=20.0,
        save_seconds=10.0,
        seed=seed,
    )


def check_machines(ran: Ran) -> None:
    """All are given back or lost, and billed; what was billed is what the ledger says."""
    fleet = ran.history.fleet
    assert not fleet.present
    assert not fleet.renting
    bills = {entry.machine: entry for entry in ran.of(ev.MachineBilled)}
    assert sorted(bills) == sorted(entry.machine for entry in ran.of(ev.MachineRented))
    assert len(bills) == len(ran.of(ev.MachineBilled))
    dollars = math.fsum(bill.dollars for bill in bills.values())
    assert dollars == pytest.approx(ran.cloud.bill.dollars, rel=1e-9, abs=1e-12)
    assert dollars == pytest.approx(ran.ledger.dollars, rel=1e-9, abs=1e-12)
    assert ran.ledger.estimated_dollars == 0.0


def check_rents(ran: Ran) -> None:
    """Whoever was refused does not ask again in the same moment, and machines are not rented in vain."""
    refused: dict[str, float] = {}
    for entry in ran.log:
        if isinstance(entry, ev.MachineRefused):
            refused[entry.offer] = entry.at
        elif isinstance(entry, ev.Rent):
            assert refused.get(entry.offer, -math.inf) < entry.at
    used = {entry.machine for entry in ran.of(ev.Place)}
    taken = {entry.machine for entry in ran.of(ev.MachineRefused, ev.MachineNotice, ev.MachineLost)}
    in_vain = {entry.machine for entry in ran.of(ev.MachineRented)} - used - taken
    # A new driver does not know of those that are on their way. A price or a life that changes while a machine is
    # may make it the wrong one; where none can be lost, nothing changes.
    changes = any(not kind.lasts for kind in ran.cloud.kinds)
    assert len(in_vain) <= changes * len(used) + TRIALS * (len(ran.of(ev.DriverStarted)) - 1)


def check_steps(ran: Ran) -> None:
    """Every trial goes on from its last checkpoint; what it lost is what it did since, and no more."""
    saved: Counter[int] = Counter()
    told: defaultdict[int, list[int]] = defaultdict(list)
    for entry in ran.log:
        if isinstance(entry, ev.Place):
            assert entry.resume_step == saved[entry.trial]
            told[entry.trial].append(0)
        elif isinstance(entry, ev.Reported):
            told[entry.trial][-1] += 1 if entry.step > saved[entry.trial] else 0
            if entry.saved:
                saved[entry.trial] = entry.step
    lost = sum(stay.lost_steps for trial in ran.history.trials for stay in trial.past_attempts)
    assert ran.ledger.steps_lost == pytest.approx(lost)
    assert ran.ledger.steps_done - lost == pytest.approx(sum(trial.resume_step for trial in ran.history.trials))


def check(ran: Ran) -> None:
    check_machines(ran)
    check_rents(ran)
    check_steps(ran)


def completes(ran: Ran, trials: int = TRIALS) -> bool:
    done = [trial.state is State.COMPLETED and trial.step == STEPS for trial in ran.history.trials]
    return done == [True] * trials


class PolicyConformance:
    """To be parametrized by `make`, which makes a fresh policy, and `cloud`, which makes a small cloud by seed.

    Prices of these clouds raise when they are asked for before they are there.
    """

    @pytest.mark.parametrize("seed", range(2))
    def test_every_trial_completes_and_nothing_stays_rented(self, make: Make, cloud: Cloud, seed: int) -> None:
        ran = run(make, cloud(seed), terms(seed=seed))
        assert ran.history.finish_reason == f"all {TRIALS} trials done"
        assert completes(ran)
        check(ran)

    @pytest.mark.parametrize("at_a_time", [1, 3])
    def test_however_many_at_a_time(self, make: Make, cloud: Cloud, at_a_time: int) -> None:
        ran = run(make, cloud(5), terms(at_a_time))
        assert completes(ran)
        check(ran)

    def test_the_same_seed_gives_the_same_log(self, make: Make, cloud: Cloud) -> None:
        logs = [run(make, cloud(3), terms()).log for _ in range(2)]
        assert logs[0] == logs[1]

    def test_its_log_tells_all(self, make: Make, cloud: Cloud) -> None:
        ran = run(make, cloud(4), terms())
        assert state(replayed(ran.spec, ran.log)) == state(ran.history)

    @settings(max_examples=5, deadline=None)
    @given(kills=st.lists(st.integers(1, 120), min_size=1, max_size=6), seed=st.integers(0, 50))
    def test_a_driver_that_is_killed_at_any_point(
        self, make: Make, cloud: Cloud, kills: list[int], seed: int
    ) -> None:
        ran = run(make, cloud(seed), terms(seed=seed), kill_after=kills)
        assert completes(ran)
        check(ran)

    @settings(max_examples=4, deadline=None)
    @given(turn=st.integers(2, 150), seed=st.integers(0, 50))
    def test_when_it_is_to_stop_all_machines_are_given_back(
        self, make: Make, cloud: Cloud, turn: int, seed: int
    ) -> None:
        ran = run(make, cloud(seed), terms(seed=seed), stop_after=turn)
        assert not ran.history.running
        check_machines(ran)
        check_steps(ran)

    def test_trials_that_fail_keep_nothing_rented(self, make: Make, cloud: Cloud) -> None:
        broken = Curve([1, 2], [{"loss": 1.0}] * 2, [100.0, 100.0], "it broke")
        ran = run(make, cloud(6), terms(), a_spec(TRIALS, retries=1), curves=lambda _: broken)
        assert ran.history.counts[State.FAILED] == TRIALS
        check(ran)
