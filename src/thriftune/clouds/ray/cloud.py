"""The cloud that rents the nodes of a Ray cluster from its autoscaler.

A node that no study has rented is shared: every study that uses the cluster may use it as a machine. The number of
workers that each study may have there is computed in sharing.py and other_studies.py. A node that this study has
rented belongs to this study alone until it is released.

To rent a machine, the cloud claims a whole node with the labels of the wanted type. The claim excludes nodes
that are already rented. The autoscaler then starts a node, and Ray assigns it to the claim. The cloud then
claims one byte of memory on it, so that the autoscaler does not end the node as idle while no trial runs there.
To release the machine, the cloud ends that claim, and the autoscaler ends the node after its idle timeout.
Claims end with the driver, so an abandoned node costs no more than the idle timeout.

The cloud does not use Ray's request_resources(), for three reasons. The cluster has only one such request, so
one study would replace the request of another. Ray ignores the whole request if it has one bundle too many. And
the request stays when the process that made it has ended.

A maximum price (`max_price`) is not supported. It can be set in the configuration of the node type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from thriftune.clouds.ray.cluster import NODE, PRICE, Cluster, ClusterNode, NodeType, ResourceClaim
from thriftune.clouds.ray.cluster_machine import ClusterMachine, MachinesById, bill_events, bill_of
from thriftune.clouds.ray.node_types import NodePrice, billing_of, find_type, labels_of, price_of, type_of
from thriftune.clouds.ray.other_studies import OtherStudy, RentedNode, StudyNotes, fair_share
from thriftune.clouds.ray.sharing import Want, workers_that_fit
from thriftune.errors import SettingError
from thriftune.market.billing import Billing
from thriftune.market.catalog import Catalog
from thriftune.state.events import (
    Event,
    MachineLost,
    MachineNotice,
    MachineReady,
    MachineRefused,
    MachineReleased,
    MachineRented,
    MachineShared,
    ShareChanged,
)

POLL_SECONDS = 0.2
"""The shortest time between two polls of the cluster's nodes."""

MAX_WAIT_SECONDS = 1200.0
"""How long to wait for an ordered machine to start. After this time, the provider probably has none, and the order
counts as refused."""

_SETTLED_SECONDS = 1.0
"""How long other studies must use the same slots before a MachineShared reports it.

Shorter changes come from trials of this study that have just ended or are about to start.
"""

_KEEP_ALIVE_BUNDLE = {"memory": 1.0}
"""The resources claimed to keep a node from being idle: one byte, of which every node has some."""

_TAKEN_OVER = "another study has rented it", True
"""The reason for the end of a machine that another study rents now, and whether it counts as preempted."""

_MEMORY_RESOURCES = ("memory", "object_store_memory")
"""Resources of which a node has less than its type states, because Ray and the system use some."""


@dataclass(slots=True)
class _Order:
    """An order of a machine whose node has not started yet."""

    offer: str
    bundle: Mapping[str, float]
    labels: Mapping[str, str]
    since: float  # unix seconds
    claim: ResourceClaim  # to a node with these labels


class RayCloud:
    """The machines of one study on a Ray cluster.

    It must be closed before the connection to the cluster is closed.

    - `worker`: the resources of one worker, such as {"CPU": 1}. A node has as many slots as workers fit on it.
    - `known`: ids of the rented machines that are present according to the study's history.
    - `types`: the node types that the autoscaler can start. Ray does not list them. Their names are like
      "c7i.large_spot", and their nodes have the labels thriftune.io/instance-type and ray.io/market-type. A type
      with such a name that is not in the list is assumed to be a machine type of the catalog.
    - `wants`: returns the number of workers that the study could use now.
    - `gang`: the number of workers of each trial. Shares are multiples of it.
    - `machines`: the machines of this study. The engine reads it, too.
    - `own_workers_on`: returns the number of this study's workers that have resources on a machine.
    - `driven_until`: when the previous driver was last known to run, in unix seconds. Its claims ended with it, so
      a machine that has ended since is billed until then.
    """

    def __init__(
        self,
        cluster: Cluster,
        study_id: str,
        worker: Mapping[str, float],
        known: Collection[str] = (),
        wants: Callable[[], int] = lambda: 0,
        *,
        gang: int = 1,
        types: Sequence[NodeType] = (),
        catalog: Catalog | None = None,
        driven_until: float | None = None,
        machines: MachinesById | None = None,
        own_workers_on: Callable[[str], int] = lambda _: 0,
    ) -> None:
        self._cluster = cluster
        self._notes = StudyNotes(cluster, study_id)
        self._worker = dict(Want(worker, 0).worker)
        self._known = frozenset(known)
        self._driven_until = driven_until
        self._types = {node_type.name: node_type for node_type in types}
        self._catalog = Catalog.shipped() if catalog is None else catalog
        self._machines = MachinesById() if machines is None else machines
        self._orders: dict[str, _Order] = {}  # by the id of the machine
        self._left_nodes: set[str] = set()  # ids of shared nodes that this study has released
        self._share: int | None = None  # workers of this study by the last ShareChanged; None: no limit
        self._polled_at = float("-inf")
        self._wants = wants
        self._gang = gang
        self._own_workers_on = own_workers_on

    def node_of(self, machine: str) -> ClusterNode:
        """Return the node of a machine."""
        return self._machines.node_of(machine)

    def open(self, now: float) -> list[Event]:
        """Return the events of shared nodes, and of machines of an earlier driver."""
        alive = {node.id: node for node in self._cluster.nodes()}
        others = self._notes.others(now)
        taken = _nodes_of(others)
        rented_before = self._notes.read_rented()
        events: list[Event] = []
        for machine, rented in rented_before.items():
            node = alive.get(rented.node)
            if node is not None and node.id not in taken:
                self._machines[machine] = self._rented_machine(machine, node, rented.price_per_hour, rented.since)
                if machine not in self._known:  # the driver died before it recorded that the machine has started
                    events += self._ready_events(machine, rented.offer, now)
        for machine in sorted(self._known - self._machines.keys()):
            events += self._ended_without_driver(machine, rented_before.get(machine), taken, now)
        self._write_rented()
        own = {each.node.id for each in self._machines.values()}
        for node in alive.values():
            if node.id not in own and node.id not in taken:
                events += self._add_shared_node(node, now)
        return [*events, *self._share_events(now, others)]

    def rent(self, machine: str, offer: str, max_price: float | None, now: float) -> list[Event]:  # noqa: ARG002
        """Order a machine.

        `offer`: the name of a node type of the autoscaler.
        """
        try:
            labels = labels_of(offer)
            node_type = find_type(offer, self._types, self._catalog)
        except SettingError as error:
            return [MachineRefused(now, machine, offer, str(error))]
        # Few types state their memory. It is therefore checked after the node has started.
        stated = [name for name in self._worker if name in node_type.resources or name not in _MEMORY_RESOURCES]
        if not stated or not workers_that_fit(node_type.resources, {name: self._worker[name] for name in stated}):
            why = f"no worker of {self._worker} fits on it: it has {dict(node_type.resources)}"
            return [MachineRefused(now, machine, offer, why)]
        taken = _nodes_of(self._notes.others(now))
        if node_type.max_nodes is not None and node_type.max_nodes <= self._count_of_type(offer, taken):
            why = f"the autoscaler may start no more than {node_type.max_nodes} of these nodes at a time"
            return [MachineRefused(now, machine, offer, why)]
        bundle = {
            name: amount
            for name, amount in node_type.resources.items()
            if amount and name not in _MEMORY_RESOURCES
        }
        claim = self._cluster.claim(bundle, labels | self._not_on_rented(taken))
        self._orders[machine] = _Order(offer, bundle, labels, now, claim)
        return []

    def release(self, machine: str, now: float) -> list[Event]:
        """Cancel an order, or release a machine.

        A rented machine is billed until its node has ended, or another study rents it. The node of a shared
        machine stays.
        """
        order = self._orders.pop(machine, None)
        if order is not None:
            order.claim.end()
            return [MachineReleased(now, machine)]
        present = self._machines.get(machine)
        if present is None or present.releasing:
            return []
        if present.claim is None:
            self._machines.pop(machine)
            self._left_nodes.add(present.node.id)
            return [MachineReleased(now, machine)]
        present.releasing = True
        present.claim.end()
        self._write_rented()
        return []

    def poll_events(self, now: float) -> list[Event]:
        if 0 <= now - self._polled_at < POLL_SECONDS:
            return []
        self._polled_at = now
        alive = {node.id: node for node in self._cluster.nodes()}
        others = self._notes.others(now)
        taken = _nodes_of(others)
        events: list[Event] = []
        for machine in list(self._machines.values()):
            events += self._machine_events(machine, alive.get(machine.node.id), taken, now)
        events += self._order_events(alive, taken, now)
        own = {machine.node.id for machine in self._machines.values()}
        for node in alive.values():
            # A node with a type was started for a study, which will soon write a note that it has rented the node.
            if node.id not in own and node.id not in taken and not node.type:
                events += self._add_shared_node(node, now)
        for machine in self._machines.values():
            if machine.claim is None and machine.node.id in alive:
                events += self._use_by_others(machine, alive[machine.node.id], now)
        return [*events, *self._share_events(now, others)]

    def next_event_at(self) -> float | None:
        return self._polled_at + POLL_SECONDS

    def close(self, now: float) -> list[Event]:
        """Cancel all orders, and end the bills of released machines.

        Machines that are being released are billed until now, but not for the later time in which their nodes are
        idle. The next driver can use rented machines that were not released, if the autoscaler has not ended their
        nodes yet.
        """
        events: list[Event] = []
        for machine in [*self._orders]:
            events += self.release(machine, now)
        for present in list(self._machines.values()):
            if present.releasing or present.claim is None:
                del self._machines[present.id]
                events += [MachineReleased(now, present.id), *bill_events(present, now, preempted=False)]
        self._write_rented()
        self.release_claims()
        self._notes.delete_want()
        return events

    def release_claims(self) -> None:
        """End all claims.

        Called instead of close() if the driver has failed but its process still runs.
        """
        for order in self._orders.values():
            order.claim.end()
        for machine in self._machines.values():
            if machine.claim is not None and not machine.releasing:
                machine.claim.end()
        self._orders.clear()
        self._machines.clear()

    # --- shared nodes -------------------------------------------------------------------------------------

    def _add_shared_node(self, node: ClusterNode, now: float) -> list[Event]:
        """Add a node that no study has rented as a machine, if a worker fits on it.

        A node of a type that the study may rent is not added. The study must rent it, which takes no time
        because the node already runs.
        """
        machine = f"node-{node.id[-8:]}"
        if type_of(node) in self._types or not self._slots(node):
            return []
        if node.id in self._left_nodes or node.drains_at is not None:
            return []
        price = self._price(node)
        self._machines[machine] = ClusterMachine(machine, node, price.per_hour, now, Billing())
        return [MachineReady(now, machine, price.title, self._slots(node), price.per_hour, price.known)]

    def _use_by_others(self, machine: ClusterMachine, node: ClusterNode, now: float) -> list[Event]:
        """Return a MachineShared if the slots that other studies use have changed.

        A change is reported once it has lasted for _SETTLED_SECONDS.
        """
        in_use = self._slots(node) - workers_that_fit(node.available, self._worker)
        others = max(0, in_use - self._own_workers_on(machine.id))
        if others != machine.seen_others:
            machine.seen_others, machine.seen_since = others, now
        if others == machine.reported_others or now - machine.seen_since < _SETTLED_SECONDS:
            return []
        machine.reported_others = others
        return [MachineShared(now, machine.id, others)]

    def _share_events(self, now: float, others: Mapping[str, OtherStudy]) -> list[Event]:
        """Write what this study wants; return a ShareChanged if its share has changed.

        The share is a number of workers: all that fit on the rented machines, and the fair share of the shared
        ones.
        """
        shared_resources: dict[str, float] = {}
        rented_slots = 0
        for machine in self._machines.values():
            if machine.releasing or machine.notice_deadline is not None:
                continue
            if machine.claim is not None:
                rented_slots += self._slots(machine.node)
            else:
                for name, amount in machine.node.resources.items():
                    shared_resources[name] = shared_resources.get(name, 0.0) + amount
        trial = {name: self._gang * amount for name, amount in self._worker.items()}
        want = Want(trial, -(-max(0, self._wants() - rented_slots) // self._gang))
        self._notes.write_want(now, want)
        share, why = fair_share(shared_resources, self._notes.study_id, want, others)
        workers = None if share is None else share * self._gang + rented_slots
        if workers == self._share:
            return []
        self._share = workers
        return [ShareChanged(now, workers, why)]

    # --- ends of machines ---------------------------------------------------------------------------------

    def _ended_without_driver(
        self, machine: str, rented: RentedNode | None, taken: frozenset[str], now: float
    ) -> list[Event]:
        """Return the end and the bill of a machine that ended while no driver ran."""
        ended_at = now if self._driven_until is None else min(now, self._driven_until)
        if rented is None:
            return [MachineLost(ended_at, machine, "while no driver ran, and it is not known which node it was")]
        taken_over = rented.node in taken
        why, preempted = _TAKEN_OVER if taken_over else self._cluster.why_ended(rented.node)
        rules = billing_of(rented.offer, self._types, self._catalog)
        bill = bill_of(machine, rules, rented.since, ended_at, rented.price_per_hour, preempted and not taken_over)
        if rented.released:
            return [MachineReleased(ended_at, machine), bill]
        return [MachineLost(ended_at, machine, f"while no driver ran: {why}", revoked=preempted), bill]

    def _machine_events(
        self, machine: ClusterMachine, node: ClusterNode | None, taken: frozenset[str], now: float
    ) -> list[Event]:
        """Return the events of a machine that has ended or has a new notice.

        `node`: the present state of its node; None if the node has ended.
        """
        if node is None or node.id in taken:
            return self._remove(machine, taken_over=node is not None, now=now)
        if node.drains_at is None or node.drains_at == machine.notice_deadline or machine.releasing:
            return []
        machine.notice_deadline = node.drains_at
        return [MachineNotice(now, machine.id, node.drains_at if node.drains_at > 0 else now)]

    def _remove(self, machine: ClusterMachine, taken_over: bool, now: float) -> list[Event]:
        """Remove a machine that has ended; return its end and its bill.

        `taken_over`: another study has rented its node.
        """
        del self._machines[machine.id]
        if machine.claim is not None:
            if not machine.releasing:
                machine.claim.end()
            self._write_rented()
        why, preempted = _TAKEN_OVER if taken_over else self._cluster.why_ended(machine.node.id)
        if machine.releasing:
            refundable = preempted and not taken_over  # its provider preempted it before the idle timeout
            return [MachineReleased(now, machine.id), *bill_events(machine, now, preempted=refundable)]
        # Few providers report a preemption to Ray. Therefore a spot node that vanishes counts as preempted.
        revoked = preempted or machine.spot or machine.notice_deadline is not None
        bills = bill_events(machine, now, preempted=revoked and not taken_over)
        return [MachineLost(now, machine.id, why, revoked=revoked), *bills]

    # --- orders -------------------------------------------------------------------------------------------

    def _order_events(self, alive: Mapping[str, ClusterNode], taken: frozenset[str], now: float) -> list[Event]:
        """Fill the orders whose nodes have started; refuse orders that are too old."""
        events: list[Event] = []
        for machine, order in list(self._orders.items()):
            node_id = order.claim.node()
            if node_id is None:
                if now - order.since > MAX_WAIT_SECONDS:
                    order.claim.end()
                    del self._orders[machine]
                    why = f"no such node has started in {MAX_WAIT_SECONDS:g} s"
                    events.append(MachineRefused(now, machine, order.offer, why))
                continue
            node = alive.get(node_id)
            if node_id in taken or node_id in self._unreleased_nodes():
                self._renew_claim(order, taken)
            elif node is not None:  # otherwise it has just started, and the next poll will see it
                events += self._fill_order(machine, order, node, taken, now)
        return events

    def _fill_order(
        self, machine: str, order: _Order, node: ClusterNode, taken: frozenset[str], now: float
    ) -> list[Event]:
        """Make the node that an order has claimed a rented machine; return the events."""
        events: list[Event] = []
        for before in [each for each in self._machines.values() if each.node.id == node.id]:
            events += self._remove(before, taken_over=False, now=now)  # a machine that is being released
        del self._orders[machine]
        if not self._slots(node):
            order.claim.end()
            why = f"no worker of {self._worker} fits on the node that started: it has {dict(node.resources)}"
            return [*events, MachineRefused(now, machine, order.offer, why)]
        price = self._price(node).per_hour
        self._machines[machine] = self._rented_machine(machine, node, price, now)
        self._write_rented()
        # Before this claim ends, pending claims must exclude the node. Otherwise one of them would get it.
        for other in self._orders.values():
            if other.offer == order.offer and other.claim.node() is None:
                self._renew_claim(other, taken)
        order.claim.end()
        return [*events, *self._ready_events(machine, order.offer, now)]

    def _count_of_type(self, offer: str, taken: frozenset[str]) -> int:
        """Return the number of nodes of a type that are rented or ordered.

        Released nodes do not count.
        """
        own = {each.node.id for each in self._machines.values() if each.claim is not None and not each.releasing}
        rented = sum(type_of(node) == offer and node.id in taken | own for node in self._cluster.nodes())
        return rented + sum(order.offer == offer for order in self._orders.values())

    def _renew_claim(self, order: _Order, taken: frozenset[str]) -> None:
        """Replace an order's claim by one that excludes all nodes that are rented now."""
        order.claim.end()
        order.claim = self._cluster.claim(order.bundle, dict(order.labels) | self._not_on_rented(taken))

    def _not_on_rented(self, taken: frozenset[str]) -> dict[str, str]:
        """Return a label selector that excludes nodes that any study has rented."""
        excluded = taken | self._unreleased_nodes()
        return {NODE: f"!in({','.join(sorted(excluded))})"} if excluded else {}

    def _unreleased_nodes(self) -> set[str]:
        return {each.node.id for each in self._machines.values() if not each.releasing}

    def _rented_machine(self, machine: str, node: ClusterNode, price: float, since: float) -> ClusterMachine:
        rules = billing_of(type_of(node), self._types, self._catalog)
        claim = self._cluster.claim(_KEEP_ALIVE_BUNDLE, {NODE: node.id})
        return ClusterMachine(machine, node, price, since, rules, claim)

    def _ready_events(self, machine: str, offer: str, now: float) -> list[Event]:
        present = self._machines[machine]
        price = self._price(present.node)
        return [
            MachineRented(now, machine, offer, present.price_per_hour, price.on_demand, price.known),
            MachineReady(now, machine, offer, self._slots(present.node), present.price_per_hour, price.known),
        ]

    def _write_rented(self) -> None:
        rented = {
            each.id: RentedNode(each.node.id, type_of(each.node), each.price_per_hour, each.since, each.releasing)
            for each in self._machines.values()
            if each.claim is not None
        }
        self._notes.write_rented(rented)

    def _price(self, node: ClusterNode) -> NodePrice:
        """Return the price of a node.

        It is the price in its label, else the price that the user gave for its type, else that of price_of().
        """
        price = price_of(node, self._catalog)
        node_type = self._types.get(type_of(node))
        if node_type is None or node_type.price_per_hour is None or PRICE in node.labels:
            return price
        return price._replace(per_hour=node_type.price_per_hour, known=True)

    def _slots(self, node: ClusterNode) -> int:
        return workers_that_fit(node.resources, self._worker)


def _nodes_of(others: Mapping[str, OtherStudy]) -> frozenset[str]:
    """Return the ids of the nodes that other studies have rented."""
    return frozenset().union(*(other.nodes for other in others.values()))
