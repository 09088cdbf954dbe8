"""Read [cloud] tables of study files: the machine types that can be rented."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from thriftune.common.durations import seconds
from thriftune.common.setting_kinds import FLAG, NUMBER, TEXT, Kind, whole_number
from thriftune.errors import SettingError
from thriftune.market.billing import PER_SECOND
from thriftune.market.catalog import Catalog
from thriftune.market.lifetime import Exponential, Lifetimes
from thriftune.market.survival import Survival
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.latency import Latency
from thriftune.settings.study_file_keys import check_key

_SECONDS_PER_HOUR = 3600.0

_LATENCY = Kind(
    (int, float, str, list, dict), "seconds, a list of recorded seconds, or a table {mean = 30, std = 10}"
)
_WHOLE = whole_number(0)

_CLOUD: Mapping[str, Kind] = {
    "machine": Kind((str,), "the name of a machine in the catalog, such as 'p3.8xlarge'"),
    "region": TEXT,
    "name": TEXT,
    "slots": _WHOLE,
    "price_per_hour": NUMBER,
    "queue": _LATENCY,
    "init": _LATENCY,
    "billing": Kind((str,), "'per_instance' or 'per_function'"),
    "minimum": Kind((int, float, str), "seconds, or a string such as '1m'"),
    "data_gb": NUMBER,
    "data_price": NUMBER,
    "speed": NUMBER,
    "max_machines": _WHOLE,
    "spot": FLAG,
    "lifetimes": Kind((str,), "the path of a record of lifetimes"),
    "type": Kind((str,), "a machine type in the record of lifetimes"),
    "mean_lifetime": Kind((int, float, str), "seconds, or a string such as '6h'"),
}
"""Keys of a [cloud] table."""

_MOMENTS: Mapping[str, Kind] = {"mean": NUMBER, "std": NUMBER}
"""Keys of a table that describes a latency."""

_PROFILE_KEYS = (
    "name", "slots", "price_per_hour", "billing", "data_gb", "data_price", "speed", "max_machines",
)  # fmt: skip
"""Keys whose values become fields of a CloudProfile unchanged."""


def read_cloud_tables(tables: Mapping[str, Any] | Sequence[Any], folder: Path) -> list[CloudProfile]:
    """Read one [cloud] table or several. Paths in them are relative to the folder.

    Raises SettingError, with the number of the table if it is one of several.
    """
    listed = [tables] if isinstance(tables, Mapping) else tables
    profiles = []
    for number, table in enumerate(listed, 1):
        label = "cloud" if len(listed) == 1 else f"cloud {number}"
        if not isinstance(table, Mapping):
            raise SettingError(f"{label}: {table!r} must be a table: write [[cloud]] above each machine type")
        try:
            profiles.append(_read_table(table, folder))
        except SettingError as error:
            raise SettingError(f"{label}: {str(error).removeprefix('cloud: ')}") from None
    return profiles


def _read_table(table: Mapping[str, Any], folder: Path) -> CloudProfile:
    for key, value in table.items():
        check_key(key, value, _CLOUD)
    survival = _survival(table, folder)
    if "machine" in table:
        return _catalog_machine(table, survival)
    if "region" in table:
        raise SettingError(
            f"region: {table['region']!r} needs a machine of the catalog; write machine = 'NAME' as well"
        )
    for key in ("slots", "price_per_hour"):
        if key not in table:
            raise SettingError(f"{key}: is missing; give it, or name a machine of the catalog: machine = 'NAME'")
    return CloudProfile(**_profile_fields(table), survival=survival)


def _catalog_machine(table: Mapping[str, Any], survival: Survival | None) -> CloudProfile:
    """Return the profile of a machine of the catalog. Values in the table replace the catalog's."""
    offer = Catalog.shipped().find(table["machine"], table.get("region"))
    fields = _profile_fields(table)
    # CloudProfile.of() derives the billing mode from a rule, so the table's mode is set afterwards.
    billing = {"billing": fields.pop("billing")} if "billing" in fields else {}
    profile = CloudProfile.of(offer, PER_SECOND, spot=survival is not None, survival=survival, **fields)
    return replace(profile, **billing)


def _profile_fields(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a CloudProfile that the table sets, except its survival."""
    fields = {key: table[key] for key in _PROFILE_KEYS if key in table}
    fields |= {key: _read_latency(key, table[key]) for key in ("queue", "init") if key in table}
    if "minimum" in table:
        fields["minimum"] = seconds("minimum", table["minimum"])
    return fields


def _read_latency(key: str, value: Any) -> Latency:
    if isinstance(value, (str, int, float)):
        value = seconds(key, value)
    try:
        if isinstance(value, Mapping):
            for name, moment in value.items():
                check_key(name, moment, _MOMENTS)
            if "mean" not in value:
                raise SettingError(f"{value!r} must have a mean, such as {{mean = 30, std = 10}}")
            return Latency(**value)
        if isinstance(value, list) and not all(isinstance(each, (int, float)) for each in value):
            raise SettingError(f"{value!r} must be a list of recorded seconds, each a number")
        return Latency.of(value)
    except SettingError as error:
        raise SettingError(f"{key}: {str(error).removeprefix('latency: ')}") from None


def _survival(table: Mapping[str, Any], folder: Path) -> Survival | None:
    """Return how long a spot machine lives; None for an on-demand machine."""
    models = [key for key in ("lifetimes", "mean_lifetime") if key in table]
    spot_keys = [key for key in (*models, "type") if key in table]
    if not table.get("spot", False):
        if spot_keys:
            raise SettingError(f"{spot_keys[0]}: needs a spot machine; write spot = true as well")
        return None
    if len(models) != 1:
        raise SettingError(
            "spot: a spot machine can be preempted; write either lifetimes = 'FILE' or mean_lifetime = '6h'"
        )
    if "lifetimes" in table:
        return _fitted_survival(table, folder / Path(table["lifetimes"]).expanduser())
    if "type" in table:
        raise SettingError(
            f"type: {table['type']!r} needs a record of lifetimes; write lifetimes = 'FILE', not mean_lifetime"
        )
    mean = seconds("mean_lifetime", table["mean_lifetime"])
    if mean is None or not 0.0 < mean < math.inf:
        raise SettingError(f"mean_lifetime: {table['mean_lifetime']!r} must be finite and above 0")
    return Exponential(mean / _SECONDS_PER_HOUR)


def _fitted_survival(table: Mapping[str, Any], path: Path) -> Survival:
    """Return a survival model fitted to the recorded lifetimes of the table's machine type."""
    lifetimes = Lifetimes.read(path)
    machine_type = table.get("type", table.get("machine", table.get("name", "")))
    if machine_type not in lifetimes.types:
        raise SettingError(
            f"lifetimes: {path} has no lifetimes of {machine_type!r}; write type = 'NAME', where NAME is one of "
            f"{', '.join(lifetimes.types)}"
        )
    return lifetimes.fit(machine_type)
