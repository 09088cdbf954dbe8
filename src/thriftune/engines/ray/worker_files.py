"""Where remote workers keep their events and output, and how the driver gets what a lost worker has left.

An actor writes its events to its folder before it sends them. With SharedFolders, all nodes see the folder, and
the driver reads it. With NodeFolders, the folder is on the actor's node, and short tasks there read and remove it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from thriftune.clouds.ray.cluster import Cluster
from thriftune.engines import recovery
from thriftune.engines.ray.node_files import (
    ActorFiles,
    ActorName,
    read_actor_files,
    read_study_files,
    remove_actor_files,
    wait_for_actors,
)
from thriftune.errors import StudyBusy
from thriftune.training.messages import read_spool

PROCESSES_END_SECONDS = 2.0
"""How long the processes of an actor may take to end after the actor."""

_FOLDER = "seats"
"""The name of the parent of the actors' folders, in the study's folder. It must not change, because recover()
reads the folder of an earlier driver."""

_NODE_SECONDS = 10.0
"""How long a node may take to answer, besides the time that processes take to end. Its first task starts a
process."""


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """The place of a remote worker's files.

    - `node`: the id of its node.
    - `actor`: the name of its folder.
    """

    node: str
    actor: str


class WorkerFiles(Protocol):
    """The files of all remote workers of one driver.

    Only the driver's thread calls the methods.

    - `on_nodes`: the files are on the nodes, so that an actor can remove its own.
    """

    on_nodes: bool

    def recover(self) -> ActorFiles:
        """Return what the workers of an earlier driver have left, after their processes have ended.

        Raises StudyBusy if they do not end.
        """
        ...

    def open(self) -> None:
        """Remove what recover() has returned. It is recorded now."""
        ...

    def new_place(self, node_id: str, name: str) -> WorkerPlace:
        """Return the place of a worker that starts. `name`: unique among the workers of this driver."""
        ...

    def actor_argument(self, place: WorkerPlace) -> str | ActorName:
        """Return the folder of a worker, as its WorkerActor takes it."""
        ...

    def read(self, place: WorkerPlace, on_files: Callable[[ActorFiles], None]) -> None:
        """Read what a worker that has ended has left, and call `on_files` with it, at once or on another thread.

        It is empty if the node has ended, too.
        """
        ...

    def read_now(self, places: Sequence[WorkerPlace], running_nodes: set[str]) -> list[ActorFiles]:
        """Return what these workers have left, in this order. `running_nodes`: all nodes of the cluster."""
        ...

    def remove(self, places: Iterable[WorkerPlace]) -> None:
        """Remove the files of workers that have ended, whose events are recorded."""
        ...

    def close(self, ended: Sequence[WorkerPlace], recorded: Sequence[WorkerPlace]) -> None:
        """Wait some seconds for the processes of workers that were ended.

        Then remove the files of those of them whose events are recorded.
        """
        ...


class SharedFolders:
    """Files in the study's folder, which all nodes see."""

    on_nodes = False

    def __init__(self, study_folder: Path) -> None:
        self._folder = study_folder / _FOLDER

    def recover(self) -> ActorFiles:
        self._folder.mkdir(parents=True, exist_ok=True)
        recovered = [recovery.recover(folder) for folder in sorted(self._folder.iterdir())]
        return ActorFiles([event for events in recovered for event in events], [], False)

    def open(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def new_place(self, node_id: str, name: str) -> WorkerPlace:
        place = WorkerPlace(node_id, name)
        # Created here, because an actor reports an error if it does not see its folder.
        self._of(place).mkdir(parents=True, exist_ok=True)
        return place

    def actor_argument(self, place: WorkerPlace) -> str | ActorName:
        return str(self._of(place))

    def read(self, place: WorkerPlace, on_files: Callable[[ActorFiles], None]) -> None:
        on_files(self._read(place, time.monotonic() + PROCESSES_END_SECONDS))

    def read_now(self, places: Sequence[WorkerPlace], running_nodes: set[str]) -> list[ActorFiles]:  # noqa: ARG002
        deadline = time.monotonic() + PROCESSES_END_SECONDS  # for all workers together, because there may be many
        return [self._read(place, deadline) for place in places]

    def remove(self, places: Iterable[WorkerPlace]) -> None:
        for place in places:
            shutil.rmtree(self._of(place), ignore_errors=True)

    def close(self, ended: Sequence[WorkerPlace], recorded: Sequence[WorkerPlace]) -> None:  # noqa: ARG002
        """Wait for processes. The next driver removes the files."""
        deadline = time.monotonic() + PROCESSES_END_SECONDS
        for place in ended:
            self._wait(place, deadline)

    def _of(self, place: WorkerPlace) -> Path:
        return self._folder / place.actor

    def _wait(self, place: WorkerPlace, deadline: float) -> None:
        with contextlib.suppress(OSError):  # the node was lost before the actor could use its folder
            recovery.processes_end_within(self._of(place), deadline - time.monotonic())

    def _read(self, place: WorkerPlace, deadline: float) -> ActorFiles:
        self._wait(place, deadline)
        spools = recovery.spool_folder(self._of(place))
        with contextlib.suppress(OSError):
            os.listdir(spools)  # noqa: PTH208 (makes a network file system refresh the folder)
        events = [event for spool in sorted(spools.glob("*.spool")) for event in read_spool(spool)]
        return ActorFiles(events, [], False)


class NodeFolders:
    """Files on the nodes, in folders that the driver does not see."""

    on_nodes = True

    def __init__(self, cluster: Cluster, study: str, driven_before: bool) -> None:
        """Remember the arguments.

        - `study`: the id of the study.
        - `driven_before`: an earlier driver may have left files.
        """
        self._cluster = cluster
        self._study = study
        self._driven_before = driven_before
        self._prefix = secrets.token_hex(4)  # so that no folder has the name of one of an earlier driver
        self._removals: dict[str, Any] = {}  # the calls of remove() that have not ended, by any names
        self._recovered: dict[str, list[str]] = {}  # the actors of each node whose files recover() has returned

    def recover(self) -> ActorFiles:
        if not self._driven_before:
            return ActorFiles([], [], False)
        calls = {
            node.id: self._cluster.call_on_node(
                node.id, read_study_files, self._study, recovery.END_WITHIN_SECONDS
            )
            for node in self._cluster.nodes()
        }
        answers = self._cluster.results_of(calls, recovery.END_WITHIN_SECONDS + _NODE_SECONDS)
        self._recovered = {node: list(actors) for node, actors in answers.items() if actors}
        found: dict[str, ActorFiles] = {}  # nodes on one machine may all return the same folders
        for actors in answers.values():
            found |= actors
        if running := [actor for actor, files in found.items() if files.running]:
            raise StudyBusy(
                f"processes of an earlier run still run on nodes of the cluster after "
                f"{recovery.END_WITHIN_SECONDS:g} s: of actors {', '.join(running)} of study {self._study}; end "
                "them, then resume"
            )
        return ActorFiles(
            [event for files in found.values() for event in files.events],
            [piece for files in found.values() for piece in files.output],
            False,
        )

    def open(self) -> None:
        calls = {
            node: self._cluster.call_on_node(node, remove_actor_files, self._study, actors, 0.0)
            for node, actors in self._recovered.items()
        }
        self._cluster.results_of(calls, _NODE_SECONDS)
        self._recovered = {}

    def new_place(self, node_id: str, name: str) -> WorkerPlace:
        return WorkerPlace(node_id, f"{self._prefix}-{name}")

    def actor_argument(self, place: WorkerPlace) -> str | ActorName:
        return ActorName(self._study, place.actor)

    def read(self, place: WorkerPlace, on_files: Callable[[ActorFiles], None]) -> None:
        def pass_on(files: Any, error: BaseException | None) -> None:
            on_files(ActorFiles([], [], False) if error is not None else files)

        self._call_to_read(place, on_result=pass_on)

    def read_now(self, places: Sequence[WorkerPlace], running_nodes: set[str]) -> list[ActorFiles]:
        calls = {place.actor: self._call_to_read(place) for place in places if place.node in running_nodes}
        answers = self._cluster.results_of(calls, PROCESSES_END_SECONDS + _NODE_SECONDS)
        return [answers.get(place.actor, ActorFiles([], [], False)) for place in places]

    def remove(self, places: Iterable[WorkerPlace]) -> None:
        for node, actors in _by_node(places).items():
            name = f"{node} {actors[0]}"
            self._removals[name] = None  # before the call, which may end at once
            call = self._cluster.call_on_node(
                node,
                remove_actor_files,
                self._study,
                actors,
                PROCESSES_END_SECONDS,
                on_result=lambda *_, name=name: self._removals.pop(name, None),
            )
            if name in self._removals:
                self._removals[name] = call

    def close(self, ended: Sequence[WorkerPlace], recorded: Sequence[WorkerPlace]) -> None:
        """Wait for the nodes to remove the files of workers whose events are recorded.

        The next driver reads the others.
        """
        unread = set(ended) - set(recorded)
        calls = {
            f"{function.__name__} {node}": self._cluster.call_on_node(
                node, function, self._study, actors, PROCESSES_END_SECONDS
            )
            for function, places in ((remove_actor_files, recorded), (wait_for_actors, unread))
            for node, actors in _by_node(places).items()
        }
        calls |= {name: call for name, call in list(self._removals.items()) if call is not None}
        self._cluster.results_of(calls, PROCESSES_END_SECONDS + _NODE_SECONDS)

    def _call_to_read(self, place: WorkerPlace, **options: Any) -> Any:
        name = ActorName(self._study, place.actor)
        return self._cluster.call_on_node(place.node, read_actor_files, name, PROCESSES_END_SECONDS, **options)


def _by_node(places: Iterable[WorkerPlace]) -> Mapping[str, list[str]]:
    actors: dict[str, list[str]] = {}
    for place in places:
        actors.setdefault(place.node, []).append(place.actor)
    return actors
