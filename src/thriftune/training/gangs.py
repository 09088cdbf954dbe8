"""How do the workers of one trial keep step? The first says what it does, and the others do as it says.

All of them run the same training function. The first is the one that the driver speaks with and that reports and
saves; the others hold a line to it, on which they hear whether the trial is to end and where it goes on from.
Messages are lines of JSON, each an object of one entry.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import os
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thriftune.common.clock import wall_time
from thriftune.errors import SettingError
from thriftune.state.events import Ended, Event, Failed, Lost
from thriftune.training.run import EndTrial, Gang, Meeting, Run, TrialLost

PATIENCE_SECONDS = 60.0
"""How long workers wait for one another at the start."""

_RETRY_SECONDS = 0.1
_LOOK_SECONDS = 0.02
_LOOPBACK = "127.0.0.1"

_FIRST_DOUBTS_SECONDS, _OTHERS_DOUBT_SECONDS = 3.0, 1.0
"""An error may come of another worker's end, which shows on its line within so long. The first doubts longer: what
another says of an error of its own, after its doubts, is to reach it in time."""

_LAST_WORD_SECONDS = 2.0
_PARTING_SECONDS = 5.0

_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 4, 2, 3
_VANISHED_MILLISECONDS = 10_000
"""A machine that is gone without a word is noticed so soon."""

_STRANGERS = 16
_MESSAGE_BYTES = 1 << 20
_HELLO_BYTES = 4096
"""A stranger is not listened to for longer."""


class Gone(Exception):
    """Nothing more will come on a line."""


def join(run: Run) -> First | Other | None:
    """This worker's part of the gang; None: it is the only worker. Raises TrialLost where they cannot meet."""
    if not run.meet:
        return None
    return First(run) if run.rank == 0 else Other(run)


def address(meet: str) -> tuple[str, int]:
    """Host and port; an empty host is every address of the first worker's machine."""
    host, _, port = meet.rpartition(":")
    return host.strip("[]"), int(port)


class First:
    """The first worker's: a line to each of the others."""

    def __init__(self, run: Run) -> None:
        """Listens from now on, and awaits nobody yet: the others may come while this one prepares."""
        self._run = run
        self._lines: dict[int, _Line] = {}
        self._places: dict[int, str] = {0: _place()}
        self._said_end = False
        host, port = address(run.meet)
        try:
            self._door: socket.socket | None = listen(host, port, run.workers)
        except OSError as error:
            raise TrialLost(f"the first worker cannot listen at {run.meet}: {error}") from None

    def share(self, what: str, value: Any) -> Any:
        """Tells the others. One whose line is gone is passed over: what became of it, whoever runs it knows."""
        self._gather()
        for line in self._lines.values():
            line.send({what: value})
        return value

    def hear_end(self, told: bool) -> bool:
        """Tells the others, once, that the trial is to end."""
        if told and not self._said_end:
            self._said_end = True
            self.share("told", True)
        return told

    def await_others(self, what: str) -> None:
        """Until each of them has said so, or is gone."""
        for line in self._lines.values():
            with contextlib.suppress(Gone):
                while what not in line.receive():
                    pass

    def meeting(self, port: Callable[[str], int]) -> Meeting:
        """`port(host)` finds the port, which the others are told."""
        self._gather()
        host = address(self._run.meet)[0]
        places = [self._places[rank] for rank in range(self._run.workers)]
        local_ranks = [places[:rank].count(place) for rank, place in enumerate(places)]
        found, _ = self.share("meeting", [port(host), local_ranks])
        return Meeting(host or _LOOPBACK, found, local_ranks[0])

    @property
    def here(self) -> str:
        """This machine's address, by which the others know it."""
        return next(iter(self._lines.values())).here

    def settle(self, outcome: Event) -> Event:
        """How the attempt ended: an error that comes of another worker's end is not this one's."""
        if isinstance(outcome, Ended):
            self._see_off()
        if not _doubtful(outcome):
            return outcome
        deadline = time.monotonic() + _FIRST_DOUBTS_SECONDS
        while self._lines and time.monotonic() < deadline:
            for rank, line in self._lines.items():
                if (word := line.last_word_now()) is not None:
                    return self._came_of(rank, word)
            time.sleep(_LOOK_SECONDS)
        return outcome

    def _came_of(self, rank: int, word: dict[str, Any]) -> Event:
        """What another worker's last word makes of the attempt; an empty one is of one that vanished."""
        run, at = self._run, wall_time()
        if "failed" in word:
            kind, error = word["failed"]
            return Failed(at, run.trial, run.attempt, kind, f"in worker {rank}: {error}")
        why = f"its worker {rank}: {word['lost']}" if "lost" in word else f"its worker {rank} is gone"
        return Lost(at, run.trial, run.attempt, why)

    def _see_off(self) -> None:
        """Until the others have left, who end now, too, but no longer than is decent.

        A command that loses the first worker is told to end; and their libraries use what is kept here.
        """
        deadline = time.monotonic() + _PARTING_SECONDS
        for line in self._lines.values():
            with contextlib.suppress(Gone):
                while (left := deadline - time.monotonic()) > 0:
                    line.receive(left)

    def close(self) -> None:
        if self._door is not None:
            self._door.close()
            self._door = None
        for line in self._lines.values():
            line.close()

    def _gather(self) -> None:
        """Awaits those who have not come yet. Strangers are let go, and keep nobody waiting."""
        if self._door is None:
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        unknown: list[_Line] = []
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._door, selectors.EVENT_READ)
                while len(self._lines) < self._run.workers - 1:
                    left = deadline - time.monotonic()
                    if left <= 0.0:
                        missing = sorted(set(range(1, self._run.workers)) - set(self._lines))
                        raise TrialLost(
                            f"of the trial's {self._run.workers} workers, {_listed(missing)} did not come to "
                            f"{self._run.meet} within {PATIENCE_SECONDS:g} s"
                        )
                    for key, _ in selector.select(left):
                        if key.fileobj is self._door:
                            with contextlib.suppress(BlockingIOError, ConnectionError):  # gone again already
                                line = _Line(self._door.accept()[0], most=_HELLO_BYTES)
                                unknown.append(line)
                                selector.register(line.socket, selectors.EVENT_READ, line)
                        elif self._greeted(key.data):
                            selector.unregister(key.fileobj)
                            unknown.remove(key.data)
        finally:
            for line in unknown:
                line.close()
        self._door.close()
        self._door = None

    def _greeted(self, line: _Line) -> bool:
        """Whether it is known who that is; a stranger's line is closed then. False: it has not said yet."""
        try:
            hello = line.receive(0.0)
        except Gone:
            hello = {"stranger": True}
        if not hello:
            return False
        key, rank = str(hello.get("key")), hello.get("rank", 0)
        mine = hmac.compare_digest(key.encode(errors="replace"), self._run.key.encode())
        if mine and rank in range(1, self._run.workers) and rank not in self._lines:
            line.most = _MESSAGE_BYTES
            self._lines[rank] = line
            self._places[rank] = str(hello.get("place"))
        else:
            line.close()
        return True


class Other:
    """Another worker's: its line to the first."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._line = _Line(_connect(run))
        self._line.send({"key": run.key, "rank": run.rank, "place": _place()})

    def share(self, what: str, value: Any) -> Any:  # noqa: ARG002 (only the first worker's counts)
        """What the first says. Where it is gone, this one ends quietly: what happened is not its to tell."""
        try:
            message = self._line.receive()
        except Gone:
            raise EndTrial from None
        if what not in message:
            raise SettingError(
                f"worker {self._run.rank} awaits what the first worker says of {what!r}, which speaks of "
                f"{', '.join(map(repr, message))}: all workers of a trial must call restore(), report() and "
                "distributed() alike, in the same order; none of them under 'if trial.rank == 0'"
            )
        return message[what]

    def hear_end(self, told: bool) -> bool:  # noqa: ARG002 (only the first worker's counts)
        """Whether the trial is to end, as far as is known now; it is where the first worker is gone, too."""
        try:
            while message := self._line.receive(0.0):
                if message.get("told"):
                    return True
        except Gone:
            return True
        return False

    def await_others(self, what: str) -> None:
        """The first worker waits for this one to say so; nobody else does."""
        self._line.send({what: True})

    def meeting(self, port: Callable[[str], int]) -> Meeting:  # noqa: ARG002 (the first one's)
        found, local_ranks = self.share("meeting", None)
        return Meeting(address(self._run.meet)[0] or _LOOPBACK, found, local_ranks[self._run.rank])

    @property
    def here(self) -> str:
        return self._line.here

    def settle(self, outcome: Event) -> Event:
        """An error that comes of the first worker's end is not this one's; of any other, the first is told."""
        run = self._run
        if not isinstance(outcome, (Failed, Lost)):
            return outcome
        if _doubtful(outcome):
            deadline = time.monotonic() + _OTHERS_DOUBT_SECONDS
            try:
                while (left := deadline - time.monotonic()) > 0:
                    self._line.receive(left)
            except Gone:
                return Ended(wall_time(), run.trial, run.attempt, 0.0, cut=True)
        if isinstance(outcome, Failed):
            self._line.send_last({"failed": [outcome.kind, outcome.error]})
        else:
            self._line.send_last({"lost": outcome.why})
        return outcome

    def close(self) -> None:
        self._line.close()


class _Line:
    """One end of a line between two workers."""

    def __init__(self, sock: socket.socket, most: int = _MESSAGE_BYTES) -> None:
        self.socket = sock
        self.most = most
        self._bytes = b""  # of a message that has not ended, and those after it
        self._last_word: dict[str, Any] = {}  # how the attempt ended at the other end, if it said so
        with contextlib.suppress(OSError):  # it may be gone already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _VANISHED_MILLISECONDS)

    def send(self, message: dict[str, Any]) -> None:
        """Never waits. That nobody is there any more shows when something is to be received."""
        data = json.dumps(message).encode() + b"\n"
        self.socket.setblocking(False)
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return
        if sent < len(data):  # nothing was taken in for thousands of messages
            self._shut()

    def send_last(self, word: dict[str, Any]) -> None:
        """It may be long, and the other end be slow to take it in."""
        with contextlib.suppress(OSError):
            self.socket.settimeout(_LAST_WORD_SECONDS)
            self.socket.sendall(json.dumps(word).encode() + b"\n")

    def last_word_now(self) -> dict[str, Any] | None:
        """How it ended at the other end; empty if it went without a word. None: it is still there."""
        with contextlib.suppress(Gone):
            while self.receive(0.0):
                pass
            return self._last_word or None
        return self._last_word

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """The next message; empty if there is none in the time. Raises Gone."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._bytes:
            if len(self._bytes) > self.most:
                raise Gone
            try:
                self.socket.settimeout(None if deadline is None else max(0.0, deadline - time.monotonic()))
                chunk = self.socket.recv(65536)
            except (BlockingIOError, TimeoutError) as error:
                if error.errno == errno.ETIMEDOUT:  # the machine at the other end has vanished
                    raise Gone from None
                return {}
            except OSError:
                raise Gone from None
            if not chunk:
                raise Gone
            self._bytes += chunk
        line, _, self._bytes = self._bytes.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise Gone from None
        if not isinstance(message, dict) or not message:
            raise Gone
        if "failed" in message or "lost" in message:
            self._last_word = message
        return message

    @property
    def here(self) -> str:
        return str(self.socket.getsockname()[0])

    def close(self) -> None:
        self._shut()
        self.socket.close()

    def _shut(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # a fork of this process may have the line, too


def _doubtful(outcome: Event) -> bool:
    """Whether it may have come of another worker's end. A value that is no number does not."""
    return isinstance(outcome, Failed) and outcome.kind != "nan"


def listen(host: str, port: int, workers: int) -> socket.socket:
    family = socket.AF_INET
    if host:
        (family, *_), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    door = socket.create_server((host, port), family=family, backlog=workers + _STRANGERS)
    door.setblocking(False)
    return door


def _connect(run: Run) -> socket.socket:
    """To the first worker, as soon as it listens."""
    host, port = address(run.meet)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            left = max(_RETRY_SECONDS, deadline - time.monotonic())
            sock = socket.create_connection((host or _LOOPBACK, port), timeout=left)
            # Where nobody listens at a port of this machine yet, the system may connect a socket with itself.
            if sock.getsockname() != sock.getpeername():
                return sock
            sock.close()
            why = "nobody listens there"
        except OSError as error:
            why = error.strerror or str(error)
        if time.monotonic() >= deadline:
            raise TrialLost(
                f"worker {run.rank} has not found the first worker at {run.meet} in {PATIENCE_SECONDS:g} s: {why}"
            )
        time.sleep(_RETRY_SECONDS)


def free_port(host: str) -> int:
    """One that is free now; for others to take, so that it may be taken by somebody else first."""
    with listen(host, 0, 1) as sock:
        return int(sock.getsockname()[1])


def variables(run: Run, gang: Gang) -> dict[str, str]:
    """What torch.distributed, and what is made like it, finds its own workers by."""
    host, port, local_rank = gang.meeting(free_port)
    return {
        "RANK": str(run.rank),
        "WORLD_SIZE": str(run.workers),
        "LOCAL_RANK": str(local_rank),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
    }


def _place() -> str:
    """Workers with the same place see the same devices, and have to share them out."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}"


def _listed(ranks: list[int]) -> str:
    return f"worker {ranks[0]}" if len(ranks) == 1 else f"workers {', '.join(map(str, ranks))}"
