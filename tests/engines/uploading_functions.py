"""Training functions that save states, for tests of uploads. `act` calls the one that the configuration names.

A state says which step and batch it is of, and its files follow from that. So each state can be checked alone.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from thriftune.training.trial import Trial

FILES = {"changing": (300_000, 1), "slow": (300_000, 3), "folder/fixed": (200_000, 10**9)}
"""The size of each file, and the number of steps after which it changes."""

BATCHES = 2


def content(name: str, position: int) -> bytes:
    """Return a file of the state at this position, which counts batches."""
    size, period = FILES[name]
    return random.Random(f"{name} {position // period}").randbytes(size)


def write_state(folder: Path, position: int) -> None:
    """Write the state after this many batches."""
    (folder / "position").write_text(json.dumps(position))
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content(name, position))


def writer(position: int) -> Callable[[Path], object]:
    return lambda folder: write_state(folder, position)


def read_state(folder: Path) -> int:
    """Return the position of a state. Fails unless all its files are of that position."""
    position = int(json.loads((folder / "position").read_text()))
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {"position", *FILES}
    for name in FILES:
        assert (folder / name).read_bytes() == content(name, position), f"{name} of {position}"
    return position


def act(trial: Trial) -> object:
    return ACTS[trial["do"]](trial)


def train(trial: Trial) -> None:
    """Save after each batch. Fails if a state is restored that is older than `least`, or is not what was saved."""
    positions = [0]
    step = trial.restore(lambda folder: positions.append(read_state(folder)))
    position = positions[-1]
    assert position >= trial["least"], f"{position} was restored, after {trial['least']} was stored"
    assert position // BATCHES == step
    assert trial.partial == bool(position % BATCHES)
    for step in trial.steps():
        while position < step * BATCHES - 1:
            position += 1
            trial.save(writer(position))
        position += 1
        trial.report(loss=1.0 / step, save=writer(position))


def save_and_fork(trial: Trial) -> float:
    """Restore, save, fork while that is being uploaded, save in the parent again, and return this process."""
    trial.restore(read_state)
    trial.report(step=1, loss=0.0, save=writer(1))
    pid = os.fork()
    if pid == 0:
        time.sleep(0.2)
        os._exit(0)
    trial.report(step=2, loss=0.0, save=writer(2))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return float(os.getpid())


def save_and_raise(trial: Trial) -> None:
    trial.report(step=1, loss=0.0, save=lambda folder: write_state(folder, 2))
    raise ValueError("after the report")


def load_data(trial: Trial) -> None:
    """Save at each epoch, whose batches come from forked processes."""
    from torch.utils.data import DataLoader

    for epoch in trial.steps():
        loader = DataLoader(list(range(64)), batch_size=8, num_workers=2)
        total = sum(int(batch.sum()) for batch in loader)
        trial.report(loss=float(total), save=writer(epoch * BATCHES))


def wait_for_notice(trial: Trial) -> None:
    """Train one step that is longer than the notice, and save in its middle when it is time."""
    while not trial.should_save:
        time.sleep(0.001)
    trial.save(lambda folder: write_state(folder, 1))
    while True:
        time.sleep(1.0)


ACTS: dict[str, Callable[[Trial], object]] = {
    each.__name__: each for each in (train, save_and_fork, save_and_raise, load_data, wait_for_notice)
}
