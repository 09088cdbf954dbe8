"""Measure trials per second, of thriftune and peers, with a no-op objective, results on disk and 2 workers.

Runs alternate between thriftune and the peers, so that other load on the machine affects all of them. A rate is
measured from the first to the last run of the objective; see noop_thriftune.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks import peers
from benchmarks.common import Row, main, say, scratch

ROUNDS = 5


@dataclass(frozen=True)
class System:
    """A system that runs trials."""

    name: str
    script: str  # in this folder
    trials: int  # these take it 3 to 5 seconds
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    peer: str | None = None  # the name of its environment in peers.py; None for this environment
    bar: float | None = None  # thriftune's rate should be at least this many times the system's

    def rate(self, trials: int) -> float:
        """Return the trials per second of a new process with an empty folder."""
        python = peers.python(self.peer) if self.peer else sys.executable
        script = Path(__file__).with_name(self.script)
        with scratch() as folder:
            # -P hides the modules in this folder from the peer's imports.
            command = [python, "-P", script, *self.arguments, str(trials), folder]
            environment = {**os.environ, **self.environment}
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if run.returncode:
            raise SystemExit(f"{self.name} failed:\n{run.stderr[-4000:]}")
        times: list[float] = json.loads(run.stdout.splitlines()[-1])
        if len(times) != trials:
            raise SystemExit(f"{self.name} ran {len(times)} trials instead of {trials}")
        return (trials - 1) / (max(times) - min(times))


OURS = System("thriftune", "noop_thriftune.py", 8000)

_NO_FILES = {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}
PEERS = (
    System("Optuna, SQLite", "noop_optuna.py", 200, ("sqlite",), peer="optuna", bar=20),
    System("Optuna, journal file", "noop_optuna.py", 1200, ("journal",), peer="optuna", bar=2),
    # The bar is for Ray Tune's fastest way in which each result is in a file before the next trial starts.
    System("Ray Tune, reused actors", "noop_ray.py", 200, ("reuse",), peer="ray", bar=100),
    System("Ray Tune, reused actors, no result files", "noop_ray.py", 250, ("reuse",), _NO_FILES, peer="ray"),
    System("Ray Tune, default: a process per trial", "noop_ray.py", 6, ("fresh",), peer="ray"),
)


def measure(options: argparse.Namespace) -> list[Row]:
    """Return the rows of thriftune's rate and of its ratio to each peer's."""
    rounds = 1 if options.quick else ROUNDS
    measured_peers = () if options.without_peers else PEERS
    ours: dict[str, list[float]] = {peer.name: [] for peer in measured_peers}
    theirs: dict[str, list[float]] = {peer.name: [] for peer in measured_peers}
    without_peers: list[float] = []
    for number in range(1, rounds + 1):
        for peer in measured_peers:
            ours[peer.name].append(_rate(OURS, options.quick, number, rounds))
            theirs[peer.name].append(_rate(peer, options.quick, number, rounds))
        if not measured_peers:
            without_peers.append(_rate(OURS, options.quick, number, rounds))
    rates = without_peers + [rate for peer_rates in ours.values() for rate in peer_rates]
    rows = [
        Row(
            "trials per second, 2 workers: thriftune",
            f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
            data={"rates": rates},
        )
    ]
    return rows + [_row(peer, ours[peer.name], theirs[peer.name], options.quick) for peer in measured_peers]


def _rate(system: System, quick: bool, number: int, rounds: int) -> float:
    rate = system.rate(max(4, system.trials // 40) if quick else system.trials)
    say(f"round {number} of {rounds}: {system.name}: {rate:,.1f} trials per second")
    return rate


def _row(peer: System, ours: list[float], theirs: list[float], quick: bool) -> Row:
    ratio = median(ours) / median(theirs)
    ratios = [our_rate / their_rate for our_rate, their_rate in zip(ours, theirs, strict=True)]
    return Row(
        f"thriftune against {peer.name}",
        f"{ratio:,.1f} times ({min(ratios):,.1f} to {max(ratios):,.1f}); it runs {median(theirs):,.1f} per second",
        bar=f"at least {peer.bar:g} times" if peer.bar else "",
        met=None if quick or peer.bar is None else ratio >= peer.bar,
        data={"ratio": ratio, "ratios": ratios, "ours": ours, "theirs": theirs, "trials": peer.trials},
    )


if __name__ == "__main__":
    raise SystemExit(main(measure))
