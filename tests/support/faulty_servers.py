"""A proxy in front of an S3 server that fails as it is told."""

from __future__ import annotations

import contextlib
import http.client
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from thriftune.object_store.opening import open_objects
from thriftune.object_store.protocol import ObjectInfo
from thriftune.object_store.urls import parse_object_url

_CHUNK_BYTES = 1 << 16


@dataclass
class _Fault:
    kind: str
    method: str  # empty: all methods
    path: str  # a part of the path; empty: all paths
    left: float  # how many requests still meet it
    status: int = 0
    code: str = ""
    seconds: float = 0.0

    def meets(self, method: str, path: str) -> bool:
        return self.left > 0 and self.method in ("", method) and self.path in path


@dataclass
class FaultyServer:
    """A proxy and its faults. It forwards a request unless a fault fits; the first one that fits counts.

    Each fault takes `times` (how many requests meet it; None: all until mend()), `method` (such as "PUT") and
    `path` (a part of the request's decoded path).

    - `url`: the URL of the bucket behind the proxy.
    - `requests`: (method, decoded path) of all requests, in order.
    """

    url: str
    requests: list[tuple[str, str]] = field(default_factory=list)
    _faults: list[_Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _bytes_per_second: float = 0.0
    _line_free_at: float = 0.0
    _old_objects: list[ObjectInfo] | None = None
    _backend_url: str = ""
    _listener: _Listener | None = None

    def delay(self, seconds: float, *, times: int | None = None, method: str = "", path: str = "") -> None:
        """Forward a request this much later."""
        self._add("delay", times, method, path, seconds=seconds)

    def answer(
        self, status: int, code: str, *, times: int | None = None, method: str = "", path: str = ""
    ) -> None:
        """Answer with an error, such as 503 SlowDown or 403 ExpiredToken, and do not forward the request."""
        self._add("answer", times, method, path, status=status, code=code)

    def cut_request(self, *, times: int | None = None, method: str = "", path: str = "") -> None:
        """Close the connection after half of the request's body, and do not forward it."""
        self._add("cut request", times, method, path)

    def cut_answer(self, *, times: int | None = None, method: str = "", path: str = "") -> None:
        """Forward the request, and close the connection in the middle of the answer."""
        self._add("cut answer", times, method, path)

    def lose_answer(self, *, times: int | None = None, method: str = "", path: str = "") -> None:
        """Forward the request, and close the connection instead of answering."""
        self._add("lose answer", times, method, path)

    def limit(self, bytes_per_second: float) -> None:
        """Limit the bodies of all requests and answers together; 0: no limit."""
        self._bytes_per_second = bytes_per_second

    def refuse(self) -> None:
        """Close all connections, and refuse new ones until accept() or mend()."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def accept(self) -> None:
        """Accept connections again."""
        if self._listener is None:
            self._listener = _Listener(self, urlsplit(_endpoint(self.url)).port or 0)

    def stale_lists(self) -> None:
        """Answer lists of version 2 from the objects that exist now, until mend()."""
        self._old_objects = list(open_objects(self._backend_url).list_objects())

    def mend(self) -> None:
        """End all faults."""
        with self._lock:
            self._faults.clear()
        self._bytes_per_second = 0.0
        self._old_objects = None
        self.accept()

    def count(self, method: str, path: str = "") -> int:
        """Return how many requests of a method came whose paths contain `path`."""
        return sum(each == method and path in where for each, where in list(self.requests))

    def _add(self, kind: str, times: int | None, method: str, path: str, **more: Any) -> None:
        with self._lock:
            self._faults.append(_Fault(kind, method, path, float("inf") if times is None else times, **more))

    def _next_fault(self, method: str, path: str) -> _Fault | None:
        with self._lock:
            self.requests.append((method, path))
            for fault in self._faults:
                if fault.meets(method, path):
                    fault.left -= 1
                    return fault
        return None

    def _wait_for_line(self, size: int) -> None:
        """Sleep as long as the limited line needs for so many bytes, after those of the other connections."""
        if not self._bytes_per_second:
            return
        with self._lock:
            begin = max(self._line_free_at, time.monotonic())
            self._line_free_at = begin + size / self._bytes_per_second
            free_at = self._line_free_at
        time.sleep(max(0.0, free_at - time.monotonic()))


@contextmanager
def faulty(url: str) -> Iterator[FaultyServer]:
    """Run a proxy in front of the server of an s3:// URL with an endpoint. Yields it; it has no faults yet.

    It does not pass on requests with `Transfer-Encoding: chunked`.
    """
    parsed = parse_object_url(url)
    reserved = socket.socket()  # keeps the port while the proxy refuses connections
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("127.0.0.1", 0))
    endpoint = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    ours = replace(parsed, options={**parsed.options, "endpoint": endpoint})
    server = FaultyServer(str(ours), _backend_url=str(replace(parsed, prefix="")))
    try:
        server.accept()
        yield server
    finally:
        server.refuse()
        reserved.close()


class _Listener(socketserver.ThreadingTCPServer):
    """Accepts connections at a port in a thread of its own, until close()."""

    allow_reuse_address = True
    allow_reuse_port = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, faults: FaultyServer, port: int) -> None:
        self.faults = faults
        self.backend = urlsplit(_endpoint(faults._backend_url))
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close connections."""

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def setup(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().setup()

    def _handle(self) -> None:
        faults = self.server.faults
        fault = faults._next_fault(self.command, unquote(self.path))
        kind = fault.kind if fault else ""
        size = int(self.headers.get("Content-Length") or 0)
        if kind == "cut request":
            self._read(size // 2)
            self._hang_up()
            return
        body = self._read(size)
        if fault and kind == "answer":
            text = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>a fault</Message></Error>"
            self._answer(fault.status, [("Content-Type", "application/xml")], text.encode())
            return
        if fault and kind == "delay":
            time.sleep(fault.seconds)
        if faults._old_objects is not None and self._is_list():
            text = _listed(faults._old_objects, parse_qs(urlsplit(self.path).query))
            self._answer(200, [("Content-Type", "application/xml")], text.encode())
            return
        status, headers, answer = self._forward(body)
        if kind == "lose answer":
            self._hang_up()
        elif kind == "cut answer":
            self._cut(status, headers, answer)
        else:
            self._answer(status, headers, answer)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

    def _read(self, size: int) -> bytes:
        parts = []
        while size > 0 and (part := self.rfile.read(min(size, _CHUNK_BYTES))):
            self.server.faults._wait_for_line(len(part))
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        backend = self.server.backend
        connection = http.client.HTTPConnection(backend.hostname or "", backend.port, timeout=60)
        with contextlib.closing(connection):
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self._send_headers(status, headers, body)
        if self.command != "HEAD":
            self._send(body)

    def _cut(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        if body:
            self._send_headers(status, headers, body)
            self._send(body[: len(body) // 2])
        else:
            self.wfile.write(b"HTTP/1.1 2")
        self._hang_up()

    def _send_headers(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        known = {name.lower() for name, _ in headers}
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        if "content-length" not in known:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()

    def _send(self, body: bytes) -> None:
        for start in range(0, len(body), _CHUNK_BYTES):
            part = body[start : start + _CHUNK_BYTES]
            self.server.faults._wait_for_line(len(part))
            self.wfile.write(part)

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.request.shutdown(socket.SHUT_RDWR)

    def _is_list(self) -> bool:
        return self.command == "GET" and "list-type=2" in urlsplit(self.path).query

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _endpoint(url: str) -> str:
    return parse_object_url(url).options["endpoint"]


def _listed(objects: list[ObjectInfo], query: dict[str, list[str]]) -> str:
    """Return the answer to a list of version 2, all in one page."""
    prefix = query.get("prefix", [""])[0]
    after = query.get("start-after", [""])[0]
    delimiter = query.get("delimiter", [""])[0]
    parts, folders = [], set()
    for each in objects:
        if not each.key.startswith(prefix) or each.key <= after:
            continue
        rest = each.key[len(prefix) :]
        if delimiter and delimiter in rest:
            folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            continue
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(each.modified_at))
        parts.append(
            f"<Contents><Key>{escape(each.key)}</Key><LastModified>{when}</LastModified>"
            f"<ETag>&quot;{each.etag}&quot;</ETag><Size>{each.size}</Size></Contents>"
        )
    parts += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders)]
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>false</IsTruncated><Prefix>{escape(prefix)}</Prefix>{''.join(parts)}</ListBucketResult>"
    )
