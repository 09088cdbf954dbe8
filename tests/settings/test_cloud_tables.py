"""Tests of [cloud] tables: the machine types that they describe, and the error for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from thriftune.errors import SettingError
from thriftune.market.lifetime import Exponential, Phases
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.latency import Latency
from thriftune.settings.cloud_tables import read_cloud_tables


def read_table(folder: Path, **table: Any) -> CloudProfile:
    (profile,) = read_cloud_tables(table, folder)
    return profile


def test_a_catalog_machine_has_the_values_of_its_offer_unless_the_table_sets_them(tmp_path: Path) -> None:
    profile = read_table(tmp_path, machine="p3.8xlarge")
    assert (profile.name, profile.slots, profile.price_per_hour) == ("p3.8xlarge", 4, 12.24)
    assert (profile.billing, profile.minimum, profile.survival) == ("per_instance", 60.0, None)
    changed = read_table(
        tmp_path, machine="p3.8xlarge", slots=2, price_per_hour=10, name="mine", minimum=0, speed=2
    )
    assert (changed.name, changed.slots, changed.price_per_hour, changed.minimum) == ("mine", 2, 10, 0.0)
    assert changed.speed == 2
    assert read_table(tmp_path, machine="c7i.large", region="us-east-1").slots == 2, (
        "a machine without accelerators has a slot per core"
    )


def test_a_machine_can_be_described_without_the_catalog(tmp_path: Path) -> None:
    profile = read_table(
        tmp_path,
        name="ours",
        slots=8,
        price_per_hour=3,
        queue="2m",
        init=15,
        billing="per_function",
        minimum="1m",
        data_gb=1.5,
        data_price=0.02,
        max_machines=4,
    )
    assert profile == CloudProfile(
        8, 3, Latency(120.0), Latency(15.0), "per_function", 60.0, 1.5, 0.02, "ours", None, 1.0, 4
    )


def test_a_latency_may_be_recorded_seconds_or_a_mean_and_a_deviation(tmp_path: Path) -> None:
    profile = read_table(tmp_path, machine="p3.8xlarge", queue=[20, 30.5, 60], init={"mean": 30, "std": 10})
    assert (profile.queue_latency, profile.init_latency) == (Latency.fit([20, 30.5, 60]), Latency(30, 10))
    assert read_table(tmp_path, machine="p3.8xlarge", init={"mean": 30}).init_latency == Latency(30)


def test_a_spot_machine_has_a_fitted_or_a_given_lifetime(tmp_path: Path) -> None:
    lines = ["machine_type,zone,lifetime_s,end_kind,hour_of_day"]
    lines += [
        f"{machine_type},z,{60 * minutes},preempted,12"
        for machine_type in ("p3.8xlarge", "v100")
        for minutes in range(5, 40)
    ]
    (tmp_path / "lifetimes.csv").write_text("\n".join(lines))
    spot: dict[str, Any] = {"machine": "p3.8xlarge", "spot": True, "price_per_hour": 4}
    recorded = read_table(tmp_path, **spot, lifetimes="lifetimes.csv")
    assert (recorded.name, recorded.price_per_hour) == ("p3.8xlarge spot", 4)
    assert isinstance(recorded.survival, Phases)
    with_type = read_table(
        tmp_path, name="x", slots=1, price_per_hour=1, spot=True, lifetimes="lifetimes.csv", type="v100"
    )
    assert with_type.survival == recorded.survival
    memoryless = read_table(tmp_path, **spot, mean_lifetime="6h", slots=2)
    assert (memoryless.survival, memoryless.slots) == (Exponential(6.0), 2)
    listed = read_table(tmp_path, machine="n1-highcpu-16", spot=True, mean_lifetime=3600)
    assert listed.price_per_hour < read_table(tmp_path, machine="n1-highcpu-16").price_per_hour, (
        "the catalog's spot price"
    )
    assert read_table(tmp_path, machine="p3.8xlarge", spot=False).survival is None


ON_DEMAND = {"slots": 4, "price_per_hour": 1.0}
SPOT = {**ON_DEMAND, "spot": True}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"machine": "p3.8xlarg"}, "p3.8xlarg: is not in the catalog of 120 offers; did you mean p3.8xlarge"),
        ({"machine": "p3.8xlarge", "region": "mars"}, "p3.8xlarge: is not offered in mars, but in us-east-1"),
        ({"machine": 3}, "machine: 3 must be the name of a machine in the catalog, such as 'p3.8xlarge'"),
        ({"machin": "x"}, "machin: unknown; did you mean machine?"),
        ({"colour": "x"}, "colour: unknown; it may have machine, region, name,"),
        ({"slots": 4}, "price_per_hour: is missing; give it, or name a machine of the catalog: machine = 'NAME'"),
        ({"price_per_hour": 4}, "slots: is missing; give it, or name a machine of the"),
        (
            {**ON_DEMAND, "region": "x"},
            "region: 'x' needs a machine of the catalog; write machine = 'NAME' as well",
        ),
        ({**ON_DEMAND, "slots": 0}, "slots: 0 is too small; use 1 or more"),
        ({**ON_DEMAND, "slots": 4.0}, "slots: 4.0 must be a whole number"),
        ({**ON_DEMAND, "price_per_hour": True}, "price_per_hour: True must be a number"),
        ({**ON_DEMAND, "price_per_hour": -1}, "price_per_hour: -1 must be a finite number, 0 or more"),
        ({**ON_DEMAND, "speed": 0}, "speed: 0 must be a finite number, above 0"),
        ({**ON_DEMAND, "billing": "monthly"}, "billing: 'monthly' must be one of per_instance, per_function"),
        ({**ON_DEMAND, "minimum": "soon"}, "minimum: 'soon' is not a duration"),
        ({**ON_DEMAND, "init": "soon"}, "init: 'soon' is not a duration"),
        ({**ON_DEMAND, "init": -1}, "init: mean: -1.0 must be a finite number, 0 or more"),
        ({**ON_DEMAND, "queue": [3]}, "queue: give at least two recorded times in seconds, each above 0"),
        ({**ON_DEMAND, "queue": [3, "x"]}, "queue: [3, 'x'] must be a list of recorded seconds, each a number"),
        ({**ON_DEMAND, "queue": {"std": 3}}, "queue: {'std': 3} must have a mean, such as {mean = 30, std = 10}"),
        ({**ON_DEMAND, "queue": {"mean": 3, "sdt": 1}}, "queue: sdt: unknown; did you mean std?"),
        ({**ON_DEMAND, "queue": True}, "queue: True must be seconds, a list of recorded seconds, or a table"),
        (SPOT, "spot: a spot machine can be preempted; write either lifetimes = 'FILE' or mean_lifetime = '6h'"),
        ({**SPOT, "lifetimes": "x", "mean_lifetime": 3}, "spot: a spot machine can be preempted; write either"),
        ({**SPOT, "spot": 1}, "spot: 1 must be true or false"),
        ({**SPOT, "mean_lifetime": 0}, "mean_lifetime: 0 must be finite and above 0"),
        (
            {**SPOT, "mean_lifetime": "6h", "type": "x"},
            "type: 'x' needs a record of lifetimes; write lifetimes = 'FILE', not",
        ),
        ({**SPOT, "lifetimes": "none.csv"}, "/none.csv: cannot be read"),
        (
            {**SPOT, "lifetimes": "lifetimes.csv"},
            "/lifetimes.csv has no lifetimes of ''; write type = 'NAME', where NAME is one of v100",
        ),
        (
            {**ON_DEMAND, "mean_lifetime": "6h"},
            "mean_lifetime: needs a spot machine; write spot = true",
        ),
        ({**ON_DEMAND, "type": "x"}, "type: needs a spot machine; write spot = true as well"),
        (
            {"machine": "p3.8xlarge", "spot": True, "mean_lifetime": "6h"},
            "AWS p3.8xlarge: no spot price is known; give price_per_hour=",
        ),
    ],
)
def test_the_error_for_a_mistake_names_the_table_and_the_key(
    tmp_path: Path, table: dict[str, Any], message: str
) -> None:
    (tmp_path / "lifetimes.csv").write_text(
        "machine_type,zone,lifetime_s,end_kind,hour_of_day\nv100,z,600,preempted,1\n"
    )
    with pytest.raises(SettingError) as error:
        read_cloud_tables(table, tmp_path)
    assert str(error.value).startswith("cloud: ")
    assert message in str(error.value)
    with pytest.raises(SettingError) as error:
        read_cloud_tables([ON_DEMAND, table], tmp_path)
    assert str(error.value).startswith("cloud 2: ")
    assert not str(error.value).startswith("cloud 2: cloud")


def test_a_table_overrides_the_catalogs_billing(tmp_path: Path) -> None:
    profile = read_table(tmp_path, machine="p3.8xlarge", billing="per_function", minimum=0)
    assert (profile.billing, profile.minimum, profile.slots) == ("per_function", 0.0, 4)
