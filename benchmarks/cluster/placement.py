"""What is it worth that the workers of a trial are together? Samples a second, together and scattered.

As in Table 1 of RubberBand, in the small: a real network is trained by 1, 2 and 4 workers with gloo, once where
the placement controller (planning/placement.py) puts them, and once without it, each on the next node. A node is a
network namespace of its own; between any two is a link of 1 Gbit/s each way, with half a millisecond of delay
where the kernel can (netem), else without (tbf). Workers on one node do not use the link.

It is the workers themselves that are in the namespaces, without a Ray cluster around them. It wants root, iproute2
and torch. Every worker has one thread. Where there are fewer cores than workers they take turns, which slows
down both ways: the ratio is not that of workers which have a core each.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.common import Row, main, say
from thriftune.planning.placement import place

NODES, SLOTS = 4, 4
WORKERS = (1, 2, 4)
STEPS, ROUNDS = 20, 3
DELAY_MILLISECONDS, RATE = 0.5, "1gbit"
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Network:
    """Namespaces that are nodes, by name, with their addresses; and what is between them, in words."""

    addresses: Mapping[str, str]
    link: str

    def rate(self, placement: Mapping[str, int], steps: int) -> float:
        """Samples a second of a trial with so many workers on which node."""
        seats = [node for node, count in placement.items() for _ in range(count)]
        script = Path(__file__).with_name("ddp_worker.py")
        shared = {
            "MASTER_ADDR": self.addresses[seats[0]],
            "MASTER_PORT": "29500",
            "WORLD_SIZE": str(len(seats)),
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # a namespace has no names for its addresses, which it would tell
        }
        with contextlib.ExitStack() as stack:
            started = []
            for rank, node in enumerate(seats):
                command = ["ip", "netns", "exec", node, sys.executable, "-P", str(script), str(steps)]
                environment = {**os.environ, **shared, "RANK": str(rank)}
                worker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
                stack.callback(_end, worker)
                started.append(worker)
            said = [worker.communicate(timeout=_PATIENCE_SECONDS)[0] for worker in started]
        if any(worker.returncode for worker in started):
            raise SystemExit(f"workers ended with {[worker.returncode for worker in started]}")
        return float(said[0])


def _end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()


def _ip(*arguments: str, program: str = "ip") -> bool:
    """False: it cannot."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    return done.returncode == 0


@contextlib.contextmanager
def network(nodes: int) -> Iterator[Network]:
    """Namespaces that hang on a bridge, which is in one of its own; the machine's network is not touched."""
    prefix = f"tt{os.getpid()}"
    hub = f"{prefix}-hub"
    names = [f"{prefix}-{number}" for number in range(1, nodes + 1)]
    with contextlib.ExitStack() as stack:
        for name in (hub, *names):
            stack.callback(_ip, "netns", "delete", name)
            _must("netns", "add", name)
            _must("-n", name, "link", "set", "lo", "up")
        _must("-n", hub, "link", "add", "bridge0", "type", "bridge")
        _must("-n", hub, "link", "set", "bridge0", "up")
        link = ""
        for number, name in enumerate(names, 1):
            port = f"port{number}"
            _must("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _must("-n", hub, "link", "set", port, "master", "bridge0", "up")
            _must("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            _must("-n", name, "link", "set", "eth0", "up")
            link = _shape(name)
        yield Network({name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}, link)


def _must(*arguments: str) -> None:
    if not _ip(*arguments):
        raise SystemExit(
            f"this failed, and without it there is no network between nodes: ip {' '.join(arguments)}"
        )


def _shape(name: str) -> str:
    """Of what a node sends; what it is like then."""
    speed = RATE.replace("gbit", " Gbit/s")
    to = ("-n", name, "qdisc", "replace", "dev", "eth0", "root")
    if _ip(*to, "netem", "delay", f"{DELAY_MILLISECONDS}ms", "rate", RATE, "limit", "10000", program="tc"):
        return f"{speed}, {DELAY_MILLISECONDS:g} ms each way"
    if _ip(*to, "tbf", "rate", RATE, "burst", "128kb", "latency", "50ms", program="tc"):
        return f"{speed}, no delay (this kernel has no netem)"
    raise SystemExit("tc can limit no link here: the kernel has neither netem nor tbf")


def together(workers: int, nodes: Mapping[str, int]) -> Mapping[str, int]:
    return place({0: workers}, nodes).placement[0]


def scattered(workers: int, nodes: Mapping[str, int]) -> dict[str, int]:
    """One after the other on the next node, as where nobody sees to it."""
    names = list(nodes)
    found: dict[str, int] = {}
    for number in range(workers):
        name = names[number % len(names)]
        found[name] = found.get(name, 0) + 1
    return found


def measure(options: argparse.Namespace) -> list[Row]:
    if missing := _missing():
        return [Row("workers together and scattered", f"not measured: it needs {missing}")]
    counts, rounds, steps = (WORKERS[:2], 1, 2) if options.quick else (WORKERS, ROUNDS, STEPS)
    rates: dict[tuple[int, str], list[float]] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # namespaces would stay
    with network(NODES) as net:
        slots = dict.fromkeys(net.addresses, SLOTS)
        for number in range(1, rounds + 1):
            for workers in counts:
                for how, find in (("placed", together), ("scattered", scattered)):
                    rate = net.rate(find(workers, slots), steps)
                    rates.setdefault((workers, how), []).append(rate)
            say(f"round {number} of {rounds}: done")
    return [_row(workers, net.link, rates[workers, "placed"], rates[workers, "scattered"]) for workers in counts]


def _missing() -> str:
    if os.geteuid() != 0:
        return "root, to make network namespaces"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "ip and tc (iproute2)"
    return "" if importlib.util.find_spec("torch") else "torch"


def _row(workers: int, link: str, placed: list[float], apart: list[float]) -> Row:
    ratios = [one / other for one, other in zip(placed, apart, strict=True)]
    figure = (
        f"{median(placed):,.0f} samples a second placed, {median(apart):,.0f} scattered: "
        f"{median(placed) / median(apart):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    data = {"placed": placed, "scattered": apart}
    return Row(f"{workers} worker{'s' * (workers > 1)}; between nodes {link}", figure, data=data)


if __name__ == "__main__":
    raise SystemExit(main(measure))
