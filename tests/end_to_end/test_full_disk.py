"""The disk is full, for real: a clear error, the study stops or goes on as set, and nothing is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from tests.conftest import fill
from tests.engines.processes import eventually
from thriftune.errors import StoreError, StoreFull
from thriftune.store.sqlite import SqliteStore


def train(trial: tt.Trial) -> None:
    """Saves little at first, and from the third step on more than there is room for."""
    state = {"step": 0}

    def save(folder: Path) -> None:
        size = 1000 if state["step"] < 3 else 20_000_000
        (folder / "state").write_bytes(str(state["step"]).encode().ljust(size))

    def load(folder: Path) -> None:
        state["step"] = int((folder / "state").read_bytes().strip())

    trial.restore(load)
    for step in trial.steps():
        assert state["step"] == step - 1
        state["step"] = step
        trial.report(loss=1 / step, save=save)
        if step == 3:
            time.sleep(1)  # for the word to end to arrive before the next step


def tune(function: Any, store: Path, **settings: Any) -> tt.Result:
    defaults: dict[str, Any] = {"trials": 2, "max_steps": 5, "workers": 1, "seed": 0, "name": "s"}
    space = {"x": tt.Float(0, 1)}
    return tt.tune(function, space, minimize="loss", store=store, progress=False, **{**defaults, **settings})


def test_no_room_for_a_checkpoint_stops_the_study(small_disk: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with pytest.raises(StoreError, match=r"no room for the checkpoint of step 3.*thriftune resume s") as raised:
        tune(train, store, storage=small_disk)
    assert "earlier checkpoints are intact" in str(raised.value)
    (trial,) = tt.load("s", store=store).trials
    assert (trial.state, trial.failures) == (tt.State.WAITING, 0)
    assert [report.step for report in trial.reports] == [1, 2, 3], "the report itself is recorded"
    assert trial.resume_step == 2
    # Told otherwise, it goes on from the last checkpoint there is.
    result = tune(train, store, storage=small_disk, disk_full="go_on")
    assert {trial.state for trial in result.trials} == {tt.State.COMPLETED}
    assert result.trials[0].attempts == 2


def test_no_room_for_a_checkpoint_and_the_study_goes_on(small_disk: Path, tmp_path: Path) -> None:
    result = tune(train, tmp_path / "s.db", storage=small_disk, disk_full="go_on")
    assert {trial.state for trial in result.trials} == {tt.State.COMPLETED}
    for trial in result.trials:
        assert [report.step for report in trial.reports] == [1, 2, 3, 4, 5]
        assert [report.saved for report in trial.reports] == [True, True, False, False, False]
        assert any("no room for the checkpoint of step 3" in warning for warning in trial.warnings)


def slowly(trial: tt.Trial) -> None:
    for step in trial.steps():
        time.sleep(0.02)
        trial.report(loss=1 / step)


def until_reported(store: Path) -> None:
    def reported() -> bool:
        try:
            return any(trial.reports for trial in tt.load("s", store=store).trials)
        except tt.ThriftuneError:
            return False

    eventually(reported, "a trial has reported")


def test_no_room_for_the_store_itself(small_disk: Path) -> None:
    """Reports have nowhere to go: the study stops, and with room again it goes on and has lost none."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            tune(slowly, small_disk / "s.db", trials=3, max_steps=100)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until_reported(small_disk / "s.db")
    ballast = fill(small_disk)
    thread.join(120)
    assert not thread.is_alive()
    (error,) = errors
    assert isinstance(error, StoreError)
    assert "full" in str(error)
    ballast.unlink()
    before = [len(trial.reports) for trial in tt.load("s", store=small_disk / "s.db").trials]
    assert sum(before) > 0
    result = tune(slowly, small_disk / "s.db", trials=3, max_steps=100)
    assert [len(trial.reports) for trial in result.trials] == [100] * 3
    assert sum(trial.failures for trial in result.trials) == 0


def test_no_room_for_the_store_and_the_study_waits_for_it(small_disk: Path) -> None:
    results: list[tt.Result] = []

    def run() -> None:
        results.append(tune(slowly, small_disk / "s.db", trials=2, max_steps=100, disk_full="go_on"))

    thread = threading.Thread(target=run)
    thread.start()
    until_reported(small_disk / "s.db")
    ballast = fill(small_disk)
    time.sleep(2)
    assert thread.is_alive()
    ballast.unlink()
    thread.join(120)
    (result,) = results
    assert [len(trial.reports) for trial in result.trials] == [100] * 2
    assert [trial.attempts for trial in result.trials] == [1, 1]


def test_only_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[BaseException] = []

    def fail(*_: object) -> None:
        raise StoreError("the file is damaged")

    def run() -> None:
        try:
            tune(slowly, tmp_path / "s.db", disk_full="go_on")
        except BaseException as error:
            errors.append(error)

    monkeypatch.setattr(SqliteStore, "append", fail)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the study waits for something that will not pass"
    assert str(errors[0]) == "the file is damaged"


def test_a_disk_without_room_for_a_sync_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems only find out when they bring a file to disk."""
    sync, failures = SqliteStore.sync, 3

    def fail_at_first(store: SqliteStore) -> None:
        nonlocal failures
        if store.length("s") and failures:
            failures -= 1
            raise StoreFull("no room")
        sync(store)

    monkeypatch.setattr(SqliteStore, "sync", fail_at_first)
    monkeypatch.setattr("thriftune.loop.driver._STORE_RETRY_SECONDS", 0.01)
    result = tune(slowly, tmp_path / "s.db", disk_full="go_on")
    assert [len(trial.reports) for trial in result.trials] == [5, 5]
    assert failures == 0
