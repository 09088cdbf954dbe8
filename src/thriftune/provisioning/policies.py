"""The policies that rent machines, by name."""

from __future__ import annotations

from collections.abc import Sequence

from thriftune.common.registry import Registry
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.renting_policy import RentingPolicy
from thriftune.provisioning.workload import Workload

POLICIES: Registry[RentingPolicy] = Registry(
    "policy",
    {
        "thrifty": ("thriftune.provisioning.thrifty", "Thrifty"),
        "on_demand": ("thriftune.provisioning.fixed", "OnDemand"),
        "cheapest_spot": ("thriftune.provisioning.fixed", "CheapestSpot"),
        "fastest_spot": ("thriftune.provisioning.fixed", "FastestSpot"),
        "step_cost": ("thriftune.provisioning.step_cost", "StepCost"),
        "reuse": ("thriftune.provisioning.reuse", "Reuse"),
        "elastic": ("thriftune.provisioning.elastic", "Elastic"),
        "uniform_progress": ("thriftune.provisioning.uniform_progress", "UniformProgress"),
    },
    ("react(event, history)", "workers_for(trial, history)"),
)


def policy(name: str, kinds: Sequence[MachineType], terms: Workload) -> RentingPolicy:
    """The policy of that name, for these machines and this study."""
    return POLICIES.kind(name)(kinds, terms)
