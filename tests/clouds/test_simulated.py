"""The cloud on a virtual clock: machines come when they would, and cost what they would."""

from __future__ import annotations

import numpy as np
import pytest

from thriftune.clouds import Cloud
from thriftune.clouds.simulated import SimulatedCloud
from thriftune.errors import SettingError
from thriftune.events import MachineReady, MachineReleased, MachineRented
from thriftune.planning import CloudProfile, Latency

KIND = CloudProfile(
    slots=4, price_per_hour=36.0, queue=10.0, init=20.0, minimum=60.0, data_gb=5.0, data_price=0.1, name="big"
)


def made(*kinds: CloudProfile) -> SimulatedCloud:
    return SimulatedCloud(kinds or (KIND,), np.random.default_rng(0))


def test_a_machine_is_handed_over_and_then_ready() -> None:
    cloud = made()
    assert cloud.open(0.0) == []
    assert cloud.due() is None
    assert cloud.rent("m1", "big", 100.0) == []
    assert cloud.due() == 110.0
    assert cloud.take(109.9) == []
    assert cloud.take(110.0) == [MachineRented(110.0, "m1", "big", 36.0)]
    assert cloud.take(200.0) == [MachineReady(130.0, "m1", "big", 4, 36.0)]
    assert cloud.due() is None


@pytest.mark.parametrize(("until", "dollars"), [(140.0, 0.6), (170.0, 0.6), (1110.0, 10.0)])
def test_it_is_billed_from_there_on_for_the_minimum_at_least(until: float, dollars: float) -> None:
    cloud = made()
    cloud.rent("m1", "big", 100.0)
    cloud.take(130.0)
    assert cloud.release("m1", until) == [MachineReleased(until, "m1")]
    assert cloud.dollars == pytest.approx(dollars + 0.5)  # and the data
    cloud.release("m1", until + 50.0)
    assert cloud.dollars == pytest.approx(dollars + 0.5)


def test_a_machine_that_is_let_go_before_it_comes_never_does() -> None:
    cloud = made()
    cloud.rent("m1", "big", 0.0)
    cloud.rent("m2", "big", 0.0)
    cloud.release("m1", 5.0)
    assert [event.machine for event in cloud.take(100.0) if isinstance(event, MachineReady)] == ["m2"]
    assert cloud.dollars == pytest.approx(0.5)


def test_machines_of_one_request_are_handed_over_together_and_get_ready_one_by_one() -> None:
    cloud = made(CloudProfile(slots=1, price_per_hour=1.0, queue=Latency(10, 5), init=Latency(20, 9), name="slow"))
    for number in range(5):
        cloud.rent(f"m{number}", "slow", 0.0)
    cloud.rent("later", "slow", 1.0)
    told = cloud.take(1e6)
    handed = {event.machine: event.at for event in told if isinstance(event, MachineRented)}
    ready = {event.machine: event.at for event in told if isinstance(event, MachineReady)}
    assert len({handed[f"m{number}"] for number in range(5)}) == 1
    assert handed["later"] != handed["m0"]
    assert len(set(ready.values())) == 6
    assert [event.at for event in told] == sorted(event.at for event in told)


def test_where_functions_are_billed_a_machine_costs_nothing_but_its_data() -> None:
    cloud = made(CloudProfile(slots=4, price_per_hour=36.0, billing="per_function", data_gb=1.0, data_price=0.1))
    cloud.rent("m1", "machine", 0.0)
    cloud.take(0.0)
    cloud.release("m1", 1000.0)
    assert cloud.dollars == pytest.approx(0.1)


def test_what_is_not_offered_is_said() -> None:
    cloud: Cloud = made()
    with pytest.raises(SettingError, match="small: no such machine can be rented; there are big"):
        cloud.rent("m1", "small", 0.0)
    assert cloud.close(0.0) == []
