"""Studies whose object store fails: what is refused before the start, and what training survives."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests.support.object_servers import FaultyServer, faulty
from thriftune.errors import StudyNotFound
from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import AccessDenied, ObjectStoreError, StoreUnavailable
from thriftune.store.opening import open_store
from thriftune.store.study_files import objects_of

STEPS = 6


def train(trial: tt.Trial) -> None:
    """Train with a state that counts the steps."""
    state = [0]

    def save(folder: Path) -> None:
        (folder / "step").write_text(str(state[0]))

    def load(folder: Path) -> None:
        state[0] = int((folder / "step").read_text())

    trial.restore(load)
    for step in trial.steps():
        time.sleep(0.05)
        state[0] += 1
        assert state[0] == step, "the state is not that of the step before"
        trial.report(loss=1 / step, save=save)


def write_step(step: int, folder: Path) -> None:
    (folder / "step").write_text(str(step))


def dies_once(trial: tt.Trial) -> None:
    """Die after some steps in the first attempt."""
    if trial.attempt > 1:
        return train(trial)
    for step in trial.steps():
        trial.report(loss=1 / step, save=partial(write_step, step))
        if step == 3:
            folder = Path(os.environ["FAULTS_FOLDER"])
            (folder / "at-step-3").touch()
            while not (folder / "die").exists():
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)
    return None


def tune(function: Callable[[tt.Trial], object], folder: Path, url: str, **settings: Any) -> tt.Result:
    merged: dict[str, Any] = {"minimize": "loss", "trials": 1, "max_steps": STEPS, "workers": 1, "name": "s"}
    merged |= {"stopping": "none", "system": "off", "searcher": "random", "progress": False, **settings}
    return tt.tune(function, {"x": tt.Float(0, 1)}, store=folder / "s.db", storage=url, **merged)


def state_of(result: tt.Result) -> int:
    return result.best.load(lambda folder: int((folder / "step").read_text()))


def no_attempt_was_made(folder: Path) -> bool:
    with open_store(folder / "s.db") as store:
        return all(not tt.load(each.name, store).trials for each in store.studies())


# --- before the study starts ------------------------------------------------------------------------------


def test_a_bucket_that_does_not_exist_is_an_error_before_the_start(s3_url: str, tmp_path: Path) -> None:
    missing = s3_url.replace("s3://test-", "s3://missing-")
    with pytest.raises(ObjectStoreError, match=r"s3://missing-.*does not exist; create it, or correct the URL"):
        tune(train, tmp_path, missing)
    assert no_attempt_was_made(tmp_path)
    assert state_of(tune(train, tmp_path, s3_url)) == STEPS  # the URL may be corrected


def test_wrong_credentials_are_an_error_before_the_start(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" * 8)
    with pytest.raises(AccessDenied):
        tune(train, tmp_path, s3_url)
    assert no_attempt_was_made(tmp_path)


def test_a_permission_that_is_missing_is_named_before_the_start(s3_url: str, tmp_path: Path) -> None:
    with faulty(s3_url) as server:
        server.answer(403, "AccessDenied", method="DELETE")
        server.answer(403, "AccessDenied", method="POST")  # S3 deletes many objects by POST
        with pytest.raises(AccessDenied, match=r"cannot delete objects.*s3:DeleteObject"):
            tune(train, tmp_path, server.url)
    assert no_attempt_was_made(tmp_path)


def test_a_server_that_is_away_is_an_error_before_the_start(s3_url: str, tmp_path: Path) -> None:
    with faulty(s3_url) as server:
        server.refuse()
        with pytest.raises(StoreUnavailable, match="the server refused the connection"):
            tune(train, tmp_path, server.url)
    assert no_attempt_was_made(tmp_path)


def test_the_storage_of_a_study_with_trials_does_not_change(s3_url: str, tmp_path: Path) -> None:
    tune(train, tmp_path, s3_url)
    with pytest.raises(tt.errors.StudyMismatch, match=r"storage: was s3://test-.*, is now /"):
        tune(train, tmp_path, str(tmp_path / "elsewhere"), trials=2)
    assert len(tune(train, tmp_path, s3_url, trials=2).trials) == 2


# --- while it runs ----------------------------------------------------------------------------------------


def when(server: FaultyServer, requests: int, then: Callable[[], object]) -> threading.Thread:
    """Call `then` once so many more requests to write have come."""
    before = server.count("PUT")

    def watch() -> None:
        while server.count("PUT") < before + requests and not done.wait(0.02):
            pass
        then()

    done = threading.Event()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(("status", "code"), [(403, "ExpiredToken"), (404, "NoSuchBucket"), (503, "SlowDown")])
def test_training_goes_on_while_the_store_does_not_work(
    status: int, code: str, s3_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reported: list[int] = []
    with faulty(s3_url) as server:

        def on_report(trial: object, report: Any) -> None:
            reported.append(report.step)
            if report.step == 2:
                server.answer(status, code)
            if report.step == STEPS:  # all steps came although nothing could be saved
                when(server, 1, server.mend)

        result = tune(train, tmp_path, server.url, on_report=on_report)
        assert state_of(result) == STEPS
    assert reported == list(range(1, STEPS + 1))
    assert result.trials[0].reports[-1].saved
    said = capfd.readouterr().err
    told = [said.count(f"the object store {what}") for what in ("does not work", "works again")]
    assert told == [1, 1] or (status == 503 and told == [0, 0]), said  # a short overload is nothing to tell
    assert result.trials[0].attempts == 1


def test_an_attempt_that_dies_while_the_store_is_away_does_not_stop_the_study(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAULTS_FOLDER", str(tmp_path))
    with faulty(s3_url) as server:

        def on_report(trial: Any, report: Any) -> None:
            if trial.attempts == 1 and report.step == 3:
                server.refuse()
                (tmp_path / "die").touch()
            threading.Timer(1.0, server.mend).start()

        result = tune(dies_once, tmp_path, server.url, on_report=on_report)
        assert state_of(result) == STEPS
    assert result.trials[0].attempts == 2
    assert [report.step for report in result.trials[0].reports] == list(range(1, STEPS + 1))


def test_objects_that_are_deleted_behind_the_study_cost_steps_and_no_reports(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAULTS_FOLDER", str(tmp_path))

    def on_report(trial: Any, report: Any) -> None:
        if trial.attempts == 1 and report.step == 3:
            objects = open_objects(s3_url)
            while not (
                keys := [each.key for each in objects.list_objects("studies/") if "/checkpoints/" in each.key]
            ):
                time.sleep(0.02)
            objects.delete(keys)
            (tmp_path / "die").touch()

    result = tune(dies_once, tmp_path, s3_url, on_report=on_report)
    assert state_of(result) == STEPS
    assert [report.step for report in result.trials[0].reports] == list(range(1, STEPS + 1))


def test_a_server_that_is_away_at_the_end_delays_the_last_checkpoint(s3_url: str, tmp_path: Path) -> None:
    with faulty(s3_url) as server:

        def on_report(trial: object, report: Any) -> None:
            if report.step == STEPS:
                server.refuse()
                threading.Timer(1.0, server.mend).start()

        result = tune(train, tmp_path, server.url, on_report=on_report)
        assert result.trials[0].reports[-1].saved
        assert state_of(result) == STEPS


def test_a_study_is_deleted_once_the_store_can_be_reached(s3_url: str, tmp_path: Path) -> None:
    with faulty(s3_url) as server, open_store(tmp_path / "s.db") as store:
        result = tune(train, tmp_path, server.url)
        objects = open_objects(objects_of(s3_url, result.spec.id))
        assert list(objects.list_objects())
        server.answer(403, "AccessDenied")
        with pytest.raises(AccessDenied, match=r"study 's' is not deleted, as its objects below s3://"):
            tt.delete("s", store)
        assert tt.load("s", store).trials
        server.mend()
        tt.delete("s", store)
        assert list(objects.list_objects()) == []
        with pytest.raises(StudyNotFound):
            tt.load("s", store)
