"""Measures the trials a second on a Ray cluster whose nodes share no folder with the driver, against a shared one.

The cluster has two nodes on this machine, with a core each. In their namespaces of mounts, the folders of one half
of the studies are empty. These studies keep checkpoints in rclone's S3 server on loopback, and their reports and
output travel through Ray. The other studies use a folder that the nodes see. Rounds alternate, so that a busy
machine affects both alike.

Trials that do nothing show the cost of the engine. Trials of a second that save 100 KB show it with checkpoints.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import ROOT, Row, main, say, scratch
from benchmarks.object_store.s3_server import bucket_url, s3_server

ROUNDS = 3
BAR = 0.9
NOTHING = {"trials": 400, "seconds": 0.0, "saves": False}
SAVING = {"trials": 20, "seconds": 1.0, "saves": True}
_BUCKET = "studies"
_PATIENCE_SECONDS = 300.0


def measure(options: argparse.Namespace) -> list[Row]:
    from tests.support.ray_clusters import nodes

    rounds = 1 if options.quick else ROUNDS
    with scratch() as folder, s3_server(folder / "s3", _BUCKET) as endpoint, nodes() as cluster:
        hidden, shared = folder / "hidden", folder / "shared"
        hidden.mkdir()
        shared.mkdir()
        for _ in range(2):
            cluster.add_apart(1, hidden)
        places = {"shared": (shared, None), "apart": (hidden, bucket_url(endpoint, _BUCKET))}
        rows = []
        for what, study in (("trials that do nothing", NOTHING), ("trials of 1 s that save 100 KB", SAVING)):
            if options.quick:
                study = {**study, "trials": study["trials"] // 5}
            results: dict[str, list[dict[str, float]]] = {name: [] for name in places}
            for number in range(rounds + 1):  # in the first round, processes start that later rounds use
                for name, (parent, storage) in places.items():
                    own = parent / f"{what.split()[-1]}-{number}"
                    own.mkdir()
                    result = _run(cluster.address, {**study, "folder": str(own), "storage": storage})
                    say(f"{what}, {name}: {result['rate']:.1f} trials a second, {result['seconds']:.1f} s in all")
                    if number:
                        results[name].append(result)
            rows += _rows(what, results, options.quick)
        return rows


def _run(address: str, settings: Mapping[str, Any]) -> dict[str, float]:
    script = Path(__file__).with_name("ray_study.py")
    environment = {**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-P", str(script), json.dumps(settings)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the study failed:\n{done.stderr[-4000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _rows(what: str, results: Mapping[str, list[dict[str, float]]], quick: bool) -> list[Row]:
    rates = {name: median(each["rate"] for each in several) for name, several in results.items()}
    seconds = {name: median(each["seconds"] for each in several) for name, several in results.items()}
    ratio = rates["apart"] / rates["shared"]
    figure = f"{rates['apart']:.1f} against {rates['shared']:.1f}: {ratio:.2f} times as many"
    whole = f"{seconds['apart']:.1f} against {seconds['shared']:.1f}"
    return [
        Row(
            f"{what}: trials a second, without against with a shared folder",
            figure,
            f"at least {BAR} times",
            None if quick else ratio >= BAR,
            dict(results),
        ),
        Row(f"{what}: seconds of the whole study", whole),
    ]


if __name__ == "__main__":
    raise SystemExit(main(measure))
