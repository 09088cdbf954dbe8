"""Getting into a cluster, and what is said where that does not work."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.cluster import hold
from thriftune.clouds.ray import cluster
from thriftune.clouds.ray.cluster import Cluster
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


@pytest.fixture
def no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing is said or known of any; the home in which there may be one."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield tmp_path
    os.environ.pop("RAY_AUTH_MODE", None)


TOKEN = "0123456789abcdef" * 4


@pytest.mark.parametrize("where", ["file", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
@pytest.mark.parametrize("asks", [False, True])
def test_a_token_is_shown_where_a_cluster_asks_for_one(
    where: str, asks: bool, no_token: Path, monkeypatch: pytest.MonkeyPatch, clusters: dict[bool, str]
) -> None:
    file = no_token / ".ray" / "auth_token"
    file.parent.mkdir()
    if where != "RAY_AUTH_TOKEN":
        file.write_text(TOKEN)
    if where != "file":
        monkeypatch.setenv(where, TOKEN if where == "RAY_AUTH_TOKEN" else str(file))
    cluster._show_token(clusters[asks])
    assert os.environ.get("RAY_AUTH_MODE") == ("token" if asks else None)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, str]]:
    """By whether they ask for a token, the addresses of two."""
    home = tmp_path_factory.mktemp("home")
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text(TOKEN)
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        found = {}
        for asks in (False, True):
            environment = {
                **os.environ, "HOME": str(home), "RAY_AUTH_MODE": "token" if asks else "disabled",
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            }  # fmt: skip
            command = [sys.executable, "-P", hold.__file__, "1"]
            held = stack.enter_context(
                subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
            )
            assert held.stdin is not None
            assert held.stdout is not None
            stack.callback(held.stdin.close)  # that is what it waits for
            found[asks] = held.stdout.readline().strip()
        yield found


def test_somebody_who_is_no_cluster_and_never_answers(no_token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.setattr(cluster, "_ANSWER_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(ThriftuneError, match=f"no Ray cluster answers at {address}, though somebody listens"):
            cluster._show_token(address)
    assert "RAY_AUTH_MODE" not in os.environ


def test_where_no_token_is_here_none_is_shown(no_token: Path) -> None:
    cluster._show_token("nobody is asked")
    assert "RAY_AUTH_MODE" not in os.environ


def test_what_a_user_says_of_tokens_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    cluster._show_token("nobody is asked")
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
