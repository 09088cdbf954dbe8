"""Where does this study run? Its engine, its machines and who decides about them, as its settings say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from thriftune.clouds import Cloud
from thriftune.clouds.local import LocalCloud, cores
from thriftune.engines import Engine
from thriftune.engines.choice import Ray, engine_of
from thriftune.engines.local import LocalEngine
from thriftune.files import StudyFiles
from thriftune.history import History
from thriftune.planning import PresentMachines, Provisioner
from thriftune.spec import Spec


@dataclass(frozen=True, slots=True)
class Venue:
    engine: Engine
    cloud: Cloud
    provisioner: Provisioner


@contextlib.contextmanager
def venue(spec: Spec, files: StudyFiles, history: History, target: Mapping[str, Any]) -> Iterator[Venue]:
    where = engine_of({"name": spec.engine, **spec.engine_options})
    if isinstance(where, Ray):
        with _on_ray(where, spec, files, history, target) as found:
            yield found
    else:
        slots = spec.workers or cores()
        yield Venue(LocalEngine(files.run, slots, dict(target)), LocalCloud(slots), PresentMachines())


@contextlib.contextmanager
def _on_ray(
    where: Ray, spec: Spec, files: StudyFiles, history: History, target: Mapping[str, Any]
) -> Iterator[Venue]:
    from thriftune.clouds.ray import RayCloud
    from thriftune.cluster import Cluster
    from thriftune.engines.ray import RayEngine

    cluster = Cluster.attach(where.address)
    try:
        known = [machine for machine in history.machines if machine in history.fleet.rented_ids]
        wants = partial(wanted, spec, history, where.gang)
        cloud = RayCloud(cluster, f"{spec.name}/{spec.id}", where.worker, known, wants)
        engine = RayEngine(cluster, cloud.node_of, where.worker, files.run, spec.id, target, where.variables)
        yield Venue(engine, cloud, PresentMachines(where.gang, spec.workers))
    finally:
        cluster.detach()


def wanted(spec: Spec, history: History, gang: int) -> int:
    """Workers that the study could use now, if it had all the machines there are."""
    at_hand = len(history.running) + len(history.waiting)
    more = None if spec.trials is None else max(0, spec.trials - len(history.trials))
    if more is not None:
        trials = at_hand + more if spec.workers is None else min(spec.workers, at_hand + more)
    else:
        trials = 10_000 if spec.workers is None else spec.workers
    return gang * trials
