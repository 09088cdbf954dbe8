"""Tests of the upload of checkpoints in the background."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.memory_objects import MemoryObjects
from thriftune.errors import CheckpointError, SettingError
from thriftune.object_store.protocol import AccessDenied, StoreUnavailable
from thriftune.state.events import CheckpointSaved, Event, Warned
from thriftune.training import checkpoint_uploads, patient_store
from thriftune.training.checkpoint_objects import Manifest, part_hash, trial_prefix
from thriftune.training.checkpoint_uploads import Measured, Uploads, expected_seconds
from thriftune.training.run import EndTrial, Run
from thriftune.training.snapshots import Snapshot, list_files
from thriftune.training.stored_checkpoints import StoredCheckpoints

SECONDS = 10.0  # far longer than any test needs
RUN = Run(7, 2, {}, 0, ("loss",), None, 0, "unused", 2, objects="memory://tests", drive="3fa9c1d2")


class Stage:
    """An attempt that uploads to a store in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects = MemoryObjects()
        self.sent: list[Event] = []
        self.opened = 0
        self.uploads = Uploads(RUN, self.open, self.sent.append, part_bytes=4)

    def open(self) -> MemoryObjects:
        self.opened += 1
        return self.objects

    def snapshot(self, step: int, files: dict[str, bytes], *, reports: tuple[str, ...] = ()) -> Snapshot:
        folder = self.folder / os.urandom(4).hex()
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return Snapshot(step, False, folder, list_files(folder), 5.0, reports)

    def save(self, step: int, files: dict[str, bytes], *, reports: tuple[str, ...] = ()) -> None:
        """Upload a state, and wait until it counts."""
        self.uploads.submit(self.snapshot(step, files, reports=reports))
        assert self.uploads.wait(SECONDS)

    @property
    def stored(self) -> StoredCheckpoints:
        return StoredCheckpoints(self.objects, 7, part_bytes=4)

    @property
    def manifests(self) -> list[Manifest]:
        return [self.stored.manifest(name) for name in self.stored.names()]

    @property
    def saved(self) -> list[int]:
        return [event.step for event in self.sent if isinstance(event, CheckpointSaved)]

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.sent if isinstance(event, Warned)]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(patient_store, "_FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(checkpoint_uploads, "_last_measured", {})
    stage = Stage(tmp_path / "scratch")
    yield stage
    stage.objects.before = lambda method, key: None
    stage.uploads.close()


def hold(stage: Stage, method: str) -> Callable[[], None]:
    """Make the calls of this method wait; return the function that lets them go on, after the first has come."""
    begun, go_on = threading.Event(), threading.Event()

    def before(called: str, key: str) -> None:
        if called == method:
            begun.set()
            go_on.wait(SECONDS)

    stage.objects.before = before

    def release() -> None:
        assert begun.wait(SECONDS)
        go_on.set()

    return release


def test_a_checkpoint_counts_once_all_of_it_is_stored(stage: Stage, tmp_path: Path) -> None:
    files = {"model": b"0123456789", "deep/er/empty": b"", "one": b"abcd"}
    stage.save(3, files, reports=("Reported {}",))
    (manifest,) = stage.manifests
    assert (manifest.name, manifest.step, manifest.saved_at) == ("2-3fa9c1d2/000001", 3, 5.0)
    assert manifest.reports == ["Reported {}"]
    (event,) = stage.sent
    assert isinstance(event, CheckpointSaved)
    assert (event.name, event.step, event.partial, event.size_bytes) == (manifest.name, 3, False, 14)
    stage.stored.fetch(manifest, tmp_path / "state")
    assert {name: (tmp_path / "state" / name).read_bytes() for name in files} == files
    assert stage.objects.calls[-2][0] == "get"
    assert [method for method, _ in stage.objects.calls if method in ("put", "create")][-1] == "create"


def test_scratch_is_removed_after_the_upload(stage: Stage) -> None:
    stage.save(1, {"model": b"x"})
    stage.uploads.close()
    assert list(stage.folder.iterdir()) == []


def test_unchanged_parts_are_not_uploaded_again(stage: Stage) -> None:
    stage.save(1, {"a": b"0123456789", "b": b"bbbb"})
    before = len(stage.objects.keys("put"))
    stage.save(2, {"a": b"01234567xx", "b": b"bbbb", "c": b"bbbb"})
    assert len(stage.objects.keys("put")) == before + 1
    first, second = stage.manifests
    assert second.files["a"].parts[:2] == first.files["a"].parts[:2]
    assert second.files["c"] == first.files["b"]


def test_only_parts_of_the_checkpoint_before_are_reused(stage: Stage) -> None:
    # The parts of older checkpoints may have been collected as garbage meanwhile.
    stage.save(1, {"a": b"aaaa"})
    stage.save(2, {"a": b"bbbb"})
    stage.save(3, {"a": b"aaaa"})
    first, _, third = stage.manifests
    assert part_hash(first.files["a"].parts[0]) == part_hash(third.files["a"].parts[0])
    assert first.files["a"].parts != third.files["a"].parts


def test_parts_of_the_restored_checkpoint_are_reused(stage: Stage) -> None:
    stage.save(1, {"a": b"aaaa"})
    (manifest,) = stage.manifests
    later = Uploads(RUN, stage.open, stage.sent.append, part_bytes=4)
    later.reuse_parts_of(manifest)
    later.submit(stage.snapshot(2, {"a": b"aaaa"}))
    assert later.wait(SECONDS)
    later.close()
    assert len(stage.objects.keys("put")) == 1
    assert stage.saved == [1, 2]


def test_a_taken_name_is_left_to_its_owner(stage: Stage) -> None:
    stage.objects.data[f"{trial_prefix(7)}2-3fa9c1d2/000001.json"] = b"another worker's"
    stage.save(1, {"a": b"aaaa"})
    assert stage.objects.data[f"{trial_prefix(7)}2-3fa9c1d2/000001.json"] == b"another worker's"
    assert [event.name for event in stage.sent if isinstance(event, CheckpointSaved)] == ["2-3fa9c1d2/000002"]


def test_the_newest_waiting_snapshot_wins_and_carries_all_reports(stage: Stage) -> None:
    release = hold(stage, "put")
    stage.uploads.submit(stage.snapshot(1, {"a": b"1"}, reports=("r1",)))
    while stage.uploads._waiting is not None:  # until the first is being uploaded
        pass
    for step in (2, 3, 4):
        stage.uploads.submit(stage.snapshot(step, {"a": b"%d" % step}, reports=(f"r{step}",)))
    release()
    assert stage.uploads.wait(SECONDS)
    assert [(each.step, list(each.reports)) for each in stage.manifests] == [(1, ["r1"]), (4, ["r2", "r3", "r4"])]
    (warning,) = stage.warnings
    assert "saved faster than they can be uploaded" in warning


@pytest.mark.parametrize("error", [StoreUnavailable("no route"), AccessDenied("expired")])
def test_an_outage_is_said_once_and_waited_for(stage: Stage, error: Exception) -> None:
    failures = iter(range(3))

    def fail(method: str, key: str) -> None:
        if method == "put" and next(failures, None) is not None:
            raise error

    stage.objects.before = fail
    stage.save(1, {"a": b"1"})
    assert stage.saved == [1]
    down, up = stage.warnings
    assert f"the object store does not work ({error})" in down
    assert "training goes on" in down
    assert "works again" in up
    assert stage.opened == (4 if isinstance(error, AccessDenied) else 1)  # renewed credentials need a new one


def test_a_retry_keeps_what_was_uploaded(stage: Stage) -> None:
    failures = iter(range(1))

    def fail(method: str, key: str) -> None:
        if method == "create" and next(failures, None) is not None:
            raise StoreUnavailable("cut")

    stage.objects.before = fail
    stage.save(1, {"a": b"0123456789"})
    assert len(stage.objects.keys("put")) == 3
    assert len(stage.objects.keys("create")) == 2


def test_during_an_outage_a_newer_state_replaces_the_one_being_uploaded(stage: Stage) -> None:
    down = threading.Event()

    def fail(method: str, key: str) -> None:
        if method == "create" and not stage.uploads._waiting and len(stage.objects.keys("create")) < 3:
            down.set()
            raise StoreUnavailable("down")

    stage.objects.before = fail
    stage.uploads.submit(stage.snapshot(1, {"a": b"aaaa"}, reports=("r1",)))
    assert down.wait(SECONDS)
    stage.uploads.submit(stage.snapshot(2, {"a": b"aaaa"}, reports=("r2",)))
    assert stage.uploads.wait(SECONDS)
    newest = stage.manifests[-1]
    assert newest.step == 2
    assert [line for each in stage.manifests for line in each.reports] == ["r1", "r2"]
    assert len(stage.objects.keys("put")) == 1
    assert not any("saved faster" in warning for warning in stage.warnings)  # the outage is the cause


def test_a_snapshot_that_cannot_be_read_is_said_and_skipped(stage: Stage) -> None:
    broken = stage.snapshot(1, {"a": b"aaaa"}, reports=("r1",))
    (broken.folder / "a").write_bytes(b"a")
    stage.uploads.submit(broken)
    assert stage.uploads.wait(SECONDS)
    stage.save(2, {"a": b"aaaa"}, reports=("r2",))
    assert stage.warnings == [
        "the checkpoint of step 1 could not be uploaded: a: has become shorter since it was saved"
    ]
    assert [(each.step, list(each.reports)) for each in stage.manifests] == [(2, ["r1", "r2"])]


def test_a_state_that_is_written_after_save_has_returned_is_no_checkpoint(stage: Stage) -> None:
    snapshot = stage.snapshot(1, {"model": b"12345678"})
    late = snapshot.taken_at_ns + 1_000_000_000

    def write(called: str, key: str) -> None:
        if called == "put":
            with (snapshot.folder / "model").open("r+b") as file:  # other parts are read at the same time
                file.write(b"99")
            os.utime(snapshot.folder / "model", ns=(late, late))
            stage.objects.before = lambda method, key: None

    stage.objects.before = write
    stage.uploads.submit(snapshot)
    assert stage.uploads.wait(SECONDS)
    assert stage.saved == []
    assert "was written to after save had returned; let save wait until all is written" in stage.warnings[0]
    stage.save(2, {"model": b"12345678"})  # no part of the first is reused
    (manifest,) = stage.manifests
    assert all(part.startswith(manifest.name) for part in manifest.parts)


def test_the_end_of_the_attempt_ends_the_uploads(stage: Stage) -> None:
    def send(event: Event) -> None:
        raise EndTrial

    uploads = Uploads(RUN, stage.open, send, part_bytes=4)
    uploads.submit(stage.snapshot(1, {"a": b"aaaa"}))
    uploads.wait(SECONDS)
    assert not uploads._thread_runs


def test_waiting_is_limited_by_the_time_of_the_machine(stage: Stage) -> None:
    release = hold(stage, "put")
    stage.uploads.submit(stage.snapshot(1, {"a": b"aaaa"}))
    assert not stage.uploads.wait(0.01)
    assert not stage.uploads.wait(SECONDS, lambda: 0.0)
    assert stage.uploads.busy
    release()
    assert stage.uploads.wait(SECONDS, lambda: SECONDS)


def test_a_fork_cannot_upload(stage: Stage) -> None:
    stage.save(1, {"a": b"aaaa"})
    pid = os.fork()
    if pid == 0:
        try:
            stage.uploads.submit(stage.snapshot(2, {"a": b"b"}))
        except SettingError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_links_cannot_be_saved(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(CheckpointError, match="link: save must write only plain files"):
        list_files(tmp_path)


@pytest.mark.parametrize(
    ("size", "measured", "expected"),
    [
        (100, None, None),
        (100, Measured(100, 2.0), 2.0),
        (1000, Measured(100, 2.0), 20.0),
        (10, Measured(100, 2.0), 2.0),  # much of it may be latency
        (10, Measured(0, 0.5), 5.0),
    ],
)
def test_the_time_of_an_upload_grows_with_its_size(
    size: int, measured: Measured | None, expected: float | None
) -> None:
    assert expected_seconds(size, measured) == expected


def test_the_speed_of_the_machine_is_known_to_the_next_attempt(stage: Stage) -> None:
    assert stage.uploads.expected_seconds(100) is None
    stage.save(1, {"a": b"0123456789"})
    later = Uploads(RUN, stage.open, stage.sent.append)
    assert later.expected_seconds(100) is not None


@settings(deadline=None, max_examples=30)
@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c/d", "c/e"]), st.binary(max_size=20), min_size=1)))
def test_every_checkpoint_has_what_was_saved(
    tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("property")
    stage = Stage(folder / "scratch")
    for step, files in enumerate(states):
        stage.save(step, files)
    stage.uploads.close()
    for manifest, files in zip(stage.manifests, states, strict=True):
        state = folder / str(manifest.step)
        stage.stored.fetch(manifest, state)
        paths = [path for path in state.rglob("*") if path.is_file()]
        assert {str(path.relative_to(state)): path.read_bytes() for path in paths} == files
