"""The store's write-ahead log is removed under a running study: it stops, and nothing is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import thriftune as tt
from thriftune.errors import StoreError, StudyNotFound


def slowly(trial: tt.Trial) -> None:
    for step in trial.steps():
        time.sleep(0.02)
        trial.report(loss=1 / step)


def tune(store: Path) -> tt.Result:
    settings: dict[str, Any] = {"trials": 2, "max_steps": 100, "workers": 1, "seed": 0, "name": "s"}
    return tt.tune(slowly, {"x": tt.Float(0, 1)}, minimize="loss", store=store, progress=False, **settings)


def reports(store: Path) -> int:
    try:
        return sum(len(trial.reports) for trial in tt.load("s", store=store).trials)
    except StudyNotFound:
        return 0


def test_a_study_whose_log_is_removed_stops_and_can_be_resumed(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    errors: list[BaseException] = []

    def run() -> None:
        try:
            tune(store)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    give_up_at = time.monotonic() + 60
    while reports(store) < 5 and time.monotonic() < give_up_at:
        time.sleep(0.05)
    seen = reports(store)
    store.with_name("s.db-wal").unlink()
    thread.join(60)
    assert not thread.is_alive()
    (error,) = errors
    assert isinstance(error, StoreError)
    assert "was removed or replaced while it was in use; all of it is now in" in str(error)
    assert reports(store) >= seen >= 5
    assert [len(trial.reports) for trial in tune(store).trials] == [100, 100]
