"""Every policy of the house, on every small cloud that it can be used on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.provisioning.conformance import PolicyConformance
from tests.provisioning.studies import at_once, by_chance, by_price, by_room, for_several, that_stay, with_notice
from thriftune.planning import JobSpec
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.elastic import Elastic
from thriftune.provisioning.fixed import CheapestSpot, FastestSpot, OnDemand
from thriftune.provisioning.renting_policy import RentingPolicy
from thriftune.provisioning.reuse import Reuse
from thriftune.provisioning.step_cost import StepCost
from thriftune.provisioning.thrifty import Thrifty
from thriftune.provisioning.uniform_progress import UniformProgress
from thriftune.provisioning.workload import Workload


def without_deadline(kinds: Sequence[MachineType], terms: Workload) -> RentingPolicy:
    return Thrifty(kinds, replace(terms, deadline_seconds=None))


def elastic_without_deadline(kinds: Sequence[MachineType], terms: Workload) -> RentingPolicy:
    return Elastic(kinds, replace(terms, deadline_seconds=None))


def elastic_for_another_job(kinds: Sequence[MachineType], terms: Workload) -> RentingPolicy:
    """In stages, which no rule makes of the study, and of fewer trials than there are."""
    return Elastic(kinds, replace(terms, job=JobSpec.of([(2, 3), (1, 5), (3, 1)])))


SPOT = (by_price, by_chance, by_room, at_once, with_notice)
WHERE = {
    OnDemand: (by_price, that_stay, for_several),
    CheapestSpot: SPOT,
    FastestSpot: SPOT,
    StepCost: SPOT,
    UniformProgress: SPOT,
    Reuse: SPOT[1:],
    Thrifty: (*SPOT, that_stay, for_several),
    Elastic: (*SPOT, that_stay, for_several),
    elastic_without_deadline: (*SPOT, that_stay, for_several),
    elastic_for_another_job: (*SPOT, that_stay, for_several),
    without_deadline: (*SPOT, that_stay, for_several),
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
