"""Compare what trials have written down with what the object store holds: during the kills, and at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import thriftune as tt
from benchmarks.object_store.kills_study import NAME, TAG
from thriftune.errors import CheckpointError, StudyBusy, StudyNotFound
from thriftune.loop.kept_checkpoints import kept_checkpoints
from thriftune.loop.lost_attempts import events_of
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectMissing, ObjectStoreError
from thriftune.results.loading import load_history, load_spec
from thriftune.state import events as ev
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State
from thriftune.store.epochs import Epochs
from thriftune.store.opening import open_store
from thriftune.store.shipped_log import ShippedLogReader
from thriftune.store.study_index import StudyIndex, study_objects
from thriftune.training.checkpoint_objects import Manifest, part_key, trial_prefix
from thriftune.training.stored_checkpoints import StoredCheckpoints

_LASTING = ("study.json", "function.pickle")
"""The objects of a finished study besides checkpoints, output, its log and its epochs."""


@dataclass
class Count:
    """What happened in studies, and what was wrong. All but the first group must be 0."""

    kills: Counter[str] = field(default_factory=Counter)  # by kind
    cut_uploads: int = 0  # kills of a worker whose last state was saved and had no manifest yet
    cut_shipments: int = 0  # kills of a driver while it shipped entries of the log
    disks: int = 0  # local disks that were removed after a kill
    takeovers: int = 0  # of studies whose driver was paused
    races: int = 0  # of two machines for one study
    studies: int = 0
    reports: int = 0  # reports whose report() returned in a trial
    unknown: int = 0  # those of `reports` that neither log nor manifest held when the disk was lost
    held: int = 0  # reports that the log or a manifest held right after a kill
    saved: int = 0  # states
    restored: int = 0

    wrong: int = 0  # restored states that no attempt of the trial has saved with this position
    lost: int = 0  # reports of `held`, or that returned on a disk that was not lost, which the final log lacks
    doubled: int = 0  # entries of the final log that repeat a report
    gaps: int = 0  # steps of finished trials without a report
    run_again: int = 0  # attempts of trials that had finished in the log
    repeated: int = 0  # attempts that began before the position of a complete checkpoint
    unfinished: int = 0  # studies that hang, end with an error, or have trials that did not complete
    not_stopped: int = 0  # drivers that went on after another one had taken the study over
    forgotten: int = 0  # objects that the finished study does not need
    missing: int = 0  # objects that it needs and that are not there
    undeleted: int = 0  # objects that are left once the study is deleted
    stuck: int = 0  # objects that the server lists, and neither returns nor deletes; they count nowhere else


@dataclass
class Held:
    """What the object store held right after a kill, before the next driver started.

    - `lines`: how many lines the trials had written before.
    - `positions`: by trial, of its newest complete checkpoint.
    - `finished`: trials that have finished in the log.
    """

    lines: int
    tags: set[int]
    positions: dict[int, int]
    finished: set[int]


class StudyObjects:
    """Reads one study from its object store as another machine sees it, without changing anything."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store = open_objects(url)
        self._manifests: dict[str, Manifest] = {}  # by key: all that were read; they never change
        self._superseded: set[str] = set()  # drives that the log does not know, and that are over

    def study(self) -> str | None:
        """Return the study's id; None if it does not exist yet."""
        try:
            return StudyIndex(self._store, self._url).find(NAME).id
        except StudyNotFound:
            return None

    def log(self, study: str) -> list[ev.Event]:
        lines = ShippedLogReader(study_objects(self._store, study), NAME, self._url).read()[1]
        return [ev.Codec.event(line.kind, line.body) for line in lines]

    def keys(self, study: str) -> list[str]:
        return [each.key for each in study_objects(self._store, study).list_objects()]

    def manifests(self, study: str) -> list[Manifest]:
        """Return the manifests of all checkpoints. A driver that runs may delete some meanwhile."""
        objects, found = study_objects(self._store, study), []
        for key in [each.key for each in objects.list_objects("trials/")]:
            if key not in self._manifests and key.endswith(".json"):
                _, trial, _, name = key.removesuffix(".json").split("/", 3)
                with suppress(ObjectMissing, CheckpointError):
                    self._manifests[key] = StoredCheckpoints(objects, int(trial)).manifest(name)
            if key in self._manifests:
                found.append(self._manifests[key])
        return found

    def newest_epoch(self, study: str) -> str:
        epoch = Epochs(study_objects(self._store, study)).newest_started()
        return epoch.name if epoch else ""

    def hold(self, lines: int) -> Held:
        """Return what the log and the manifests hold now. Called when the killed processes have ended.

        The manifests of drives that others have taken over do not count: their attempts are over for the study.
        """
        held = Held(lines, set(), {}, set())
        study = self.study()
        if study is None:
            return held
        # A driver that lives moves reports from manifests to the log. So the manifests are read first.
        manifests = self.manifests(study)
        log = self.log(study)
        drives = [entry.drive for entry in log if isinstance(entry, ev.DriverStarted)]
        over = self._superseded | set(drives[:-1])
        valid = [manifest for manifest in manifests if _drive(manifest) not in over]
        events = [*log, *(each for manifest in valid for each in events_of(manifest))]
        for event in events:
            match event:
                case ev.Reported() if TAG in event.metrics:
                    held.tags.add(int(event.metrics[TAG]))
                case ev.CheckpointSaved():
                    position = 2 * event.step + event.partial
                    held.positions[event.trial] = max(position, held.positions.get(event.trial, 0))
                case ev.Ended(cut=False):
                    held.finished.add(event.trial)
        self._superseded |= {_drive(manifest) for manifest in manifests} - set(drives)
        return held

    def delete(self) -> list[str]:
        """Delete the study, and return the keys of its objects that are left."""
        with suppress(StudyBusy), open_store(self._url) as store:
            tt.delete(NAME, store)
        return [each.key for each in self._store.list_objects()]

    def is_stuck(self, key: str) -> bool:
        """Return whether the server has an object that it does not return, although it was deleted."""
        try:
            open_objects(self._url, retry_seconds=1.0).get(key)
        except ObjectStoreError:
            return True
        return False


def _drive(manifest: Manifest) -> str:
    return manifest.name.partition("/")[0].partition("-")[2]


class Witness:
    """The file in which trials write down what they do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_bytes = 0
        self._lines: list[dict[str, Any]] = []

    def lines(self) -> list[dict[str, Any]]:
        """Return the complete lines, from the first one on. A kill may cut a line."""
        if self.path.exists() and self.path.stat().st_size > self._read_bytes:
            with self.path.open("rb") as file:
                file.seek(self._read_bytes)
                new, newline, _ = file.read().rpartition(b"\n")
            self._read_bytes += len(new + newline)
            for line in new.split(b"\n"):
                with suppress(ValueError):
                    self._lines.append(json.loads(line))
        return self._lines


def judge(
    witness: list[dict[str, Any]],
    held: list[Held],
    forgiven: set[int],
    url: str,
    trials: int,
    steps: int,
    count: Count,
) -> Iterator[str]:
    """Compare all that was written down with the finished study; add to the counts, and yield what is wrong.

    `forgiven`: reports that neither the log nor a manifest held when their machine was lost.
    """
    view = StudyObjects(url)
    study = view.study()
    assert study is not None
    log = view.log(study)
    tags = Counter(
        int(entry.metrics[TAG]) for entry in log if isinstance(entry, ev.Reported) and TAG in entry.metrics
    )
    returned = {line["tag"] for line in witness if line["what"] == "reported"}
    was_held = {tag for each in held for tag in each.tags}
    count.reports += len(returned)
    count.unknown += len(forgiven - set(tags))
    count.held += len(was_held)
    for tag in sorted((was_held | returned) - forgiven - set(tags)):
        count.lost += 1
        where = "was held" if tag in was_held else "was on the disk"
        yield f"lost report, which {where}: {[line for line in witness if line.get('tag') == tag]}"
    count.doubled += sum(number - 1 for number in tags.values())

    saved = {(line["trial"], line["position"], line["digest"]) for line in witness if line["what"] == "saved"}
    count.saved += len(saved)
    for number, line in enumerate(witness):
        if line["what"] == "restored":
            count.restored += 1
            if (line["trial"], line["position"], line["digest"]) not in saved:
                count.wrong += 1
                yield f"wrong state: {line}"
        if line["what"] != "began":
            continue
        if line["told"] != line["position"]:
            count.wrong += 1
            yield f"the state is of another step than restore() returned: {line}"
        before = [each for each in held if each.lines <= number]
        if line["position"] < max((each.positions.get(line["trial"], 0) for each in before), default=0):
            count.repeated += 1
            yield f"steps are repeated, though {before[-1].positions} were held: {line}"
        if any(line["trial"] in each.finished for each in before):
            count.run_again += 1
            yield f"a finished trial runs again: {line}"
    ended: set[int] = set()
    for entry in log:
        if isinstance(entry, ev.Place) and entry.trial in ended:
            count.run_again += 1
            yield f"a trial is placed after its end: {entry}"
        if isinstance(entry, ev.Ended) and not entry.cut:
            ended.add(entry.trial)
    yield from _judge_objects(view, study, url, trials, steps, count)


def _judge_objects(
    view: StudyObjects, study: str, url: str, trials: int, steps: int, count: Count
) -> Iterator[str]:
    with open_store(url) as store:
        spec: Spec = load_spec(store, NAME)
        history = load_history(store, spec)
    if [trial.state for trial in history.trials] != [State.COMPLETED] * trials:
        count.unfinished += 1
        yield f"trials ended as {[str(trial.state) for trial in history.trials]}"
    for trial in history.trials:
        without = set(range(1, steps + 1)) - {report.step for report in trial.reports}
        count.gaps += len(without)
        if without:
            yield f"trial {trial.id} has no report of steps {sorted(without)}"
    keys, needed = set(view.keys(study)), set(_LASTING)
    manifests = {(each.trial, each.name): each for each in view.manifests(study)}
    for trial in history.trials:
        for kept in kept_checkpoints(trial, spec.keep, spec.objectives, spec.constraints):
            needed.add(f"{trial_prefix(trial.id)}{kept.name}.json")
            manifest = manifests.get((trial.id, kept.name))
            needed |= {part_key(trial.id, part) for part in (manifest.parts if manifest else ())}
    newest = view.newest_epoch(study)
    left = view.delete()
    stuck = {key for key in left if view.is_stuck(key)}
    count.stuck += len(stuck)
    keys -= {key.removeprefix(f"studies/{study}/") for key in stuck}
    for key in sorted(keys - needed):
        if not (
            key.startswith((f"log/{newest}/", "epochs/"))
            or (key.startswith("trials/") and key.split("/")[2] == "output")
        ):
            count.forgotten += 1
            yield f"forgotten: {key}"
    for key in sorted(needed - keys):
        count.missing += 1
        yield f"missing: {key}"
    for key in sorted(set(left) - stuck):
        count.undeleted += 1
        yield f"left once the study is deleted: {key}"
