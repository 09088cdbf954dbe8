"""Connects to a Ray cluster: its nodes, its actors and its autoscaler."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from thriftune.errors import SettingError, ThriftuneError

NAMESPACE = "thriftune"

MARKET, NODE = "ray.io/market-type", "ray.io/node-id"
"""Labels that Ray itself gives, or has a use for."""

INSTANCE_TYPE, PRICE = "thriftune.io/instance-type", "thriftune.io/price-per-hour"
"""Labels by which a node says what it is rented as, and what an hour of it costs where no catalog knows."""

HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 3000,
    "health_check_failure_threshold": 3,
}
"""For clusters that are started here: a dead node is known after some seconds, where Ray by default takes half a
minute. One that does not answer for three seconds, three times in a row, is dead; a busy one answers."""

_KNOCK_SECONDS, _ANSWER_SECONDS = 10.0, 60.0

_PREEMPTED = 3
"""AUTOSCALER_DRAIN_PREEMPTED of Ray's NodeDeathInfo, which is not in the same module of every version."""

Told = Callable[[Any, BaseException | None], None]


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One that is alive."""

    id: str
    address: str
    resources: Mapping[str, float]  # in all
    labels: Mapping[str, str]
    type: str = ""  # by the name of the autoscaler's configuration
    drains_at: float | None = None  # unix seconds; it shall be left by then
    available: Mapping[str, float] = field(default_factory=dict)  # of its resources, now


@dataclass(frozen=True, slots=True)
class NodeType:
    """A kind of node that the autoscaler can start."""

    name: str
    resources: Mapping[str, float]
    most: int  # nodes at a time
    price_per_hour: float | None = None  # where a user says so
    least_billed: float | None = None  # seconds; None: as its provider does


@dataclass(slots=True)
class Cluster:
    """A connection to a cluster. Any number of them in one process share Ray's own."""

    address: str
    _ours: bool = field(repr=False)  # the connection, so that it ends with this object
    started: bool = False  # by this object, on this machine: no node will come

    @classmethod
    def attach(cls, address: str | None = None) -> Cluster:
        """To the cluster at `address` ("auto": the one that runs on this machine), else to that of RAY_ADDRESS,
        else to one that is started here and ends with this process."""
        wanted = address or os.environ.get("RAY_ADDRESS")
        if wanted is not None and "://" in wanted:
            raise SettingError(
                f"RAY_ADDRESS: {wanted!r}: Ray's client is not supported; run the study on a machine of the "
                "cluster, with address 'auto'"
            )
        if wanted is not None and "ray" not in sys.modules:  # when it is imported, Ray looks, and never again
            _show_token(wanted)
        ray = _ray()
        if ray.is_initialized():
            there = ray.get_runtime_context().gcs_address
            if wanted not in (None, "auto", there):
                raise SettingError(f"address: {wanted} is not {there}, to which this process is connected already")
            return cls(there, False)
        options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
        if wanted is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            options |= {"address": "local", "num_cpus": len(os.sched_getaffinity(0)), "include_dashboard": False}
            options["_system_config"] = HEALTH_CHECKS
        else:
            options["address"] = wanted
            _knock(wanted)
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise ThriftuneError(
                f"no Ray cluster can be reached at {wanted}: {_first_line(error)}. If it asks for a token, as "
                "those of `ray start` do since Ray 2.60, this machine must have it, in ~/.ray/auth_token, and "
                "RAY_AUTH_MODE=token be set where Ray is imported before thriftune needs it"
            ) from error
        return cls(ray.get_runtime_context().gcs_address, True, started=wanted is None)

    def detach(self) -> None:
        """Ends the connection, and with it the cluster that attach() started. May be called twice."""
        if self._ours:
            self._ours = False
            _ray().shutdown()

    # --- nodes ------------------------------------------------------------------------------------------

    def nodes(self) -> list[ClusterNode]:
        """Those that are alive, by id. A fraction of a millisecond: it may be asked often."""
        from ray._private.state import state
        from ray.core.generated.autoscaler_pb2 import GetClusterResourceStateReply, NodeStatus

        # What ray.autoscaler.v2.sdk has for this brings the whole autoscaler with it.
        reply = GetClusterResourceStateReply()
        reply.ParseFromString(self._gcs().get_cluster_resource_state())
        drained = state.get_draining_nodes()
        found = []
        for node in reply.cluster_resource_state.node_states:
            if node.status == NodeStatus.DEAD:
                continue
            number = node.node_id.hex()
            drains_at = drained[number] / 1000.0 if number in drained else None
            resources = {name: amount for name, amount in node.total_resources.items() if ":" not in name}
            kind = node.ray_node_type_name
            labels, available = dict(node.labels), dict(node.available_resources)
            found.append(ClusterNode(number, node.node_ip_address, resources, labels, kind, drains_at, available))
        return sorted(found, key=lambda each: each.id)

    def end_of(self, node_id: str) -> tuple[str, bool]:
        """Of a node that is not alive: what Ray says of why, and whether it was taken away after a notice."""
        ray = _ray()
        found: dict[str, Any] = next((node for node in ray.nodes() if node["NodeID"] == node_id), {})
        preempted = found.get("DeathReason") == _PREEMPTED
        return str(found.get("DeathReasonMessage") or "the node is gone"), preempted

    def may_report(self) -> bool:
        """Return whether monitor_report() will have something: version 2 of the autoscaler writes no report."""
        _raylet: Any = import_module("ray._raylet")
        key, namespace = _raylet.GCS_AUTOSCALER_V2_ENABLED_KEY, _raylet.GCS_AUTOSCALER_STATE_NAMESPACE
        return bool(self._gcs().internal_kv_get(key.encode(), namespace=namespace.encode()) != b"1")

    def monitor_report(self) -> bytes | None:
        """Return what the head's monitor has last written about the autoscaler, as JSON; None: nothing yet."""
        from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS

        report: bytes | None = self._gcs().internal_kv_get(DEBUG_AUTOSCALING_STATUS.encode(), namespace=None)
        return report

    def claim(self, bundle: Mapping[str, float], selector: Mapping[str, str]) -> ResourceClaim:
        """Room for a bundle on a node with such labels. Until there is any, the autoscaler is asked for a node; as
        long as it is claimed, the node is not idle. It ends with this process, if not before."""
        return ResourceClaim(bundle, selector)

    # --- what all who are attached can read -----------------------------------------------------------------

    def note(self, key: str, value: bytes) -> None:
        """Kept by the cluster for as long as it is."""
        from ray.experimental import internal_kv

        internal_kv._internal_kv_put(key.encode(), value, overwrite=True, namespace=NAMESPACE.encode())

    def noted(self, prefix: str) -> dict[str, bytes]:
        """By key, all whose key begins so."""
        from ray.experimental import internal_kv

        space = NAMESPACE.encode()
        keys = internal_kv._internal_kv_list(prefix.encode(), namespace=space)
        values = {key.decode(): internal_kv._internal_kv_get(key, namespace=space) for key in keys}
        return {key: value for key, value in values.items() if value is not None}

    def erase(self, key: str) -> None:
        from ray.experimental import internal_kv

        internal_kv._internal_kv_del(key.encode(), namespace=NAMESPACE.encode())

    # --- actors -----------------------------------------------------------------------------------------

    def gang(
        self,
        kind: type,
        arguments: Sequence[Sequence[Any]],
        nodes: Sequence[str],
        each: Mapping[str, float],
        name: str,
    ) -> PlacementGroup:
        """Actors of a class, on these nodes, each with its resources; all of them or none. They end with this
        process, if not before."""
        return PlacementGroup(kind, arguments, nodes, each, name)

    def end_actors(self, prefix: str) -> None:
        """Of whoever made them, those whose name begins so."""
        ray = _ray()
        from ray.util import list_named_actors

        for actor in list_named_actors(all_namespaces=True):
            if actor["name"].startswith(prefix):
                with contextlib.suppress(ValueError):  # it was going already
                    ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]))

    def _gcs(self) -> Any:
        from ray._private.worker import global_worker

        return global_worker.gcs_client


class ResourceClaim:
    """Room that is asked for, or had."""

    def __init__(self, bundle: Mapping[str, float], selector: Mapping[str, str]) -> None:
        from ray.util.placement_group import placement_group

        self._group = placement_group([dict(bundle)], strategy="PACK", bundle_label_selector=[dict(selector)])

    def node(self) -> str | None:
        """Where it is; None: nowhere yet, or no more."""
        from ray.util.placement_group import placement_group_table

        found = placement_group_table(self._group)
        there = found.get("state") == "CREATED"
        return next(iter(found["bundles_to_node_id"].values())) if there else None

    def end(self) -> None:
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self._group)


class PlacementGroup:
    """Actors that were asked for together. What they answer comes on a thread of Ray's."""

    def __init__(
        self,
        kind: type,
        arguments: Sequence[Sequence[Any]],
        nodes: Sequence[str],
        each: Mapping[str, float],
        name: str,
    ) -> None:
        ray = _ray()
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._group = placement_group(
            [dict(each)] * len(nodes), strategy="PACK", bundle_label_selector=[{NODE: node} for node in nodes]
        )
        self._placed = False
        more = {name: amount for name, amount in each.items() if name not in ("CPU", "GPU", "memory")}
        actor = ray.remote(concurrency_groups={"hear": 1, "say": 1})(kind)
        self._actors = [
            actor.options(
                name=f"{name}-{rank}",
                num_cpus=each.get("CPU", 0),
                num_gpus=each.get("GPU", 0),
                memory=each.get("memory"),
                resources=more,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self._group, placement_group_bundle_index=rank
                ),
            ).remote(*given)
            for rank, given in enumerate(arguments)
        ]

    def call(self, rank: int, method: str, *arguments: Any, group: str, then: Told | None = None) -> None:
        """`then` is told what it returned, or the error: of an actor that is gone, too."""
        reference = getattr(self._actors[rank], method).options(concurrency_group=group).remote(*arguments)
        if then is not None:
            told = then
            reference.future().add_done_callback(lambda done: _tell(done, told))

    def placed(self) -> bool:
        """Whether Ray has found room for all of it."""
        if not self._placed:
            from ray.util.placement_group import placement_group_table

            self._placed = placement_group_table(self._group).get("state") == "CREATED"
        return self._placed

    def end_one(self, rank: int) -> None:
        """Now. The room that it had is the gang's as long as there is any of it."""
        _ray().kill(self._actors[rank])

    def end(self) -> None:
        """All of them, now."""
        ray = _ray()
        from ray.util.placement_group import remove_placement_group

        for actor in self._actors:
            ray.kill(actor)
        remove_placement_group(self._group)


def _tell(done: Any, told: Told) -> None:
    error = done.exception()
    told(None if error else done.result(), error)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise SettingError("engine: 'ray' needs Ray; install it with: pip install 'thriftune[ray]'") from None
    return ray


def _show_token(address: str) -> None:
    """A cluster that asks for a token is shown the one that is here, which Ray only does if it is told to. One
    that does not ask must not be: this process would ask it for one, too, and so not hear from it."""
    there = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if "RAY_AUTH_MODE" in os.environ or not (there or (Path.home() / ".ray" / "auth_token").exists()):
        return
    _knock(address)
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    command = [sys.executable, "-c", _GETS_IN, address]
    try:
        asked = subprocess.run(command, env=environment, capture_output=True, timeout=_ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ThriftuneError(
            f"no Ray cluster answers at {address}, though somebody listens there; `ray status` on its head tells "
            "whether it runs, and where"
        ) from None
    if asked.returncode:
        os.environ["RAY_AUTH_MODE"] = "token"


_GETS_IN = """
import sys
from ray._raylet import GcsClient
address = sys.argv[1]
if address == "auto":
    from ray._private.services import canonicalize_bootstrap_address_or_die
    address = canonicalize_bootstrap_address_or_die(address)
GcsClient(address=address).internal_kv_exists(b"", None, timeout=10)
"""
"""Whether anybody gets in without a token. In a process of its own, as Ray settles once whether it shows one."""


def _knock(address: str) -> None:
    """Ray tries for minutes where nobody is."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()
    except OSError as error:
        raise ThriftuneError(
            f"no Ray cluster can be reached at {address}: {error.strerror or error}; `ray status` on its head "
            "tells whether it runs, and where"
        ) from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
