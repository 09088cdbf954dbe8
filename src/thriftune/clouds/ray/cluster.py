"""Connect to a Ray cluster: its nodes, autoscaler, key-value store and actors."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from thriftune.clouds.ray.connecting import check_reachable, import_ray, set_token_mode
from thriftune.errors import SettingError, ThriftuneError

NAMESPACE = "thriftune"

MARKET, NODE = "ray.io/market-type", "ray.io/node-id"
"""Labels of nodes that Ray itself sets or uses."""

INSTANCE_TYPE, PRICE = "thriftune.io/instance-type", "thriftune.io/price-per-hour"
"""Labels of nodes that name the machine type, and the price where the catalog has none."""

HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 3000,
    "health_check_failure_threshold": 3,
}
"""Ray's health checks in clusters that thriftune starts or configures.

A node is dead if it does not answer three times in a row, within three seconds each. A busy node still answers.
A dead node is thus noticed within seconds, instead of half a minute with Ray's defaults.
"""

_PREEMPTED = 3
"""AUTOSCALER_DRAIN_PREEMPTED of Ray's NodeDeathInfo. Its module differs between versions of Ray."""

OnResult = Callable[[Any, BaseException | None], None]
"""Receives the result of an actor's method: called with (result, None) or (None, error)."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node that is alive."""

    id: str
    address: str
    resources: Mapping[str, float]  # all resources of the node, in use or not
    labels: Mapping[str, str]
    type: str = ""  # its node type in the autoscaler's configuration; empty if it was started by hand
    drains_at: float | None = (
        None  # deadline of its drain in unix seconds; 0 without a deadline; None: not draining
    )
    available: Mapping[str, float] = field(default_factory=dict)  # the resources that are not in use


@dataclass(frozen=True, slots=True)
class NodeType:
    """A type of node that the autoscaler can start."""

    name: str
    resources: Mapping[str, float]
    max_nodes: int | None  # the most nodes at the same time; None: no limit
    price_per_hour: float | None = None  # dollars; None: not given by the user
    least_billed: float | None = None  # the fewest seconds that are billed; None: by the provider's rules


@dataclass(slots=True)
class Cluster:
    """A connection to a cluster.

    All Cluster objects of a process use the one connection that Ray has.
    """

    address: str
    _owns_connection: bool = field(repr=False)  # attach() made Ray's connection, so detach() ends it
    started: bool = False  # attach() started the cluster on this machine; it cannot get other nodes

    @classmethod
    def attach(cls, address: str | None = None) -> Cluster:
        """Connect to a cluster.

        `address`: HOST:PORT, or "auto" for the cluster that runs on this machine. None: the value of the
        environment variable RAY_ADDRESS. If this is not set, a cluster is started on this machine. It ends with
        this process.
        """
        wanted = address or os.environ.get("RAY_ADDRESS")
        if wanted is not None and "://" in wanted:
            raise SettingError(
                f"RAY_ADDRESS: {wanted!r}: Ray's client is not supported; run the study on a machine of the "
                "cluster, with address 'auto'"
            )
        if wanted is not None and "ray" not in sys.modules:  # Ray reads the token mode once, when it is imported
            set_token_mode(wanted)
        ray = import_ray()
        if ray.is_initialized():
            connected = ray.get_runtime_context().gcs_address
            if wanted not in (None, "auto", connected):
                raise SettingError(
                    f"address: this process is already connected to the cluster at {connected}, so it cannot use "
                    f"{wanted}; use another process for that"
                )
            return cls(connected, False)
        options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
        if wanted is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            options |= {"address": "local", "num_cpus": len(os.sched_getaffinity(0)), "include_dashboard": False}
            options["_system_config"] = HEALTH_CHECKS
        else:
            options["address"] = wanted
            check_reachable(wanted)
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise ThriftuneError(
                f"no Ray cluster can be reached at {wanted}: {_first_line(error)}. Clusters of `ray start` "
                "require a token since Ray 2.60. If this one does, put the token into ~/.ray/auth_token on this "
                "machine, and set RAY_AUTH_MODE=token if your script imports Ray before thriftune"
            ) from error
        return cls(ray.get_runtime_context().gcs_address, True, started=wanted is None)

    def detach(self) -> None:
        """End the connection, and the cluster if attach() started it.

        May be called twice.
        """
        if self._owns_connection:
            self._owns_connection = False
            import_ray().shutdown()

    # --- nodes ------------------------------------------------------------------------------------------

    def nodes(self) -> list[ClusterNode]:
        """Return the nodes that are alive, ordered by id.

        Takes a fraction of a millisecond.
        """
        from ray._private.state import state
        from ray.core.generated.autoscaler_pb2 import GetClusterResourceStateReply, NodeStatus

        # The function for this in ray.autoscaler.v2.sdk would import the whole autoscaler.
        reply = GetClusterResourceStateReply()
        reply.ParseFromString(self._gcs().get_cluster_resource_state())
        draining = state.get_draining_nodes()
        alive = []
        for node in reply.cluster_resource_state.node_states:
            if node.status == NodeStatus.DEAD:
                continue
            node_id = node.node_id.hex()
            drains_at = draining[node_id] / 1000.0 if node_id in draining else None
            resources = {name: amount for name, amount in node.total_resources.items() if ":" not in name}
            node_type = node.ray_node_type_name
            labels, available = dict(node.labels), dict(node.available_resources)
            alive.append(
                ClusterNode(node_id, node.node_ip_address, resources, labels, node_type, drains_at, available)
            )
        return sorted(alive, key=lambda each: each.id)

    def why_ended(self, node_id: str) -> tuple[str, bool]:
        """Return Ray's reason for the end of a node, and whether it was preempted.

        Ray knows only of preemptions with a notice.
        """
        record: dict[str, Any] = next((node for node in import_ray().nodes() if node["NodeID"] == node_id), {})
        preempted = record.get("DeathReason") == _PREEMPTED
        return str(record.get("DeathReasonMessage") or "the node has ended"), preempted

    def writes_monitor_report(self) -> bool:
        """Return whether the head's monitor writes reports.

        Version 2 of the autoscaler does not.
        """
        _raylet: Any = import_module("ray._raylet")
        key, namespace = _raylet.GCS_AUTOSCALER_V2_ENABLED_KEY, _raylet.GCS_AUTOSCALER_STATE_NAMESPACE
        return bool(self._gcs().internal_kv_get(key.encode(), namespace=namespace.encode()) != b"1")

    def monitor_report(self) -> bytes | None:
        """Return the last report of the head's monitor on the autoscaler, as JSON.

        Returns None if the monitor has not written one yet.
        """
        from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS

        report: bytes | None = self._gcs().internal_kv_get(DEBUG_AUTOSCALING_STATUS.encode(), namespace=None)
        return report

    def claim(self, bundle: Mapping[str, float], selector: Mapping[str, str]) -> ResourceClaim:
        """Claim a bundle of resources on one node with the selected labels.

        If no node has these resources free, Ray requests one from the autoscaler. A node with a claim is not idle.
        The claim ends when end() is called or this process ends.
        """
        return ResourceClaim(bundle, selector)

    # --- the key-value store of the cluster ---------------------------------------------------------------

    def write_note(self, key: str, value: bytes) -> None:
        """Write a value that every process in the cluster can read.

        It exists until it is deleted or the cluster ends.
        """
        from ray.experimental import internal_kv

        internal_kv._internal_kv_put(key.encode(), value, overwrite=True, namespace=NAMESPACE.encode())

    def read_notes(self, prefix: str) -> dict[str, bytes]:
        """Return the notes whose keys begin with the prefix, by key."""
        from ray.experimental import internal_kv

        namespace = NAMESPACE.encode()
        keys = internal_kv._internal_kv_list(prefix.encode(), namespace=namespace)
        values = {key.decode(): internal_kv._internal_kv_get(key, namespace=namespace) for key in keys}
        return {key: value for key, value in values.items() if value is not None}

    def delete_note(self, key: str) -> None:
        from ray.experimental import internal_kv

        internal_kv._internal_kv_del(key.encode(), namespace=NAMESPACE.encode())

    # --- tasks ------------------------------------------------------------------------------------------

    def call_on_node(
        self, node_id: str, function: Callable[..., Any], *arguments: Any, on_result: OnResult | None = None
    ) -> Any:
        """Call a function on a node, without waiting for it. Return a reference for results_of().

        The call needs no free resources on the node. It fails if the node has ended or is being drained.

        `on_result`: called on a thread of Ray.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        reference = _remote_function(function).options(scheduling_strategy=strategy).remote(*arguments)
        if on_result is not None:
            callback = on_result
            reference.future().add_done_callback(lambda future: _pass_on(future, callback))
        return reference

    def results_of(self, references: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Wait at most this long for calls on nodes, and return the results of those that have succeeded.

        `references`: from call_on_node(), by any names.
        """
        ray = import_ray()
        if references:
            ray.wait(list(references.values()), num_returns=len(references), timeout=seconds)
        results = {}
        for name, reference in references.items():
            with contextlib.suppress(ray.exceptions.RayError):  # no result in time, or the call has failed
                results[name] = ray.get(reference, timeout=0)
        return results

    # --- actors -----------------------------------------------------------------------------------------

    def start_actors(
        self,
        actor_class: type,
        arguments: Sequence[Sequence[Any]],
        nodes: Sequence[str],
        resources: Mapping[str, float],
        name: str,
    ) -> ActorGroup:
        """Start an actor on each of these nodes; see ActorGroup for the arguments."""
        return ActorGroup(actor_class, arguments, nodes, resources, name)

    def store_value(self, value: Any) -> Any:
        """Copy a value into Ray's object store, and return a reference to it.

        An actor that is started with the reference as an argument gets the value. Each node fetches it once.
        """
        return import_ray().put(value)

    def end_actors(self, prefix: str) -> None:
        """End all actors whose names begin with the prefix, even those of other processes."""
        ray = import_ray()
        from ray.util import list_named_actors

        for actor in list_named_actors(all_namespaces=True):
            if actor["name"].startswith(prefix):
                with contextlib.suppress(ValueError):  # the actor has just ended
                    ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]))

    def _gcs(self) -> Any:
        from ray._private.worker import global_worker

        return global_worker.gcs_client


class ResourceClaim:
    """A claim to resources on one node, granted or pending."""

    def __init__(self, bundle: Mapping[str, float], selector: Mapping[str, str]) -> None:
        from ray.util.placement_group import placement_group

        self._group = placement_group([dict(bundle)], strategy="PACK", bundle_label_selector=[dict(selector)])

    def node(self) -> str | None:
        """Return the id of the node on which the claim is granted.

        Returns None while it is pending or if it has ended.
        """
        from ray.util.placement_group import placement_group_table

        entry = placement_group_table(self._group)
        granted = entry.get("state") == "CREATED"
        return next(iter(entry["bundles_to_node_id"].values())) if granted else None

    def end(self) -> None:
        """End the claim, so that its resources are free. May be called twice."""
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self._group)


class ActorGroup:
    """Actors whose resources were requested together: Ray places all of them, or none.

    They end when end() is called or the process that started them ends.
    """

    def __init__(
        self,
        actor_class: type,
        arguments: Sequence[Sequence[Any]],
        nodes: Sequence[str],
        resources: Mapping[str, float],
        name: str,
    ) -> None:
        """Request one actor for each node id in `nodes`.

        - `arguments`: for each actor, the arguments of the constructor of `actor_class`.
        - `resources`: the resources of each actor.
        - `name`: the beginning of the actors' names: NAME-0, NAME-1 and so on.
        """
        ray = import_ray()
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._placement_group = placement_group(
            [dict(resources)] * len(nodes), strategy="PACK", bundle_label_selector=[{NODE: node} for node in nodes]
        )
        self._placed = False
        custom = {key: amount for key, amount in resources.items() if key not in ("CPU", "GPU", "memory")}
        remote_class = ray.remote(concurrency_groups={"events": 1, "orders": 1})(actor_class)
        self._actors = [
            remote_class.options(
                name=f"{name}-{index}",
                num_cpus=resources.get("CPU", 0),
                num_gpus=resources.get("GPU", 0),
                memory=resources.get("memory"),
                resources=custom,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self._placement_group, placement_group_bundle_index=index
                ),
            ).remote(*actor_arguments)
            for index, actor_arguments in enumerate(arguments)
        ]

    def call(
        self, index: int, method: str, *arguments: Any, thread: str, on_result: OnResult | None = None
    ) -> None:
        """Call a method of one actor, without waiting for it.

        - `thread`: the thread of the actor that runs the method, "events" or "orders".
        - `on_result`: called on a thread of Ray, with an error if the actor has ended.
        """
        reference = getattr(self._actors[index], method).options(concurrency_group=thread).remote(*arguments)
        if on_result is not None:
            callback = on_result
            reference.future().add_done_callback(lambda future: _pass_on(future, callback))

    def placed(self) -> bool:
        """Return whether Ray has found room for all actors of the group."""
        if not self._placed:
            from ray.util.placement_group import placement_group_table

            self._placed = placement_group_table(self._placement_group).get("state") == "CREATED"
        return self._placed

    def end_one(self, index: int) -> None:
        """End one actor at once.

        Its resources stay reserved until end() is called.
        """
        import_ray().kill(self._actors[index])

    def end(self) -> None:
        """End all actors at once, and return their resources to the cluster."""
        ray = import_ray()
        from ray.util.placement_group import remove_placement_group

        for actor in self._actors:
            ray.kill(actor)
        remove_placement_group(self._placement_group)


@cache
def _remote_function(function: Callable[..., Any]) -> Any:
    """Return the function as a task of Ray, which is repeated on no failure."""
    return import_ray().remote(num_cpus=0, max_retries=0)(function)


def _pass_on(future: Any, on_result: OnResult) -> None:
    error = future.exception()
    on_result(None if error else future.result(), error)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
