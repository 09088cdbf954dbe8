"""The engines on which trials can run, with their options: Local and Ray."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from thriftune.common.checks import check_whole
from thriftune.common.registry import Registry
from thriftune.errors import SettingError

_BYTES_PER_UNIT = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_NOT_RESOURCES = {
    "CPU": "is given as cpus=",
    "GPU": "is given as gpus=",
    "memory": "is given as memory=",
    "object_store_memory": "is Ray's own, and no worker can have it; leave it out",
}
"""Names that `resources` cannot have, and what to do instead."""

_RESOURCE_STEP = 0.0001
"""Ray counts resources in multiples of this."""

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Local:
    """Runs trials on this machine."""

    @property
    def options(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class Ray:
    """Runs trials on a Ray cluster.

    - `address`: the address of a running cluster, such as "10.0.0.5:6379", or "auto" for the cluster that this
      machine is part of. Without it, the environment variable RAY_ADDRESS counts. Without that, a cluster is
      started on this machine for the study.
    - `cpus`, `gpus`, `memory` (bytes, or "8GB"), `resources` (other resources, by their names in the cluster):
      what each worker of a trial gets.
    - `gang`: how many workers each trial has. They start together or not at all.
    - `machines`: the node types that the cluster's autoscaler may start: by name
      (["n2-standard-4_spot", "n2-standard-4_on-demand"]), or as tables like [cloud] of a study file if the catalog
      does not have their price. Without it, only nodes that already run are used.
    - `variables`: environment variables for trials on every node.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    memory: float | str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    gang: int = 1
    machines: Sequence[str | Mapping[str, Any]] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.address is None or isinstance(self.address, str)):
            raise SettingError(f"address: {self.address!r} must be a string, such as '10.0.0.5:6379' or 'auto'")
        if self.address is not None and "://" in self.address:
            raise SettingError(
                f"address: {self.address!r}: Ray's client is not supported; run the study on a machine of the "
                "cluster, with address 'auto'"
            )
        check_whole("gang", self.gang, 1)
        if isinstance(self.machines, (str, Mapping)) or not isinstance(self.machines, Sequence):
            raise SettingError(f"machines: {self.machines!r} must be a list, such as ['m5.xlarge_spot']")
        for name in ("resources", "variables"):
            if not isinstance(getattr(self, name), Mapping):
                raise SettingError(f"{name}: {getattr(self, name)!r} must be a table, such as {{NAME = 1}}")
        for name in _NOT_RESOURCES.keys() & self.resources.keys():
            raise SettingError(f"resources: {name}: {_NOT_RESOURCES[name]}")
        for name, amount in {"cpus": self.cpus, "gpus": self.gpus, **self.resources}.items():
            _check_amount(name, amount)
        for name, value in self.variables.items():
            if not isinstance(value, str):
                raise SettingError(f"variables: {name}: {value!r} must be a string")
        _bytes(self.memory)
        if not any(self.worker.values()):
            raise SettingError(
                "cpus: a worker must use some resource, or any number of workers would fit on a node"
            )

    @property
    def worker(self) -> dict[str, float]:
        """The resources of each worker, by Ray's names."""
        given = {"CPU": self.cpus, "GPU": self.gpus, "memory": _bytes(self.memory), **self.resources}
        return {name: float(amount) for name, amount in given.items() if amount}

    @property
    def options(self) -> dict[str, Any]:
        """The options that differ from their defaults, as in a study file."""
        changed: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, (Mapping, list, tuple)):
                plain = dict(value) if isinstance(value, Mapping) else list(value)
                changed |= {each.name: plain} if value else {}
            elif value != each.default:
                changed[each.name] = value
        return changed


ENGINES: Registry[Local | Ray] = Registry(
    "engine",
    {"local": ("thriftune.settings.engine_options", "Local"), "ray": ("thriftune.settings.engine_options", "Ray")},
    (),
)


def engine_of(given: str | Local | Ray | Mapping[str, Any]) -> Local | Ray:
    """Return the engine for a setting: a name, a Local or Ray, or a study file's table with a name."""
    if isinstance(given, (Local, Ray)):
        return given
    if isinstance(given, Mapping):
        options = dict(given)
        name = options.pop("name", None)
        if not isinstance(name, str):
            raise SettingError(f'engine: {given!r} must have a name: {{name = "ray", cpus = 2}}')
        return ENGINES.make(name, options)
    if not isinstance(given, str):
        raise SettingError(f"engine: {given!r} must be 'local', 'ray' or tt.Ray(...)")
    return ENGINES.make(given, {})


def _check_amount(name: str, amount: object) -> None:
    if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0.0 <= amount < math.inf:
        raise SettingError(f"{name}: {amount!r} must be a number, at least 0")
    if 0.0 < amount < 1.0 and round(amount, 4) != amount:
        raise SettingError(f"{name}: {amount!r} must be a multiple of {_RESOURCE_STEP:g}, the finest share in Ray")
    if amount > 1 and amount != int(amount) and name != "cpus":
        raise SettingError(f"{name}: {amount!r} must be a whole number, or below 1: Ray shares only single units")


def _bytes(memory: object) -> float:
    if memory is None:
        return 0.0
    if isinstance(memory, str) and (found := _MEMORY.fullmatch(memory.strip())):
        return float(found[1]) * _BYTES_PER_UNIT[found[2].lower()]
    if isinstance(memory, bool) or not isinstance(memory, (int, float)) or not 0.0 < memory < math.inf:
        raise SettingError(f"memory: {memory!r} must be a number of bytes, or such as '8GB'")
    return float(memory)
