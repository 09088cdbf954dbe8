"""Tests the configuration for `ray up`: its contents, that Ray accepts it, and the nodes that start with it."""

from __future__ import annotations

import builtins
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from thriftune import __version__
from thriftune.clouds.ray import cluster_template
from thriftune.clouds.ray.cluster import HEALTH_CHECKS, INSTANCE_TYPE, MARKET
from thriftune.clouds.ray.cluster_template import (
    HEAD,
    PROVIDERS,
    SHARED_FOLDER,
    cluster_file,
    ray_version,
)
from thriftune.clouds.ray.node_types import machine_and_market, node_type_name
from thriftune.clouds.ray.own_wheel import write_wheel
from thriftune.errors import SettingError
from thriftune.market import Catalog, Offer

PATIENCE_SECONDS = 90.0
FAKE_PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
FAKE_HEAD_TYPE = "ray.head.default"
FAKE_HEAD = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"
"""The id that this provider gives to the head."""


def loaded(*args: Any, **options: Any) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(cluster_file(*args, **options))
    return config


def workers(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: kind for name, kind in config["available_node_types"].items() if name != HEAD}


def all_machines(provider: str) -> list[str]:
    provider_name = PROVIDERS[provider].name
    return [o.name for o in Catalog.shipped() if o.provider == provider_name and not o.name.startswith("c7g.")]


# --- names of node types


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("m5.xlarge_spot", ("m5.xlarge", True)),
        ("m5.xlarge_on-demand", ("m5.xlarge", False)),
        ("n1-highcpu-16_spot", ("n1-highcpu-16", True)),
        ("two_words_spot", ("two_words", True)),
        ("head", None),
        ("ray.head.default", None),
        ("m5.xlarge", None),
        ("m5.xlarge_", None),
        ("m5.xlarge_Spot", None),
        ("m5.xlarge-spot", None),
        ("_spot", None),
        ("spot", None),
        ("", None),
    ],
)
def test_reads_machine_and_market_from_a_name(name: str, expected: tuple[str, bool] | None) -> None:
    assert machine_and_market(name) == expected


@given(st.text(min_size=1), st.booleans())
def test_a_name_is_read_as_it_was_written(machine: str, spot: bool) -> None:
    assert machine_and_market(node_type_name(machine, spot)) == (machine, spot)


# --- contents of the file


def test_each_machine_gives_a_node_type_for_each_market() -> None:
    config = loaded("aws", ["m5.xlarge", "p3.8xlarge"], most=3)
    assert list(workers(config)) == [
        "m5.xlarge_spot",
        "m5.xlarge_on-demand",
        "p3.8xlarge_spot",
        "p3.8xlarge_on-demand",
    ]
    assert config["max_workers"] == 12
    for name, kind in workers(config).items():
        machine, spot = machine_and_market(name) or ("", None)
        assert kind["labels"] == {MARKET: "spot" if spot else "on-demand", INSTANCE_TYPE: machine}
        assert (kind["min_workers"], kind["max_workers"]) == (0, 3)
        assert kind["node_config"]["InstanceType"] == machine
        assert kind["node_config"].get("InstanceMarketOptions") == ({"MarketType": "spot"} if spot else None)
    assert config["available_node_types"]["m5.xlarge_spot"]["resources"] == {"CPU": 4}
    assert config["available_node_types"]["p3.8xlarge_spot"]["resources"] == {"CPU": 32, "GPU": 4}


def test_each_machine_of_google_gives_a_node_type_for_each_market() -> None:
    kinds = workers(loaded("gcp", ["n1-highcpu-16", "g2-standard-24"]))
    assert {name: kind["node_config"].get("scheduling") for name, kind in kinds.items()} == {
        "n1-highcpu-16_spot": {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"},
        "n1-highcpu-16_on-demand": None,
        "g2-standard-24_spot": {
            "provisioningModel": "SPOT",
            "instanceTerminationAction": "DELETE",
            "onHostMaintenance": "TERMINATE",
        },
        "g2-standard-24_on-demand": {"onHostMaintenance": "TERMINATE"},
    }
    assert kinds["g2-standard-24_spot"]["resources"] == {"CPU": 24, "GPU": 2}
    assert kinds["g2-standard-24_spot"]["node_config"]["machineType"] == "g2-standard-24"
    images = {
        name: kind["node_config"]["disks"][0]["initializeParams"]["sourceImage"] for name, kind in kinds.items()
    }
    assert "nvidia" in images["g2-standard-24_spot"]
    assert "nvidia" not in images["n1-highcpu-16_spot"]


@pytest.mark.parametrize(("market", "ends"), [("spot", {"spot"}), ("on-demand", {"on-demand"})])
def test_writes_node_types_for_one_market(market: str, ends: set[str]) -> None:
    assert {name.rpartition("_")[2] for name in workers(loaded("gcp", market=market))} == ends


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_default_machines_are_cheap(provider: str) -> None:
    config = loaded(provider)
    assert {machine_and_market(name) for name in workers(config)} == {
        (machine, spot) for machine in PROVIDERS[provider].machines for spot in (True, False)
    }
    prices = [Catalog.shipped()[machine].price_per_hour for machine in PROVIDERS[provider].machines]
    assert max(prices) < 0.5


@pytest.mark.parametrize(
    ("provider", "key", "head"), [("aws", "InstanceType", "m5.large"), ("gcp", "machineType", "e2-standard-2")]
)
def test_the_head_is_cheap_and_runs_no_trial(provider: str, key: str, head: str) -> None:
    config = loaded(provider, market="spot")
    assert config["head_node_type"] == HEAD
    kind = config["available_node_types"][HEAD]
    assert kind["resources"] == {"CPU": 0}
    assert kind["max_workers"] == 0
    assert kind["node_config"][key] == head
    assert not {"scheduling", "InstanceMarketOptions"} & set(kind["node_config"]), "the head is on-demand"


def test_the_file_has_the_settings() -> None:
    config = loaded("aws", name="on", idle_minutes=0.5, region="us-east-1")
    assert config["cluster_name"] == "on", "not true, as YAML reads an unquoted on"
    assert config["idle_timeout_minutes"] == 0.5
    assert config["provider"] == {"type": "aws", "region": "us-east-1", "cache_stopped_nodes": False}
    assert loaded("gcp")["provider"]["availability_zone"] == "us-central1-a"


def test_a_repeated_machine_counts_once() -> None:
    assert len(workers(loaded("aws", ["m5.large", "c5.large", "m5.large"]))) == 4


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_shell_passes_the_health_checks_to_the_head(provider: str) -> None:
    command = loaded(provider)["head_start_ray_commands"][-1]
    *_, option = [word for word in shlex.split(command) if word.startswith("--system-config=")]
    assert json.loads(option.removeprefix("--system-config=")) == HEALTH_CHECKS
    assert "export RAY_enable_autoscaler_v2=1;" in command
    assert "\n" not in command


@pytest.mark.parametrize("provider", PROVIDERS)
def test_all_nodes_get_the_same_versions(provider: str) -> None:
    commands = loaded(provider)["setup_commands"]
    wheel = f"thriftune-{__version__}-py3-none-any.whl"
    assert f"pip install \"$HOME/{wheel}[ray]\" 'ray[default]=={ray_version()}'" in commands
    assert f'pip install --no-deps --force-reinstall "$HOME/{wheel}"' in commands
    assert re.fullmatch(r"\d+\.\d+\.\d+", ray_version())
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_wheel_is_copied_to_all_nodes(provider: str, tmp_path: Path) -> None:
    wheel = tmp_path / 'odd "name"' / "thriftune.whl"
    node_path = f"~/thriftune-{__version__}-py3-none-any.whl"
    assert loaded(provider, wheel=wheel)["file_mounts"] == {node_path: str(wheel)}
    assert loaded(provider, wheel=Path("a.whl"))["file_mounts"] == {node_path: str(Path.cwd() / "a.whl")}
    assert loaded(provider)["file_mounts"] == {node_path: node_path.removeprefix("~/")}
    assert f"    #     thriftune cluster template {provider} --to cluster.yaml\n" in cluster_file(provider)
    assert "does not exist" not in cluster_file(provider, wheel=wheel)


def test_the_setup_installs_the_wheel_and_replaces_an_older_one_of_its_version(tmp_path: Path) -> None:
    """The dependencies are not installed: they would come from a package index."""
    pytest.importorskip("pip")
    write_wheel(tmp_path)
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    (home / "bin" / "pip").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m pip --python {home}/bin/python "$@" --no-index --quiet\n'
    )
    (home / "bin" / "pip").chmod(0o755)
    (command,) = (each for each in loaded("aws")["setup_commands"] if "--force-reinstall" in each)
    environment = {"HOME": str(tmp_path), "PATH": f"{home}/bin:{os.environ['PATH']}"}
    for _ in range(2):
        subprocess.run(["bash", "-c", command], env=os.environ | environment, check=True, timeout=300)
        (module,) = home.glob("lib/python*/site-packages/thriftune/__init__.py")
        assert "an older one" not in module.read_text()
        module.write_text("# an older one")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_shared_folder_can_be_uncommented(provider: str) -> None:
    text = cluster_file(provider)
    commented = re.findall(r"^    # (- .*)$", text, flags=re.MULTILINE)
    assert any(SHARED_FOLDER in line for line in commented)
    edited = yaml.safe_load(re.sub(r"^    # (- .*)$", r"    \1", text, flags=re.MULTILINE))
    assert len(edited["setup_commands"]) == len(yaml.safe_load(text)["setup_commands"]) + len(commented)
    for command in edited["setup_commands"]:
        subprocess.run(["bash", "-n", "-c", command], check=True)


def test_the_file_can_be_written_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    imported = builtins.__import__

    def refuse(name: str, *args: Any, **options: Any) -> Any:
        if name.partition(".")[0] in ("ray", "yaml"):
            raise ImportError(name)
        return imported(name, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(cluster_template, "version", missing)
        patched.setattr(builtins, "__import__", refuse)
        text = cluster_file("aws")
    assert any("'ray[default]==2." in command for command in yaml.safe_load(text)["setup_commands"])


# --- errors


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (("azure",), {}, "provider: 'azure' is not known; use aws or gcp"),
        (("aws", ["m5.xlrge"]), {}, "m5.xlrge: is not in the catalog .* did you mean m5.xlarge or "),
        (("gcp", ["n1-highcpu-17"]), {}, "n1-highcpu-1[67].*did you mean n1-highcpu"),
        (("aws", ["n1-highcpu-16"]), {}, "n1-highcpu-16: is a machine of GCP, not of AWS; make a file for gcp"),
        (("gcp", ["m5.xlarge"]), {}, "m5.xlarge: is a machine of AWS, not of GCP; make a file for aws"),
        (("aws", ["c7g.large"]), {}, "c7g.large: has ARM cores"),
        (("aws",), {"region": "eu-west-1"}, "no prices of AWS in eu-west-1, but in us-east-1; make the file for"),
        (("gcp",), {"region": "us-east-1"}, "no prices of GCP in us-east-1, but in us-central1"),
        (("aws",), {"most": 0}, "most: 0 is below 1"),
        (("aws",), {"market": "cheap"}, "market: 'cheap' is not known; use spot, on-demand, both"),
        (("aws",), {"idle_minutes": 0.0}, "idle_minutes: 0 is not between 0.1 and 10000"),
        (("aws",), {"idle_minutes": float("nan")}, "idle_minutes: nan is not between"),
        (("aws",), {"name": "My cluster"}, "name: 'My cluster' cannot be the name of a cluster"),
        (("aws",), {"name": "a: b"}, "name: 'a: b' cannot"),
        (("aws",), {"name": "ends-"}, "name: 'ends-' cannot"),
        (("aws",), {"name": "a" * 36}, "use at most 35 small letters"),
    ],
)
def test_wrong_settings_are_refused(args: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        cluster_file(*args, **options)


def test_another_catalog_may_be_used() -> None:
    def offer(name: str, region: str, cores: int = 4, accelerators: int = 0) -> Offer:
        kind = "T4" if accelerators else ""
        return Offer("AWS", name, cores, 16.0, 1.0, region, "2026-08", kind, accelerators)

    both = Catalog([offer("x9.big", "here"), offer("x9.big", "there"), offer("x9.small", "there", cores=2)])
    with pytest.raises(SettingError, match="region: is missing; the catalog has prices for here, there"):
        cluster_file("aws", ["x9.big"], catalog=both)
    assert loaded("aws", ["x9.big"], region="there", catalog=both)["provider"]["region"] == "there"
    with pytest.raises(SettingError, match=r"x9\.small: is not in the catalog"):
        cluster_file("aws", ["x9.small"], region="here", catalog=both)
    with pytest.raises(SettingError, match="the catalog has no machine of GCP"):
        cluster_file("gcp", catalog=both)
    with pytest.raises(SettingError, match="no machine of AWS in here for the head: one with 2 cores"):
        cluster_file("aws", ["gpu"], catalog=Catalog([offer("gpu", "here", accelerators=1)]))


# --- acceptance by Ray


@pytest.mark.parametrize("provider", PROVIDERS)
def test_ray_accepts_every_machine(provider: str) -> None:
    config = loaded(provider, all_machines(provider))
    filled = prepared(config)
    assert filled["available_node_types"] == config["available_node_types"], "Ray adds nothing"
    for command in config["setup_commands"]:
        assert command in filled["head_setup_commands"]
        assert command in filled["worker_setup_commands"]
    assert any("autoscaling-config" in command for command in filled["head_start_ray_commands"])


@settings(deadline=None, max_examples=20)
@given(
    provider=st.sampled_from(list(PROVIDERS)),
    name=st.from_regex(r"[a-z]([a-z0-9-]{0,33}[a-z0-9])?", fullmatch=True),
    most=st.integers(1, 10_000),
    idle_minutes=st.floats(0.1, 10_000.0),
)
def test_ray_accepts_any_settings(provider: str, name: str, most: int, idle_minutes: float) -> None:
    config = prepared(loaded(provider, name=name, most=most, idle_minutes=idle_minutes))
    assert config["cluster_name"] == name
    assert config["max_workers"] == 4 * most
    assert config["idle_timeout_minutes"] == pytest.approx(idle_minutes, rel=1e-5)


def prepared(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration as `ray up` prepares it: checked by the schema, with defaults filled in."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    filled: dict[str, Any] = prepare_config(config)
    validate_config(filled)
    return filled


# --- a real head with the start command of the file, and nodes that are processes on this machine


@pytest.fixture
def head(tmp_path: Path) -> Iterator[str]:
    """Start a head with the default file, but with Ray's fake provider; return its address."""
    config = prepared(loaded("aws", ["m5.xlarge"], most=2))
    port = free_port()
    config["provider"] = {
        "type": "external",
        "module": FAKE_PROVIDER,
        "launch_multiple": True,
        "head_node_id": FAKE_HEAD,
        "gcs_address": f"127.0.0.1:{port}",
    }
    kinds = config["available_node_types"]
    config["head_node_type"] = FAKE_HEAD_TYPE
    kinds[FAKE_HEAD_TYPE] = kinds.pop(HEAD)
    for kind in kinds.values():
        kind["node_config"] = {}
    (tmp_path / "ray_bootstrap_config.yaml").write_text(json.dumps(config))
    folder = tempfile.mkdtemp(prefix="tmpl", dir="/tmp")  # a short path: it contains sockets
    cores = kinds[FAKE_HEAD_TYPE]["resources"]["CPU"]
    command = config["head_start_ray_commands"][-1]
    command = command.replace("--port=6379", f"--port={port} --block --num-cpus={cores}")
    command = command.replace("--object-manager-port=8076", f"--temp-dir={folder} --include-dashboard=false")
    env = os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD,
        "RAY_NODE_TYPE_NAME": FAKE_HEAD_TYPE,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with (tmp_path / "head.txt").open("w") as log:
        started = subprocess.Popen(["bash", "-c", command], env=env, stdout=log, stderr=subprocess.STDOUT)
        try:
            log_path = tmp_path / "head.txt"
            wait_until(lambda: "will now block" in log_path.read_text() and started.poll() is None, log_path)
            yield f"127.0.0.1:{port}"
        finally:
            end(started, folder)
            shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_until(done: Callable[[], bool], log: Path | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if time.monotonic() > deadline:
            pytest.fail("the head did not start" + (f": {log.read_text()}" if log else ""))
        time.sleep(0.2)


def end(started: subprocess.Popen[bytes], folder: str) -> None:
    """End all processes of this head: each has its folder in its command line."""
    started.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        started.wait(timeout=20.0)
    for _ in range(50):
        remaining = in_folder(folder)
        if not remaining:
            break
        for pid in remaining:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    if started.poll() is None:
        started.kill()
    started.wait()


def in_folder(folder: str) -> list[int]:
    pids = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):
                if folder.encode() in (process / "cmdline").read_bytes():
                    pids.append(int(process.name))
    return pids


_REQUEST_ONE_NODE = """
import json, sys, time
from thriftune.clouds.ray.cluster import INSTANCE_TYPE, MARKET, Cluster
cluster = Cluster.attach(sys.argv[1])
cluster.claim({"CPU": 3}, {MARKET: "spot", INSTANCE_TYPE: "m5.xlarge"})
deadline = time.monotonic() + float(sys.argv[2])
while len(cluster.nodes()) < 2 and time.monotonic() < deadline:
    time.sleep(0.2)
print(json.dumps([[node.type, dict(node.labels), dict(node.resources)] for node in cluster.nodes()]))
cluster.detach()
"""
"""A script for a new process. A process that has used a hundred other clusters cannot always connect."""


@pytest.mark.cluster
def test_nodes_start_with_the_types_and_labels_of_the_file(head: str) -> None:
    command = [sys.executable, "-c", _REQUEST_ONE_NODE, head, str(PATIENCE_SECONDS)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS, check=False)
    assert process.returncode == 0, process.stderr
    nodes = {kind: (labels, resources) for kind, labels, resources in json.loads(process.stdout.splitlines()[-1])}
    assert len(nodes) == 2
    _, first = nodes.pop(FAKE_HEAD_TYPE)
    assert first.get("CPU", 0) == 0, "no trial runs there"
    ((kind, (labels, resources)),) = nodes.items()
    assert machine_and_market(kind) == ("m5.xlarge", True)
    assert labels[MARKET] == "spot"
    assert labels[INSTANCE_TYPE] == "m5.xlarge"
    assert resources["CPU"] == 4
