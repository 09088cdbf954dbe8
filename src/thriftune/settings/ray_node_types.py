"""Read the node types that a Ray cluster's autoscaler can start, as users name them.

Ray does not list them. A user names a node type as `thriftune cluster template` writes it, such as
"m5.xlarge_spot", or describes it in a table with the keys of a [cloud] table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thriftune.clouds.ray.cluster import NodeType
from thriftune.clouds.ray.node_types import machine_and_market, node_type_name
from thriftune.clouds.ray.sharing import workers_that_fit
from thriftune.common.spelling import nearest_names
from thriftune.errors import SettingError
from thriftune.market.catalog import Catalog, Offer

if TYPE_CHECKING:
    from thriftune.planning.cloud_profile import CloudProfile

_DEFAULT_MEAN_LIFETIME = "12h"
"""The mean lifetime of a spot node whose table gives none."""

_EXAMPLE_MACHINE = "m5.xlarge"
"""Named in an error message if no machine of the catalog has a similar name."""

_BYTES_PER_GIB = 2.0**30


def read_node_types(
    machines: Sequence[str | Mapping[str, Any]], worker: Mapping[str, float], folder: Path
) -> list[CloudProfile]:
    """Read the setting `machines` of the Ray engine, and return each node type as plans see it.

    Raises SettingError for a node type that cannot be used.

    - `worker`: the resources of each worker, which determine how many fit on a node.
    - `folder`: paths in tables are relative to it.
    """
    if not machines:
        return []
    from thriftune.settings.cloud_tables import read_cloud_tables  # imports SciPy, which is slow

    profiles: dict[str, CloudProfile] = {}
    for machine in machines:
        table = _cloud_table(machine, worker)
        name = table["name"]
        if name in profiles:
            raise SettingError(f"machines: {name}: appears twice; remove one of them")
        try:
            (profiles[name],) = read_cloud_tables([table], folder)
        except SettingError as error:
            raise SettingError(f"machines: {name}: {str(error).removeprefix('cloud: ')}") from None
    return list(profiles.values())


def node_types(profiles: Sequence[CloudProfile], worker: Mapping[str, float]) -> list[NodeType]:
    """Return the node types as RayCloud takes them. It claims the resources of all workers of a node."""
    return [
        NodeType(
            profile.name,
            {name: amount * profile.slots for name, amount in worker.items() if name != "memory"},
            profile.max_machines,
            profile.price_per_hour,
            profile.minimum_billed_seconds,
        )
        for profile in profiles
    ]


def _cloud_table(machine: str | Mapping[str, Any], worker: Mapping[str, float]) -> dict[str, Any]:
    """Return a node type as a [cloud] table: with its name, its slots and, if it is spot, its lifetime."""
    if isinstance(machine, str):
        table = _table_of_name(machine)
    elif isinstance(machine, Mapping):
        table = dict(machine)
    else:
        raise SettingError(f"machines: {machine!r} must be the name of a node type, or a table")
    is_spot = bool(table.get("spot", False))
    if is_spot and "mean_lifetime" not in table and "lifetimes" not in table:
        table["mean_lifetime"] = _DEFAULT_MEAN_LIFETIME
    if "machine" in table:
        table.setdefault("name", node_type_name(table["machine"], is_spot))
        offer = _offer(table)
        if is_spot and offer.spot_price_per_hour is None and "price_per_hour" not in table:
            example = f'{{machine = "{offer.name}", spot = true, price_per_hour = 0.05}}'
            raise SettingError(
                f"machines: {table['name']}: the catalog has no spot price for it; give one, as in {example}"
            )
        if "slots" not in table:
            table["slots"] = _slots(table["name"], offer, worker)
    if machine_and_market(str(table.get("name", ""))) is None:
        raise SettingError(
            f"machines: name: {table.get('name')!r} must be the name of a node type, such as 'm5.xlarge_spot'"
        )
    return table


def _table_of_name(name: str) -> dict[str, Any]:
    parsed = machine_and_market(name)
    if parsed is None:
        machines = {offer.name for offer in Catalog.shipped()}
        similar = next(iter(nearest_names(name.rpartition("_")[0] or name, machines)), _EXAMPLE_MACHINE)
        raise SettingError(
            f"machines: {name!r} is not a node type; write the machine and how it is rented, such as "
            f"'{similar}_spot' or '{similar}_on-demand'"
        )
    machine, is_spot = parsed
    return {"machine": machine, "spot": is_spot}


def _offer(table: Mapping[str, Any]) -> Offer:
    try:
        return Catalog.shipped().find(table["machine"], table.get("region"))
    except SettingError as error:
        raise SettingError(f"machines: {error}") from None


def _slots(name: str, offer: Offer, worker: Mapping[str, float]) -> int:
    """Return how many workers fit on a machine of the catalog."""
    resources = {
        "CPU": float(offer.cores),
        "GPU": float(offer.accelerators),
        "memory": offer.memory_gib * _BYTES_PER_GIB,
    }
    slots = workers_that_fit(resources, worker)
    if not slots:
        raise SettingError(f"machines: {name}: no worker with {dict(worker)} fits on it; ask for less per worker")
    return slots
