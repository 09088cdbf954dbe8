"""Open the engine, the cloud and the policy that a study's settings ask for.

The modules that plan and rent machines are imported only if there are machines to rent, as they import SciPy.
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
from thriftune.clouds.ray.autoscaler_check import check_autoscaler
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

_NO_LIMIT = 10_000
"""Trials that a study without a limit could run at a time; more than any cluster has room for."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The engine, cloud and policy that one study runs on.

    - `spec`: the study's, within the limits of its plan if it has one.
    - `cores_per_slot`: how many cores a machine has for each of its slots; None if trials cannot be tuned.
    """

    engine: Engine
    cloud: Cloud
    provisioner: Provisioner
    spec: Spec
    cores_per_slot: float | None = None


@contextlib.contextmanager
def open_runtime(
    spec: Spec, files: StudyFiles, history: History, target: Mapping[str, Any], say: Say
) -> Iterator[Runtime]:
    """Open the runtime of a study, and close it at the end. `say`: called with decisions made before the start."""
    engine_settings = engine_of({"name": spec.engine, **spec.engine_options})
    if isinstance(engine_settings, Ray):
        with _on_ray(engine_settings, spec, files, history, target, say) as runtime:
            yield runtime
    else:
        slots = spec.workers or cores()
        engine = LocalEngine(files.run, slots, dict(target))
        policy = PresentMachines()
        yield Runtime(engine, LocalCloud(slots), policy, spec, cores() / slots)


@contextlib.contextmanager
def _on_ray(
    where: Ray, spec: Spec, files: StudyFiles, history: History, target: Mapping[str, Any], say: Say
) -> Iterator[Runtime]:
    from thriftune.clouds.ray.cloud import RayCloud
    from thriftune.clouds.ray.cluster import Cluster
    from thriftune.clouds.ray.cluster_machine import MachinesById
    from thriftune.engines.ray.engine import RayEngine
    from thriftune.settings.ray_node_types import node_types, read_node_types

    kinds = read_node_types(where.machines, where.worker, Path(target.get("folder") or "."))
    if kinds:  # plans need the deadline in seconds
        spec = as_duration(spec, WallClock().now(), history.driven_seconds(history.last_at))
    cluster = Cluster.attach(where.address)
    try:
        if kinds:
            check_autoscaler(cluster, [kind.name for kind in kinds])
        if cluster.started:
            _check_room(where, cluster)
        policy, planned_spec = _policy(spec, where, cluster, kinds, target, files, say)
        known = [machine for machine in history.machines if machine in history.fleet.rented_ids]
        wants = partial(wanted, spec, history, 0 if _by_plan(spec, kinds) else where.gang)
        machines = MachinesById()
        engine = RayEngine(
            cluster,
            machines.node_of,
            where.worker,
            files.run,
            spec.id,
            target,
            where.variables,
            is_own=machines.is_own,
            trials=files.folder / "trials" if files.objects else None,
            driven_before=bool(history.drives or history.driver),
        )
        cloud = RayCloud(
            cluster,
            f"{spec.name}/{spec.id}",
            where.worker,
            known,
            wants,
            gang=where.gang,
            types=node_types(kinds, where.worker),
            driven_until=history.last_at if history.drives or history.driver else None,
            machines=machines,
            own_workers_on=engine.workers_on,
        )
        try:
            # A plan gives each trial one or more workers, whatever the gang; those with one are tuned.
            may_be_one = where.gang == 1 or _by_plan(spec, kinds)
            yield Runtime(engine, cloud, policy, planned_spec, where.cpus or None if may_be_one else None)
        finally:
            cloud.release_claims()
    finally:
        cluster.detach()


def _check_room(where: Ray, cluster: Cluster) -> None:
    """Raise SettingError if no trial fits on a cluster that was started here, to which no other node will come."""
    room = sum(workers_that_fit(node.resources, where.worker) for node in cluster.nodes())
    if room < where.gang:
        raise SettingError(
            f"engine: a trial has {plural(where.gang, 'worker')} with {format_resources(where.worker)}, and the "
            f"cluster that is started on this machine has room for {room}; ask for less, or give the address= of "
            "a larger cluster"
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
    """Return the policy, and the spec within the limits of the plan if there is one.

    With a deadline and machines to rent, the policy follows a plan, which has machines for a fixed number of
    trials. The deadline is shortened by the time that it took to measure steps for the plan.
    """
    if not kinds:
        return PresentMachines(where.gang, spec.workers), spec
    if not _by_plan(spec, kinds):
        from thriftune.provisioning.scale_to_demand import ScaleToDemand

        return ScaleToDemand(kinds, where.gang, spec.workers), spec
    from thriftune.launch.deadline_plan import deadline_plan
    from thriftune.provisioning.plan_follower import PlanFollower

    unused = [name for name, given in (("workers", spec.workers), ("gang", where.gang > 1)) if given]
    if unused:
        say(f"{' and '.join(unused)}: ignored, as the plan for the deadline decides how many to use")
    plan = deadline_plan(spec, where, cluster, kinds, target, files.folder, say, on_nodes=bool(files.objects))
    return PlanFollower(plan, machines_fail=True), within(spec, plan)


def _by_plan(spec: Spec, kinds: Sequence[CloudProfile]) -> bool:
    return bool(kinds) and spec.deadline_seconds is not None


def within(spec: Spec, plan: Plan) -> Spec:
    """Return the spec with the number of trials and the deadline of a plan."""
    job = plan.model.spec
    trials = sum(stage.trials for stage, begins in zip(job.stages, job.begins, strict=True) if begins == 0)
    return replace(spec, trials=spec.trials or trials, deadline_seconds=plan.deadline)


def wanted(spec: Spec, history: History, gang: int) -> int:
    """Return how many workers the study could use now if it had all machines of the cluster.

    `gang`: how many workers each trial has. It is 0 if the study's plan rents machines for this study alone; such
    a study wants no shared workers.
    """
    present = len(history.running) + len(history.waiting)
    more = None if spec.trials is None else max(0, spec.trials - len(history.created_ids))
    if more is not None:
        trials = present + more if spec.workers is None else min(spec.workers, present + more)
    else:
        trials = _NO_LIMIT if spec.workers is None else spec.workers
    return gang * trials
