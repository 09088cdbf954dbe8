"""Tests of trials whose checkpoints are in an object store."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from thriftune.errors import CheckpointError, SettingError
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectStore
from thriftune.state.events import CheckpointSaved, DiskFull, Event, Reported, Warned
from thriftune.training.checkpoint_objects import manifest_key, part_key, trial_prefix
from thriftune.training.messages import from_line
from thriftune.training.object_checkpoints import ObjectCheckpoints
from thriftune.training.run import EndTrial, Run
from thriftune.training.stored_checkpoints import StoredCheckpoints
from thriftune.training.trial import Trial

SECONDS = 10.0  # far longer than any test needs


class Link:
    """A link that numbers reports. `time_left` and `ends` are what the driver has sent."""

    def __init__(self) -> None:
        self.sent: list[Event] = []
        self.time_left: float | None = None
        self.ends = False
        self._number = 0
        self._lock = threading.Lock()

    def send(self, event: Event) -> int:
        with self._lock:
            self.sent.append(event)
            self._number += isinstance(event, Reported)
            return self._number if isinstance(event, Reported) else 0

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:
        return self.ends

    def seconds_left(self) -> float | None:
        return self.time_left

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.sent if isinstance(event, kind)]


class Study:
    """A trial whose attempts each have a folder of their own, as on different machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"memory://{uuid.uuid4().hex}"
        self.objects: ObjectStore = open_objects(self.url)
        self.attempts: list[Trial] = []
        self.links: list[Link] = []
        self.saved: list[CheckpointSaved] = []  # of attempts that have ended, in order

    def begin(self, **settings: Any) -> Trial:
        """Begin the next attempt, with the checkpoints that the log has."""
        attempt = len(self.attempts) + 1
        last = self.saved[-1] if self.saved else None
        given: dict[str, Any] = {
            "trial": 3,
            "attempt": attempt,
            "config": {},
            "resume_step": last.step if last else 0,
            "resume_partial": last.partial if last else False,
            "checkpoints": [(event.name, event.step) for event in reversed(self.saved)],
            "objectives": ("loss",),
            "max_steps": 9,
            "seed": 0,
            "folder": str(self.folder / f"machine-{attempt}" / "3"),
            "keep": 2,
            "objects": self.url,
            "drive": "3fa9c1d2",
        }
        link = Link()
        trial = Trial(Run(**{**given, **settings}), link)
        self.attempts.append(trial)
        self.links.append(link)
        return trial

    def end(self) -> Link:
        """End the attempt, and return its link."""
        self.attempts[-1].end(SECONDS)
        self.saved += self.links[-1].of(CheckpointSaved)
        return self.links[-1]

    @property
    def stored(self) -> StoredCheckpoints:
        return StoredCheckpoints(self.objects, 3)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    study = Study(tmp_path)
    yield study
    for trial in study.attempts:
        trial.checkpoints.close()


def write(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "state").write_text(text)


def restore(trial: Trial) -> tuple[int, str]:
    """Return the restored step and state; "" without one."""
    states = [""]
    return trial.restore(lambda folder: states.append((folder / "state").read_text())), states[-1]


def run_steps(trial: Trial, last: int) -> None:
    for step in trial.steps():
        trial.report(loss=1.0 / step, save=write(f"step {step}"))
        trial.checkpoints.finish(SECONDS, lambda: None)
        if step == last:
            break


def test_a_trial_resumes_on_a_machine_that_shares_nothing(study: Study) -> None:
    run_steps(study.begin(), 3)
    link = study.end()
    assert [(report.step, report.saved) for report in link.of(Reported)] == [(1, False), (2, False), (3, False)]
    assert [event.step for event in link.of(CheckpointSaved)] == [1, 2, 3]
    trial = study.begin()
    assert restore(trial) == (3, "step 3")
    assert not trial.partial
    assert next(trial.steps()) == 4


def test_a_manifest_has_the_reports_since_the_one_before(study: Study) -> None:
    trial = study.begin()
    trial.report(loss=3.0, step=1)
    trial.report(loss=2.0, step=2, save=write("2"))
    trial.checkpoints.finish(SECONDS, lambda: None)
    trial.report(loss=1.0, step=3, save=write("3"))
    study.end()
    reports = [
        [from_line(line.encode()) for line in study.stored.manifest(n).reports] for n in study.stored.names()
    ]
    assert [[(r.number, r.step, dict(r.metrics)) for r in of_one] for of_one in reports] == [  # type: ignore[attr-defined]
        [(1, 1, {"loss": 3.0}), (2, 2, {"loss": 2.0})],
        [(3, 3, {"loss": 1.0})],
    ]


def test_a_checkpoint_is_fetched_once_for_several_restores(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    run_steps(study.begin(), 2)
    study.end()
    trial = study.begin()
    assert restore(trial) == (2, "step 2")
    fetched: list[str] = []
    monkeypatch.setattr(ObjectCheckpoints, "_fetch", lambda *_: fetched.append("again"))
    assert restore(trial) == (2, "step 2")
    monkeypatch.undo()
    trial.report(loss=1.0, save=write("step 3"))
    assert restore(trial) == (2, "step 2")  # the folder was removed by the save, and is fetched again
    assert fetched == []


def test_a_wrong_url_fails_the_attempt_at_once(study: Study) -> None:
    with pytest.raises(SettingError, match="names no bucket"):
        study.begin(objects="s3://")


def test_the_machine_is_left_without_files(study: Study) -> None:
    run_steps(study.begin(), 2)
    study.end()
    trial = study.begin()
    restore(trial)
    study.end()
    assert [path for path in study.folder.rglob("*") if path.is_file() or path.name == "scratch"] == []


@pytest.mark.parametrize("damage", ["manifest", "part", "changed", "cut"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(study: Study, damage: str) -> None:
    run_steps(study.begin(), 3)
    study.end()
    newest = study.stored.names()[-1]
    (part,) = study.stored.manifest(newest).parts
    match damage:
        case "manifest":
            study.objects.delete([manifest_key(3, newest)])
        case "part":
            study.objects.delete([part_key(3, part)])
        case "changed":
            study.objects.put(part_key(3, part), b"step X")
        case "cut":
            study.objects.put(manifest_key(3, newest), study.objects.get(manifest_key(3, newest))[:-20])
    assert restore(study.begin()) == (2, "step 2")
    (warning,) = study.end().of(Warned)
    assert newest in warning.message
    assert warning.message.endswith(f"; using checkpoint {study.stored.names()[1]}, of step 2")


def test_without_any_checkpoint_left_the_trial_begins_anew(study: Study) -> None:
    run_steps(study.begin(), 2)
    study.end()
    study.objects.delete([each.key for each in study.objects.list_objects(trial_prefix(3))])
    trial = study.begin()
    assert restore(trial) == (0, "")
    assert next(trial.steps()) == 1
    warnings = [warning.message for warning in study.end().of(Warned)]
    assert len(warnings) == 2
    assert all("is not in the object store any more; no other checkpoint exists" in text for text in warnings)


def test_unchanged_files_of_a_restored_checkpoint_are_not_uploaded_again(study: Study) -> None:
    def save(folder: Path) -> None:
        (folder / "large").write_bytes(b"large" * 100)
        (folder / "small").write_text(os.urandom(4).hex())

    trial = study.begin()
    trial.report(loss=1.0, save=save)
    study.end()
    trial = study.begin()
    trial.restore(lambda folder: None)
    trial.report(loss=1.0, save=save)
    study.end()
    first, second = (study.stored.manifest(name) for name in study.stored.names())
    assert first.files["large"] == second.files["large"]
    assert first.files["small"] != second.files["small"]


def test_workers_of_a_gang_fetch_the_checkpoint_of_worker_0(study: Study, tmp_path: Path) -> None:
    run_steps(study.begin(), 3)
    study.end()
    study.objects.delete([manifest_key(3, study.stored.names()[-1])])
    leader, follower = (
        ObjectCheckpoints(
            Run(3, 2, {}, 3, ("loss",), 9, 0, str(tmp_path / f"{rank}"), 2, rank=rank, objects=study.url,
                checkpoints=[(event.name, event.step) for event in reversed(study.saved)]),
            Link().send,
            lambda: False,
        )
        for rank in (0, 1)
    )  # fmt: skip
    shared: dict[str, Any] = {}
    found = leader.find(lambda key, value: shared.setdefault(key, value))
    same = follower.find(lambda key, value: shared[key])
    assert found.folder is not None
    assert same.folder is not None
    assert (found.folder / "state").read_text() == (same.folder / "state").read_text() == "step 2"
    assert found.folder != same.folder
    for each in (leader, follower):
        each.close()


def test_a_trial_that_is_to_end_does_not_wait_for_a_store_that_is_down(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = study.begin(resume_step=1, checkpoints=[("1-00000000/000001", 1)])

    def down(checkpoints: ObjectCheckpoints) -> ObjectStore:
        from thriftune.object_store.protocol import StoreUnavailable

        study.links[-1].ends = True
        raise StoreUnavailable("no route")

    monkeypatch.setattr(ObjectCheckpoints, "_open_store", down)
    with pytest.raises(EndTrial):
        restore(trial)
    assert trial.cut
    assert "the trial waits for its checkpoint" in study.links[-1].of(Warned)[0].message


# --- saves in the middle of a step


def test_a_partial_state_is_restored_and_its_step_repeated(study: Study) -> None:
    trial = study.begin()
    run_steps(trial, 2)
    trial.save(write("step 3, batch 40"))
    (event,) = study.end().of(CheckpointSaved)[2:]
    assert (event.step, event.partial) == (2, True)
    trial = study.begin()
    assert restore(trial) == (2, "step 3, batch 40")
    assert trial.partial
    assert next(trial.steps()) == 3


def test_a_partial_state_of_the_first_step_is_restored(study: Study) -> None:
    trial = study.begin()
    for _ in trial.steps():
        trial.save(write("batch 7"))
        break
    study.end()
    trial = study.begin()
    assert restore(trial) == (0, "batch 7")
    assert trial.partial
    assert next(trial.steps()) == 1


def test_saves_in_a_burst_end_with_the_newest(study: Study) -> None:
    trial = study.begin()
    for number in range(50):
        trial.save(write(f"batch {number}"))
    study.end()
    assert restore(study.begin()) == (0, "batch 49")


# --- faults of save functions


def test_a_full_disk_is_said_and_training_goes_on(study: Study) -> None:
    def save(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    trial = study.begin()
    trial.report(loss=1.0, save=save)
    trial.report(loss=1.0, save=write("2"))
    link = study.end()
    assert len(link.of(DiskFull)) == 1
    assert [event.step for event in link.of(CheckpointSaved)] == [2]


def test_a_save_function_that_writes_nothing_is_an_error(study: Study) -> None:
    trial = study.begin()
    with pytest.raises(CheckpointError, match="save wrote no file"):
        trial.report(loss=1.0, save=lambda folder: None)
    assert len(study.end().of(Reported)) == 1


def test_the_last_step_is_saved_late_if_saves_are_rare(study: Study) -> None:
    trial = study.begin(save_every=None)
    for step in trial.steps():
        trial.report(loss=1.0, save=write(f"step {step}"))
        if step == 3:
            study.links[-1].ends = True
            study.links[-1].end_requested = lambda *_: len(study.links[-1].of(Reported)) >= 4  # type: ignore[method-assign]
    link = study.end()
    assert [event.step for event in link.of(CheckpointSaved)] == [4]
    assert len(link.of(Reported)) == 4


def test_an_upload_that_takes_too_long_is_said(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = study.begin()
    monkeypatch.setattr("thriftune.training.checkpoint_uploads.Uploads.wait", lambda *_: False)
    trial.end(0.0)
    study.links[-1].time_left = 3.0
    trial.end(0.0)
    slow, preempted = (warning.message for warning in study.links[-1].of(Warned))
    assert "the last checkpoint could not be uploaded within 0 s; the trial resumes from the one" in slow
    assert "could not be uploaded before the machine was preempted" in preempted


# --- when to save


def test_without_a_notice_a_state_is_to_be_saved_when_its_time_is_over(study: Study) -> None:
    assert not study.begin(save_every=None).should_save
    assert not study.begin(save_every=0.0).should_save
    assert not study.begin(save_every=1000.0).should_save
    trial = study.begin(save_every=1e-9)
    assert trial.should_save


def test_after_a_notice_a_state_is_saved_once_as_late_as_possible(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = study.begin()
    link = study.links[-1]
    link.time_left = 120.0
    assert trial.should_save  # how long it takes is not known yet
    monkeypatch.setattr(trial.checkpoints, "seconds_needed", lambda: 20.0)
    assert not trial.should_save
    link.time_left = 44.0
    assert trial.should_save
    trial.save(write("now"))
    assert not trial.should_save


def test_the_needed_time_is_known_after_an_upload(study: Study) -> None:
    trial = study.begin()
    assert trial.checkpoints.seconds_needed() is None
    run_steps(trial, 1)
    assert trial.checkpoints.seconds_needed() is not None
