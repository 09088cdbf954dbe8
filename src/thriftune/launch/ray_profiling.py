"""Measure on a cluster how long a step takes and how long a new node takes to be ready."""

from __future__ import annotations

import contextlib
import math
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from thriftune.clouds.ray.cloud import RayCloud
from thriftune.clouds.ray.cluster import Cluster
from thriftune.clouds.ray.node_types import type_of
from thriftune.common.formatting import plural
from thriftune.common.text import last_line
from thriftune.engines.protocol import Engine
from thriftune.engines.ray.engine import RayEngine
from thriftune.errors import ProfileError
from thriftune.launch.profiling import Say, measure
from thriftune.object_store.urls import is_object_url
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.placement import choose_slots
from thriftune.planning.profile import Profile
from thriftune.planning.timing import StepTimes
from thriftune.settings.engine_options import Ray
from thriftune.settings.ray_node_types import node_types, read_node_types
from thriftune.state.events import (
    Ended,
    Event,
    Failed,
    Killed,
    Lost,
    MachineLost,
    MachineReady,
    MachineRefused,
    Reported,
)
from thriftune.state.spec import Spec
from thriftune.training.run import Run

_POLL_SECONDS = 0.1
"""Wait at most this long for events of the engine, or between looks at the cluster."""

_START_SECONDS = 120.0
"""The first trial on a node may take this long to its first step: actors, processes and imports start cold."""

_END_SECONDS = 30.0
"""Trials that run beside a measured one may take this long to end their step."""

_ENDLESS_STEPS = 10**9
"""The number of steps of trials that run beside a measured one, until they are ended."""

_PRESENT_NODE_SECONDS = 1.5
"""Renting a node that already runs takes at most this long."""

_NEW_NODE_SECONDS = 900.0
"""Give up on a new node after this long."""


def measure_on_cluster(
    spec: Spec,
    where: Ray,
    workers: Sequence[int] | None = None,
    seconds: float = 20.0,
    repeats: int = 2,
    say: Say = lambda _: None,
    ends_at: float = math.inf,
) -> StepTimes:
    """Measure step times on a cluster, as profiling.measure() does on this machine.

    Nodes of the first of `where.machines` are rented for it. Without any, the present nodes are used. By default
    the largest number of workers is what one node has room for.

    Trials write their files into the study's storage, or else into the folder of its function or command. All
    nodes must see this folder, unless the storage is an object store. The nodes then keep the files.
    """
    target = asdict(spec.target)
    on_nodes = is_object_url(spec.storage)
    folder = Path((not on_nodes and spec.storage) or spec.target.folder or ".")
    kinds = read_node_types(where.machines, where.worker, Path(spec.target.folder or "."))
    cluster = Cluster.attach(where.address)
    try:
        with _existing(folder):
            bench = OnCluster(cluster, where, spec.name, target, folder, say, on_nodes=on_nodes)
            with bench.opened(kinds, max(workers) if workers else None, ends_at):
                step_times = measure(spec, workers, seconds, repeats, say, bench, ends_at)
    finally:
        cluster.detach()
    return replace(step_times, profile=bench.with_waits(step_times.profile))


@contextlib.contextmanager
def _existing(folder: Path) -> Iterator[None]:
    """Create a folder if it does not exist, and delete it afterwards if it was created here and is empty."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for each in missing:
            with contextlib.suppress(OSError):  # another process uses it
                each.rmdir()


class OnCluster:
    """A bench on a cluster's nodes.

    It uses the present nodes, or, if there are node types to rent, as many of the first type as one trial needs.
    Rented nodes are released at the end.

    - `ready_after`: seconds from requesting new nodes until they were ready; None: no new node was needed.
    - `first_step_after`: seconds from the start of the first trials until all had done a step.
    """

    def __init__(
        self,
        cluster: Cluster,
        where: Ray,
        study: str,
        target: Mapping[str, Any],
        folder: Path,
        say: Say,
        *,
        on_nodes: bool = False,
    ) -> None:
        """Remember the arguments.

        `on_nodes`: trials keep their files on the nodes, which do not see `folder`. A trial that starts again on
        another worker does not find them.
        """
        self.folder: Path | None = folder
        self.resumes = not on_nodes
        self.most = 0
        self.starts_within = _START_SECONDS
        self.ready_after: float | None = None
        self._cluster = cluster
        self._where = where
        self._study = study
        self._target = target
        self._say = say
        self._free: dict[str, int] = {}
        self.first_step_after = 0.0
        self._run: Run | None = None  # what trials beside a measured one run
        self._started = 0

    @contextlib.contextmanager
    def opened(
        self, kinds: Sequence[CloudProfile], workers: int | None, ends_at: float = math.inf
    ) -> Iterator[OnCluster]:
        """Rent nodes if needed and start the engine; close and release them at the end.

        - `workers`: the largest number that one trial is measured with; None: what one node has room for.
        - `ends_at`: in time.monotonic(); do not wait for nodes after this.
        """
        worker = self._where.worker
        # Others may measure on this cluster now, or may have been killed while measuring, so the name is unique.
        number = secrets.token_hex(4)
        cloud_name = f"profile of {self._study}/{number}"
        cloud = RayCloud(self._cluster, cloud_name, worker, types=node_types(kinds, worker))
        self._cloud = cloud
        assert self.folder is not None
        run_folder = self._run_folder = self.folder / f".profile-{number}"
        self._engine = RayEngine(
            self._cluster,
            cloud.node_of,
            worker,
            run_folder,
            f"profile-{number}",
            self._target,
            self._where.variables,
            trials=None if self.resumes else run_folder / "trials",
            driven_before=False,
        )
        try:
            self._take(cloud.open(time.time()))
            if kinds:
                self._rent(kinds[0], workers or kinds[0].slots, ends_at)
            if not self._free:
                raise ProfileError(
                    f"the cluster has no node with room for a worker of {worker}, and no node type to rent "
                    "is given; start a node, or give machines= of tt.Ray(...)"
                )
            largest = max(self._free.values())
            self.most = min(sum(self._free.values()), workers or largest)
            self._engine.recover()
            self._engine.open()
            yield self
        finally:
            self._engine.close()
            for machine in list(self._free):
                cloud.release(machine, time.time())
            cloud.close(time.time())
            shutil.rmtree(run_folder, ignore_errors=True)

    def _rent(self, kind: CloudProfile, workers: int, ends_at: float) -> None:
        """Rent nodes for a trial with this many workers, and measure only on these."""
        count = -(-workers // kind.slots)
        began = time.time()
        longest = min(_NEW_NODE_SECONDS, ends_at - time.monotonic())
        present = sum(type_of(node) == kind.name for node in self._cluster.nodes())
        self._free.clear()
        requested = [f"{kind.name}-{number + 1}" for number in range(count)]
        self._say(f"asking the autoscaler for {count} {kind.name}")
        for machine in requested:
            self._take(self._cloud.rent(machine, kind.name, None, began))
        while not self._free.keys() >= set(requested):
            if time.time() - began > longest:
                raise ProfileError(
                    f"{kind.name}: {count} requested, not ready after {longest:.3g} s; give more time, or "
                    "look at the autoscaler's messages"
                )
            time.sleep(_POLL_SECONDS)
            events = self._cloud.poll_events(time.time())
            self._take([event for event in events if getattr(event, "machine", "") in requested])
        took = time.time() - began
        if present >= count and took < _PRESENT_NODE_SECONDS:
            self._say("ready at once: the node was running; a new node is assumed to take no time either")
        else:
            self.ready_after = took
            self._say(f"ready after {took:.1f} s")

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, MachineReady):
                self._free[event.machine] = event.slots
            elif isinstance(event, MachineRefused):
                raise ProfileError(f"{event.offer}: {event.why}")
            elif isinstance(event, MachineLost):
                self._free.pop(event.machine, None)

    @contextlib.contextmanager
    def engine(self, folder: Path, workers: int) -> Iterator[tuple[Engine, Mapping[str, int]]]:  # noqa: ARG002
        """Yield the engine that all trials share, while like trials fill the other slots.

        As in a study, trials use warm workers, and other trials run beside them.
        """
        where = choose_slots(workers, self._free)
        if where is None:
            raise ProfileError(f"{workers} workers: the nodes have room for {sum(self._free.values())}")
        beside = self._start_beside(workers, where)
        try:
            yield self._engine, where
        finally:
            self._end(beside)

    def _start_beside(self, workers: int, taken: Mapping[str, int]) -> list[Run]:
        """Start a trial on each free slot that the measured trial leaves. Return the runs."""
        runs: list[Run] = []
        if self._run is None:  # before warm_up()
            return runs
        for machine, slots in self._free.items():
            for _ in range((slots - taken.get(machine, 0)) // workers):
                self._started += 1
                folder = f"{self._run.folder}-{self._started}"
                run = replace(self._run, trial=self._started, folder=folder, max_steps=_ENDLESS_STEPS)
                self._engine.start(run, {machine: workers})
                runs.append(run)
        return runs

    def _end(self, runs: Sequence[Run]) -> None:
        """End the runs after their current steps, and kill those that do not end.

        A kill ends the worker, and starting a new one would slow down the next measured trial.
        """
        running = {run.trial: run for run in runs}
        for end, seconds in ((self._engine.request_end, _END_SECONDS), (self._engine.kill, _START_SECONDS)):
            deadline = time.monotonic() + seconds
            for run in running.values():
                end(run.trial, run.attempt)
            while running and time.monotonic() < deadline:
                for event in self._engine.wait(_POLL_SECONDS):
                    if isinstance(event, (Ended, Failed, Killed, Lost)):
                        running.pop(event.trial, None)
        for run in runs:
            shutil.rmtree(run.folder, ignore_errors=True)

    def warm_up(self, run: Run) -> None:
        """Start a trial on every worker of every node at once, as a study does, until each has done a step."""
        began = time.monotonic()
        self._run = replace(run, folder=str(self._run_folder / "beside"))
        self._say(f"starting {plural(sum(self._free.values()), 'worker')} for the first time")
        slots = [machine for machine, count in self._free.items() for _ in range(count)]
        waiting = set(range(1, len(slots) + 1))
        self._started = len(slots)
        for number, machine in zip(sorted(waiting), slots, strict=True):
            self._engine.start(replace(run, trial=number, folder=f"{run.folder}-{number}"), {machine: 1})
        reported: dict[int, float] = {}
        while waiting:
            if time.monotonic() - began > _START_SECONDS:
                raise ProfileError(f"no worker has done a step within {_START_SECONDS:g} s of its start")
            for event in self._engine.wait(_POLL_SECONDS):
                if isinstance(event, Reported) and event.trial not in reported:
                    reported[event.trial] = time.monotonic() - began
                    self._engine.request_end(event.trial, event.attempt)
                elif isinstance(event, Failed):
                    raise ProfileError(f"the training function failed: {last_line(event.error)}\n{event.error}")
                elif isinstance(event, Lost):
                    raise ProfileError(f"the trial was lost: {event.why}; measure again")
                elif isinstance(event, Ended):
                    waiting.discard(event.trial)
        self.first_step_after = max(reported.values(), default=0.0)

    def remarks(self, workers: int) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def with_waits(self, profile: Profile) -> Profile:
        """Return the profile with the time until a new node is ready, and then until its workers are warm."""
        cold = self.first_step_after - profile.startup - profile.seconds_per_step[1]
        return replace(profile, queue=self.ready_after or 0.0, init=max(0.0, cold))
