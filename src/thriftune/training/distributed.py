"""Sets up torch.distributed for the workers of a trial, and divides batches among them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import threading
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple

from thriftune.errors import SettingError
from thriftune.training.gang_connection import listen
from thriftune.training.run import Gang, Run

_END_SECONDS = 5.0
"""How long to wait for libraries to end the process group; a broken group may hang."""

_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_SIOCGIFADDR = 0x8915  # from linux/sockios.h: get the address of a network interface


@dataclass(frozen=True, slots=True)
class Distributed:
    """The set-up of torch.distributed in this worker: its rank, the number of workers, its device."""

    rank: int
    size: int
    device: str
    backend: str


class Piece(NamedTuple):
    """Some samples of a batch, for one backward pass.

    Multiply the mean loss of the piece by `weight`. The gradients, summed over a worker's pieces and averaged over
    the workers, are then those of the mean loss of the whole batch.
    """

    part: slice  # the samples' positions in the batch
    weight: float
    last: bool  # whether it is this worker's last piece; average the gradients over the workers with it


def pieces(batch_size: int, rank: int, workers: int, most: int | None = None) -> list[Piece]:
    """Divide a worker's share of a batch into the fewest pieces of at most `most` samples; None for no limit."""
    batch_size = _count("batch_size", batch_size)
    if batch_size < workers:
        raise SettingError(
            f"batch_size: {batch_size} samples are too few for {workers} workers; make batches larger, give the "
            "trial fewer workers, or skip an incomplete last batch"
        )
    share = _divide(range(batch_size), workers)[rank]
    count = 1 if most is None else -(-len(share) // _count("most", most))
    parts = _divide(share, count)
    return [
        Piece(slice(part.start, part.stop), len(part) * workers / batch_size, number == count)
        for number, part in enumerate(parts, 1)
    ]


def _divide(whole: range, count: int) -> list[range]:
    """Divide a range into parts whose lengths differ by at most one."""
    return [whole[len(whole) * i // count : len(whole) * (i + 1) // count] for i in range(count)]


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or index(value) < 1:
        raise SettingError(f"{name}: {value!r} must be a whole number from 1")
    return index(value)


class ProcessGroup:
    """The torch.distributed process group of a trial's workers."""

    def __init__(self, run: Run, gang: Gang | None, backend: str | None) -> None:
        torch = _torch()
        dist = torch.distributed
        if dist.is_initialized():
            raise SettingError(
                "torch.distributed is set up already; call trial.distributed() instead of init_process_group()"
            )
        cuda = torch.cuda.is_available()
        backend = backend or ("nccl" if cuda else "gloo")
        self._gang = gang
        self._store: Any = None  # a follower's is a client of the one in worker 0
        self._own_variables: list[str] = []  # environment variables that this object has set
        size = run.workers if run.leader_address else 1
        local_rank = 0
        if gang is not None:
            local_rank = self._make_store(run, gang)
        elif size > 1:  # in a command, which has them in its environment
            local_rank = int(os.environ["LOCAL_RANK"])
        else:
            self._store = dist.HashStore()
        device = _device(torch.cuda.device_count(), local_rank, backend) if cuda else "cpu"
        if cuda:
            torch.cuda.set_device(device)
        store = {"init_method": "env://"} if self._store is None else {"store": self._store}
        dist.init_process_group(backend, rank=run.rank, world_size=size, **store)
        self.set_up = Distributed(run.rank, size, device, backend)

    def _make_store(self, run: Run, gang: Gang) -> int:
        """Make the store by which the workers find each other; return the local rank of this worker."""
        dist = _torch().distributed

        def start_store(host: str) -> int:
            # Listen at this address only: a process that reaches the store can control the workers.
            listener = listen(host, 0, run.workers)
            port = int(listener.getsockname()[1])
            self._store = dist.TCPStore(
                host or "127.0.0.1",
                port,
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )
            return port

        host, port, local_rank = gang.rendezvous(start_store)
        if self._store is None:
            self._store = dist.TCPStore(host, port, is_master=False)
        # By default, libraries use the address of the machine's host name, which is often a loopback address.
        if (interface := _interface(gang.own_address)) is not None:
            for name in _INTERFACE_VARIABLES:
                if name not in os.environ:
                    os.environ[name] = interface
                    self._own_variables.append(name)
        return local_rank

    def end(self) -> None:
        """End the group within some seconds. If a library hangs, its thread remains, which the worker checks."""
        ending = threading.Thread(target=_destroy, name="destroy_process_group")
        ending.start()
        ending.join(_END_SECONDS)
        for name in self._own_variables:
            os.environ.pop(name, None)


def _torch() -> Any:
    try:
        import torch.distributed
    except ImportError:
        raise SettingError("trial.distributed() needs PyTorch; install it with: pip install torch") from None
    return torch


def _destroy() -> None:
    dist = _torch().distributed
    with contextlib.suppress(Exception):  # a broken group; its error has been raised elsewhere
        if dist.is_initialized():
            dist.destroy_process_group()


def _device(count: int, local_rank: int, backend: str) -> str:
    if backend == "nccl" and local_rank >= count:
        raise SettingError(
            f"{local_rank + 1} or more workers of the trial share {count} CUDA device(s), which NCCL does not "
            "support; give the trial fewer workers on a machine, or call trial.distributed(backend='gloo')"
        )
    return f"cuda:{local_rank % count}"


def _interface(address: str) -> str | None:
    """Return the name of the network interface with this IPv4 address; None without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # the interface has no IPv4 address
                request = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(request[20:24]) == address:
                    return name
    return None
