"""Conformance tests of every built-in policy, on every small cloud that it can be used on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.provisioning.conformance import PolicyConformance
from tests.provisioning.studies import (
    instant_machines,
    large_machines,
    limited_availability,
    only_on_demand,
    preempted_by_price,
    random_lifetimes,
    with_notice,
)
from thriftune.planning import JobSpec
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.baselines import CheapestSpot, FastestSpot, OnDemand
from thriftune.provisioning.elastic import Elastic
from thriftune.provisioning.renting_policy import RentingPolicy
from thriftune.provisioning.reuse import Reuse
from thriftune.provisioning.step_cost import StepCost
from thriftune.provisioning.thrifty import Thrifty
from thriftune.provisioning.uniform_progress import UniformProgress
from thriftune.provisioning.workload import StudyWorkload


def without_deadline(machine_types: Sequence[MachineType], workload: StudyWorkload) -> RentingPolicy:
    return Thrifty(machine_types, replace(workload, deadline_seconds=None))


def elastic_without_deadline(machine_types: Sequence[MachineType], workload: StudyWorkload) -> RentingPolicy:
    return Elastic(machine_types, replace(workload, deadline_seconds=None))


def elastic_for_another_job(machine_types: Sequence[MachineType], workload: StudyWorkload) -> RentingPolicy:
    """Plan for stages that the study does not have, and for fewer trials than it has."""
    return Elastic(machine_types, replace(workload, job=JobSpec.of([(2, 3), (1, 5), (3, 1)])))


SPOT = (preempted_by_price, random_lifetimes, limited_availability, instant_machines, with_notice)
WHERE = {
    OnDemand: (preempted_by_price, only_on_demand, large_machines),
    CheapestSpot: SPOT,
    FastestSpot: SPOT,
    StepCost: SPOT,
    UniformProgress: SPOT,
    Reuse: SPOT[1:],
    Thrifty: (*SPOT, only_on_demand, large_machines),
    Elastic: (*SPOT, only_on_demand, large_machines),
    elastic_without_deadline: (*SPOT, only_on_demand, large_machines),
    elastic_for_another_job: (*SPOT, only_on_demand, large_machines),
    without_deadline: (*SPOT, only_on_demand, large_machines),
}


@pytest.mark.parametrize(
    ("make", "cloud"),
    [
        pytest.param(make, cloud, id=f"{make.__name__} {cloud.__name__}")
        for make, clouds in WHERE.items()
        for cloud in clouds
    ],
)
class TestPolicies(PolicyConformance):
    pass
