"""Kinds of nodes, as a user names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from thriftune.errors import SettingError
from thriftune.market.catalog import Catalog
from thriftune.settings.node_types import kinds_of, node_types

CPU = {"CPU": 1.0}
HERE = Path()


def test_a_name_says_it_all() -> None:
    on_demand, spot = kinds_of(["m5.xlarge_on-demand", "n2-standard-4_spot"], CPU, HERE)
    shipped = Catalog.shipped()
    assert (on_demand.name, on_demand.slots, on_demand.survival) == ("m5.xlarge_on-demand", 4, None)
    assert on_demand.price_per_hour == shipped.find("m5.xlarge").price_per_hour
    assert (spot.name, spot.slots) == ("n2-standard-4_spot", 4)
    assert spot.price_per_hour == shipped.find("n2-standard-4").spot_price_per_hour
    assert spot.survival is not None
    assert spot.survival.survival(12.0, 0.0) == pytest.approx(0.368, abs=1e-3), "twelve hours on average"


def test_a_table_says_the_rest() -> None:
    table = {
        "machine": "m5.xlarge", "spot": True, "price_per_hour": 0.07, "mean_lifetime": "6h", "max_machines": 3,
        "queue": 40,
    }  # fmt: skip
    (kind,) = kinds_of([table], CPU, HERE)
    assert (kind.name, kind.price_per_hour, kind.max_machines) == ("m5.xlarge_spot", 0.07, 3)
    assert kind.queue_latency.mean == 40.0
    (own,) = kinds_of([{"name": "big_on-demand", "slots": 8, "price_per_hour": 1.5}], CPU, HERE)
    assert (own.name, own.slots, own.price_per_hour) == ("big_on-demand", 8, 1.5)


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
def test_slots_are_the_workers_that_find_room(machine: str, worker: dict[str, float], slots: int) -> None:
    (kind,) = kinds_of([machine], worker, HERE)
    assert kind.slots == slots
    (node,) = node_types([kind], worker)
    claimed = {name: amount * slots for name, amount in worker.items() if name != "memory"}
    assert (node.name, node.resources, node.max_nodes) == (machine, claimed, None)
    assert node.price_per_hour == kind.price_per_hour, "for the bill"


@pytest.mark.parametrize(
    ("machines", "says"),
    [
        (["m5.xlarge"], "machines: 'm5.xlarge' is no node type; name the machine and how it is rented"),
        (["c7i.xlarge"], "such as 'c7i.xlarge_spot' or 'c7i.xlarge_on-demand'"),
        (
            ["m5.xlrage_on-demand"],
            "machines: m5.xlrage: is not in the catalog of 120 offers; did you mean m5.xlarge or m5.4xlarge or "
            "m5.2xlarge? `thriftune market catalog --search m5` lists the offers",
        ),
        (["m5.xlarge_cheap"], "machines: 'm5.xlarge_cheap' is no node type"),
        ([3], "machines: 3 must be the name of a node type, or a table"),
        (
            ["m5.xlarge_spot"],
            "machines: m5.xlarge_spot: the catalog has no spot price of it; write it, as in "
            '{machine = "m5.xlarge", spot = true, price_per_hour = 0.05}',
        ),
        (["m5.xlarge_on-demand", {"machine": "m5.xlarge"}], "machines: m5.xlarge_on-demand: is there twice"),
        ([{"name": "big", "slots": 8, "price_per_hour": 1.5}], "machines: name: 'big' must be that"),
        ([{"slots": 8, "price_per_hour": 1.5}], "machines: name: None must be"),
        ([{"machine": "m5.xlarge", "colour": 1}], "machines: m5.xlarge_on-demand: colour: unknown"),
        ([{"name": "big_spot", "spot": True, "slots": 8}], "machines: big_spot: price_per_hour: is missing"),
        (["nothing.large_on-demand"], "nothing.large"),
    ],
)
def test_mistakes_are_named(machines: list[Any], says: str) -> None:
    with pytest.raises(SettingError) as error:
        kinds_of(machines, CPU, HERE)
    assert says in str(error.value)


def test_a_machine_on_which_no_worker_fits_is_refused() -> None:
    with pytest.raises(SettingError, match=r"m5\.xlarge_on-demand: no worker with .* fits on it"):
        kinds_of(["m5.xlarge_on-demand"], {"CPU": 1.0, "GPU": 1.0}, HERE)
