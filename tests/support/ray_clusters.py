"""Starts real Ray clusters on one machine for tests and benchmarks, which end with their block.

`nodes()` starts a cluster whose nodes the test adds, drains and kills. The test's own process connects to it.
`autoscaled()` starts a cluster with Ray's own autoscaler, which starts and ends nodes on request. It needs a fixed
port and leaves processes behind, so it runs in namespaces with their own loopback device, whose processes end with
the first one. A script that uses the cluster must run there, too, by `Autoscaled.run()`.

Both ignore other Ray clusters on the machine, and are not found by them.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from thriftune.clouds.ray.cluster import HEALTH_CHECKS

PATIENCE_SECONDS = 60.0
_STORE_BYTES = 80_000_000
"""The size of a node's object store: the smallest that Ray accepts. The memory is used only when needed."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes Ray use 127.0.0.1 itself, instead of the address by which others reach this machine."""

_REPOSITORY = Path(__file__).parents[2]


# --- nodes that a test adds ---------------------------------------------------------------------------------


class Nodes:
    """A cluster whose head has no CPUs. Nodes are named by the hex digits of their ids."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        head = {
            "num_cpus": 0,
            "include_dashboard": False,
            "temp_dir": str(folder / "ray"),
            "node_ip_address": "127.0.0.1",
        }
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={**head, "object_store_memory": _STORE_BYTES, "_system_config": dict(HEALTH_CHECKS)},
        )
        self._nodes: dict[str, Any] = {}  # by id
        self._apart: dict[str, subprocess.Popen[str]] = {}  # by id, the nodes that do not see all folders
        self._folder = folder

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def folder(self) -> Path:
        """Return a folder that all nodes see."""
        return self._folder

    @property
    def head(self) -> str:
        return str(self._cluster.head_node.node_id)

    @property
    def running(self) -> list[str]:
        """Return the nodes that were added, and neither killed nor ended."""
        return [*self._nodes, *self._apart]

    def add(
        self,
        cpus: float = 1,
        *,
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, float] | None = None,
        gpus: int = 0,
        kind: str = "",
    ) -> str:
        """Start a node with these resources, real or not, and wait until it runs, some seconds; return its id.

        `kind`: the node type that it has, as if an autoscaler had started it.
        """
        node = self._cluster.add_node(
            num_cpus=cpus,
            num_gpus=gpus,
            resources=dict(resources or {}),
            labels=dict(labels or {}),
            object_store_memory=_STORE_BYTES,
            node_ip_address="127.0.0.1",
            env_vars={"RAY_NODE_TYPE_NAME": kind} if kind else None,
        )
        self._nodes[node.node_id] = node
        return str(node.node_id)

    def add_apart(self, cpus: float, *hidden: Path) -> str:
        """Start a node for which these folders are empty, as on a machine of its own; return its id.

        It also has a folder for temporary files of its own.
        """
        temporary = self._folder / f"apart-{secrets.token_hex(4)}"
        temporary.mkdir()
        hide = "".join(f"mount -t tmpfs none {shlex.quote(str(folder))} && " for folder in hidden)
        settings = {"num_cpus": cpus, "object_store_memory": _STORE_BYTES}
        script = [sys.executable, str(Path(__file__).with_name("ray_node.py")), self.address, json.dumps(settings)]
        command = ["unshare", *mount_namespace(), "sh", "-c", f"{hide}exec {shlex.join(script)}"]
        environment = {**os.environ, "TMPDIR": str(temporary)}
        with (temporary / "errors").open("w") as errors:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert process.stdout is not None
        node_id = process.stdout.readline().strip()
        assert node_id, (temporary / "errors").read_text()
        self._apart[node_id] = process
        return node_id

    def drain(self, node_id: str, seconds: float, why: str = "preempted") -> float:
        """Announce the preemption of a node in some seconds; return when. The node is not ended by that."""
        from ray.core.generated.autoscaler_pb2 import DrainNodeReason

        deadline = time.time() + seconds
        reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        gcs = importlib.import_module("ray._raylet").GcsClient(address=self.address)
        accepted, reason_text = gcs.drain_node(node_id, reason, why, int(deadline * 1000))
        assert accepted, reason_text
        return deadline

    def kill(self, node_id: str) -> None:
        """Kill all processes of a node, also those of actors and their children, as a power cut would.

        The cluster notices by itself, after some seconds.
        """
        if node_id in self._apart:
            apart = self._apart.pop(node_id)
            killed = [apart.pid, *_descendants([apart.pid])]
            for pid in killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _wait(apart)
            return
        node = self._nodes.pop(node_id)
        own = [process.process.pid for several in node.all_processes.values() for process in several]
        descendants = _descendants(own)  # they end by themselves, but some of them only after a second
        self._cluster.remove_node(node, allow_graceful=False)
        for pid in descendants:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self, node_id: str) -> None:
        """End a node gracefully: the cluster is notified."""
        if node_id in self._apart:
            apart = self._apart.pop(node_id)
            assert apart.stdin is not None
            apart.stdin.close()
            _wait(apart)
            return
        self._cluster.remove_node(self._nodes.pop(node_id), allow_graceful=True)

    def close(self) -> None:
        """Kill all nodes; the head last."""
        with contextlib.ExitStack() as stack:  # a failure for one node must not keep the others
            if self._cluster.head_node is not None:
                stack.callback(self._cluster.remove_node, self._cluster.head_node, allow_graceful=False)
            for node_id in self.running:
                stack.callback(self.kill, node_id)


def _wait(node: subprocess.Popen[str]) -> None:
    node.wait(PATIENCE_SECONDS)
    for pipe in (node.stdin, node.stdout):
        if pipe is not None:
            pipe.close()


def _descendants(pids: Sequence[int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    descendants: list[int] = []
    pending = list(pids)
    while pending:
        new = children.get(pending.pop(), [])
        descendants += new
        pending += new
    return descendants


@contextlib.contextmanager
def nodes(*cpus: float) -> Iterator[Nodes]:
    """Run a cluster with a head without CPUs, and a node for each number of CPUs."""
    ray = pytest.importorskip("ray")
    from ray._private import ray_constants

    before = dict(os.environ)
    loopback_before = ray_constants.ENABLE_RAY_CLUSTER  # the setting of _LOOPBACK, read when Ray was imported
    with _folder() as folder:
        # Ray writes the address of the cluster "auto" into this folder. Other programs must not read it.
        os.environ.update(_QUIET | _LOOPBACK, RAY_TMPDIR=str(folder))
        os.environ.pop("RAY_ADDRESS", None)
        ray_constants.ENABLE_RAY_CLUSTER = False
        try:
            cluster = Nodes(folder)
            try:
                for count in cpus:
                    cluster.add(count)
                yield cluster
            finally:
                ray.shutdown()
                cluster.close()
        finally:
            ray_constants.ENABLE_RAY_CLUSTER = loopback_before
            os.environ.clear()
            os.environ.update(before)


# --- nodes that the autoscaler adds -------------------------------------------------------------------------


def node_type(
    cpus: float = 1,
    *,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, float] | None = None,
    most: int = 4,
    least: int = 0,
) -> dict[str, Any]:
    """Return a node type for the autoscaler's configuration, under available_node_types."""
    return {
        "resources": {"CPU": cpus, "object_store_memory": _STORE_BYTES, **(resources or {})},
        "labels": dict(labels or {}),
        "node_config": {},
        "min_workers": least,
        "max_workers": most,
    }


@dataclass
class Autoscaled:
    """A running cluster in its namespaces."""

    address: str  # in the namespaces
    folder: Path  # for the cluster and its scripts
    environment: Mapping[str, str]
    _first_pid: int = field(repr=False)  # the process id by which the namespaces are entered
    _namespaces: Sequence[str] = field(repr=False)

    def run(self, script: str | Path, *arguments: str, seconds: float = 120.0, echo: bool = False) -> str:
        """Run a Python script in the namespaces; return its output. RAY_ADDRESS is the address of the cluster.

        `script`: its text or its path. `echo`: show standard error at once, and not only after a failure.
        """
        done = subprocess.run(
            self.command(script, *arguments),
            env=dict(self.environment),
            cwd=_REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=None if echo else subprocess.PIPE,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, script: str | Path, *arguments: str) -> subprocess.Popen[str]:
        """Start a script as run() does, without waiting. It ends with the cluster at the latest."""
        command = self.command(script, *arguments)
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=dict(self.environment), cwd=_REPOSITORY, stdout=pipe, text=True)

    def command(self, script: str | Path, *arguments: str) -> list[str]:
        what = [str(script)] if isinstance(script, Path) else ["-c", script]
        enter = ["nsenter", f"--target={self._first_pid}", *self._namespaces, f"--wd={_REPOSITORY}"]
        return [*(enter if self._namespaces else []), sys.executable, *what, *arguments]

    def log(self) -> str:
        """Return the log of the autoscaler."""
        paths = sorted(self.folder.glob("ray/session_2*/logs/monitor.*"))
        return "\n".join(path.read_text(errors="replace") for path in paths)


@contextlib.contextmanager
def autoscaled(
    node_types: Mapping[str, Mapping[str, Any]], *, idle_seconds: float = 4.0, most: int = 8, apart: bool = True
) -> Iterator[Autoscaled]:
    """Run a cluster with a head without CPUs, and an autoscaler for nodes of these types; see node_type().

    - `idle_seconds`: the time after which the autoscaler ends an idle node.
    - `most`: the largest number of nodes.
    - `apart`: run the cluster in namespaces. Otherwise, it must be the only Ray on the machine.
    """
    pytest.importorskip("ray")
    unshare, enter = namespaces() if apart else ([], [])
    with _folder() as folder:
        home = folder / "home"
        home.mkdir()
        paths = [str(_REPOSITORY / "src"), str(_REPOSITORY), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        python_path = os.pathsep.join(filter(None, paths))
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            **_QUIET,
            "HOME": str(home),
            "PYTHONPATH": python_path,
            "RAY_TMPDIR": str(folder),
        }
        config = folder / "autoscaler.json"
        config.write_text(json.dumps(_configuration(node_types, idle_seconds, most)))
        command = ["unshare", *unshare, "--fork", "--kill-child"] if apart else []
        command += [sys.executable, __file__, str(folder)]
        with (folder / "start.log").open("w") as log:
            holder = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            first = _wait_for_start(holder, folder, apart)
            environment |= {"RAY_ADDRESS": _ADDRESS}
            yield Autoscaled(_ADDRESS, folder, environment, first, enter)
        finally:
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.close()  # it ends when its input is closed
            try:
                holder.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                holder.kill()  # this ends all processes in its namespaces
                holder.wait()
            holder.stdout.close()
            if not apart:
                _end_processes_of(folder)


def _end_processes_of(folder: Path) -> None:
    """Kill the processes with the folder in their command lines."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and str(folder).encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


_ADDRESS = "127.0.0.1:6379"
_HEAD_ID = "f" * 51 + "00000"  # the id that the fake provider gives to the head


def _configuration(node_types: Mapping[str, Mapping[str, Any]], idle_seconds: float, most: int) -> dict[str, Any]:
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    return {
        "cluster_name": "fake",
        "max_workers": most,
        "idle_timeout_minutes": idle_seconds / 60.0,
        "upscaling_speed": 100.0,
        "provider": {
            # Ray's own fake_multinode provider; by that name Ray would look for a file that its wheels lack.
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "launch_multiple": True,
            "head_node_id": _HEAD_ID,
            "gcs_address": _ADDRESS,
        },
        "available_node_types": {**{name: dict(kind) for name, kind in node_types.items()}, _HEAD_TYPE: head},
        "head_node_type": _HEAD_TYPE,
        **{name: {} for name in ("auth", "docker", "file_mounts")},  # Ray requires unused settings, too
        **{name: [] for name in _UNUSED_LISTS},
    }


_UNUSED_LISTS = (
    "cluster_synced_files",
    "rsync_exclude",
    "rsync_filter",
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)


_HEAD_TYPE = "ray.head.default"


@functools.cache
def namespaces() -> tuple[list[str], list[str]]:
    """Return the options of unshare and nsenter for the namespaces; skip the test if they cannot be made."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        pytest.skip("the autoscaler's tests need unshare and nsenter (util-linux), which are not installed")
    apart = ["--net", "--pid", "--mount", "--mount-proc"]
    entered = ["--net", "--pid", "--mount"]
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, *apart, "--fork", "--kill-child", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        user_text = "even by root" if os.geteuid() == 0 else "by a user who is not root"
        pytest.skip(f"network and process namespaces cannot be made here, {user_text}: {tried.stderr.strip()}")
    return [*user, *apart], ([*entered, "--user", "--preserve-credentials"] if user else entered)


@functools.cache
def mount_namespace() -> list[str]:
    """Return the options of unshare for a namespace of mounts; skip the test if it cannot be made."""
    options = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None:
        pytest.skip("nodes with folders of their own need unshare (util-linux), which is not installed")
    tried = subprocess.run(["unshare", *options, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"namespaces of mounts cannot be made here: {tried.stderr.strip()}")
    return options


def _wait_for_start(holder: subprocess.Popen[str], folder: Path, apart: bool) -> int:
    """Wait until the cluster runs; return the id of the first process in its namespaces."""
    assert holder.stdout is not None
    timer = threading.Timer(PATIENCE_SECONDS, holder.kill)
    timer.start()
    try:
        line = holder.stdout.readline().strip()
    finally:
        timer.cancel()
    if line != "started":
        log = (folder / "start.log").read_text(errors="replace")
        raise AssertionError(f"the cluster did not start: {line or 'no output'}\n{log[-4000:]}")
    if not apart:
        return holder.pid
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
    return int(children[0])


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder with a short path: the path of a socket in it may have at most 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix="rc-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- the first process of the namespaces --------------------------------------------------------------------


def _hold(folder: Path) -> None:
    """Start the cluster, and wait for the end of standard input.

    All processes in the namespaces end with this one.
    """
    with contextlib.suppress(PermissionError):  # outside of a namespace, the device is up already
        _loopback_up()
    os.environ |= {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": _HEAD_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD_ID,
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--port=6379", "--num-cpus=0"]
    command += ["--node-ip-address=127.0.0.1", f"--object-store-memory={_STORE_BYTES}"]
    command += [f"--autoscaling-config={folder / 'autoscaler.json'}", f"--temp-dir={folder / 'ray'}"]
    command += ["--include-dashboard=false", "--disable-usage-stats"]
    command += [f"--system-config={json.dumps(dict(HEALTH_CHECKS), separators=(',', ':'))}"]
    subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, check=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the first process adopts orphans, and need not wait for them
    print("started", flush=True)
    sys.stdin.read()


def _loopback_up() -> None:
    """Enable the loopback device, which is disabled in a new network namespace."""
    name, up = b"lo", 0x1
    get_flags, set_flags = 0x8913, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        reply = fcntl.ioctl(any_socket, get_flags, struct.pack("16sh", name, 0) + bytes(14))
        flags = struct.unpack("16sh", reply[:18])[1]
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh", name, flags | up) + bytes(14))


if __name__ == "__main__":
    _hold(Path(sys.argv[1]))
