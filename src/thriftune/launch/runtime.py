"""Where does this study run? Its engine, its machines and who decides about them, as its settings say.

What plans and rents is loaded only where something can be rented: it brings scipy with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thriftune.clouds.local import LocalCloud, cores
from thriftune.clouds.protocol import Cloud
from thriftune.clouds.ray.autoscaler import check_autoscaler
from thriftune.clouds.ray.sharing import workers_that_fit
from thriftune.common.clock import WallClock
from thriftune.common.formatting import format_resources, plural
from thriftune.engines.local import LocalEngine
from thriftune.engines.protocol import Engine
from thriftune.errors import SettingError
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.provisioning.protocol import Provisioner
from thriftune.settings.deadlines import as_duration
from thriftune.settings.engine_options import Ray, engine_of
from thriftune.state.history import History
from thriftune.state.spec import Spec
from thriftune.store.study_files import StudyFiles

if TYPE_CHECKING:
    from thriftune.clouds.ray.cluster import Cluster
    from thriftune.planning.cloud_profile import CloudProfile
    from thriftune.planning.plan import Plan

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Venue:
    engine: Engine
    cloud: Cloud
    provisioner: Provisioner
    spec: Spec  # as it is driven there: within the limits of its plan, where it has one
    cores_a_slot: float | None = None  # of a machine, for each trial that it has room for; None: it cannot be said


@contextlib.contextmanager
def venue(spec: Spec, files: StudyFiles, history: History, target: Mapping[str, Any], say: Say) -> Iterator[Venue]:
    """`say` is told what is decided before the study begins."""
    where = engine_of({"name": spec.engine, **spec.engine_options})
    if isinstance(where, Ray):
        with _on_ray(where, spec, files, history, target, say) as found:
            yield found
    else:
        slots = spec.workers or cores()
        engine = LocalEngine(files.run, slots, dict(target))
        policy = PresentMachines(narrows=_narrows(spec))
        yield Venue(engine, LocalCloud(slots), policy, spec, cores() / slots)


@contextlib.contextmanager
def _on_ray(
    where: Ray, spec: Spec, files: StudyFiles, history: History, target: Mapping[str, Any], say: Say
) -> Iterator[Venue]:
    from thriftune.clouds.ray.cloud import RayCloud
    from thriftune.clouds.ray.cluster import Cluster
    from thriftune.engines.ray.engine import RayEngine
    from thriftune.settings.node_types import kinds_of, node_types

    kinds = kinds_of(where.machines, where.worker, Path(target.get("folder") or "."))
    if kinds:  # a plan counts in seconds
        spec = as_duration(spec, WallClock().now(), history.driven_seconds(history.last_at))
    cluster = Cluster.attach(where.address)
    try:
        if kinds:
            check_autoscaler(cluster, [kind.name for kind in kinds])
        if cluster.started:
            _check_room(where, cluster)
        policy, driven = _policy(spec, where, cluster, kinds, target, files, say)
        known = [machine for machine in history.machines if machine in history.fleet.rented_ids]
        wants = partial(wanted, spec, history, 0 if _by_plan(spec, kinds) else where.gang)
        cloud = RayCloud(
            cluster,
            f"{spec.name}/{spec.id}",
            where.worker,
            known,
            wants,
            gang=where.gang,
            types=node_types(kinds, where.worker),
            driven_until=history.last_at if history.drives or history.driver else None,
        )
        given = where.worker, files.run, spec.id, target, where.variables
        engine = RayEngine(cluster, cloud.node_of, *given, is_own=cloud.is_own)
        cloud.own_workers_on = engine.workers_on
        try:
            alone = where.gang == 1 and not _by_plan(spec, kinds)  # a trial's only worker, and always
            yield Venue(engine, cloud, policy, driven, where.cpus or None if alone else None)
        finally:
            cloud.release_claims()
    finally:
        cluster.detach()


def _check_room(where: Ray, cluster: Cluster) -> None:
    """No other node will come to a cluster that is started here."""
    room = sum(workers_that_fit(node.resources, where.worker) for node in cluster.nodes())
    if room < where.gang:
        raise SettingError(
            f"engine: a trial has {plural(where.gang, 'worker')} of {format_resources(where.worker)}, and the "
            f"cluster that is started on this machine has room for {room}; "
            "give less, or the address= of a larger one"
        )


def _policy(
    spec: Spec,
    where: Ray,
    cluster: Cluster,
    kinds: Sequence[CloudProfile],
    target: Mapping[str, Any],
    files: StudyFiles,
    say: Say,
) -> tuple[Provisioner, Spec]:
    """By a plan where there is a deadline and something to rent; else as trials want it. And the study within the
    limits of the plan: it has no machines for more trials, and what was measured took some of the deadline."""
    if not kinds:
        return PresentMachines(where.gang, spec.workers, narrows=_narrows(spec)), spec
    if not _by_plan(spec, kinds):
        from thriftune.provisioning.scale_to_demand import ScaleToDemand

        return ScaleToDemand(kinds, where.gang, spec.workers), spec
    from thriftune.launch.deadline_plan import planned
    from thriftune.provisioning.plan_follower import PlanFollower

    unused = [name for name, given in (("workers", spec.workers), ("gang", where.gang > 1)) if given]
    if unused:
        say(f"{' and '.join(unused)}: do not count, as the plan for the deadline says how many there are of each")
    plan = planned(spec, where, cluster, kinds, target, files.folder, say)
    return PlanFollower(plan, machines_fail=True), within(spec, plan)


def _narrows(spec: Spec) -> bool:
    """Nobody has said how many trials there shall be at a time."""
    return spec.system is not None and bool(spec.system["narrows"])


def _by_plan(spec: Spec, kinds: Sequence[CloudProfile]) -> bool:
    return bool(kinds) and spec.deadline_seconds is not None


def within(spec: Spec, plan: Plan) -> Spec:
    job = plan.model.spec
    trials = sum(stage.trials for stage, begins in zip(job.stages, job.begins, strict=True) if begins == 0)
    return replace(spec, trials=spec.trials or trials, deadline_seconds=plan.deadline)


def wanted(spec: Spec, history: History, gang: int) -> int:
    """Workers that the study could use now, if it had all the machines there are. `gang`: of each trial; 0 where a
    plan rents them: then it uses none of what is everybody's, and shall have no share of it."""
    at_hand = len(history.running) + len(history.waiting)
    more = None if spec.trials is None else max(0, spec.trials - len(history.created_ids))
    if more is not None:
        trials = at_hand + more if spec.workers is None else min(spec.workers, at_hand + more)
    else:
        trials = 10_000 if spec.workers is None else spec.workers
    return gang * trials
