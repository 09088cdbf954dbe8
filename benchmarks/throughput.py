"""How many trials a second? A no-op objective, isolated processes, results on disk, 2 workers; peers too.

Rounds alternate, ours, a peer, ours, the next peer, so that a busy machine disturbs both sides alike. Of each
round the rate is that between the first and the last run of the objective; see noop_thriftune.py.
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
    """Something that runs trials: which script of this folder, and how many trials take it some 3 to 5 seconds."""

    name: str
    script: str
    trials: int
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    peer: str | None = None  # whose environment it runs in; None: this one
    bar: float | None = None  # how many times its rate ours is to be

    def rate(self, trials: int) -> float:
        """Trials a second, from a fresh process and an empty folder."""
        python = peers.python(self.peer) if self.peer else sys.executable
        script = Path(__file__).with_name(self.script)
        with scratch() as folder:
            # -P: the names of our modules shall not be found by the peer's imports
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
    # Of Ray Tune's ways the bar is for the fastest that has each result in a file when the next trial starts.
    System("Ray Tune, reused actors", "noop_ray.py", 200, ("reuse",), peer="ray", bar=100),
    System("Ray Tune, reused actors, no result files", "noop_ray.py", 250, ("reuse",), _NO_FILES, peer="ray"),
    System("Ray Tune, default: a process a trial", "noop_ray.py", 6, ("fresh",), peer="ray"),
)


def measure(options: argparse.Namespace) -> list[Row]:
    rounds = 1 if options.quick else ROUNDS
    others = () if options.without_peers else PEERS
    ours: dict[str, list[float]] = {peer.name: [] for peer in others}
    theirs: dict[str, list[float]] = {peer.name: [] for peer in others}
    alone: list[float] = []
    for number in range(1, rounds + 1):
        for peer in others:
            ours[peer.name].append(_rate(OURS, options.quick, number, rounds))
            theirs[peer.name].append(_rate(peer, options.quick, number, rounds))
        if not others:
            alone.append(_rate(OURS, options.quick, number, rounds))
    every = alone + [rate for rates in ours.values() for rate in rates]
    rows = [
        Row(
            "trials a second, 2 workers: thriftune",
            f"{median(every):,.0f} ({min(every):,.0f} to {max(every):,.0f})",
            data={"rates": every},
        )
    ]
    return rows + [_row(peer, ours[peer.name], theirs[peer.name], options.quick) for peer in others]


def _rate(system: System, quick: bool, number: int, rounds: int) -> float:
    rate = system.rate(max(4, system.trials // 40) if quick else system.trials)
    say(f"round {number} of {rounds}: {system.name}: {rate:,.1f} trials a second")
    return rate


def _row(peer: System, ours: list[float], theirs: list[float], quick: bool) -> Row:
    ratio = median(ours) / median(theirs)
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    return Row(
        f"thriftune against {peer.name}",
        f"{ratio:,.1f} times ({min(ratios):,.1f} to {max(ratios):,.1f}); it does {median(theirs):,.1f} a second",
        bar=f"at least {peer.bar:g} times" if peer.bar else "",
        met=None if quick or peer.bar is None else ratio >= peer.bar,
        data={"ratio": ratio, "ratios": ratios, "ours": ours, "theirs": theirs, "trials": peer.trials},
    )


if __name__ == "__main__":
    raise SystemExit(main(measure))
