"""Which kinds of nodes can a cluster's autoscaler start? As a user names them: Ray does not tell.

By the name of a node type, as `thriftune cluster template` writes it: "m5.xlarge_spot"; the catalog has the rest.
Or as a table, which is that of a study file's [cloud].
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
from thriftune.market.catalog import Catalog

if TYPE_CHECKING:
    from thriftune.planning.cloud_profile import CloudProfile

ASSUMED_SPOT_LIFETIME = "12h"
"""On average, where nothing is said about it."""


def kinds_of(
    machines: Sequence[str | Mapping[str, Any]], worker: Mapping[str, float], folder: Path
) -> list[CloudProfile]:
    """Paths in tables are relative to the folder. `worker`: what each worker of a trial has."""
    if not machines:  # and nothing is loaded that only plans need
        return []
    from thriftune.settings.machine_tables import clouds_of

    found: dict[str, CloudProfile] = {}
    for machine in machines:
        table = _table(machine, worker)
        name = table["name"]
        if name in found:
            raise SettingError(f"machines: {name}: is there twice; give each kind once")
        try:
            (found[name],) = clouds_of([table], folder)
        except SettingError as error:
            raise SettingError(f"machines: {name}: {str(error).removeprefix('cloud: ')}") from None
    return list(found.values())


def _table(machine: str | Mapping[str, Any], worker: Mapping[str, float]) -> dict[str, Any]:
    if isinstance(machine, str):
        found = machine_and_market(machine)
        if found is None:
            known = {offer.name for offer in Catalog.shipped()}
            name = next(iter(nearest_names(machine.rpartition("_")[0] or machine, known)), "m5.xlarge")
            raise SettingError(
                f"machines: {machine!r} is no node type; name the machine and how it is rented, such as "
                f"'{name}_spot' or '{name}_on-demand'"
            )
        table: dict[str, Any] = {"machine": found[0], "spot": found[1]}
    elif isinstance(machine, Mapping):
        table = dict(machine)
    else:
        raise SettingError(f"machines: {machine!r} must be the name of a node type, or a table")
    spot = bool(table.get("spot", False))
    if spot and "mean_lifetime" not in table and "lifetimes" not in table:
        table["mean_lifetime"] = ASSUMED_SPOT_LIFETIME
    if "machine" in table and "name" not in table:
        table["name"] = node_type_name(table["machine"], spot)
    if "machine" in table:
        try:
            offer = Catalog.shipped().find(table["machine"], table.get("region"))
        except SettingError as error:
            raise SettingError(f"machines: {error}") from None
        if spot and offer.spot_price_per_hour is None and "price_per_hour" not in table:
            way_out = f'{{machine = "{offer.name}", spot = true, price_per_hour = 0.05}}'
            raise SettingError(
                f"machines: {table['name']}: the catalog has no spot price of it; write it, as in {way_out}"
            )
    if "machine" in table and "slots" not in table:
        has = {"CPU": float(offer.cores), "GPU": float(offer.accelerators), "memory": offer.memory_gib * 2.0**30}
        table["slots"] = workers_that_fit(has, worker)
        if not table["slots"]:
            raise SettingError(f"machines: {table['name']}: no worker with {dict(worker)} fits on it")
    if machine_and_market(str(table.get("name", ""))) is None:
        raise SettingError(
            f"machines: name: {table.get('name')!r} must be that of a node type, such as 'm5.xlarge_spot'"
        )
    return table


def node_types(kinds: Sequence[CloudProfile], worker: Mapping[str, float]) -> list[NodeType]:
    """What is claimed of a node of each kind: all that its workers have."""
    return [
        NodeType(
            kind.name,
            {name: amount * kind.slots for name, amount in worker.items() if name != "memory"},
            kind.max_machines,
            kind.price_per_hour,
            kind.minimum_billed_seconds,
        )
        for kind in kinds
    ]
