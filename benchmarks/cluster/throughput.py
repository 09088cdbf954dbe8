"""Measures the trials a second on a Ray cluster, and the time to the first, against Ray Tune.

The objective does nothing. Both systems use isolated processes, results on disk and 2 CPUs. Each attaches to a
running cluster of one node with the same version of Ray. The clusters are different, because the environments are
(hold.py). Rounds alternate, so that a busy machine affects both systems alike.

The rate is that between the first and the last run of the objective. The time to the first report is measured in a
fresh process, until the objective runs first. It is measured from the call of tune() or fit(), and from the start
of the process, because only one of the systems has imported Ray before the call.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import peers
from benchmarks.common import Row, main, say, scratch

ROUNDS = 5
CPUS = 2
RATE_BAR = 3.0

_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""The second makes Ray use 127.0.0.1 itself, instead of the address by which others reach this machine."""

_PATIENCE_SECONDS = 300.0


class Run(NamedTuple):
    """The measurements of one study in a fresh process."""

    rate: float  # trials a second
    from_call: float  # seconds to the first run of the objective
    from_start: float  # the same, with the start of Python and imports


@dataclass(frozen=True)
class System:
    """A system that runs trials: its script in this folder, and the number of trials that take some seconds."""

    name: str
    script: str
    trials: int
    arguments: tuple[str, ...] = ()
    peer: str | None = None  # whose environment it uses; None: this one
    bars: bool = False  # thriftune has to be faster by RATE_BAR

    @property
    def python(self) -> Path:
        return peers.python(self.peer) if self.peer else Path(sys.executable)

    def run(self, address: str, trials: int) -> Run:
        with scratch() as folder:
            # -P: imports of the peer must not find modules of this folder
            script = Path(__file__).parent / self.script
            command = [str(self.python), "-P", str(script), *self.arguments, str(trials), str(folder)]
            environment = {**_environment(self.peer), "RAY_ADDRESS": address}
            began = time.time()
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
            )
        if done.returncode:
            raise SystemExit(f"{self.name} failed:\n{done.stderr[-4000:]}")
        result = json.loads(done.stdout.splitlines()[-1])
        times: list[float] = result["times"]
        if len(times) != trials:
            raise SystemExit(f"{self.name} ran {len(times)} trials instead of {trials}")
        first = min(times)
        return Run((trials - 1) / (max(times) - first), first - result["called"], first - began)


OURS = System("thriftune", "../noop_thriftune.py", 1500, ("ray",))
PEERS = (
    System("Ray Tune, reused actors", "noop_ray_tune.py", 150, ("reuse",), peer="ray", bars=True),
    System("Ray Tune, default: a process a trial", "noop_ray_tune.py", 6, ("fresh",), peer="ray"),
)


def _environment(peer: str | None) -> dict[str, str]:
    """Return the environment of a peer, without the module folders of this one."""
    left_out = {"RAY_ADDRESS", "RAY_TMPDIR", *(["PYTHONPATH"] if peer else [])}
    return {name: value for name, value in os.environ.items() if name not in left_out} | _ENVIRONMENT


@contextlib.contextmanager
def cluster(system: System) -> Iterator[str]:
    """Run a cluster during the block; yield its address."""
    command = [str(system.python), "-P", str(Path(__file__).with_name("hold.py")), str(CPUS)]
    pipe = subprocess.PIPE
    with scratch() as folder, (folder / "cluster.log").open("w") as log:
        holder = subprocess.Popen(
            command, env=_environment(system.peer), stdin=pipe, stdout=pipe, stderr=log, text=True
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            if not (address := holder.stdout.readline().strip()):
                raise SystemExit(f"no cluster: {(folder / 'cluster.log').read_text()[-4000:]}")
            yield address
        finally:
            holder.stdin.close()  # the cluster ends with its input
            try:
                holder.wait(_PATIENCE_SECONDS)
            finally:
                holder.kill()
                holder.stdout.close()


def measure(options: argparse.Namespace) -> list[Row]:
    rounds = 1 if options.quick else ROUNDS
    others = () if options.without_peers else PEERS
    ours: dict[str, list[Run]] = {}
    theirs: dict[str, list[Run]] = {}
    with contextlib.ExitStack() as stack:
        our_address = stack.enter_context(cluster(OURS))
        their_address = stack.enter_context(cluster(others[0])) if others else ""
        for system in (OURS, *others[:1]):  # the first processes of a cluster take longer to start
            system.run(our_address if system is OURS else their_address, 4)
        for number in range(1, rounds + 1):
            for system in others or (OURS,):
                ours.setdefault(system.name, []).append(_run(OURS, our_address, options.quick, number, rounds))
                if others:
                    theirs.setdefault(system.name, []).append(
                        _run(system, their_address, options.quick, number, rounds)
                    )
    every = [run for runs in ours.values() for run in runs]
    rows = [_alone(every)]
    for peer in others:
        rows += _rows(peer, ours[peer.name], theirs[peer.name], options.quick)
    return rows


def _run(system: System, address: str, quick: bool, number: int, rounds: int) -> Run:
    result = system.run(address, max(4, system.trials // 40) if quick else system.trials)
    say(
        f"round {number} of {rounds}: {system.name}: {result.rate:,.1f} trials a second, the first after "
        f"{result.from_call:.2f} s, {result.from_start:.2f} s with imports"
    )
    return result


def _alone(runs: list[Run]) -> Row:
    rates, call, start = (list(map(float, each)) for each in zip(*runs, strict=True))
    figure = (
        f"{median(rates):,.0f} a second ({min(rates):,.0f} to {max(rates):,.0f}); the first after "
        f"{median(call):.2f} s, {median(start):.2f} s with imports"
    )
    data = {"rates": rates, "seconds_from_call": call, "seconds_from_start": start}
    return Row(f"trials on a Ray cluster of {CPUS} CPUs: thriftune", figure, data=data)


def _rows(peer: System, ours: list[Run], theirs: list[Run], quick: bool) -> list[Row]:
    judged = peer.bars and not quick
    our, their = ([run.rate for run in runs] for runs in (ours, theirs))
    ratio = median(our) / median(their)
    ratios = [one / other for one, other in zip(our, their, strict=True)]
    rows = [
        Row(
            f"trials a second against {peer.name}",
            f"{ratio:,.1f} times ({min(ratios):,.1f} to {max(ratios):,.1f}); it does {median(their):,.1f}",
            bar=f"at least {RATE_BAR:g} times" if peer.bars else "",
            met=ratio >= RATE_BAR if judged else None,
            data={"ratio": ratio, "ratios": ratios, "ours": our, "theirs": their, "trials": peer.trials},
        )
    ]
    if not peer.bars:
        return rows
    for what, name in (("from the call", "from_call"), ("imports included", "from_start")):
        our, their = ([getattr(run, name) for run in runs] for runs in (ours, theirs))
        rows.append(
            Row(
                f"seconds to the first report, {what}, against {peer.name}",
                f"{median(our):.2f} s ({min(our):.2f} to {max(our):.2f}) against {median(their):.2f} s "
                f"({min(their):.2f} to {max(their):.2f})",
                bar="no slower",
                met=median(our) <= median(their) if judged else None,
                data={"ours": our, "theirs": their},
            )
        )
    return rows


if __name__ == "__main__":
    raise SystemExit(main(measure))
