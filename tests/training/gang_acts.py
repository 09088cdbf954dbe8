"""The training functions of the gang tests; each worker runs in its own process."""

from __future__ import annotations

import math
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from thriftune.engines.command import Command
from thriftune.engines.worker import attempt
from thriftune.state.events import Event, Reported
from thriftune.training import gangs
from thriftune.training.run import Run
from thriftune.training.trial import Trial

SEEN: list[Any] = []
"""Notes of the training function for the test."""


class RecordingLink:
    """A link that keeps all events, and asks to end after `end_after` reports."""

    def __init__(self, end_after: float) -> None:
        self.sent: list[Event] = []
        self.end_after = end_after

    def send(self, event: Event) -> int:
        self.sent.append(event)
        return 0

    def seconds_left(self) -> float | None:
        return None

    def end_requested(self, after_report: int = 0, timeout_seconds: float = 0.0) -> bool:
        return sum(isinstance(event, Reported) for event in self.sent) >= self.end_after


def work(pipe: Connection, run: Run, act: str, end_after: float, join_seconds: float) -> None:
    """Run one worker's attempt, and send its outcome to the test through the pipe."""
    gangs.JOIN_SECONDS = join_seconds
    link = RecordingLink(end_after)
    train = command(run) if act == "command" else globals()[act]
    outcome = attempt(train, run, link)
    if act == "group":
        _note_group_state()
    pipe.send((outcome, link.sent, SEEN))
    pipe.close()
    os._exit(0)  # as a worker does, even if threads still run


def save(trial: Trial, state: object) -> Any:
    return lambda folder: (folder / "state").write_text(f"{state}")


# --- without torch ----------------------------------------------------------------------------------------


def looping(trial: Trial) -> None:
    SEEN.append((trial.rank, trial.world_size))
    for step in trial.steps():
        SEEN.append(step)
        trial.report(loss=1.0 / step, save=save(trial, f"{step} by {trial.rank}"))


def reporting(trial: Trial) -> float:
    """Report without steps(); EndTrial ends the function."""
    for step in range(1, 10):
        SEEN.append(step)
        trial.report(loss=1.0 / step)
    return 0.0


def first_is_nan(trial: Trial) -> None:
    for step in trial.steps():
        SEEN.append(step)
        trial.report(loss=math.nan if (step, trial.rank) == (2, 0) else 1.0)


def second_is_nan(trial: Trial) -> float:
    for step in trial.steps():
        SEEN.append(step)
        trial.report(loss=math.nan if trial.rank == 1 else 1.0)
    return math.nan if trial.rank == 1 else 0.5


def restoring(trial: Trial) -> None:
    def load(folder: Path) -> None:
        if trial.rank == 1:
            time.sleep(0.3)  # worker 0 must wait, and not remove the checkpoint
        SEEN.append((folder / "state").read_text())

    SEEN.append(trial.restore(load))
    looping(trial)


def restoring_badly(trial: Trial) -> None:
    """Fail in worker 1; worker 0 fails because of it."""
    trial.restore(lambda folder: 1 / 0 if trial.rank == 1 else None)
    raise RuntimeError("connection closed by peer")


def restoring_apart(trial: Trial) -> None:
    if trial.rank == 0:
        trial.restore(lambda folder: None)
    looping(trial)


def killed_1(trial: Trial) -> None:
    _killed(trial, 1)


def killed_0(trial: Trial) -> None:
    _killed(trial, 0)


def _killed(trial: Trial, rank: int) -> None:
    for step in trial.steps():
        if (step, trial.rank) == (3, rank):
            os.kill(os.getpid(), signal.SIGKILL)
        trial.report(loss=1.0)


def not_asking(trial: Trial) -> None:
    """Check for the end in worker 0 only; worker 0 must not wait for worker 1."""
    if trial.rank == 0:
        for _ in range(200_000):
            trial.told_to_end()


def command(run: Run) -> Command:
    return Command(run.config["command"], {"loss": "loss=(.*)"}, run.folder)


# --- with torch -------------------------------------------------------------------------------------------


def group(trial: Trial) -> None:
    import torch
    import torch.distributed as dist

    seen = trial.distributed()
    assert trial.distributed() is seen
    total = torch.tensor([float(trial.rank + 1)])
    dist.all_reduce(total)
    SEEN.append((seen.rank, seen.size, seen.device, seen.backend, total.item()))
    trial.report(loss=1.0)


def _note_group_state() -> None:
    import torch.distributed as dist

    SEEN.append("going on" if dist.is_initialized() else "ended")


def set_up_before(trial: Trial) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    trial.distributed()


def killed_in_group(trial: Trial) -> None:
    _in_group(trial, lambda: os.kill(os.getpid(), signal.SIGKILL))


def raises_in_group(trial: Trial) -> None:
    _in_group(trial, lambda: 1 / 0)


def _in_group(trial: Trial, act: Any) -> None:
    import torch
    import torch.distributed as dist

    trial.distributed()
    for step in trial.steps():
        if step == 3 and trial.rank == trial.world_size - 1:
            act()
        dist.all_reduce(torch.ones(1))
        trial.report(loss=1.0)


SAMPLES, BATCH = 66, 10


def learning(trial: Trial) -> None:
    """Train data-parallel on batches drawn by the seed; the last batch of an epoch is smaller."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    most = trial["most"]
    torch.set_num_threads(1)
    set_up = trial.distributed()
    torch.manual_seed(trial.seed)
    x = torch.randn(SAMPLES, 4)
    y = torch.sin(x.sum(1, keepdim=True))
    bare = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.1, momentum=0.9)

    def load(folder: Path) -> None:
        state = torch.load(folder / "state.pt")
        bare.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def save_state(folder: Path) -> None:
        torch.save({"model": bare.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt")

    trial.restore(load)
    model = DistributedDataParallel(bare)
    for step in trial.steps():
        order = np.random.default_rng((trial.seed, step)).permutation(SAMPLES)
        for start in range(0, SAMPLES, BATCH):
            batch = order[start : start + BATCH]
            optimizer.zero_grad()
            for piece in trial.pieces(len(batch), most):
                mine = torch.as_tensor(batch[piece.part])
                model.require_backward_grad_sync = piece.last  # as no_sync() does
                loss = torch.nn.functional.mse_loss(model(x[mine]), y[mine])
                (loss * piece.weight).backward()
            optimizer.step()
        with torch.no_grad():
            full_loss = torch.nn.functional.mse_loss(bare(x), y).item()
        trial.report(loss=full_loss, save=save_state)
    SEEN.append(set_up.size)
