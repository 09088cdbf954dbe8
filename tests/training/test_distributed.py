"""Tests of torch.distributed in gangs: several workers train the same model as one."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import needs_torch
from tests.end_to_end.test_readme import blocks, run
from tests.training.gang_acts import RecordingLink
from tests.training.test_gangs import WorkerResult, Workers
from thriftune.errors import SettingError
from thriftune.state.events import Ended, Failed, Lost, Reported
from thriftune.training.distributed import _device, _interface, pieces
from thriftune.training.run import Run
from thriftune.training.trial import Trial

STEPS = 6


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    found = Workers(tmp_path)
    yield found
    found.close()


# --- pieces -----------------------------------------------------------------------------------------------

Split = tuple[int, int, int | None]
splits = st.integers(1, 9).flatmap(
    lambda workers: st.tuples(st.integers(workers, 60), st.just(workers), st.none() | st.integers(1, 70))
)


@given(splits)
def test_pieces_cover_the_batch_in_equal_shares(split: Split) -> None:
    batch_size, workers, most = split
    found = [pieces(batch_size, rank, workers, most) for rank in range(workers)]
    covered = [i for share in found for piece in share for i in range(batch_size)[piece.part]]
    assert covered == list(range(batch_size))
    sizes = [[piece.part.stop - piece.part.start for piece in share] for share in found]
    totals = [sum(each) for each in sizes]
    assert max(totals) - min(totals) <= 1
    for share, each, total in zip(found, sizes, totals, strict=True):
        assert [piece.last for piece in share] == [False] * (len(share) - 1) + [True]
        assert max(each) <= (most or batch_size)
        assert len(each) == math.ceil(total / (most or batch_size))


@given(splits, st.integers(0, 2**32))
def test_the_gradient_of_a_linear_model_is_that_of_the_whole_batch(split: Split, seed: int) -> None:
    batch_size, workers, most = split
    rng = np.random.default_rng(seed)
    x, y, w = rng.normal(size=(batch_size, 3)), rng.normal(size=batch_size), rng.normal(size=3)

    def gradient(part: slice) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the gradient of the mean squared error over the part."""
        return np.asarray(2.0 * x[part].T @ (x[part] @ w - y[part]) / len(y[part]))

    summed = [
        np.sum([piece.weight * gradient(piece.part) for piece in pieces(batch_size, rank, workers, most)], axis=0)
        for rank in range(workers)
    ]
    np.testing.assert_allclose(np.mean(summed, axis=0), gradient(slice(None)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("batch_size", "most", "why"),
    [
        (2, None, "batch_size: 2 samples are too few for 3 workers; make batches larger, give the trial fewer"),
        (0, None, "batch_size: 0 must be a whole number from 1"),
        (2.5, None, r"batch_size: 2\.5 must be a whole number from 1"),
        (True, None, "batch_size: True must be a whole number from 1"),
        (9, 0, "most: 0 must be a whole number from 1"),
    ],
)
def test_invalid_batches_are_refused(batch_size: Any, most: Any, why: str) -> None:
    with pytest.raises(SettingError, match=why):
        pieces(batch_size, 0, 3, most)


def test_a_numpy_integer_is_a_number() -> None:
    assert pieces(np.int64(4), 0, 2, np.int64(2)) == pieces(4, 0, 2, 2)  # type: ignore[arg-type]


# --- devices ----------------------------------------------------------------------------------------------


def test_local_ranks_give_devices() -> None:
    assert [_device(4, local_rank, "nccl") for local_rank in range(4)] == [f"cuda:{i}" for i in range(4)]
    with pytest.raises(SettingError, match=r"2 or more workers of the trial share 1 CUDA device\(s\), which NCCL"):
        _device(1, 1, "nccl")
    assert _device(1, 1, "gloo") == "cuda:0"


def test_the_interface_of_an_address() -> None:
    assert _interface("127.0.0.1") == "lo"
    assert _interface("192.0.2.1") is None


# --- process groups ---------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("count", [1, 3])
def test_process_group_has_all_workers(workers: Workers, count: int) -> None:
    total = sum(range(1, count + 1))
    for rank, result in enumerate(workers.play("group", count)):
        assert isinstance(result.outcome, Ended), result.outcome
        assert result.seen == [(rank, count, "cpu", "gloo", total), "ended"]


@needs_torch
def test_second_process_group_is_refused(workers: Workers) -> None:
    (result,) = workers.play("set_up_before", 1)
    assert isinstance(result.outcome, Failed)
    assert "torch.distributed is set up already; call trial.distributed() instead" in result.outcome.error


def test_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    run = Run(0, 1, {}, 0, ("loss",), 5, 7, str(tmp_path), 2)
    with pytest.raises(SettingError, match="needs PyTorch; install it with: pip install torch"):
        Trial(run, RecordingLink(math.inf)).distributed()


@needs_torch
def test_killed_worker_is_no_failure(workers: Workers) -> None:
    workers.start(workers.run(3), "killed_in_group", range(3))
    first, second, third = workers.results()
    assert third is None
    assert first is not None
    assert second is not None
    assert isinstance(first.outcome, Lost), first.outcome
    assert first.outcome.why == "its worker 2 is gone"
    assert isinstance(second.outcome, Ended), second.outcome
    assert second.outcome.cut


@needs_torch
def test_failure_names_its_worker(workers: Workers) -> None:
    first, second = workers.play("raises_in_group", 2)
    assert isinstance(second.outcome, Failed)
    assert "ZeroDivisionError" in second.outcome.error
    assert isinstance(first.outcome, Failed), first.outcome
    assert first.outcome.kind == "raised"
    assert first.outcome.error.startswith("in worker 1: Traceback")
    assert "ZeroDivisionError" in first.outcome.error


@needs_torch
def test_command_has_a_process_group(workers: Workers, tmp_path: Path) -> None:
    script = """
import torch, thriftune
trial = thriftune.current_trial()
seen = trial.distributed()
total = torch.ones(1)
torch.distributed.all_reduce(total)
trial.report(loss=total.item() + seen.size)
"""
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "script.py").write_text(script)
    first, second = workers.play("command", 2, config={"command": [sys.executable, "script.py"]})
    assert isinstance(first.outcome, Ended), first.outcome
    assert isinstance(second.outcome, Ended), second.outcome
    assert curve([first]) == {1: 4.0}


# --- the same curve, whoever works ------------------------------------------------------------------------


def curve(results: list[WorkerResult]) -> dict[int, float]:
    return {event.step: event.metrics["loss"] for event in results[0].sent if isinstance(event, Reported)}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Return the curve of a single worker."""
    one = Workers(tmp_path_factory.mktemp("alone"))
    try:
        return curve(one.play("learning", 1, max_steps=STEPS, config={"most": None}))
    finally:
        one.close()


@needs_torch
@pytest.mark.parametrize(("count", "most"), [(1, 3), (3, 2)])
def test_the_curve_does_not_depend_on_the_workers(
    workers: Workers, alone: dict[int, float], count: int, most: int | None
) -> None:
    result = workers.play("learning", count, max_steps=STEPS, config={"most": most})
    assert [each.seen for each in result] == [[count]] * count, result
    assert list(alone) == list(range(1, STEPS + 1))
    assert curve(result) == pytest.approx(alone, rel=1e-4)
    assert alone[STEPS] < alone[1]


@needs_torch
def test_the_number_of_workers_may_change_at_a_checkpoint(workers: Workers, alone: dict[int, float]) -> None:
    config = {"most": 4}
    before = workers.play("learning", 2, end_after=2, max_steps=STEPS, config=config)
    assert list(curve(before)) == [1, 2]
    workers.close()
    after = workers.play("learning", 1, max_steps=STEPS, config=config, resume_step=2, attempt=2)
    assert list(curve(after)) == list(range(3, STEPS + 1))
    assert {**curve(before), **curve(after)} == pytest.approx(alone, rel=1e-4)


@needs_torch
def test_example_in_the_docs_runs(tmp_path: Path) -> None:
    (example,) = blocks("docs/distributed.md")
    assert "'width'" in run(example, tmp_path)
