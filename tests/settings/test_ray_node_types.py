"""Tests of the Ray engine's setting `machines`: node types by name and as tables, and the errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from thriftune.errors import SettingError
from thriftune.market.catalog import Catalog
from thriftune.settings.ray_node_types import node_types, read_node_types

CPU = {"CPU": 1.0}
FOLDER = Path()


def test_a_name_gives_the_machine_and_its_market() -> None:
    on_demand, spot = read_node_types(["m5.xlarge_on-demand", "n2-standard-4_spot"], CPU, FOLDER)
    catalog = Catalog.shipped()
    assert (on_demand.name, on_demand.slots, on_demand.survival) == ("m5.xlarge_on-demand", 4, None)
    assert on_demand.price_per_hour == catalog.find("m5.xlarge").price_per_hour
    assert (spot.name, spot.slots) == ("n2-standard-4_spot", 4)
    assert spot.price_per_hour == catalog.find("n2-standard-4").spot_price_per_hour
    assert spot.survival is not None
    assert spot.survival.survival(12.0, 0.0) == pytest.approx(0.368, abs=1e-3), (
        "the default mean lifetime is 12 hours"
    )


def test_a_table_gives_prices_lifetimes_and_limits() -> None:
    table = {
        "machine": "m5.xlarge", "spot": True, "price_per_hour": 0.07, "mean_lifetime": "6h", "max_machines": 3,
        "queue": 40,
    }  # fmt: skip
    (profile,) = read_node_types([table], CPU, FOLDER)
    assert (profile.name, profile.price_per_hour, profile.max_machines) == ("m5.xlarge_spot", 0.07, 3)
    assert profile.queue_latency.mean == 40.0
    (not_in_catalog,) = read_node_types(
        [{"name": "big_on-demand", "slots": 8, "price_per_hour": 1.5}], CPU, FOLDER
    )
    assert (not_in_catalog.name, not_in_catalog.slots, not_in_catalog.price_per_hour) == ("big_on-demand", 8, 1.5)


@pytest.mark.parametrize(
    ("machine", "worker", "slots"),
    [
        ("m5.xlarge_on-demand", {"CPU": 1.0}, 4),
        ("m5.xlarge_on-demand", {"CPU": 2.0}, 2),
        ("m5.xlarge_on-demand", {"CPU": 3.0}, 1),
        ("m5.xlarge_on-demand", {"CPU": 0.5}, 8),
        ("m5.xlarge_on-demand", {"CPU": 1.0, "memory": 8.0 * 2**30}, 2),
        ("p3.8xlarge_on-demand", {"CPU": 1.0, "GPU": 1.0}, 4),
        ("p3.8xlarge_on-demand", {"CPU": 1.0, "GPU": 0.25}, 16),
    ],
)
def test_a_node_has_a_slot_for_each_worker_that_fits(machine: str, worker: dict[str, float], slots: int) -> None:
    (profile,) = read_node_types([machine], worker, FOLDER)
    assert profile.slots == slots
    (node_type,) = node_types([profile], worker)
    claimed_resources = {name: amount * slots for name, amount in worker.items() if name != "memory"}
    assert (node_type.name, node_type.resources, node_type.max_nodes) == (machine, claimed_resources, None)
    assert node_type.price_per_hour == profile.price_per_hour, "the bill needs the price"


@pytest.mark.parametrize(
    ("machines", "message"),
    [
        (["m5.xlarge"], "machines: 'm5.xlarge' is not a node type; write the machine and how it is rented"),
        (["c7i.xlarge"], "such as 'c7i.xlarge_spot' or 'c7i.xlarge_on-demand'"),
        (
            ["m5.xlrage_on-demand"],
            "machines: m5.xlrage: is not in the catalog of 120 offers; did you mean m5.xlarge or m5.4xlarge or "
            "m5.2xlarge? `thriftune market catalog --search m5` lists the offers",
        ),
        (["m5.xlarge_cheap"], "machines: 'm5.xlarge_cheap' is not a node type"),
        ([3], "machines: 3 must be the name of a node type, or a table"),
        (
            ["m5.xlarge_spot"],
            "machines: m5.xlarge_spot: the catalog has no spot price for it; give one, as in "
            '{machine = "m5.xlarge", spot = true, price_per_hour = 0.05}',
        ),
        (["m5.xlarge_on-demand", {"machine": "m5.xlarge"}], "machines: m5.xlarge_on-demand: appears twice"),
        (
            [{"name": "big", "slots": 8, "price_per_hour": 1.5}],
            "machines: name: 'big' must be the name of a node type",
        ),
        ([{"slots": 8, "price_per_hour": 1.5}], "machines: name: None must be"),
        ([{"machine": "m5.xlarge", "colour": 1}], "machines: m5.xlarge_on-demand: colour: unknown"),
        ([{"name": "big_spot", "spot": True, "slots": 8}], "machines: big_spot: price_per_hour: is missing"),
        (["nothing.large_on-demand"], "nothing.large"),
    ],
)
def test_the_error_for_a_mistake_names_the_machine(machines: list[Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        read_node_types(machines, CPU, FOLDER)
    assert message in str(error.value)


def test_a_machine_on_which_no_worker_fits_is_an_error() -> None:
    with pytest.raises(SettingError, match=r"m5\.xlarge_on-demand: no worker with .* fits on it"):
        read_node_types(["m5.xlarge_on-demand"], {"CPU": 1.0, "GPU": 1.0}, FOLDER)
