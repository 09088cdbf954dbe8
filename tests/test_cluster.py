"""Getting into a cluster, and what is said where that does not work."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from thriftune import cluster
from thriftune.cluster import Cluster
from thriftune.errors import SettingError, ThriftuneError

pytestmark = pytest.mark.cluster

pytest.importorskip("ray")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_where_nobody_is_it_says_so_at_once() -> None:
    port = free_port()
    with pytest.raises(ThriftuneError, match=rf"no Ray cluster can be reached at 127.0.0.1:{port}: .*refused; "):
        Cluster.attach(f"127.0.0.1:{port}")


def test_addresses_of_rays_client_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    with pytest.raises(SettingError, match=r"RAY_ADDRESS: 'ray://127.0.0.1:10001': Ray's client is not supported"):
        Cluster.attach()


@pytest.mark.parametrize("where", ["file", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", None])
def test_a_token_that_is_here_is_shown(where: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if where == "file":
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    elif where is not None:
        monkeypatch.setenv(where, "secret")
    cluster._show_token()
    try:
        assert os.environ.get("RAY_AUTH_MODE") == (None if where is None else "token")
    finally:
        os.environ.pop("RAY_AUTH_MODE", None)


def test_what_a_user_says_of_tokens_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    cluster._show_token()
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
