"""Drivers and workers of a study in an object store are killed; what the log or a manifest held is never lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import thriftune as tt
from tests import ROOT
from tests.end_to_end.object_study import STEPS, TRIALS
from thriftune.errors import CheckpointError
from thriftune.loop.lost_attempts import events_of
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectMissing
from thriftune.state import events as ev
from thriftune.state.spec import Spec
from thriftune.state.trial_record import State
from thriftune.store.opening import open_store
from thriftune.store.study_files import StudyFiles
from thriftune.training.stored_checkpoints import StoredCheckpoints

DRIVER_KILLS = 4
Key = tuple[int, int, int]  # the trial, the attempt and the number of a report


@dataclass
class Killed:
    """A study in processes of its own, and all reports that its log or its manifests have held."""

    folder: Path
    url: str
    held: set[Key] = field(default_factory=set)
    marker: str = field(default_factory=lambda: os.urandom(8).hex())

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OBJECT_WITNESS": str(self.folder / "witness"), "OBJECT_MARKER": self.marker}
        script = [sys.executable, "-m", "tests.end_to_end.object_study", str(self.folder), self.url]
        return subprocess.Popen(script, env=environment, cwd=ROOT, stderr=subprocess.PIPE)

    def said(self) -> list[dict[str, Any]]:
        """Return what trials wrote down; a kill may have cut the last line short."""
        path = self.folder / "witness"
        lines = path.read_text().split("\n") if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def wait_for_lines(self, driver: subprocess.Popen[bytes], lines: int, seconds: float = 600.0) -> None:
        """Wait until trials have written so many lines, the driver has ended, or the time is over."""
        ends_at = time.monotonic() + seconds
        while driver.poll() is None and len(self.said()) < lines and time.monotonic() < ends_at:
            time.sleep(0.02)

    def kill_all(self) -> None:
        """Kill the driver and all processes that it has started."""
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self.marker.encode() in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)

    def kill_last_worker(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.said()[-1]["pid"], signal.SIGKILL)

    def remember(self) -> None:
        """Note which reports the log or a manifest of a running attempt holds now. Nothing runs."""
        if not (self.folder / "studies.db").exists():
            return
        with open_store(self.folder / "studies.db") as store:
            if not store.studies():
                return
            study = tt.load("objects", store)
            self.held |= {key(entry) for entry in store.read("objects") if isinstance(entry, ev.Reported)}
            objects = open_objects(StudyFiles.of(study.spec, store).objects)
            for trial in study.trials:
                stored = StoredCheckpoints(objects, trial.id)
                for name in stored.names() if trial.state is State.RUNNING else ():
                    with contextlib.suppress(CheckpointError, ObjectMissing):
                        manifest = stored.manifest(name)
                        if manifest.attempt == trial.attempts:
                            self.held |= {
                                key(each) for each in events_of(manifest) if isinstance(each, ev.Reported)
                            }


def key(report: ev.Reported) -> Key:
    return report.trial, report.attempt, report.number


def test_no_report_is_lost_and_states_are_those_that_were_saved(tmp_path: Path, s3_url: str) -> None:
    dice = random.Random(27)
    study = Killed(tmp_path, s3_url)
    kills = lives = 0
    while True:
        lives += 1
        assert lives < 50, "the study does not get on"
        driver, before = study.start(), len(study.said())
        if kills < DRIVER_KILLS:
            study.wait_for_lines(driver, before + dice.randint(3, 12))
            if kills % 2 and driver.poll() is None:  # the driver sees a worker die first
                study.kill_last_worker()
                time.sleep(dice.uniform(0.0, 0.3))
            elif driver.poll() is None:  # the workers go on for a while with a driver that does not listen
                driver.send_signal(signal.SIGSTOP)
                study.wait_for_lines(driver, len(study.said()) + 6, seconds=2.0)
            study.kill_all()
            kills += 1
        _, errors = driver.communicate()
        if driver.returncode == 0:
            break
        assert driver.returncode == -signal.SIGKILL, errors.decode()
        study.remember()
        if kills % 2:  # the workers' machines are lost, with the reports that the driver has not read
            shutil.rmtree(tmp_path / "studies.db.files" / "objects" / "run", ignore_errors=True)
    check(study)


def check(study: Killed) -> None:
    with open_store(study.folder / "studies.db") as store:
        log = store.read("objects")
        result = tt.load("objects", store)
        spec = Spec.from_json(store.spec("objects"))
        assert [trial.state for trial in result.trials] == [State.COMPLETED] * TRIALS
        assert study.held <= {key(entry) for entry in log if isinstance(entry, ev.Reported)}
        assert sum(trial.losses for trial in result.trials) > 0
        for trial in result.trials:
            assert [report.step for report in trial.reports] == list(range(1, STEPS + 1))
            assert trial.load(lambda folder: int((folder / "step").read_text())) == STEPS

        # Each attempt restored what an earlier attempt had saved: the newest checkpoint in the log.
        said = study.said()
        saved = {(line["trial"], line["step"], line["text"]) for line in said if line["what"] == "saved"}
        resumed = {(entry.trial, entry.attempt): entry.resume_step for entry in log if isinstance(entry, ev.Place)}
        restored = [line for line in said if line["what"] == "restored"]
        assert restored
        for line in restored:
            assert (line["trial"], line["step"], line["text"]) in saved
            assert resumed[line["trial"], line["attempt"]] == line["step"]
        for line in said:
            if line["what"] == "began":
                assert resumed[line["trial"], line["attempt"]] == line["step"]

        # What is left are the newest checkpoints of each trial, and all parts that they name.
        objects = open_objects(StudyFiles.of(spec, store).objects)
        for trial in result.trials:
            stored = StoredCheckpoints(objects, trial.id)
            assert len(stored.names()) <= spec.keep + 1
            needed = {part for name in stored.names() for part in stored.manifest(name).parts}
            keys = {each.key for each in objects.list_objects(f"trials/{trial.id}/checkpoints/")}
            parts = {each.removeprefix(f"trials/{trial.id}/checkpoints/") for each in keys if ".json" not in each}
            assert parts == needed
        tt.delete("objects", store)
        assert list(objects.list_objects()) == []
