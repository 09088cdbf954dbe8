"""Tests of what the driver finds of lost attempts in the object store, and of what it tells the user."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.support.tables import Table
from tests.training.memory_objects import MemoryObjects, store_checkpoint
from thriftune.loop import study_checkpoints
from thriftune.loop.kept_checkpoints import resumable
from thriftune.loop.lost_attempts import events_of
from thriftune.loop.study_checkpoints import StudyCheckpoints
from thriftune.object_store.protocol import AccessDenied, StoreUnavailable
from thriftune.state import events as ev
from thriftune.state.trial_record import StoredCheckpoint, TrialRecord
from thriftune.training.checkpoint_objects import Manifest, checkpoint_name, encode, manifest_key
from thriftune.training.messages import to_line

DRIVE = "0000000b"


class Study:
    """A study that is driven with an object store in memory, and whose workers upload what the test tells."""

    def __init__(self, trials: int = 1, drive: str = DRIVE, objects: MemoryObjects | None = None) -> None:
        self.objects = objects or MemoryObjects()
        self.opened = 0
        self.table = Table(slots=0, trials=trials)
        self.table(ev.DriverStarted(self.table.now, 1, "host", drive))
        self.table(ev.MachineReady(self.table.now, "m", "desk", trials, 0.0))
        self.checkpoints = StudyCheckpoints("memory://tests", self._open, self.table.spec, drive)

    def _open(self, url: str) -> MemoryObjects:
        assert url == "memory://tests"
        self.opened += 1
        return self.objects

    def upload(
        self, trial: int, number: int, reports: Iterable[ev.Event], *, attempt: int = 1, drive: str = DRIVE
    ) -> Manifest:
        """Store a checkpoint of the last of these reports' step, as a worker does."""
        events = list(reports)
        steps = [event.step for event in events if isinstance(event, ev.Reported)]
        name = checkpoint_name(attempt, drive, number)
        manifest = store_checkpoint(self.objects, name, {"model": b"x"}, step=max(steps, default=0), trial=trial)
        manifest = replace(manifest, reports=[to_line(event).decode() for event in events])
        self.objects.data[manifest_key(trial, name)] = encode(manifest)
        return manifest

    def lose(self, trial: int) -> list[ev.Event]:
        return [ev.Lost(self.table.now, trial, self.table.trial(trial).attempts, "SIGKILL")]

    def with_found(self, events: list[ev.Event]) -> list[ev.Event]:
        return self.checkpoints.with_found(events, self.table.history)


def kinds(events: Iterable[ev.Event]) -> list[str]:
    """Return the kinds of events, with the steps of reports and checkpoints."""
    return [f"{type(each).__name__}{getattr(each, 'step', '')}" for each in events]


def test_what_a_lost_worker_has_uploaded_comes_before_its_loss() -> None:
    study = Study()
    reports = [study.table.a_report(0, step, 1.0 / step) for step in (1, 2, 3)]
    first = study.upload(0, 1, reports[:1])
    study.upload(0, 2, reports[1:])
    study.table(reports[0], next(e for e in events_of(first) if isinstance(e, ev.CheckpointSaved)))
    found = study.with_found(study.lose(0))
    assert kinds(found) == ["Reported2", "Reported3", "CheckpointSaved3", "Lost"]
    study.table(*found)
    trial = study.table.trial(0)
    assert [(report.step, report.saved) for report in trial.reports] == [(1, True), (2, False), (3, True)]
    assert (trial.attempts, trial.resumed_from, trial.metrics) == (2, 3, {"loss": 1.0 / 3})


def test_events_that_are_in_the_log_already_change_nothing() -> None:
    study = Study()
    reports = [study.table.a_report(0, step, 0.5) for step in (1, 2)]
    study.upload(0, 1, reports)
    study.table(reports[0])
    study.table(*study.with_found(study.lose(0)))
    assert [report.step for report in study.table.trial(0).reports] == [1, 2]


def test_a_manifest_that_arrives_after_a_later_one_does_not_set_the_trial_back() -> None:
    # Its request was given up since a newer state waited, and the server carried it out all the same.
    study = Study()
    reports = [study.table.a_report(0, step, 1.0 / step) for step in (1, 2)]
    study.table(*events_of(study.upload(0, 2, reports)))
    late = study.upload(0, 1, reports[:1])
    study.table(*study.with_found(study.lose(0)))
    assert study.table.trial(0).resumed_from == 2
    assert not study.table.history.apply(next(e for e in events_of(late) if isinstance(e, ev.CheckpointSaved)))


def test_other_attempts_and_other_drives_are_never_read() -> None:
    study = Study()
    report = study.table.a_report(0, 1, 0.5)
    study.upload(0, 1, [report], drive="0000000a")
    study.upload(0, 1, [replace(report, attempt=2)], attempt=2)
    assert kinds(study.with_found(study.lose(0))) == ["Lost"]


def test_a_manifest_has_no_say_about_other_trials() -> None:
    study = Study(2)
    other, own = study.table.a_report(1, 1, 0.1), study.table.a_report(0, 1, 0.5)
    manifest = study.upload(0, 1, [other, own, ev.Ended(0.0, 0, 1, 1.0)])
    manifest = replace(manifest, reports=["", "Unknown {}", "Reported {", *manifest.reports])
    assert kinds(events_of(manifest)) == ["Reported1", "CheckpointSaved1"]


def test_a_damaged_manifest_is_passed_over() -> None:
    study = Study()
    reports = [study.table.a_report(0, step, 0.5) for step in (1, 2)]
    study.upload(0, 1, reports[:1])
    study.upload(0, 2, reports[1:])
    study.objects.data[manifest_key(0, checkpoint_name(1, DRIVE, 1))] = b"{}"
    assert kinds(study.with_found(study.lose(0))) == ["Reported2", "CheckpointSaved2", "Lost"]


@pytest.mark.parametrize("ending", ["killed", "crashed", "machine"])
def test_other_sudden_ends_are_looked_up_too(ending: str) -> None:
    study = Study(2)
    for trial in (0, 1):
        study.upload(trial, 1, [study.table.a_report(trial, 1, 0.5)])
    end: ev.Event = {
        "killed": ev.Killed(study.table.now, 1, 1),
        "crashed": ev.Failed(study.table.now, 1, 1, "signal", "SIGSEGV"),
        "machine": ev.MachineLost(study.table.now, "m", "gone"),
    }[ending]
    found = study.with_found([end])
    of_trials = [0, 1] if ending == "machine" else [1]
    assert [getattr(each, "trial", None) for each in found[:-1]] == [
        trial for trial in of_trials for _ in range(2)
    ]
    assert found[-1] is end


def test_an_end_that_the_worker_has_told_needs_no_look() -> None:
    study = Study()
    events: list[ev.Event] = [ev.Ended(0.0, 0, 1, 1.0), ev.Failed(0.0, 0, 1, "raised", "boom")]
    assert study.with_found(events) is events
    assert study.opened == 0


def test_the_next_driver_finds_what_the_attempts_of_a_killed_one_have_uploaded() -> None:
    killed = Study(3, drive="0000000a")
    for trial in (0, 2):
        killed.upload(trial, 1, [killed.table.a_report(trial, 1, 0.5)], drive="0000000a")
    killed.table.kill_driver()
    checkpoints = StudyCheckpoints("memory://tests", lambda url: killed.objects, killed.table.spec, DRIVE)
    found = checkpoints.left_by_killed_driver(killed.table.history)
    assert kinds(found) == ["Reported1", "CheckpointSaved1"] * 2
    killed.table(*found)
    killed.table(ev.DriverStarted(killed.table.now, 2, "host", DRIVE))
    assert [trial.resume_step for trial in killed.table.history.trials] == [1, 0, 1]


def test_attempts_of_a_log_without_ids_of_drives_are_not_looked_up() -> None:
    study = Study(drive="")
    assert kinds(study.with_found(study.lose(0))) == ["Lost"]
    assert study.opened == 0


def test_a_store_that_does_not_answer_delays_the_study_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_checkpoints, "_LOOK_UP_SECONDS", 0.05)
    study = Study(2)
    answer = threading.Event()
    study.objects.before = lambda method, key: answer.wait()
    study.upload(0, 1, [study.table.a_report(0, 1, 0.5)])
    assert kinds(study.with_found(study.lose(0))) == ["Lost"]
    (message,) = study.checkpoints.take_messages()
    assert message.startswith(
        "the object store could not tell what the lost trial 0 had saved last (no answer within"
    )
    assert study.with_found(study.lose(1)) == study.lose(1)
    assert study.checkpoints.take_messages() == []
    answer.set()


def test_an_error_of_the_store_does_not_stop_the_study() -> None:
    study = Study(3)

    def refuse(method: str, key: str) -> None:
        raise StoreUnavailable("connection refused")

    study.objects.before = refuse
    assert kinds(study.with_found([event for trial in range(3) for event in study.lose(trial)])) == ["Lost"] * 3
    (message,) = study.checkpoints.take_messages()
    assert "the lost 3 trials had saved last (connection refused); the study goes on" in message


def test_what_was_found_in_time_counts() -> None:
    study = Study(2)
    for trial in (0, 1):
        study.upload(trial, 1, [study.table.a_report(trial, 1, 0.5)])

    def refuse(method: str, key: str) -> None:
        if key.startswith("trials/1/"):
            asked.wait()
            raise StoreUnavailable("cut")
        if method == "get":
            asked.set()

    asked = threading.Event()
    study.objects.before = refuse
    found = study.with_found([*study.lose(0), *study.lose(1)])
    assert kinds(found) in (["Reported1", "CheckpointSaved1", "Lost", "Lost"], ["Lost", "Lost"])
    assert len(study.checkpoints.take_messages()) == 1


def test_garbage_is_collected_after_saves_and_ends() -> None:
    study = Study()
    events: list[ev.Event] = []
    for step in range(1, 6):
        report = study.table.a_report(0, step, 1.0 / step)
        events += [report, next(e for e in events_of(study.upload(0, step, [report])) if e != report)]
    study.checkpoints.give(study.table.trial(0), [])
    study.table(*events)
    study.checkpoints.take_in(events, study.table.history)
    study.checkpoints.wait_for_garbage(study.table.history)
    left = sorted(key for key in study.objects.data if key.endswith(".json"))
    assert left == [manifest_key(0, checkpoint_name(1, DRIVE, number)) for number in (4, 5)]
    assert study.checkpoints.take_messages() == []


def test_what_to_keep_is_not_found_out_for_each_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def count(trial: TrialRecord, *_: object) -> list[StoredCheckpoint]:
        calls.append(trial.id)
        return resumable(trial, 2)

    monkeypatch.setattr(study_checkpoints, "kept_checkpoints", count)
    study = Study()
    answer = threading.Event()
    study.objects.before = lambda method, key: answer.wait()
    for step in range(1, 101):
        report = study.table.a_report(0, step, 1.0 / step)
        events = [report, next(e for e in events_of(study.upload(0, step, [report])) if e != report)]
        study.table(*events)
        study.checkpoints.take_in(events, study.table.history)
    assert len(calls) <= 2, "with many steps, the driver would do nothing else"
    answer.set()
    study.checkpoints.wait_for_garbage(study.table.history)
    left = sorted(key for key in study.objects.data if key.endswith(".json"))
    assert left == [manifest_key(0, checkpoint_name(1, DRIVE, number)) for number in (99, 100)]


def test_what_the_running_attempt_was_given_stays_until_it_is_over() -> None:
    study = Study()
    table, checkpoints = study.table, study.checkpoints
    report = table.a_report(0, 1, 0.9)
    study.upload(0, 1, [report])
    table(*study.with_found(study.lose(0)))  # attempt 2 is placed
    given = table.trial(0).checkpoints[0]
    checkpoints.give(table.trial(0), [given])
    for step in (2, 3, 4):
        table.report(0, step, 1.0 / step)
        table(table.a_checkpoint(0, step, step))
    assert given.name in checkpoints._wanted(table.trial(0), table.history).names
    end = table.an_end(0, cut=False)
    table(end)
    checkpoints.take_in([end], table.history)
    assert given.name not in checkpoints._wanted(table.trial(0), table.history).names
    checkpoints.wait_for_garbage(table.history)


def test_an_outage_is_told_once_and_its_end_too() -> None:
    study = Study()
    refused = threading.Event()

    def refuse(method: str, key: str) -> None:
        refused.set()
        raise AccessDenied("the credentials have expired")

    study.objects.before = refuse
    study.checkpoints.sweep(study.table.history)
    assert refused.wait(60.0)
    study.objects.before = lambda method, key: None
    study.checkpoints.wait_for_garbage(study.table.history)
    assert study.checkpoints.take_messages() == [
        "the credentials have expired. Old checkpoints stay until the object store can be used again.",
        "the object store can be used again",
    ]
    assert study.opened == 1
