"""One worker of a trial, which trains a network with DistributedDataParallel over gloo, on one thread.

The first worker prints how many samples a second all workers have processed together.
"""

from __future__ import annotations

import os
import sys
import time

import torch
from torch import nn
from torch.distributed import barrier, destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH = 1024, 64  # samples of each worker
WARM_UP_STEPS = 3


def network() -> nn.Module:
    hidden = [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))


def main(steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    init_process_group("gloo")  # reads the rank and addresses from the environment
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, classes = torch.randn(BATCH, WIDTH), torch.randint(10, (BATCH,))
    started = 0.0
    for step in range(WARM_UP_STEPS + steps):
        if step == WARM_UP_STEPS:
            barrier()
            started = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), classes).backward()
        optimizer.step()
    barrier()
    seconds = time.perf_counter() - started
    if rank == 0:
        print(workers * BATCH * steps / seconds)
    destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
