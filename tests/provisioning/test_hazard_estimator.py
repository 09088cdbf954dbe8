"""Tests of hazards: from known lifetimes, and corrected by the machines of the study."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.provisioning.renting_study import HOUR, RentingStudy
from tests.support.tables import START
from thriftune.market.lifetime import Exponential
from thriftune.market.price_history import PriceSeries
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.baselines import CheapestSpot
from thriftune.provisioning.hazard_estimator import HazardEstimator
from thriftune.provisioning.workload import StudyWorkload
from thriftune.state import events as ev

SPOT = MachineType("spot", 0.3, survival=Exponential(2.0))


def make_study(at_a_time: int = 1, trials: int = 40) -> RentingStudy:
    return RentingStudy(
        CheapestSpot([SPOT], StudyWorkload(at_a_time, seconds_per_step=60.0)), trials=trials, retries=0
    )


def rate(study: RentingStudy) -> float:
    """Return the correction of a fresh estimator."""
    return HazardEstimator([SPOT]).correction(SPOT, study.history, study.now)


def lives(study: RentingStudy, hours: float, number: int) -> None:
    """Let a machine arrive, and be preempted after these hours."""
    study.machine_arrives(f"spot-{number}")
    study.pass_time(hours * HOUR)
    study.machine_preempted(f"spot-{number}")


def test_hazard_of_known_lifetimes() -> None:
    history = make_study().history
    for hours in (0.05, 0.5, 20.0):
        machine_type = MachineType("k", 1.0, survival=Exponential(hours))
        result = HazardEstimator([machine_type])
        assert result.hazard(machine_type, history, START, None) == pytest.approx(1.0 / hours)
        assert result.hazard(machine_type, history, START, None, 3.0, 0.1) == pytest.approx(1.0 / hours)
        within = result.expected_alive_hours(machine_type, history, START, 0.0, 1.0)
        assert within == pytest.approx(hours * -math.expm1(-1.0 / hours), rel=1e-3)
    stays = MachineType("stays", 1.0)
    assert HazardEstimator([stays]).hazard(stays, history, START, None) == 0.0
    assert HazardEstimator([stays]).expected_alive_hours(stays, history, START, 0.0, 1.0) is None


def test_hazard_of_a_market_is_that_of_its_model() -> None:
    class Half:
        def probability(self, series: object, t: float, max_price: float) -> float:
            return 0.5

    prices = PriceSeries("m", "a", [START - HOUR], [1.0], end=START + HOUR)
    market = MachineType("m", prices, revocation=Half())
    result = HazardEstimator([market])
    assert result.hazard(market, make_study().history, START, 2.0) == pytest.approx(math.log(2.0))
    assert result.correction(market, make_study().history, START) == 1.0


def test_without_observations_the_correction_is_one() -> None:
    study = make_study()
    study.begin()
    assert rate(study) == 1.0


def test_early_preemptions_raise_the_hazard() -> None:
    study = make_study()
    study.begin()
    for number in range(1, 7):
        lives(study, 0.2, number)
        study.pass_time(400.0)
    # Six preemptions, where 6 * 0.2 / 2 were expected; the known lifetimes weigh as much as four.
    assert rate(study) == pytest.approx((4.0 + 6.0) / (4.0 + 0.6), rel=0.01)
    result = HazardEstimator([SPOT])
    assert result.hazard(SPOT, study.history, study.now, None) == pytest.approx(0.5 * rate(study))
    lived = result.expected_alive_hours(SPOT, study.history, study.now, 0.0, 1.0)
    before = HazardEstimator([SPOT]).expected_alive_hours(SPOT, make_study().history, START, 0.0, 1.0)
    assert lived is not None
    assert before is not None
    assert lived < before


def test_a_surviving_machine_lowers_the_hazard() -> None:
    study = make_study()
    study.begin()
    study.machine_arrives("spot-1")
    observed = [rate(study)]
    for _ in range(3):
        study.pass_time(HOUR)
        observed.append(rate(study))
    assert observed == pytest.approx([4.0 / (4.0 + 0.5 * hours) for hours in range(4)])
    study.pass_time(1000 * HOUR)
    assert rate(study) == pytest.approx(4.0 / 7.0)  # one machine counts for at most three expected preemptions


def test_simultaneous_preemptions_count_as_one() -> None:
    together, apart = make_study(4), make_study(4)
    for study in (together, apart):
        study.begin()
        for number in range(1, 5):
            study.machine_arrives(f"spot-{number}")
        study.pass_time(0.2 * HOUR)
    for number in range(1, 5):
        together.machine_preempted(f"spot-{number}")
        apart.machine_preempted(f"spot-{number}")
        apart.pass_time(120.0)
    assert 1.0 < rate(together) < 1.3
    assert rate(apart) > 1.5


def test_an_incremental_estimator_agrees_with_a_fresh_one() -> None:
    study, result = make_study(), HazardEstimator([SPOT])
    study.begin()
    for number in range(1, 5):
        result.correction(SPOT, study.history, study.now)
        lives(study, 0.3 * number, number)
        study.pass_time(400.0)
    assert result.correction(SPOT, study.history, study.now) == pytest.approx(rate(study))
    other = make_study()
    other.begin()
    assert result.correction(SPOT, other.history, other.now) == 1.0  # another study


@given(st.lists(st.floats(0.01, 20.0), min_size=1, max_size=8))
def test_the_correction_is_bounded(hours: list[float]) -> None:
    study = make_study()
    study.begin()
    for number, each in enumerate(hours, 1):
        if not any(machine == f"spot-{number}" for machine in study.history.fleet.renting):
            break
        lives(study, each, number)
        study.pass_time(400.0)
    most = (4.0 + len(hours)) / 4.0
    assert 4.0 / (4.0 + 3.0 * len(hours)) <= rate(study) <= most


def test_a_machine_released_after_its_notice_counts_as_preempted() -> None:
    study = make_study()
    study.begin()
    for number in range(1, 7):
        study.machine_arrives(f"spot-{number}")
        study.pass_time(0.2 * HOUR)
        study(ev.MachineNotice(study.now, f"spot-{number}", study.now + 120.0))
        study.end(0, cut=True)
        study.machine_released(f"spot-{number}")
        study.pass_time(400.0)
    assert rate(study) > 2.0
