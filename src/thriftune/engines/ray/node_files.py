"""The files of a study's actors on a node that shares no folder with the driver. These functions run on the node.

    TMPDIR/thriftune-UID/STUDY/ACTOR/alive, spools/    files of the actor's engine; see engines/recovery.py
    TMPDIR/thriftune-UID/STUDY/ACTOR/function.pickle   the training function of a script
    TMPDIR/thriftune-UID/STUDY/ACTOR/trials/7-2/       the folder of attempt 2 of trial 7, with its output

An actor's folder survives the actor, so that a later task can read the last events and output of its workers.
The driver removes it when it has recorded them. A folder that no driver has asked for during a week is removed by
the next actor on the node.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from thriftune.engines import recovery
from thriftune.errors import SettingError
from thriftune.state.events import Event
from thriftune.store.output_files import OutputPiece, output_pieces
from thriftune.training.messages import read_spool
from thriftune.training.run import Run

_KEEP_SECONDS = 7 * 86_400.0
"""Keep unread files this long after their last change. A study may be resumed within this time."""


class ActorName(NamedTuple):
    """Names an actor and its folder.

    - `study`: the id of the study.
    - `actor`: unique among all actors of all drives of the study.
    """

    study: str
    actor: str


class ActorFiles(NamedTuple):
    """What an actor that has ended has left on its node.

    - `events`: all events in its spool files, in order.
    - `output`: the output of its last attempts, also what the driver has already received.
    - `running`: its processes still run.
    """

    events: list[Event]
    output: list[OutputPiece]
    running: bool


def make_folder(name: ActorName) -> Path:
    """Create the folder of an actor that starts, readable for this user alone. Return it.

    Raises SettingError if another user may have written to it.
    """
    root = _root()
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or root.is_symlink():
        raise SettingError(
            f"{root} is a link, or other users may use it, and trials would run code from it; remove it, or set "
            "TMPDIR to another folder for the processes of Ray on this node"
        )
    _remove_old(root)
    folder = root / name.study / name.actor
    while True:
        with contextlib.suppress(FileNotFoundError):  # the study's folder was empty and has just been removed
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            return folder


def begin_attempt(folder: Path, run: Run) -> Path:
    """Create the folder of an attempt that starts in an actor. Return it.

    Files of earlier attempts are removed, so that a worker that runs many trials needs no more space than one.
    Their output stays until the next attempt starts, because processes of the last one may still print.
    """
    trials = folder / "trials"
    name = f"{run.trial}-{run.attempt}"
    for earlier in _folders(trials):
        with contextlib.suppress(OSError):  # the trial may have changed permissions
            _remove_all_but_output(earlier)
    attempt = trials / name
    attempt.mkdir(parents=True, exist_ok=True)
    return attempt


def _remove_all_but_output(attempt: Path) -> None:
    """Remove the files of an attempt that has ended; if only its output is left, remove that, too."""
    contents = list(attempt.iterdir())
    if [path.name for path in contents] in ([], ["output"]):
        shutil.rmtree(attempt, ignore_errors=True)
        return
    for path in contents:
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
        elif path.name != "output":
            shutil.rmtree(path, ignore_errors=True)


def read_actor_files(name: ActorName, wait_seconds: float) -> ActorFiles:
    """Return what an actor that has ended has left on this node.

    Waits at most `wait_seconds` for its processes, which end because their actor has ended.
    """
    folder = _root() / name.study / name.actor
    events: list[Event] = []
    output: list[OutputPiece] = []
    running = False
    with contextlib.suppress(OSError):  # the actor has ended before it could make its folder
        running = not recovery.processes_end_within(folder, wait_seconds)
        for spool in sorted(recovery.spool_folder(folder).glob("*.spool")):
            events += read_spool(spool)
        for attempt in sorted((folder / "trials").glob("*-*")):
            trial, _, _ = attempt.name.partition("-")
            output += output_pieces(attempt, int(trial))
    return ActorFiles(events, output, running)


def read_study_files(study: str, wait_seconds: float) -> dict[str, ActorFiles]:
    """Return what the actors of an earlier driver have left on this node, by their names.

    Waits at most `wait_seconds` for their processes.
    """
    deadline = time.monotonic() + wait_seconds
    return {
        actor: read_actor_files(ActorName(study, actor), max(0.0, deadline - time.monotonic()))
        for actor in [path.name for path in _folders(_root() / study)]
    }


def wait_for_actors(study: str, actors: Sequence[str], seconds: float) -> None:
    """Wait at most this long for the processes of actors that were ended."""
    deadline = time.monotonic() + seconds
    for actor in actors:
        with contextlib.suppress(OSError):  # it was ended before it could make its folder
            recovery.processes_end_within(_root() / study / actor, max(0.0, deadline - time.monotonic()))


def remove_actor_files(study: str, actors: Sequence[str], wait_seconds: float) -> None:
    """Remove the folders of actors that were ended.

    First waits at most `wait_seconds` for their processes, which could otherwise write to the folders again.
    """
    wait_for_actors(study, actors, wait_seconds)
    folder = _root() / study
    for actor in actors:
        remove_folder(folder / actor)


def remove_folder(actor: Path) -> None:
    """Remove the folder of an actor, and that of its study if it is then empty."""
    shutil.rmtree(actor, ignore_errors=True)
    with contextlib.suppress(OSError):  # actors of other drives, or on other nodes of this machine, use it
        actor.parent.rmdir()


def _root() -> Path:
    return Path(tempfile.gettempdir()) / f"thriftune-{os.geteuid()}"


def _folders(parent: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(path for path in parent.iterdir() if path.is_dir() and not path.is_symlink())


def _remove_old(root: Path) -> None:
    """Remove folders that were not changed for a long time, and whose processes have ended."""
    oldest = time.time() - _KEEP_SECONDS
    for study in _folders(root):
        for actor in _folders(study):
            with contextlib.suppress(OSError):
                if not _changed_since(actor, oldest) and _has_ended(actor):
                    shutil.rmtree(actor, ignore_errors=True)
        with contextlib.suppress(OSError):
            if study.stat().st_mtime < oldest:
                study.rmdir()


def _changed_since(actor: Path, time_limit: float) -> bool:
    paths = [actor, *actor.glob("*"), *actor.glob("spools/*"), *actor.glob("trials/*")]
    return any(path.lstat().st_mtime > time_limit for path in paths)


def _has_ended(actor: Path) -> bool:
    with recovery.alive_file(actor).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
