"""Import Ray, and check the address and the token before a connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError, ThriftuneError

_CONNECT_SECONDS = 10.0
"""How long to wait for a connection to the cluster's address."""

_TOKEN_CHECK_SECONDS = 60.0
"""How long to wait for the process that tries to connect without a token."""


def import_ray() -> Any:
    """Import Ray and return it; raise SettingError if it is not installed."""
    try:
        import ray
    except ImportError:
        raise SettingError("engine: 'ray' needs Ray; install it with: pip install 'thriftune[ray]'") from None
    return ray


def set_token_mode(address: str) -> None:
    """Set RAY_AUTH_MODE=token if the cluster requires a token, and one is known.

    Ray sends a token only in this mode. If the cluster requires no token, the mode must not be set. Otherwise this
    process would require a token from the cluster, and reject its messages.
    """
    token = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if "RAY_AUTH_MODE" in os.environ or not (token or (Path.home() / ".ray" / "auth_token").exists()):
        return
    check_reachable(address)
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    command = [sys.executable, "-c", _CONNECT_WITHOUT_TOKEN, address]
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, timeout=_TOKEN_CHECK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ThriftuneError(
            f"no Ray cluster answers at {address}, although a process listens there; run `ray status` on the "
            "cluster's head to see whether Ray runs, and at which address"
        ) from None
    if process.returncode:
        os.environ["RAY_AUTH_MODE"] = "token"


_CONNECT_WITHOUT_TOKEN = """
import sys
from ray._raylet import GcsClient
address = sys.argv[1]
if address == "auto":
    from ray._private.services import canonicalize_bootstrap_address_or_die
    address = canonicalize_bootstrap_address_or_die(address)
GcsClient(address=address).internal_kv_exists(b"", None, timeout=10)
"""
"""A script that fails if the cluster requires a token.

It runs in a separate process, because Ray decides only once in each process whether it sends a token.
"""


def check_reachable(address: str) -> None:
    """Raise ThriftuneError if no process listens at the address.

    Without this check, Ray would try to connect for minutes.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ThriftuneError(
            f"no Ray cluster can be reached at {address}: {error.strerror or error}; run `ray status` on the "
            "cluster's head to see whether Ray runs, and at which address"
        ) from None
