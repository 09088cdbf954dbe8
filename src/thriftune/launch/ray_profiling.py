"""How long does a step take on this cluster, and how long a node to come? A bench on its nodes, where a worker is
as large as in the study."""

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
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.placement import choose_slots
from thriftune.planning.profile import Profile
from thriftune.planning.timing import StepTimes
from thriftune.settings.engine_options import Ray
from thriftune.settings.node_types import kinds_of, node_types
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

_LOOK_SECONDS = 0.1
_STARTS_SECONDS = 120.0
"""Actors, processes, and what the training function imports: the first trial on a node finds none of it there."""

_ENDS_SECONDS = 30.0
"""For those that run beside a trial to end with a step."""

_WITHOUT_END = 10**9
_THERE_SECONDS = 1.5
"""What it takes at most to have a node that is there."""

_COMES_SECONDS = 900.0
"""A node that has not come by then is not waited for."""


def measure_on_cluster(
    spec: Spec,
    where: Ray,
    workers: Sequence[int] | None = None,
    seconds: float = 20.0,
    repeats: int = 2,
    say: Say = lambda _: None,
    ends_at: float = math.inf,
) -> StepTimes:
    """As profiling.measure(), on nodes of the first kind that `where` names, or where it names none, on those
    that are there. By default with as many workers as one node has room for.

    What trials write meanwhile goes to the study's storage, or else to the folder of its function or command: it
    must be one that all nodes see.
    """
    target = asdict(spec.target)
    folder = Path(spec.storage or spec.target.folder or ".")
    kinds = kinds_of(where.machines, where.worker, Path(spec.target.folder or "."))
    cluster = Cluster.attach(where.address)
    try:
        with _made(folder):
            bench = OnCluster(cluster, where, spec.name, target, folder, say)
            with bench.opened(kinds, max(workers) if workers else None, ends_at):
                found = measure(spec, workers, seconds, repeats, say, bench, ends_at)
    finally:
        cluster.detach()
    return replace(found, profile=bench.with_waits(found.profile))


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """A folder that is there; one that was not is gone again afterwards."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for each in missing:
            with contextlib.suppress(OSError):  # somebody else uses it by now
                each.rmdir()


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
        self.first_step_after = 0.0
        self._run: Run | None = None  # as such that run beside those that are measured
        self._started = 0

    @contextlib.contextmanager
    def opened(
        self, kinds: Sequence[CloudProfile], workers: int | None, ends_at: float = math.inf
    ) -> Iterator[OnCluster]:
        """`workers`: the most that one trial is measured with; None: as many as one node has room for.
        `ends_at`: by time.monotonic(), until when nodes are waited for."""
        worker = self._where.worker
        # Others may measure here at the same time, or have, and been killed: none is to be taken for this one.
        number = secrets.token_hex(4)
        known_as = f"profile of {self._study}/{number}"
        cloud = RayCloud(self._cluster, known_as, worker, types=node_types(kinds, worker))
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
        )
        try:
            self._take(cloud.open(time.time()))
            if kinds:
                self._rent(kinds[0], workers or kinds[0].slots, ends_at)
            if not self._free:
                raise ProfileError(
                    f"the cluster has no node with room for a worker of {worker}, and no kind to rent is named; "
                    "start one, or give machines= of tt.Ray(...)"
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
        """Only nodes of the kind that a plan would rent are measured."""
        count = -(-workers // kind.slots)
        began = time.time()
        patience = min(_COMES_SECONDS, ends_at - time.monotonic())
        there = sum(type_of(node) == kind.name for node in self._cluster.nodes())
        self._free.clear()
        asked = [f"{kind.name}-{number + 1}" for number in range(count)]
        self._say(f"asking the autoscaler for {count} {kind.name}")
        for machine in asked:
            self._take(self._cloud.rent(machine, kind.name, None, began))
        while not self._free.keys() >= set(asked):
            if time.time() - began > patience:
                raise ProfileError(
                    f"{kind.name}: {count} asked for, not there after {patience:.3g} s; give more time, or "
                    "see what the autoscaler says"
                )
            time.sleep(_LOOK_SECONDS)
            told = self._cloud.poll_events(time.time())
            self._take([event for event in told if getattr(event, "machine", "") in asked])
        took = time.time() - began
        if there >= count and took < _THERE_SECONDS:
            self._say("there already; how long another one takes to come is not known, and taken to be nothing")
        else:
            self.came_after = took
            self._say(f"there after {took:.1f} s")

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
        """The same for all trials: as in a study, they meet workers that are warm, and others like them run beside
        them, wherever there is room."""
        where = choose_slots(workers, self._free)
        if where is None:
            raise ProfileError(f"{workers} workers: the nodes have room for {sum(self._free.values())}")
        beside = self._start_beside(workers, where)
        try:
            yield self._engine, where
        finally:
            self._end(beside)

    def _start_beside(self, workers: int, taken: Mapping[str, int]) -> list[Run]:
        found: list[Run] = []
        if self._run is None:  # nobody has said what runs
            return found
        for machine, slots in self._free.items():
            for _ in range((slots - taken.get(machine, 0)) // workers):
                self._started += 1
                folder = f"{self._run.folder}-{self._started}"
                run = replace(self._run, trial=self._started, folder=folder, max_steps=_WITHOUT_END)
                self._engine.start(run, {machine: workers})
                found.append(run)
        return found

    def _end(self, runs: Sequence[Run]) -> None:
        """After the step they are at: one that is killed leaves a worker to be started anew, which would take its
        time from the next that is measured."""
        running = {run.trial: run for run in runs}
        for end, seconds in ((self._engine.request_end, _ENDS_SECONDS), (self._engine.kill, _STARTS_SECONDS)):
            deadline = time.monotonic() + seconds
            for run in running.values():
                end(run.trial, run.attempt)
            while running and time.monotonic() < deadline:
                for event in self._engine.wait(_LOOK_SECONDS):
                    if isinstance(event, (Ended, Failed, Killed, Lost)):
                        running.pop(event.trial, None)
        for run in runs:
            shutil.rmtree(run.folder, ignore_errors=True)

    def warm_up(self, run: Run) -> None:
        """A trial on every worker of every node, all at once, as a study begins: until each has done a step."""
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
            if time.monotonic() - began > _STARTS_SECONDS:
                raise ProfileError(f"no worker has done a step within {_STARTS_SECONDS:g} s of its start")
            for event in self._engine.wait(_LOOK_SECONDS):
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

    def remarks(self, workers: int) -> tuple[str, ...]:  # noqa: ARG002 (what else runs on nodes, Ray keeps count of)
        return ()

    def with_waits(self, profile: Profile) -> Profile:
        """And how long a node takes to come, and then until its workers are warm."""
        cold = self.first_step_after - profile.startup - profile.seconds_per_step[1]
        return replace(profile, queue=self.came_after or 0.0, init=max(0.0, cold))
