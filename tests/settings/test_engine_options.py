"""Tests of the engine setting: its options, the resources of a worker, and the errors."""

from __future__ import annotations

from typing import Any

import pytest

import thriftune as tt
from thriftune.errors import SettingError
from thriftune.settings.engine_options import Local, Ray, engine_of


def test_an_engine_is_given_by_name_as_an_object_or_as_a_table() -> None:
    assert engine_of("local") == Local()
    assert engine_of("ray") == Ray() == engine_of({"name": "ray"})
    assert engine_of(Ray(cpus=2)) == Ray(cpus=2) == engine_of({"name": "ray", "cpus": 2})
    assert tt.Ray is Ray


@pytest.mark.parametrize(
    "engine",
    [
        Local(),
        Ray(),
        Ray(address="10.0.0.5:6379", cpus=0.5, gpus=1, memory="8GB", resources={"fpga": 2}, gang=4),
        Ray(machines=["m5.xlarge_on-demand", {"machine": "m5.xlarge", "spot": True}], variables={"A": "b"}),
    ],
)
def test_the_options_of_an_engine_make_an_equal_engine(engine: Local | Ray) -> None:
    name = "ray" if isinstance(engine, Ray) else "local"
    assert engine_of({"name": name, **engine.options}) == engine


def test_options_are_those_that_differ_from_their_defaults() -> None:
    assert Local().options == Ray().options == {}
    assert Ray(cpus=2, gang=3).options == {"cpus": 2, "gang": 3}


@pytest.mark.parametrize(
    ("engine", "worker"),
    [
        (Ray(), {"CPU": 1.0}),
        (Ray(cpus=0, gpus=0.5), {"GPU": 0.5}),
        (Ray(cpus=4, resources={"fpga": 1, "none": 0}), {"CPU": 4.0, "fpga": 1.0}),
        (Ray(memory=1000), {"CPU": 1.0, "memory": 1000.0}),
        (Ray(memory="8GB"), {"CPU": 1.0, "memory": 8.0 * 2**30}),
        (Ray(memory=" 1.5 mib "), {"CPU": 1.0, "memory": 1.5 * 2**20}),
        (Ray(memory="64"), {"CPU": 1.0, "memory": 64.0}),
    ],
)
def test_the_resources_of_a_worker(engine: Ray, worker: dict[str, float]) -> None:
    assert engine.worker == worker


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"address": 6379}, "address: 6379 must be a string"),
        ({"address": "ray://10.0.0.5:10001"}, "Ray's client is not supported"),
        ({"gang": 0}, "gang: 0 is too small; use 1 or more"),
        ({"gang": 1.5}, "gang: 1.5 must be"),
        ({"gang": True}, "gang: True must be"),
        ({"machines": "m5.xlarge_spot"}, "machines: 'm5.xlarge_spot' must be a list"),
        ({"machines": {"machine": "m5.xlarge"}}, "must be a list"),
        ({"resources": 3}, "resources: 3 must be a table"),
        ({"variables": ["A"]}, "variables: ['A'] must be a table"),
        ({"variables": {"A": 1}}, "variables: A: 1 must be a string"),
        ({"cpus": -1}, "cpus: -1 must be a number, at least 0"),
        ({"cpus": "2"}, "cpus: '2' must be a number"),
        ({"cpus": float("inf")}, "cpus: inf must be a number"),
        ({"gpus": 1.5}, "gpus: 1.5 must be a whole number, or below 1"),
        ({"resources": {"fpga": 2.5}}, "fpga: 2.5 must be a whole number"),
        ({"resources": {"CPU": 2}}, "resources: CPU: is given as cpus="),
        ({"resources": {"object_store_memory": 1}}, "resources: object_store_memory: is Ray's own"),
        ({"cpus": 0.00001}, "cpus: 1e-05 must be a multiple of 0.0001"),
        ({"memory": "much"}, "memory: 'much' must be a number of bytes, or such as '8GB'"),
        ({"memory": 0}, "memory: 0 must be"),
        ({"cpus": 0}, "cpus: a worker must use some resource"),
    ],
)
def test_the_error_for_a_wrong_option_names_it(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        Ray(**options)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("spark", "engine 'spark' is not known; use one of local, ray"),
        ({"cpus": 2}, "must have a name"),
        ({"name": "ray", "cpu": 2}, "cpu"),
        (7, "engine: 7 must be 'local', 'ray' or tt.Ray(...)"),
    ],
)
def test_an_unknown_engine_is_an_error(given: Any, message: str) -> None:
    with pytest.raises(SettingError) as error:
        engine_of(given)
    assert message in str(error.value)
