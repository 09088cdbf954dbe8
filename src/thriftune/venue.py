"""Where does this study run? Its engine, its machines and who decides about them, as its settings say.

What plans and rents is loaded only where something can be rented: it brings scipy with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thriftune.clouds import Cloud
from thriftune.clouds.local import LocalCloud, cores
from thriftune.engines import Engine
from thriftune.engines.choice import Ray, engine_of
from thriftune.engines.local import LocalEngine
from thriftune.files import StudyFiles
from thriftune.history import History
from thriftune.planning import PresentMachines, Provisioner
from thriftune.spec import Spec

if TYPE_CHECKING:
    from thriftune.cluster import Cluster
    from thriftune.planning.cloud import CloudProfile

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Venue:
    """`deadline_seconds`: what is left of the study's, where some of it went into a plan for it; else None."""

    engine: Engine
    cloud: Cloud
    provisioner: Provisioner
    deadline_seconds: float | None = None


@contextlib.contextmanager
def venue(spec: Spec, files: StudyFiles, history: History, target: Mapping[str, Any], say: Say) -> Iterator[Venue]:
    """`say` is told what is decided before the study begins."""
    where = engine_of({"name": spec.engine, **spec.engine_options})
    if isinstance(where, Ray):
        with _on_ray(where, spec, files, history, target, say) as found:
            yield found
    else:
        slots = spec.workers or cores()
        yield Venue(LocalEngine(files.run, slots, dict(target)), LocalCloud(slots), PresentMachines())


@contextlib.contextmanager
def _on_ray(
    where: Ray, spec: Spec, files: StudyFiles, history: History, target: Mapping[str, Any], say: Say
) -> Iterator[Venue]:
    from thriftune.clouds.ray import RayCloud
    from thriftune.cluster import Cluster
    from thriftune.cluster_kinds import kinds_of, node_types
    from thriftune.engines.ray import RayEngine

    kinds = kinds_of(where.machines, where.worker, Path(target.get("folder") or "."))
    cluster = Cluster.attach(where.address)
    try:
        policy, left = _policy(spec, where, cluster, kinds, target, files, say)
        known = [machine for machine in history.machines if machine in history.fleet.rented_ids]
        wants = partial(wanted, spec, history, where.gang)
        types = node_types(kinds, where.worker)
        cloud = RayCloud(cluster, f"{spec.name}/{spec.id}", where.worker, known, wants, types=types)
        engine = RayEngine(cluster, cloud.node_of, where.worker, files.run, spec.id, target, where.variables)
        cloud.holds = engine.holds
        yield Venue(engine, cloud, policy, left)
    finally:
        cluster.detach()


def _policy(
    spec: Spec,
    where: Ray,
    cluster: Cluster,
    kinds: Sequence[CloudProfile],
    target: Mapping[str, Any],
    files: StudyFiles,
    say: Say,
) -> tuple[Provisioner, float | None]:
    """By a plan where there is a deadline and something to rent, and what is left of it; else as trials want."""
    if not kinds:
        return PresentMachines(where.gang, spec.workers), None
    if spec.deadline_seconds is None:
        from thriftune.provisioning.growing import Growing

        return Growing(kinds, where.gang, spec.workers), None
    from thriftune.deadline_plan import planned
    from thriftune.planning.elastic import PlanFollower

    unused = [name for name, given in (("workers", spec.workers), ("gang", where.gang > 1)) if given]
    if unused:
        say(f"{' and '.join(unused)}: do not count, as the plan for the deadline says how many there are of each")
    plan = planned(spec, where, cluster, kinds, target, files.folder, say)
    return PlanFollower(plan, machines_fail=True), plan.deadline


def wanted(spec: Spec, history: History, gang: int) -> int:
    """Workers that the study could use now, if it had all the machines there are."""
    at_hand = len(history.running) + len(history.waiting)
    more = None if spec.trials is None else max(0, spec.trials - len(history.trials))
    if more is not None:
        trials = at_hand + more if spec.workers is None else min(spec.workers, at_hand + more)
    else:
        trials = 10_000 if spec.workers is None else spec.workers
    return gang * trials
