"""Tests how long the workers of a gang may take to end after the first of them, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from thriftune.engines.ray.engine import RayEngine
from thriftune.engines.worker import UPLOAD_AFTER_FAILURE_SECONDS, UPLOAD_SECONDS
from thriftune.state.events import Ended, Event, Failed
from thriftune.training.run import Run

ENDED, FAILED = Ended(1.0, 0, 1, 1.0), Failed(1.0, 0, 1, "raised", "ValueError")


@pytest.mark.parametrize(
    ("objects", "rank", "event", "least", "most"),
    [
        pytest.param("s3://bucket", 1, ENDED, UPLOAD_SECONDS, UPLOAD_SECONDS + 60, id="rank 0 uploads"),
        pytest.param("s3://bucket", 1, FAILED, UPLOAD_AFTER_FAILURE_SECONDS, 60, id="after a failure"),
        pytest.param("s3://bucket", 0, ENDED, 1, 60, id="rank 1 has nothing to upload"),
        pytest.param("", 1, ENDED, 1, 60, id="checkpoints in a folder"),
    ],
)
def test_the_upload_of_the_last_checkpoint_is_not_killed(
    tmp_path: Path, objects: str, rank: int, event: Event, least: float, most: float
) -> None:
    engine = RayEngine(MagicMock(), MagicMock(), {"CPU": 1.0}, tmp_path, "test", {})
    pool: Any = MagicMock()
    workers = [MagicMock(pid=1), MagicMock(pid=2)]
    pool.acquire.return_value = workers
    engine._pool = pool
    run = Run(0, 1, {}, 0, ("loss",), 5, 0, str(tmp_path), 2)
    engine.start(replace(run, objects=objects), {"a": 2})
    engine.worker_event(workers[rank], event)
    ((seconds, _), _) = pool.call_later.call_args
    assert least <= seconds <= most
