"""Tests of commands whose trials keep their checkpoints in an object store."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from thriftune.engines.command import Command
from thriftune.engines.command_state import copy_files, signature
from thriftune.engines.worker import attempt
from thriftune.object_store.opening import open_objects
from thriftune.state.events import CheckpointSaved, DiskFull, Ended, Event, Failed, Reported, Warned
from thriftune.training.run import Run
from thriftune.training.stored_checkpoints import StoredCheckpoints


class Link:
    """A link to a fake driver. `end_after`: the number of reports after which the trial is to end; 0: never."""

    def __init__(self, end_after: int, time_left: float | None) -> None:
        self.sent: list[Event] = []
        self._end_after = end_after
        self._time_left = time_left

    def send(self, event: Event) -> int:
        self.sent.append(event)
        return len(self.reports) if isinstance(event, Reported) else 0

    @property
    def reports(self) -> list[Reported]:
        return [event for event in self.sent if isinstance(event, Reported)]

    def seconds_left(self) -> float | None:
        return self._time_left

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:
        return bool(self._end_after) and len(self.reports) >= self._end_after


class Stage:
    """A trial whose attempts run a command, each on the machine that is named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"memory://{uuid.uuid4().hex}"
        self.saved: list[CheckpointSaved] = []
        self.attempts = 0
        self.events: list[Event] = []  # of the last attempt

    def run(
        self,
        *command: str,
        machine: str = "a",
        end_after: int = 0,
        time_left: float | None = None,
        patterns: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Event:
        """Run an attempt, and return how it ended."""
        self.attempts += 1
        newest = self.saved[-1] if self.saved else None
        run = Run(
            3,
            self.attempts,
            {},
            newest.step if newest else 0,
            ("loss",),
            settings.pop("max_steps", None),
            7,
            str(self.folder / machine / "3"),
            2,
            objects=self.url,
            drive=settings.pop("drive", "3fa9c1d2"),
            checkpoints=[(event.name, event.step) for event in reversed(self.saved)],
            resume_partial=newest is not None and newest.partial,
            **settings,
        )
        link = Link(end_after, time_left)
        outcome = attempt(Command(command, patterns or {}, str(self.folder)), run, link)
        self.events = link.sent
        self.saved += [event for event in link.sent if isinstance(event, CheckpointSaved)]
        return outcome

    def python(self, script: str, **how: Any) -> Event:
        return self.run(sys.executable, "-c", script, **how)

    def shell(self, script: str, **how: Any) -> Event:
        return self.run("sh", "-c", script, **how)

    @property
    def values(self) -> list[tuple[int, float]]:
        return [(event.step, event.metrics["loss"]) for event in self.events if isinstance(event, Reported)]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


SAVES = """
import thriftune
trial = thriftune.current_trial()
values = [0.0]
start = trial.restore(lambda folder: values.append(float((folder / "value").read_text())))
value = values[-1]
for step in range(start + 1, start + 4):
    value += 1.0
    trial.report(loss=value, step=step, save=lambda folder: (folder / "value").write_text(str(value)))
"""


def test_a_command_resumes_on_another_machine(stage: Stage) -> None:
    assert isinstance(stage.python(SAVES), Ended)
    assert stage.values == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert stage.saved[-1].step == 3
    assert isinstance(stage.python(SAVES, machine="b"), Ended)
    assert stage.values == [(4, 4.0), (5, 5.0), (6, 6.0)]
    assert stage.saved[-1].step == 6


def test_a_command_that_counts_from_0_counts_so_on_another_machine(stage: Stage) -> None:
    script = SAVES.replace("step=step,", "step=step - 1,")
    stage.python(script)
    assert stage.values == [(1, 1.0), (2, 2.0), (3, 3.0)]
    stage.python(script, machine="b")
    assert stage.values == [(4, 4.0), (5, 5.0), (6, 6.0)]


def test_a_command_may_save_in_the_middle_of_a_step(stage: Stage) -> None:
    script = """
import thriftune
trial = thriftune.current_trial()
texts = []
step = trial.restore(lambda folder: texts.append((folder / "batch").read_text()))
if trial.partial:
    trial.report(loss=float(texts[0]), step=step + 1)
else:
    trial.report(loss=1.0, step=1)
    trial.save(lambda folder: (folder / "batch").write_text("7"))
"""
    stage.python(script)
    assert [(event.step, event.partial) for event in stage.saved] == [(1, True)]
    stage.python(script, machine="b")
    assert stage.values == [(2, 7.0)]


def test_an_error_of_a_save_function_reaches_the_command(stage: Stage) -> None:
    script = """
import thriftune
try:
    thriftune.report(loss=1.0, save=lambda folder: None)
except Exception as error:
    print(error)
    raise
"""
    assert isinstance(stage.python(script), Failed)
    assert stage.values == [(1, 1.0)]
    assert stage.saved == []


def test_a_command_learns_the_time_left_with_its_reports(stage: Stage) -> None:
    script = """
import thriftune
trial = thriftune.current_trial()
assert trial.time_left is None
trial.report(loss=1.0)
trial.report(loss=trial.time_left)
assert trial.should_save
"""
    assert isinstance(stage.python(script, time_left=100.0), Ended)
    assert 0.0 < stage.values[1][1] <= 100.0


COUNTS = """
cd "$THRIFTUNE_CHECKPOINT_DIR"
n=$(cat count 2>/dev/null || echo 0)
for i in 1 2; do
    n=$((n + 1)); echo $n > new; mv new count; ln -sf count latest
    echo "step $n loss=$n"
    sleep 0.2
done
"""
PATTERNS = {"loss": r"loss=(\S+)", "step": r"step (\S+)"}


def test_the_folder_of_a_command_moves_with_its_trial(stage: Stage) -> None:
    assert isinstance(stage.shell(COUNTS, patterns=PATTERNS), Ended)
    assert stage.values == [(1, 1.0), (2, 2.0)]
    stage.shell(COUNTS, patterns=PATTERNS, machine="b")
    assert stage.values == [(3, 3.0), (4, 4.0)]
    # The first machine still has the folder of the first attempt, which is stale.
    stage.shell(COUNTS, patterns=PATTERNS, machine="a")
    assert stage.values == [(5, 5.0), (6, 6.0)]


def test_what_the_attempt_before_has_left_on_this_machine_stays(stage: Stage) -> None:
    stage.shell(COUNTS, patterns=PATTERNS, save_every=None)
    count = stage.folder / "a/3/state/count"
    count.write_text("40")  # as if the worker had been killed before its upload
    stage.shell(COUNTS, patterns=PATTERNS)
    assert stage.values == [(41, 41.0), (42, 42.0)]


def test_what_an_attempt_of_this_machine_has_left_stays_after_the_driver_was_killed(stage: Stage) -> None:
    stage.shell(COUNTS, patterns=PATTERNS, drive="0000000a")
    (stage.folder / "a/3/state/count").write_text("40")
    stage.shell(COUNTS, patterns=PATTERNS, drive="0000000b")
    assert stage.values == [(41, 41.0), (42, 42.0)]


def test_what_a_drive_has_left_that_had_lost_the_study_does_not_count(stage: Stage) -> None:
    stage.shell(COUNTS, patterns=PATTERNS, drive="0000000a")
    counted = list(stage.saved)
    stage.shell(COUNTS, patterns=PATTERNS, drive="0000000a")
    stage.attempts, stage.saved = 1, counted  # another drive has taken the study over before
    stage.shell(COUNTS, patterns=PATTERNS, machine="b", drive="0000000b")
    (stage.folder / "a/3/state/count").write_text("40")
    stage.shell(COUNTS, patterns=PATTERNS, drive="0000000c")
    assert stage.values == [(5, 5.0), (6, 6.0)]


def test_with_rare_saves_the_folder_is_uploaded_at_the_end(stage: Stage) -> None:
    stage.shell(COUNTS, patterns=PATTERNS, save_every=None)
    assert [(event.step, event.partial) for event in stage.saved] == [(2, False)]


def test_an_unchanged_folder_is_uploaded_once(stage: Stage) -> None:
    script = (
        'cd "$THRIFTUNE_CHECKPOINT_DIR"; echo x > file; for i in 1 2 3; do echo "step $i loss=$i"; sleep 0.2; done'
    )
    stage.shell(script, patterns=PATTERNS)
    assert len(stage.saved) == 1


def test_an_interrupted_command_saves_its_folder_when_it_ends(stage: Stage) -> None:
    script = """
cd "$THRIFTUNE_CHECKPOINT_DIR"
if [ -e batch ]; then echo "step 2 loss=$(cat batch)"; exit; fi
trap 'echo 7 > batch; exit' TERM
echo "step 1 loss=1"
while true; do sleep 0.05; done
"""
    stage.shell(script, patterns=PATTERNS, end_after=1)
    assert [(event.step, event.partial) for event in stage.saved] == [(1, True)]
    stage.shell(script, patterns=PATTERNS, machine="b")
    assert stage.values == [(2, 7.0)]


def test_a_command_that_saves_by_report_keeps_its_folder_to_itself(stage: Stage) -> None:
    script = """
import os, pathlib, thriftune
pathlib.Path(os.environ["THRIFTUNE_CHECKPOINT_DIR"], "cache").write_text("large")
thriftune.report(loss=1.0, save=lambda folder: (folder / "model").write_text("m"))
"""
    stage.python(script)
    stored = StoredCheckpoints(open_objects(stage.url), 3)
    assert [list(stored.manifest(event.name).files) for event in stage.saved] == [["model"]]


def test_a_state_outside_of_scratch_is_refused(stage: Stage) -> None:
    script = """
import thriftune
from pathlib import Path
link = thriftune.current_trial()._link
link.save_with_report(0, Path("/etc"))
try:
    link.send_saved()
except Exception as error:
    thriftune.report(loss=float("is no folder for a state of this trial" in str(error)))
"""
    stage.python(script)
    assert stage.values == [(1, 1.0)]
    assert Path("/etc").is_dir()


def test_a_failed_command_does_not_upload_its_folder(stage: Stage) -> None:
    script = 'echo x > "$THRIFTUNE_CHECKPOINT_DIR/file"; exit 3'
    assert isinstance(stage.shell(script), Failed)
    assert stage.saved == []


def test_no_warning_is_needed(stage: Stage) -> None:
    stage.python(SAVES)
    assert [event for event in stage.events if isinstance(event, Warned) and not event.once] == []


def test_a_folder_that_cannot_be_copied_is_said(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("thriftune.engines.command_state.copy_files", fail)
    script = 'echo x > "$THRIFTUNE_CHECKPOINT_DIR/file"; echo "step 1 loss=1"'
    assert isinstance(stage.shell(script, patterns=PATTERNS), Ended)
    assert any(
        "cannot be uploaded: [Errno 5]" in event.message for event in stage.events if isinstance(event, Warned)
    )


def test_a_full_disk_is_said_and_the_command_goes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("thriftune.engines.command_state.copy_files", fail)
    script = 'echo x > "$THRIFTUNE_CHECKPOINT_DIR/file"; echo "step 1 loss=1"'
    assert isinstance(stage.shell(script, patterns=PATTERNS), Ended)
    assert any(isinstance(event, DiskFull) for event in stage.events)


def test_a_command_that_goes_past_its_last_step_has_a_whole_state(stage: Stage) -> None:
    stage.shell(COUNTS, patterns=PATTERNS, max_steps=1, save_every=None)
    assert [(event.step, event.partial) for event in stage.saved] == [(1, False)]


# --- the copy of a folder


def test_copies_have_plain_files_and_what_links_name(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep/file").write_text("x")
    (source / "link").symlink_to("deep/file")
    (source / "loop").symlink_to("..")
    (source / "dangling").symlink_to("nothing")
    os.mkfifo(source / "pipe")
    names = signature(source)
    copy_files(source, tmp_path / "copy", names)
    assert {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")} == {
        "deep",
        "deep/file",
        "link",
    }
    assert (tmp_path / "copy/link").read_text() == "x"


def test_every_change_of_a_file_changes_the_signature(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    before = signature(tmp_path)
    assert signature(tmp_path) == before
    (tmp_path / "new").write_text("y")
    (tmp_path / "new").replace(tmp_path / "file")
    assert signature(tmp_path) != before
    assert signature(tmp_path / "missing") == {}
