"""The conformance tests of renting policies; a new policy inherits the class."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provisioning.studies import STEPS, CloudSetup, PolicyFactory, StudyOutcome, make_spec, run
from tests.support.tables import replayed, state
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.simulated_engine import Curve
from thriftune.state import events as ev
from thriftune.state.trial_record import State

Cloud = Callable[[int], CloudSetup]

TRIALS = 4


def terms(at_a_time: int = 2, seed: int = 0) -> StudyWorkload:
    """Return a workload whose deadline leaves two hours to spare."""
    return StudyWorkload(
        at_a_time,
        TRIALS,
        deadline_seconds=6.0 * 3600.0,
        seconds_per_step=320.0,
        restart_seconds=20.0,
        save_seconds=10.0,
        seed=seed,
    )


def check_machines(outcome: StudyOutcome) -> None:
    """Check that all machines ended and were billed, and that the ledger agrees with the bills."""
    fleet = outcome.history.fleet
    assert not fleet.present
    assert not fleet.renting
    bills = {entry.machine: entry for entry in outcome.of(ev.MachineBilled)}
    assert sorted(bills) == sorted(entry.machine for entry in outcome.of(ev.MachineRented))
    assert len(bills) == len(outcome.of(ev.MachineBilled))
    dollars = math.fsum(bill.dollars for bill in bills.values())
    assert dollars == pytest.approx(outcome.cloud.bill.dollars, rel=1e-9, abs=1e-12)
    assert dollars == pytest.approx(outcome.ledger.dollars, rel=1e-9, abs=1e-12)
    assert outcome.ledger.estimated_dollars == 0.0


def check_rents(outcome: StudyOutcome) -> None:
    """Check that refused requests are not repeated at once, and that few machines stay unused."""
    refused: dict[str, float] = {}
    for entry in outcome.log:
        if isinstance(entry, ev.MachineRefused):
            refused[entry.offer] = entry.at
        elif isinstance(entry, ev.Rent):
            assert refused.get(entry.offer, -math.inf) < entry.at
    used = {entry.machine for entry in outcome.of(ev.Place)}
    taken = {entry.machine for entry in outcome.of(ev.MachineRefused, ev.MachineNotice, ev.MachineLost)}
    in_vain = {entry.machine for entry in outcome.of(ev.MachineRented)} - used - taken
    # A new driver does not know of coming machines. While a machine is coming, a change of a price or a hazard
    # may make another machine better. On-demand types do not change.
    changes = any(not machine_type.is_on_demand for machine_type in outcome.cloud.kinds)
    assert len(in_vain) <= changes * len(used) + TRIALS * (len(outcome.of(ev.DriverStarted)) - 1)


def check_steps(outcome: StudyOutcome) -> None:
    """Check that every trial resumes from its last checkpoint and loses only the steps since."""
    saved: Counter[int] = Counter()
    result: defaultdict[int, list[int]] = defaultdict(list)
    for entry in outcome.log:
        if isinstance(entry, ev.Place):
            assert entry.resume_step == saved[entry.trial]
            result[entry.trial].append(0)
        elif isinstance(entry, ev.Reported):
            result[entry.trial][-1] += 1 if entry.step > saved[entry.trial] else 0
            if entry.saved:
                saved[entry.trial] = entry.step
    lost = sum(stay.lost_steps for trial in outcome.history.trials for stay in trial.past_attempts)
    assert outcome.ledger.steps_lost == pytest.approx(lost)
    assert outcome.ledger.steps_done - lost == pytest.approx(
        sum(trial.resume_step for trial in outcome.history.trials)
    )


def check(outcome: StudyOutcome) -> None:
    check_machines(outcome)
    check_rents(outcome)
    check_steps(outcome)


def completes(outcome: StudyOutcome, trials: int = TRIALS) -> bool:
    done = [trial.state is State.COMPLETED and trial.step == STEPS for trial in outcome.history.trials]
    return done == [True] * trials


class PolicyConformance:
    """The tests; parametrize them with `make`, a policy factory, and `cloud`, a factory of small clouds by seed.

    The prices of these clouds raise an error if a policy asks for future prices.
    """

    @pytest.mark.parametrize("seed", range(2))
    def test_trials_complete_and_machines_are_released(self, make: PolicyFactory, cloud: Cloud, seed: int) -> None:
        outcome = run(make, cloud(seed), terms(seed=seed))
        assert outcome.history.finish_reason == f"all {TRIALS} trials done"
        assert completes(outcome)
        check(outcome)

    @pytest.mark.parametrize("at_a_time", [1, 3])
    def test_other_numbers_of_parallel_trials(self, make: PolicyFactory, cloud: Cloud, at_a_time: int) -> None:
        outcome = run(make, cloud(5), terms(at_a_time))
        assert completes(outcome)
        check(outcome)

    def test_the_same_seed_gives_the_same_log(self, make: PolicyFactory, cloud: Cloud) -> None:
        logs = [run(make, cloud(3), terms()).log for _ in range(2)]
        assert logs[0] == logs[1]

    def test_replaying_the_log_gives_the_same_history(self, make: PolicyFactory, cloud: Cloud) -> None:
        outcome = run(make, cloud(4), terms())
        assert state(replayed(outcome.spec, outcome.log)) == state(outcome.history)

    @settings(max_examples=5, deadline=None)
    @given(kills=st.lists(st.integers(1, 120), min_size=1, max_size=6), seed=st.integers(0, 50))
    def test_the_driver_may_be_killed_at_any_point(
        self, make: PolicyFactory, cloud: Cloud, kills: list[int], seed: int
    ) -> None:
        outcome = run(make, cloud(seed), terms(seed=seed), kill_after=kills)
        assert completes(outcome)
        check(outcome)

    @settings(max_examples=4, deadline=None)
    @given(cycle=st.integers(2, 150), seed=st.integers(0, 50))
    def test_stopping_releases_all_machines(
        self, make: PolicyFactory, cloud: Cloud, cycle: int, seed: int
    ) -> None:
        outcome = run(make, cloud(seed), terms(seed=seed), stop_after=cycle)
        assert not outcome.history.running
        check_machines(outcome)
        check_steps(outcome)

    def test_failed_trials_leave_no_machine_rented(self, make: PolicyFactory, cloud: Cloud) -> None:
        broken = Curve([1, 2], [{"loss": 1.0}] * 2, [100.0, 100.0], "it broke")
        outcome = run(make, cloud(6), terms(), make_spec(TRIALS, retries=1), curves=lambda _: broken)
        assert outcome.history.counts[State.FAILED] == TRIALS
        check(outcome)
