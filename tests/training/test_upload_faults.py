"""Tests of uploads to a real S3 server behind a proxy that fails as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.object_servers import FaultyServer, faulty
from tests.training.test_object_checkpoints import Study, restore, run_steps, write
from thriftune.object_store.opening import open_objects
from thriftune.state.events import CheckpointSaved, Warned
from thriftune.training import patient_store

SECONDS = 30.0  # far longer than any test needs


@pytest.fixture
def server(s3_url: str) -> Iterator[FaultyServer]:
    with faulty(s3_url) as server:
        yield server


@pytest.fixture
def study(server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Study]:
    monkeypatch.setattr(patient_store, "_FIRST_WAIT_SECONDS", 0.05)
    study = Study(tmp_path)
    study.url = server.url
    study.objects = open_objects(server.url)
    yield study
    server.mend()
    for trial in study.attempts:
        trial.checkpoints.close()


@pytest.mark.parametrize(
    "fail",
    [
        lambda server: server.cut_request(times=2, method="PUT"),
        lambda server: server.lose_answer(times=2, method="PUT"),
        lambda server: server.answer(503, "SlowDown", times=3),
        lambda server: server.answer(500, "InternalError", times=2, method="PUT", path=".json"),
    ],
    ids=["cut", "lost answer", "slow down", "manifest"],
)
def test_a_short_fault_is_not_noticed(
    study: Study, server: FaultyServer, fail: Callable[[FaultyServer], None]
) -> None:
    trial = study.begin()
    fail(server)
    run_steps(trial, 2)
    assert study.end().of(Warned) == []
    assert restore(study.begin()) == (2, "step 2")


def test_with_expired_credentials_training_goes_on_and_the_newest_state_waits(
    study: Study, server: FaultyServer
) -> None:
    trial = study.begin()
    run_steps(trial, 1)
    server.answer(403, "ExpiredToken")
    for step in (2, 3, 4):
        trial.report(loss=1.0, step=step, save=write(f"step {step}"))
    link = study.links[-1]
    trial.checkpoints.finish(0.5, lambda: None)
    assert [event.step for event in link.of(CheckpointSaved)] == [1]
    assert any("the object store does not work" in warning.message for warning in link.of(Warned))
    server.mend()
    study.end()
    assert [event.step for event in link.of(CheckpointSaved)][-1] == 4
    assert any("works again" in warning.message for warning in link.of(Warned))
    assert restore(study.begin()) == (4, "step 4")


def test_a_restore_waits_for_the_store(study: Study, server: FaultyServer) -> None:
    run_steps(study.begin(), 2)
    study.end()
    server.answer(403, "ExpiredToken", times=2, method="GET")
    assert restore(study.begin()) == (2, "step 2")
    waits, works = (warning.message for warning in study.end().of(Warned))
    assert "the trial waits for its checkpoint" in waits
    assert "works again, and the trial goes on" in works
