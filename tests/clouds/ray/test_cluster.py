"""Tests connections to a Ray cluster, with and without tokens, and the errors if there is none."""

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
from thriftune.clouds.ray import connecting
from thriftune.clouds.ray.cluster import Cluster
from thriftune.errors import SettingError, ThriftuneError

pytestmark = pytest.mark.cluster

pytest.importorskip("ray")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_fails_at_once_if_nothing_listens_at_the_address() -> None:
    port = free_port()
    with pytest.raises(ThriftuneError, match=rf"no Ray cluster can be reached at 127.0.0.1:{port}: .*refused; "):
        Cluster.attach(f"127.0.0.1:{port}")


def test_refuses_addresses_of_rays_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    with pytest.raises(SettingError, match=r"RAY_ADDRESS: 'ray://127.0.0.1:10001': Ray's client is not supported"):
        Cluster.attach()


@pytest.fixture
def no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Remove all settings of tokens; return the home folder, which may get a token file."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield tmp_path
    os.environ.pop("RAY_AUTH_MODE", None)


TOKEN = "0123456789abcdef" * 4


@pytest.mark.parametrize("source", ["file", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
@pytest.mark.parametrize("required", [False, True])
def test_uses_a_token_only_if_the_cluster_requires_one(
    source: str, required: bool, no_token: Path, monkeypatch: pytest.MonkeyPatch, clusters: dict[bool, str]
) -> None:
    file = no_token / ".ray" / "auth_token"
    file.parent.mkdir()
    if source != "RAY_AUTH_TOKEN":
        file.write_text(TOKEN)
    if source != "file":
        monkeypatch.setenv(source, TOKEN if source == "RAY_AUTH_TOKEN" else str(file))
    connecting.set_token_mode(clusters[required])
    assert os.environ.get("RAY_AUTH_MODE") == ("token" if required else None)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, str]]:
    """Start two clusters; return their addresses, by whether they require a token."""
    home = tmp_path_factory.mktemp("home")
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text(TOKEN)
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        addresses = {}
        for required in (False, True):
            environment = {
                **os.environ, "HOME": str(home), "RAY_AUTH_MODE": "token" if required else "disabled",
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            }  # fmt: skip
            command = [sys.executable, "-P", hold.__file__, "1"]
            process = stack.enter_context(
                subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
            )
            assert process.stdin is not None
            assert process.stdout is not None
            stack.callback(process.stdin.close)  # it ends when its input is closed
            addresses[required] = process.stdout.readline().strip()
        yield addresses


def test_fails_if_the_process_at_the_address_never_answers(
    no_token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.setattr(connecting, "_TOKEN_CHECK_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(
            ThriftuneError, match=f"no Ray cluster answers at {address}, although a process listens"
        ):
            connecting.set_token_mode(address)
    assert "RAY_AUTH_MODE" not in os.environ


def test_uses_no_token_if_this_machine_has_none(no_token: Path) -> None:
    connecting.set_token_mode("not contacted")
    assert "RAY_AUTH_MODE" not in os.environ


def test_keeps_the_token_mode_that_the_user_has_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    connecting.set_token_mode("not contacted")
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
