"""The policies that rent machines, by name."""

from __future__ import annotations

from collections.abc import Sequence

from thriftune.common.registry import Registry
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.renting_policy import RentingPolicy
from thriftune.provisioning.workload import StudyWorkload

POLICIES: Registry[RentingPolicy] = Registry(
    "policy",
    {
        "thrifty": ("thriftune.provisioning.thrifty", "Thrifty"),
        "on_demand": ("thriftune.provisioning.baselines", "OnDemand"),
        "cheapest_spot": ("thriftune.provisioning.baselines", "CheapestSpot"),
        "fastest_spot": ("thriftune.provisioning.baselines", "FastestSpot"),
        "step_cost": ("thriftune.provisioning.step_cost", "StepCost"),
        "reuse": ("thriftune.provisioning.reuse", "Reuse"),
        "elastic": ("thriftune.provisioning.elastic", "Elastic"),
        "uniform_progress": ("thriftune.provisioning.uniform_progress", "UniformProgress"),
    },
    ("react(event, history)", "workers_for(trial, history)"),
)


def make_policy(name: str, machine_types: Sequence[MachineType], workload: StudyWorkload) -> RentingPolicy:
    """Make the policy with this name; raises SettingError if there is none."""
    return POLICIES.kind(name)(machine_types, workload)
