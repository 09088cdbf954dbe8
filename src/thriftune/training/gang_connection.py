"""The TCP connection between two workers of a gang; messages are lines of JSON, each a non-empty object."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import time
from typing import Any

LOOPBACK = "127.0.0.1"

_LAST_MESSAGE_SECONDS = 2.0
"""The time to send a last message: it holds an error and may be long, and its reader may be slow."""

_KEEPALIVE_IDLE_SECONDS, _KEEPALIVE_INTERVAL_SECONDS, _KEEPALIVE_PROBES = 4, 2, 3
_USER_TIMEOUT_MILLISECONDS = 10_000
"""A machine that vanishes without closing its connections is noticed after about ten seconds."""

_BACKLOG_FOR_STRANGERS = 16
"""Room in a listener's queue for processes that are no workers of the gang, such as port scanners."""

_MESSAGE_BYTES = 1 << 20
"""The longest message between workers: 1 MiB. The longest ones are error messages with a traceback."""

_CHUNK_BYTES = 65536


class ConnectionGone(Exception):
    """The connection is closed, or the other end does not follow the protocol."""


class GangConnection:
    """One end of a connection between two workers."""

    def __init__(self, sock: socket.socket, max_message_bytes: int = _MESSAGE_BYTES) -> None:
        self.socket = sock
        self._max_message_bytes = max_message_bytes
        self._received = b""  # received, but not yet returned by receive()
        self._last_message: dict[str, Any] = {}  # how the attempt of the other worker ended, if it sent that
        with contextlib.suppress(OSError):  # the connection may be closed already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MILLISECONDS)

    def accept_long_messages(self) -> None:
        """Raise the limit of a message to that between workers of the gang."""
        self._max_message_bytes = _MESSAGE_BYTES

    def send(self, message: dict[str, Any]) -> None:
        """Send a message without waiting. If the connection is gone, only receive() will show it."""
        data = json.dumps(message).encode() + b"\n"
        self.socket.setblocking(False)
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return
        if sent < len(data):  # the send buffer is full: the other end has not read thousands of messages
            self._shut_down()

    def send_last(self, message: dict[str, Any]) -> None:
        """Send how the attempt ended, and wait shortly until it is sent."""
        with contextlib.suppress(OSError):
            self.socket.settimeout(_LAST_MESSAGE_SECONDS)
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def poll_last_message(self) -> dict[str, Any] | None:
        """Return how the other worker's attempt ended; empty if it vanished without a message; None if it runs."""
        with contextlib.suppress(ConnectionGone):
            while self.receive(0.0):
                pass
            return self._last_message or None
        return self._last_message

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """Return the next message; empty if none comes within the time. Raises ConnectionGone."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._received:
            if len(self._received) > self._max_message_bytes:
                raise ConnectionGone
            try:
                self.socket.settimeout(None if deadline is None else max(0.0, deadline - time.monotonic()))
                chunk = self.socket.recv(_CHUNK_BYTES)
            except (BlockingIOError, TimeoutError) as error:
                if error.errno == errno.ETIMEDOUT:  # the other machine has vanished
                    raise ConnectionGone from None
                return {}
            except OSError:
                raise ConnectionGone from None
            if not chunk:
                raise ConnectionGone
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise ConnectionGone from None
        if not isinstance(message, dict) or not message:
            raise ConnectionGone
        if "failed" in message or "lost" in message:
            self._last_message = message
        return message

    @property
    def own_address(self) -> str:
        """The address of this machine on the network of the connection."""
        return str(self.socket.getsockname()[0])

    def close(self) -> None:
        self._shut_down()
        self.socket.close()

    def _shut_down(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # also for forks of this process, which have the socket too


def parse_address(address: str) -> tuple[str, int]:
    """Return the host and port of HOST:PORT; an empty host means every address of the leader's machine."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listen(host: str, port: int, workers: int) -> socket.socket:
    """Return a non-blocking listening socket for this many workers. `host`: empty for all addresses."""
    family = socket.AF_INET
    if host:
        (family, *_), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    listener = socket.create_server((host, port), family=family, backlog=workers + _BACKLOG_FOR_STRANGERS)
    listener.setblocking(False)
    return listener


def free_port(host: str) -> int:
    """Return a port that is free now. Another process may take it before the caller does."""
    with listen(host, 0, 1) as sock:
        return int(sock.getsockname()[1])
