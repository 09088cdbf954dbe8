"""Measure how long checkpoints take in a folder and in an S3 server, beside s3fs, boto3 and torch.save.

The S3 server is rclone's, on loopback. Each round measures all ways once, in turn, and ratios are of one round.
The time of a save begins with writing the state, and ends when it is durable.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks import peers
from benchmarks.common import Row, main, say, scratch
from benchmarks.object_store.notice import notice_to_checkpoint
from benchmarks.object_store.s3_server import bucket_url, s3_server
from benchmarks.object_store.should_save import nanoseconds_per_read
from benchmarks.object_store.states import FILES, Attempt, State

BUCKET = "benchmark"
PEERS = ("s3fs", "boto3")
CHANGED_FILES = FILES // 10

Seconds = dict[str, list[float]]
"""The seconds of each round, by what was measured."""


class Peer:
    """A process that transfers folders with a peer."""

    def __init__(self, name: str, endpoint: str) -> None:
        script = Path(__file__).with_name("peer_transfer.py")
        command = [str(peers.python(name)), str(script), name, endpoint, BUCKET]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"{self._process.args!r} has ended")
        return line

    def transfer(self, *command: str) -> float:
        """Do "put FOLDER KEY" or "get KEY FOLDER", and return its seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(command) + "\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


@contextlib.contextmanager
def removed(folder: Path) -> Iterator[Path]:
    """Yield a folder, and remove it afterwards."""
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- an S3 server


def measure_s3(folder: Path, endpoint: str, state: State, rounds: int, names: Sequence[str]) -> Seconds:
    """Return the seconds of saves and restores with thriftune and each peer."""
    seconds: Seconds = {}
    with contextlib.ExitStack() as stack:
        processes = {name: stack.enter_context(contextlib.closing(Peer(name, endpoint))) for name in names}
        for number in range(rounds):
            say(f"S3 server, {state.size / 1e6:g} MB: round {number + 1} of {rounds}")
            state.change(FILES)
            ways = ["thriftune", *names]
            for name in ways[number % len(ways) :] + ways[: number % len(ways)]:
                with removed(folder / name) as home:
                    if name == "thriftune":
                        times = save_with_thriftune(home, bucket_url(endpoint, BUCKET), number, state)
                    else:
                        times = save_with_peer(home, processes[name], f"{name}-{number}", state)
                for what, value in times.items():
                    seconds.setdefault(f"{name} {what}", []).append(value)
    return seconds


def save_with_thriftune(home: Path, url: str, number: int, state: State) -> dict[str, float]:
    objects = url.replace(f"s3://{BUCKET}", f"s3://{BUCKET}/thriftune-{number}")
    first = Attempt(home / "machine-1", objects)
    before = seconds_to_write(home, state)
    blocked, whole = first.save(state.write)
    writing = min(before, seconds_to_write(home, state))
    (saved,) = first.link.saved
    state.change(CHANGED_FILES)
    _, second = first.save(state.write)
    uploads = [event.upload_seconds for event in first.link.saved]
    first.end()
    again = Attempt(home / "machine-2", objects, first.link.saved[-1])
    restoring = timed(lambda: again.trial.restore(lambda _folder: None))
    assert again.trial.restore(state.check) == 2
    again.end()
    assert saved.size_bytes == state.size // FILES * FILES
    return {
        "save": whole,
        "second": second,
        "second upload": uploads[1],
        "upload": uploads[0],
        "blocked": max(0.0, blocked - writing),
        "restore": restoring,
    }


def seconds_to_write(home: Path, state: State) -> float:
    """Return how long it takes to write the state alone."""
    with removed(home / "plain") as plain:
        plain.mkdir(parents=True)
        return timed(lambda: state.write(plain))


def save_with_peer(home: Path, peer: Peer, key: str, state: State) -> dict[str, float]:
    source, target = home / "source", home / "target"
    source.mkdir(parents=True)
    writing = timed(lambda: state.write(source))
    putting = peer.transfer("put", str(source), key)
    getting = peer.transfer("get", key, str(target))
    state.check(target)
    return {"save": writing + putting, "restore": getting}


# --- a folder


def measure_folder(folder: Path, megabytes: int, rounds: int) -> Seconds:
    """Return the seconds of saves of one tensor with thriftune, and with torch.save and cp."""
    import torch

    seconds: Seconds = {}
    for number in range(rounds):
        say(f"folder, {megabytes} MB: round {number + 1} of {rounds}")
        tensor = torch.rand(megabytes * 10**6 // 4)

        def with_thriftune(home: Path, tensor: object = tensor) -> float:
            attempt = Attempt(home / "trial")
            return attempt.save(lambda state: torch.save(tensor, state / "state.pt"))[1]

        def with_torch_and_cp(home: Path, tensor: object = tensor) -> float:
            home.mkdir()
            started = time.perf_counter()
            torch.save(tensor, home / "local.pt")
            subprocess.run(["cp", home / "local.pt", home / "kept.pt"], check=True)
            for path in (home / "kept.pt", home):
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
            return time.perf_counter() - started

        ways = [("thriftune folder", with_thriftune), ("torch.save and cp", with_torch_and_cp)]
        for name, way in ways[:: 1 if number % 2 else -1]:
            with removed(folder / "home") as home:
                seconds.setdefault(name, []).append(way(home))
    return seconds


# --- rows


def ratio(seconds: Seconds, numerator: str, denominator: str) -> float:
    """Return the median over the rounds of the ratio of two times."""
    return median(a / b for a, b in zip(seconds[numerator], seconds[denominator], strict=True))


def s3_rows(seconds: Seconds, megabytes: int, names: Sequence[str], judged: bool) -> list[Row]:
    place = f"{megabytes} MB, S3 server"
    rows = []

    def row(what: str, figure: str, bar: str = "", met: bool | None = None) -> None:
        rows.append(Row(f"{place}: {what}", figure, bar, met if judged and bar else None, data=dict(seconds)))

    for name in ("thriftune", *names):
        save, restore = median(seconds[f"{name} save"]), median(seconds[f"{name} restore"])
        row(f"{name}: save, restore", f"{save:.2f} s, {restore:.2f} s")
    for name in names:
        value = ratio(seconds, f"{name} save", "thriftune save")
        least = 1.5 if name == "s3fs" else 0.9
        row(f"speed of a save relative to {name}", f"{value:.2f}", f"at least {least:g}", value >= least)
        value = ratio(seconds, f"{name} restore", "thriftune restore")
        row(f"speed of a restore relative to {name}", f"{value:.2f}")
    share = ratio(seconds, "thriftune blocked", "thriftune upload")
    row("share of the upload time that training is blocked", f"{share:.1%}", "under 5 %", share < 0.05)
    share = ratio(seconds, "thriftune second", "thriftune save")
    upload = ratio(seconds, "thriftune second upload", "thriftune upload")
    what = "second checkpoint with 10 % of the files changed, relative to the first"
    row(what, f"{share:.2f}", "at most 0.2", share <= 0.2)
    row("the same without the time in which the training code writes the whole state", f"{upload:.2f}")
    return rows


def folder_rows(seconds: Seconds, megabytes: int, judged: bool) -> list[Row]:
    value = ratio(seconds, "torch.save and cp", "thriftune folder")
    times = ", ".join(f"{name} {median(values):.2f} s" for name, values in seconds.items())
    return [
        Row(
            f"{megabytes} MB, folder: speed relative to torch.save and cp with fsync",
            f"{value:.2f} ({times})",
            "at least 0.9",
            value >= 0.9 if judged else None,
            data=dict(seconds),
        )
    ]


def measure(options: argparse.Namespace) -> list[Row]:
    """Return the rows of all measurements."""
    sizes = [8] if options.quick else [256, 2000] if options.large else [256]
    rounds = 2 if options.quick else options.rounds
    names = () if options.without_peers else PEERS
    judged = not options.quick
    rows: list[Row] = []
    for megabytes in sizes:
        with scratch() as folder:
            rows += folder_rows(measure_folder(folder, megabytes, rounds), megabytes, judged)
        with scratch() as folder, s3_server(folder / "server", BUCKET) as endpoint:
            seconds = measure_s3(folder / "local", endpoint, State(megabytes), rounds, names)
            rows += s3_rows(seconds, megabytes, names, judged)
    megabytes = 2 if options.quick else 100
    with scratch() as folder, s3_server(folder / "server", BUCKET) as endpoint:
        times = [
            notice_to_checkpoint(folder / str(number), bucket_url(endpoint, BUCKET), number, megabytes)
            for number in range(rounds)
        ]
    slowest = max(times)
    figure = f"{slowest:.2f} s at most in {rounds} rounds"
    met = slowest < 10.0 if judged else None
    rows.append(Row(f"{megabytes} MB, S3 server: notice to durable checkpoint", figure, "under 10 s", met))
    for what, nanoseconds in nanoseconds_per_read(1000 if options.quick else 100_000).items():
        rows.append(Row(f"reading {what}", f"{nanoseconds:,.0f} ns"))
    return rows


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--large", action="store_true", help="also measure states of 2 GB")
    parser.add_argument("--rounds", type=int, default=5, help="how often to measure each way (default: 5)")


if __name__ == "__main__":
    raise SystemExit(main(measure, further=_options))
