"""Measures the samples a second of a trial whose workers are on one node, or scattered over several.

This repeats Table 1 of RubberBand on a small scale. A real network is trained by 1, 2 and 4 workers with gloo,
once where the placement controller (planning/placement.py) puts them, and once with each worker on the next node.
Each node is a network namespace. The links between nodes have 1 Gbit/s each way, and a delay of half a millisecond
if the kernel supports that (netem), else none (tbf). Workers on one node do not use the link.

The workers run in the namespaces without a Ray cluster. The benchmark needs root, iproute2 and torch. Each worker
has one thread. With fewer cores than workers, the workers take turns, which slows both placements down: the ratio
is then not that of workers with a core each.
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
    """Namespaces that are nodes: their addresses by name, and a description of the link between them."""

    addresses: Mapping[str, str]
    link: str

    def rate(self, placement: Mapping[str, int], steps: int) -> float:
        """Return the samples a second of a trial with these numbers of workers by node."""
        nodes = [node for node, count in placement.items() for _ in range(count)]
        script = Path(__file__).with_name("ddp_worker.py")
        shared = {
            "MASTER_ADDR": self.addresses[nodes[0]],
            "MASTER_PORT": "29500",
            "WORLD_SIZE": str(len(nodes)),
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # no warnings that addresses have no names
        }
        with contextlib.ExitStack() as stack:
            started = []
            for rank, node in enumerate(nodes):
                command = ["ip", "netns", "exec", node, sys.executable, "-P", str(script), str(steps)]
                environment = {**os.environ, **shared, "RANK": str(rank)}
                worker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
                stack.callback(_end, worker)
                started.append(worker)
            outputs = [worker.communicate(timeout=_PATIENCE_SECONDS)[0] for worker in started]
        if any(worker.returncode for worker in started):
            raise SystemExit(f"workers ended with {[worker.returncode for worker in started]}")
        return float(outputs[0])


def _end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()


def _ip(*arguments: str, program: str = "ip") -> bool:
    """Run a command; return whether it has succeeded."""
    process = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    return process.returncode == 0


@contextlib.contextmanager
def network(nodes: int) -> Iterator[Network]:
    """Make namespaces that a bridge connects, in another namespace. The machine's network is not changed."""
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
            f"the network between the nodes cannot be made, because this command failed: ip {' '.join(arguments)}"
        )


def _shape(name: str) -> str:
    """Limit the speed of what a node sends; return a description of the link."""
    speed = RATE.replace("gbit", " Gbit/s")
    to = ("-n", name, "qdisc", "replace", "dev", "eth0", "root")
    if _ip(*to, "netem", "delay", f"{DELAY_MILLISECONDS}ms", "rate", RATE, "limit", "10000", program="tc"):
        return f"{speed}, {DELAY_MILLISECONDS:g} ms each way"
    if _ip(*to, "tbf", "rate", RATE, "burst", "128kb", "latency", "50ms", program="tc"):
        return f"{speed}, no delay (this kernel has no netem)"
    raise SystemExit("tc cannot limit links here, because the kernel has neither netem nor tbf")


def together(workers: int, nodes: Mapping[str, int]) -> Mapping[str, int]:
    """Return the placement of the placement controller."""
    return place({0: workers}, nodes).placement[0]


def scattered(workers: int, nodes: Mapping[str, int]) -> dict[str, int]:
    """Return a placement with each worker on the next node."""
    names = list(nodes)
    placement: dict[str, int] = {}
    for number in range(workers):
        name = names[number % len(names)]
        placement[name] = placement.get(name, 0) + 1
    return placement


def measure(options: argparse.Namespace) -> list[Row]:
    if missing := _missing():
        return [Row("workers together and scattered", f"not measured: it needs {missing}")]
    counts, rounds, steps = (WORKERS[:2], 1, 2) if options.quick else (WORKERS, ROUNDS, STEPS)
    rates: dict[tuple[int, str], list[float]] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the namespaces are removed
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
