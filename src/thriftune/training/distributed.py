"""How do the workers of one trial train one model? By torch.distributed, each on its share of every batch."""

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
from thriftune.training.gangs import listen
from thriftune.training.run import Gang, Run

_END_SECONDS = 5.0
_INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class Distributed:
    """What torch.distributed was set up with: which worker of how many this is, on which device."""

    rank: int
    size: int
    device: str
    backend: str


class Piece(NamedTuple):
    """Some samples of a batch, for one backward pass.

    The mean loss of the piece times `weight`: gradients of that, added up over a worker's pieces and averaged over
    the workers, are those of the mean loss of the whole batch.
    """

    part: slice  # of the batch
    weight: float
    last: bool  # of this worker's pieces: with it, gradients are averaged over the workers


def pieces(batch_size: int, rank: int, workers: int, most: int | None = None) -> list[Piece]:
    """A worker's share of a batch, cut into as few pieces as can be, none of more than `most` samples."""
    batch_size = _count("batch_size", batch_size)
    if batch_size < workers:
        raise SettingError(
            f"batch_size: {batch_size} samples are too few for {workers} workers; make batches larger, give the "
            "trial fewer workers, or leave out a last batch that is not full"
        )
    share = _cut(range(batch_size), workers)[rank]
    count = 1 if most is None else -(-len(share) // _count("most", most))
    parts = _cut(share, count)
    return [
        Piece(slice(part.start, part.stop), len(part) * workers / batch_size, number == count)
        for number, part in enumerate(parts, 1)
    ]


def _cut(whole: range, count: int) -> list[range]:
    """Parts whose lengths differ by one at most."""
    return [whole[len(whole) * i // count : len(whole) * (i + 1) // count] for i in range(count)]


def _count(name: str, given: Any) -> int:
    if isinstance(given, bool) or not hasattr(given, "__index__") or index(given) < 1:
        raise SettingError(f"{name}: {given!r} must be a whole number from 1")
    return index(given)


class Group:
    """The process group of a trial's workers."""

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
        self._store: Any = None  # the first worker keeps the others' in its own
        self._set: list[str] = []  # variables that were not there before
        size = run.workers if run.meet else 1
        local_rank = 0
        if gang is not None:
            local_rank = self._meet(run, gang)
        elif size > 1:  # in a command, which has been told by its variables
            local_rank = int(os.environ["LOCAL_RANK"])
        else:
            self._store = dist.HashStore()
        device = _device(torch.cuda.device_count(), local_rank, backend) if cuda else "cpu"
        if cuda:
            torch.cuda.set_device(device)
        how = {"init_method": "env://"} if self._store is None else {"store": self._store}
        dist.init_process_group(backend, rank=run.rank, world_size=size, **how)
        self.seen = Distributed(run.rank, size, device, backend)

    def _meet(self, run: Run, gang: Gang) -> int:
        """Makes the store by which the workers find each other. Returns this one's local rank."""
        dist = _torch().distributed

        def listen_there(host: str) -> int:
            # At that address alone: whoever reaches the store can do with the workers what they like.
            door = listen(host, 0, run.workers)
            port = int(door.getsockname()[1])
            self._store = dist.TCPStore(
                host or "127.0.0.1",
                port,
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=door.detach(),
            )
            return port

        host, port, local_rank = gang.meeting(listen_there)
        if self._store is None:
            self._store = dist.TCPStore(host, port, is_master=False)
        # Left to themselves, libraries use the address that the machine's name stands for, often a loopback.
        if (interface := _interface(gang.here)) is not None:
            for name in _INTERFACE_VARIABLES:
                if name not in os.environ:
                    os.environ[name] = interface
                    self._set.append(name)
        return local_rank

    def end(self) -> None:
        """Returns in any case. Where a library hangs, its thread stays, by which a worker knows not to go on."""
        ending = threading.Thread(target=_destroy, name="destroy_process_group")
        ending.start()
        ending.join(_END_SECONDS)
        for name in self._set:
            os.environ.pop(name, None)


def _torch() -> Any:
    try:
        import torch.distributed
    except ImportError:
        raise SettingError("trial.distributed() needs PyTorch; install it with: pip install torch") from None
    return torch


def _destroy() -> None:
    dist = _torch().distributed
    with contextlib.suppress(Exception):  # of a group that is broken: its error was told where it showed
        if dist.is_initialized():
            dist.destroy_process_group()


def _device(count: int, local_rank: int, backend: str) -> str:
    if backend == "nccl" and local_rank >= count:
        raise SettingError(
            f"{local_rank + 1} or more workers of the trial share {count} CUDA device(s), which NCCL cannot; give "
            "the trial fewer workers on a machine, or say trial.distributed(backend='gloo')"
        )
    return f"cuda:{local_rank % count}"


def _interface(address: str) -> str | None:
    """The name of the network interface with that IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                found = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return None
