"""Tests that the benchmark of kills in object stores finds what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import thriftune as tt
from benchmarks.object_store.kills import rows
from benchmarks.object_store.kills_account import Count, Held, StudyObjects, Witness, judge
from benchmarks.object_store.kills_study import LIFE, NAME, STATE_BYTES, STEP_SECONDS, WITNESS, train
from thriftune.store.study_index import study_objects

TRIALS, STEPS = 2, 3


@pytest.fixture
def url(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a store with the benchmark's study, which has run without a kill."""
    monkeypatch.setenv("THRIFTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(WITNESS, str(tmp_path / "witness"))
    for name, value in {LIFE: "1", STATE_BYTES: "4000", STEP_SECONDS: "0.01"}.items():
        monkeypatch.setenv(name, value)
    settings: dict[str, Any] = {"stopping": "none", "searcher": "random", "system": "off", "progress": False}
    limits: dict[str, Any] = {"trials": TRIALS, "max_steps": STEPS, "workers": 1, "seed": 0}
    space = {"x": tt.Float(0.0, 1.0)}
    tt.tune(train, space, minimize="loss", name=NAME, store=s3_url, **limits, **settings)
    return s3_url


def test_what_is_wrong_is_counted(url: str, tmp_path: Path) -> None:
    count = Count()
    lines = list(Witness(tmp_path / "witness").lines())
    view = StudyObjects(url)
    held = view.hold(len(lines))
    assert held.positions == {0: 2 * STEPS, 1: 2 * STEPS}
    assert held.finished == {0, 1}
    assert len(held.tags) == TRIALS * STEPS
    common = {"trial": 0, "attempt": 2, "pid": 1, "life": 2}
    lines += [
        {**common, "what": "restored", "position": 4, "digest": "of a mixture"},
        {**common, "what": "began", "position": 4, "told": 4},
        {**common, "what": "reported", "position": 6, "tag": 1},  # and the log has no such report
        {**common, "what": "reported", "position": 6, "tag": 2},
    ]
    earlier = Held(0, {3}, {}, set())
    study = view.study()
    assert study is not None
    objects = study_objects(view._store, study)
    keys = view.keys(study)
    objects.put("trials/0/checkpoints/1-00000000/000001/abc", b"left over")
    objects.delete([next(key for key in keys if key.startswith("trials/1/") and key.endswith(".json"))])
    problems = list(judge(lines, [earlier, held], {2}, url, TRIALS + 1, STEPS + 1, count))
    assert (count.wrong, count.repeated, count.run_again, count.lost, count.unknown) == (1, 1, 1, 2, 1)
    assert (count.gaps, count.unfinished, count.doubled) == (TRIALS, 1, 0)
    assert count.missing == 1
    assert count.forgotten >= 1
    assert count.undeleted == 0
    assert len(problems) >= 8
    missed = [row.what for row in rows(count, judged=True) if row.met is False]
    assert "torn or wrong states restored" in missed
    assert "objects that it deleted wrongly" in missed


def test_nothing_is_wrong_without_a_kill(url: str, tmp_path: Path) -> None:
    count = Count()
    lines = Witness(tmp_path / "witness").lines()
    assert list(judge(lines, [], set(), url, TRIALS, STEPS, count)) == []
    assert all(row.met is not False for row in rows(count, judged=True))
    assert count.reports == TRIALS * STEPS
