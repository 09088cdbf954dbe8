"""Keeps the workers of one trial in step: worker 0, the leader, decides, and the followers do as it does.

All workers run the same training function. Only the leader talks to the driver, reports and saves. Each follower
has a connection to the leader, which tells it from which step to resume and whether the trial is to end.
"""

from __future__ import annotations

import contextlib
import hmac
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
from thriftune.training.gang_connection import (
    LOOPBACK,
    ConnectionGone,
    GangConnection,
    free_port,
    listen,
    parse_address,
)
from thriftune.training.run import EndTrial, Gang, Rendezvous, Run, TrialLost

JOIN_SECONDS = 60.0
"""How long workers wait for each other at the start."""

_CONNECT_RETRY_SECONDS = 0.1

_LEADER_WAITS_SECONDS, _FOLLOWER_WAITS_SECONDS = 3.0, 1.0
"""The time a failed worker waits for a sign that another worker caused the error, by ending first.

The leader waits longer, so that the message of a follower that has waited reaches it in time.
"""

_POLL_SECONDS = 0.02
"""Between two looks at all connections while the leader waits for such a sign."""

_FAREWELL_SECONDS = 5.0
"""How long the leader waits for the followers to leave after its own attempt has ended."""

_HELLO_BYTES = 4096
"""The longest first message. A connection that sends more without a line break is no worker of the gang."""


def join(run: Run) -> GangLeader | GangFollower | None:
    """Return this worker's side of the gang; None without a gang. Raises TrialLost if it cannot join."""
    if not run.leader_address:
        return None
    return GangLeader(run) if run.rank == 0 else GangFollower(run)


class GangLeader:
    """Worker 0 of a gang, with a connection to each follower."""

    def __init__(self, run: Run) -> None:
        """Start to listen. Followers may connect from now on; the first call of share() waits for them."""
        self._run = run
        self._connections: dict[int, GangConnection] = {}  # by rank, of all followers that have joined
        self._device_sets: dict[int, str] = {0: _device_set()}  # by rank, see _device_set()
        self._end_sent = False
        host, port = parse_address(run.leader_address)
        try:
            self._listener: socket.socket | None = listen(host, port, run.workers)  # None: all have joined
        except OSError as error:
            raise TrialLost(f"worker 0 cannot listen at {run.leader_address}: {error}") from None

    def share(self, key: str, value: Any) -> Any:
        """Send the value to all followers, and return it. A follower whose connection is gone is skipped.

        The engine that runs such a follower reports its end.
        """
        self._wait_for_followers()
        for connection in self._connections.values():
            connection.send({key: value})
        return value

    def poll_end(self, end_requested: bool) -> bool:
        """Send the followers, once, that the trial is to end."""
        if end_requested and not self._end_sent:
            self._end_sent = True
            self.share("end", True)
        return end_requested

    def wait_for_others(self, point: str) -> None:
        """Wait until each follower has reached this point or is gone."""
        for connection in self._connections.values():
            with contextlib.suppress(ConnectionGone):
                while point not in connection.receive():
                    pass

    def rendezvous(self, choose_port: Callable[[str], int]) -> Rendezvous:
        """Choose a port, and send it with the local ranks to the followers."""
        self._wait_for_followers()
        host = parse_address(self._run.leader_address)[0]
        device_sets = [self._device_sets[rank] for rank in range(self._run.workers)]
        local_ranks = [device_sets[:rank].count(devices) for rank, devices in enumerate(device_sets)]
        port, _ = self.share("rendezvous", [choose_port(host), local_ranks])
        return Rendezvous(host or LOOPBACK, port, local_ranks[0])

    @property
    def own_address(self) -> str:
        """The address of this machine, by which the followers know it."""
        return next(iter(self._connections.values())).own_address

    def final_outcome(self, outcome: Event) -> Event:
        """Return how the attempt ended: if a follower ended first and caused an error, as the follower did."""
        if isinstance(outcome, Ended):
            self._wait_until_others_leave()
        if not _may_be_caused_by_others(outcome):
            return outcome
        deadline = time.monotonic() + _LEADER_WAITS_SECONDS
        while self._connections and time.monotonic() < deadline:
            for rank, connection in self._connections.items():
                if (message := connection.poll_last_message()) is not None:
                    return self._caused_by(rank, message)
            time.sleep(_POLL_SECONDS)
        return outcome

    def _caused_by(self, rank: int, message: dict[str, Any]) -> Event:
        """Return the outcome of an attempt that a follower ended with this message; empty if it vanished."""
        run, now = self._run, wall_time()
        if "failed" in message:
            kind, error = message["failed"]
            return Failed(now, run.trial, run.attempt, kind, f"in worker {rank}: {error}")
        why = f"its worker {rank}: {message['lost']}" if "lost" in message else f"its worker {rank} is gone"
        return Lost(now, run.trial, run.attempt, why)

    def _wait_until_others_leave(self) -> None:
        """Wait shortly until the followers have closed their connections; they end now, too.

        A follower's command is told to end when the leader is gone, and its libraries use the leader's store.
        """
        deadline = time.monotonic() + _FAREWELL_SECONDS
        for connection in self._connections.values():
            with contextlib.suppress(ConnectionGone):
                while (left := deadline - time.monotonic()) > 0:
                    connection.receive(left)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in self._connections.values():
            connection.close()

    def _wait_for_followers(self) -> None:
        """Wait until all followers have joined. Connections of other processes are closed, and delay nobody."""
        if self._listener is None:
            return
        deadline = time.monotonic() + JOIN_SECONDS
        unidentified: list[GangConnection] = []
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                while len(self._connections) < self._run.workers - 1:
                    left = deadline - time.monotonic()
                    if left <= 0.0:
                        missing = sorted(set(range(1, self._run.workers)) - set(self._connections))
                        raise TrialLost(
                            f"of the trial's {self._run.workers} workers, {_listed(missing)} did not connect to "
                            f"{self._run.leader_address} within {JOIN_SECONDS:g} s"
                        )
                    for key, _ in selector.select(left):
                        if key.fileobj is self._listener:
                            with contextlib.suppress(BlockingIOError, ConnectionError):  # closed again already
                                connection = GangConnection(self._listener.accept()[0], _HELLO_BYTES)
                                unidentified.append(connection)
                                selector.register(connection.socket, selectors.EVENT_READ, connection)
                        elif self._identify(key.data):
                            selector.unregister(key.fileobj)
                            unidentified.remove(key.data)
        finally:
            for connection in unidentified:
                connection.close()
        self._listener.close()
        self._listener = None

    def _identify(self, connection: GangConnection) -> bool:
        """Accept a follower, or close the connection of another process; False if it has sent no message yet."""
        try:
            hello = connection.receive(0.0)
        except ConnectionGone:
            hello = {"gone": True}
        if not hello:
            return False
        key, rank = str(hello.get("key")), hello.get("rank", 0)
        has_key = hmac.compare_digest(key.encode(errors="replace"), self._run.gang_key.encode())
        if has_key and rank in range(1, self._run.workers) and rank not in self._connections:
            connection.accept_long_messages()
            self._connections[rank] = connection
            self._device_sets[rank] = str(hello.get("devices"))
        else:
            connection.close()
        return True


class GangFollower:
    """A worker of a gang that is not worker 0, with a connection to the leader."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._connection = GangConnection(_connect(run))
        self._connection.send({"key": run.gang_key, "rank": run.rank, "devices": _device_set()})

    def share(self, key: str, value: Any) -> Any:  # noqa: ARG002 (only the leader's value counts)
        """Return the leader's value. If the leader is gone, raise EndTrial: others report what happened."""
        try:
            message = self._connection.receive()
        except ConnectionGone:
            raise EndTrial from None
        if key not in message:
            raise SettingError(
                f"worker {self._run.rank} waits for {key!r} from worker 0, which sent "
                f"{', '.join(map(repr, message))}: all workers of a trial must call restore(), report() and "
                "distributed() in the same order; none of them under 'if trial.rank == 0'"
            )
        return message[key]

    def poll_end(self, end_requested: bool) -> bool:  # noqa: ARG002 (only the leader's value counts)
        """Return whether the leader has sent that the trial is to end, or is gone; does not wait."""
        try:
            while message := self._connection.receive(0.0):
                if message.get("end"):
                    return True
        except ConnectionGone:
            return True
        return False

    def wait_for_others(self, point: str) -> None:
        """Tell the leader that this worker has reached the point; does not wait."""
        self._connection.send({point: True})

    def rendezvous(self, choose_port: Callable[[str], int]) -> Rendezvous:  # noqa: ARG002 (the leader chooses)
        port, local_ranks = self.share("rendezvous", None)
        host = parse_address(self._run.leader_address)[0]
        return Rendezvous(host or LOOPBACK, port, local_ranks[self._run.rank])

    @property
    def own_address(self) -> str:
        return self._connection.own_address

    def final_outcome(self, outcome: Event) -> Event:
        """Return how this worker's attempt ended, and send the leader a failure that the leader did not cause."""
        run = self._run
        if not isinstance(outcome, (Failed, Lost)):
            return outcome
        if _may_be_caused_by_others(outcome):
            deadline = time.monotonic() + _FOLLOWER_WAITS_SECONDS
            try:
                while (left := deadline - time.monotonic()) > 0:
                    self._connection.receive(left)
            except ConnectionGone:
                return Ended(wall_time(), run.trial, run.attempt, 0.0, cut=True)
        if isinstance(outcome, Failed):
            self._connection.send_last({"failed": [outcome.kind, outcome.error]})
        else:
            self._connection.send_last({"lost": outcome.why})
        return outcome

    def close(self) -> None:
        self._connection.close()


def _may_be_caused_by_others(outcome: Event) -> bool:
    """Return whether another worker's end may have caused the outcome; it never causes a NaN."""
    return isinstance(outcome, Failed) and outcome.kind != "nan"


def _connect(run: Run) -> socket.socket:
    """Connect to the leader as soon as it listens. Raises TrialLost if that takes too long."""
    host, port = parse_address(run.leader_address)
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            left = max(_CONNECT_RETRY_SECONDS, deadline - time.monotonic())
            sock = socket.create_connection((host or LOOPBACK, port), timeout=left)
            # If no process listens at a local port, the system may connect the socket with itself.
            if sock.getsockname() != sock.getpeername():
                return sock
            sock.close()
            why = "no process listens there"
        except OSError as error:
            why = error.strerror or str(error)
        if time.monotonic() >= deadline:
            raise TrialLost(
                f"worker {run.rank} could not connect to worker 0 at {run.leader_address} within "
                f"{JOIN_SECONDS:g} s: {why}"
            )
        time.sleep(_CONNECT_RETRY_SECONDS)


def torchrun_variables(run: Run, gang: Gang) -> dict[str, str]:
    """Return the environment variables that torchrun sets, by which the processes of a command find each other."""
    host, port, local_rank = gang.rendezvous(free_port)
    return {
        "RANK": str(run.rank),
        "WORLD_SIZE": str(run.workers),
        "LOCAL_RANK": str(local_rank),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
    }


def _device_set() -> str:
    """Return a text that is the same for workers that see the same devices and must share them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}"


def _listed(ranks: list[int]) -> str:
    return f"worker {ranks[0]}" if len(ranks) == 1 else f"workers {', '.join(map(str, ranks))}"
