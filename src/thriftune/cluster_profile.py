"""How long does a step take on this cluster? A bench on its nodes, where a worker is as large as in the study."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from thriftune.clouds.ray import RayCloud
from thriftune.cluster import Cluster
from thriftune.cluster_kinds import node_types
from thriftune.engines import Engine
from thriftune.engines.choice import Ray
from thriftune.engines.ray import RayEngine
from thriftune.errors import ProfileError
from thriftune.events import Event, MachineLost, MachineReady, MachineRefused
from thriftune.placement import together
from thriftune.planning.cloud import CloudProfile
from thriftune.profiling import Say

_LOOK_SECONDS = 0.1
_STARTS_SECONDS = 120.0
"""Actors, processes, and what the training function imports: the first trial on a node finds none of it there."""

_COMES_SECONDS = 900.0
"""A node that has not come by then is not waited for."""


class OnCluster:
    """Nodes of the cluster: those that are there, or where there are kinds to rent, as many of the first kind as
    `workers` of one trial need. They are given back at the end.

    `came_after`: seconds from asking for nodes until they were there; None: none was asked for.
    """

    def __init__(
        self, cluster: Cluster, where: Ray, study: str, target: Mapping[str, Any], folder: Path, say: Say
    ) -> None:
        self.folder: Path | None = folder
        self.most = 0
        self.starts_within = _STARTS_SECONDS
        self.came_after: float | None = None
        self._cluster = cluster
        self._where = where
        self._study = study
        self._target = target
        self._say = say
        self._free: dict[str, int] = {}

    @contextlib.contextmanager
    def opened(self, kinds: Sequence[CloudProfile], workers: int | None) -> Iterator[OnCluster]:
        """`workers`: the most that one trial is measured with; None: as many as one node has room for."""
        worker = self._where.worker
        cloud = RayCloud(self._cluster, f"profile of {self._study}", worker, types=node_types(kinds, worker))
        self._cloud = cloud
        try:
            self._take(cloud.open(time.time()))
            if kinds:
                self._rent(kinds[0], workers or kinds[0].slots)
            if not self._free:
                raise ProfileError(
                    f"the cluster has no node with room for a worker of {worker}, and no kind to rent is named; "
                    "start one, or give machines= of tt.Ray(...)"
                )
            largest = max(self._free.values())
            self.most = min(sum(self._free.values()), workers or largest)
            yield self
        finally:
            for machine in list(self._free):
                cloud.release(machine, time.time())
            cloud.close(time.time())

    def _rent(self, kind: CloudProfile, workers: int) -> None:
        """Only nodes of the kind that a plan would rent are measured."""
        count = -(-workers // kind.slots)
        began = time.time()
        self._free.clear()
        asked = [f"{kind.name}-{number + 1}" for number in range(count)]
        self._say(f"asking the autoscaler for {count} {kind.name}")
        for machine in asked:
            self._take(self._cloud.rent(machine, kind.name, None, began))
        while not self._free.keys() >= set(asked):
            if time.time() - began > _COMES_SECONDS:
                raise ProfileError(f"{kind.name}: none has come in {_COMES_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)
            told = self._cloud.take(time.time())
            self._take([event for event in told if getattr(event, "machine", "") in asked])
        self.came_after = time.time() - began
        self._say(f"there after {self.came_after:.1f} s")

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, MachineReady):
                self._free[event.machine] = event.slots
            elif isinstance(event, MachineRefused):
                raise ProfileError(f"{event.offer}: {event.why}")
            elif isinstance(event, MachineLost):
                self._free.pop(event.machine, None)

    @contextlib.contextmanager
    def engine(self, folder: Path, workers: int) -> Iterator[tuple[Engine, Mapping[str, int]]]:
        where = together(workers, self._free)
        if where is None:
            raise ProfileError(f"{workers} workers: the nodes have room for {sum(self._free.values())}")
        variables = self._where.variables
        engine = RayEngine(
            self._cluster, self._cloud.node_of, self._where.worker, folder, "profile", self._target, variables
        )
        try:
            engine.recover()
            engine.open()
            yield engine, where
        finally:
            engine.close()

    def remarks(self, workers: int) -> tuple[str, ...]:  # noqa: ARG002 (what else runs on nodes, Ray keeps count of)
        return ()
