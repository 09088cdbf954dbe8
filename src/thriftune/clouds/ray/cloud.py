"""The nodes of a Ray cluster: some are there, and its autoscaler rents others out.

A node that is there, and nobody's, is a machine of every study that uses the cluster; what is fair is told when
they want more than there is (neighbours.py). One that this study rents is its own until it lets go of it.

To rent is to claim a whole node with the labels of a type, anywhere but on a node that is somebody's already:
Ray's autoscaler starts one, and the claim says which. A crumb of it stays claimed, so that the autoscaler does not
take the node for idle when no trial runs there; to release is to let go of that crumb, and the autoscaler ends the
node when it has been idle for as long as its configuration says. Claims end with the driver: nothing is paid for a
driver that is gone, but for that time. (The other way to ask, request_resources, is one request for the whole
cluster: one study takes the place of another's, one bundle too many has all of it ignored, and it outlives whoever
asked.)

Not supported: a price above which a spot machine shall not be had (`max_price`): that is in the node type's
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from thriftune.clouds.ray.cluster import MARKET, NODE, PRICE, Cluster, ClusterNode, NodeType, ResourceClaim
from thriftune.clouds.ray.node_types import SPOT, Priced, billing_of, find_type, labels_of, priced, type_of
from thriftune.clouds.ray.other_studies import Neighbour, Neighbours, Rented, fair_share
from thriftune.clouds.ray.sharing import Want, workers_that_fit
from thriftune.errors import SettingError
from thriftune.market.billing import Billing
from thriftune.market.catalog import Catalog
from thriftune.state.events import (
    Event,
    MachineBilled,
    MachineLost,
    MachineNotice,
    MachineReady,
    MachineRefused,
    MachineReleased,
    MachineRented,
    MachineShared,
    ShareChanged,
)

LOOK_SECONDS = 0.2
"""How often the nodes are looked at, at most."""

PATIENCE_SECONDS = 1200.0
"""So long a machine that is rented may take to come. Then it is refused: there seems to be none to be had."""

_SETTLED_SECONDS = 1.0
_CRUMB = {"memory": 1.0}  # a byte, of which every node has some
_ANOTHERS = "another study has rented it", True  # which is to be taken away, in a way
_NOT_FILLED = ("memory", "object_store_memory")  # a node has less of these than its type says


@dataclass(slots=True)
class _Machine:
    id: str
    node: ClusterNode
    price_per_hour: float
    since: float
    billing: Billing
    claim: ResourceClaim | None = None  # of one that is rented
    releasing: bool = False
    notice: float | None = None
    told_others: int = 0  # slots that somebody else uses, as was told
    seen_others: int = 0  # as was last seen
    seen_since: float = 0.0

    @property
    def spot(self) -> bool:
        return self.node.labels.get(MARKET) == SPOT


@dataclass(slots=True)
class _Order:
    """A machine that is rented and has not come."""

    offer: str
    bundle: Mapping[str, float]
    labels: Mapping[str, str]
    since: float
    claim: ResourceClaim


class RayCloud:
    """The machines of one study. It is closed before its cluster's connection is.

    - `worker`: the resources of one worker, as in {"CPU": 1}. As many as a node has room for are its slots.
    - `known`: the rented machines that the study's history has as present.
    - `types`: what the autoscaler can start, which it does not tell itself; named as in "c7i.large_spot", each
      with the labels thriftune.io/instance-type and ray.io/market-type on its nodes. A type of such a name that
      is not among them is taken to be a machine of the catalog.
    - `wants`: tells how many workers the study would have now, if it could; `gang`: of each trial, for which a
      share that is no multiple of it is of no use.
    - `driven_until`: the last that is known of the driver before this one. A machine that is gone since then was
      let go of with it, and is billed no longer.
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
    ) -> None:
        self._cluster = cluster
        self._neighbours = Neighbours(cluster, study_id)
        self._worker = dict(Want(worker, 0).worker)
        self._known = frozenset(known)
        self._driven_until = driven_until
        self._types = {kind.name: kind for kind in types}
        self._catalog = Catalog.shipped() if catalog is None else catalog
        self._machines: dict[str, _Machine] = {}
        self._orders: dict[str, _Order] = {}
        self._left: set[str] = set()  # nodes that are nobody's, which this study wants no more
        self._share: int | None = None
        self._looked_at = float("-inf")
        self._wants = wants
        self._gang = gang
        self.own_workers_on: Callable[[str], int] = lambda _: (
            0
        )  # workers for which the study itself has room on a machine

    def node_of(self, machine: str) -> ClusterNode:
        """Which node a machine is."""
        return self._machines[machine].node

    def is_own(self, machine: str) -> bool:
        """Whether it is rented, so that no other study has any of it."""
        return self._machines[machine].claim is not None

    def open(self, now: float) -> list[Event]:
        """Also what has become of machines that an earlier driver had rented."""
        alive = {node.id: node for node in self._cluster.nodes()}
        others = self._neighbours.others(now)
        taken = _nodes_of(others)
        kept = self._neighbours.kept()
        events: list[Event] = []
        for machine, rented in kept.items():
            node = alive.get(rented.node)
            if node is not None and node.id not in taken:
                self._machines[machine] = self._own(machine, node, rented.price_per_hour, rented.since)
                if machine not in self._known:  # it came, and nobody had time to write that down
                    events += self._came(machine, rented.offer, now)
        for machine in sorted(self._known - self._machines.keys()):
            events += self._gone_meanwhile(machine, kept.get(machine), taken, now)
        self._keep()
        own = {each.node.id for each in self._machines.values()}
        for node in alive.values():
            if node.id not in own and node.id not in taken:
                events += self._found(node, now)
        return [*events, *self._share_events(now, others)]

    def rent(self, machine: str, offer: str, max_price: float | None, now: float) -> list[Event]:  # noqa: ARG002
        """`offer`: the name of a node type of the autoscaler."""
        try:
            labels = labels_of(offer)
            kind = find_type(offer, self._types, self._catalog)
        except SettingError as error:
            return [MachineRefused(now, machine, offer, str(error))]
        # How much memory a node has, few types say; whether it is enough shows when it comes.
        told_of = [what for what in self._worker if what in kind.resources or what not in _NOT_FILLED]
        if not told_of or not workers_that_fit(kind.resources, {what: self._worker[what] for what in told_of}):
            why = f"no worker of {self._worker} fits on it: it has {dict(kind.resources)}"
            return [MachineRefused(now, machine, offer, why)]
        taken = _nodes_of(self._neighbours.others(now))
        if 0 <= kind.most <= self._how_many(offer, taken):
            why = f"the autoscaler may start {kind.most} at a time, no more"
            return [MachineRefused(now, machine, offer, why)]
        bundle = {what: amount for what, amount in kind.resources.items() if amount and what not in _NOT_FILLED}
        claim = self._cluster.claim(bundle, labels | self._not_on(taken))
        self._orders[machine] = _Order(offer, bundle, labels, now, claim)
        return []

    def release(self, machine: str, now: float) -> list[Event]:
        """One that has come is billed until its node is gone, or another's. What is not rented stays."""
        order = self._orders.pop(machine, None)
        if order is not None:
            order.claim.end()
            return [MachineReleased(now, machine)]
        found = self._machines.get(machine)
        if found is None or found.releasing:
            return []
        if found.claim is None:
            self._machines.pop(machine)
            self._left.add(found.node.id)
            return [MachineReleased(now, machine)]
        found.releasing = True
        found.claim.end()
        self._keep()
        return []

    def poll_events(self, now: float) -> list[Event]:
        if 0 <= now - self._looked_at < LOOK_SECONDS:
            return []
        self._looked_at = now
        alive = {node.id: node for node in self._cluster.nodes()}
        others = self._neighbours.others(now)
        taken = _nodes_of(others)
        events: list[Event] = []
        for machine in list(self._machines.values()):
            events += self._changed(machine, alive.get(machine.node.id), taken, now)
        events += self._fill_orders(alive, taken, now)
        own = {machine.node.id for machine in self._machines.values()}
        for node in alive.values():
            # One that an autoscaler started meanwhile was started for somebody, who will soon say so.
            if node.id not in own and node.id not in taken and not node.type:
                events += self._found(node, now)
        for machine in self._machines.values():
            if machine.claim is None and machine.node.id in alive:
                events += self._used_by_others(machine, alive[machine.node.id], now)
        return [*events, *self._share_events(now, others)]

    def _used_by_others(self, machine: _Machine, node: ClusterNode, now: float) -> list[Event]:
        """Once it has been so for a moment: what trials just left, or are about to have, is no other's."""
        in_use = self._slots(node) - workers_that_fit(node.available, self._worker)
        others = max(0, in_use - self.own_workers_on(machine.id))
        if others != machine.seen_others:
            machine.seen_others, machine.seen_since = others, now
        if others == machine.told_others or now - machine.seen_since < _SETTLED_SECONDS:
            return []
        machine.told_others = others
        return [MachineShared(now, machine.id, others)]

    def next_event_at(self) -> float | None:
        return self._looked_at + LOOK_SECONDS

    def close(self, now: float) -> list[Event]:
        """What is released is on its bill until now, and not for the time that its node is still idle. What is
        rented and not released can be had back by the next driver, until the autoscaler finds it idle."""
        events: list[Event] = []
        for machine in [*self._orders]:
            events += self.release(machine, now)
        for found in list(self._machines.values()):
            if found.releasing or found.claim is None:
                del self._machines[found.id]
                events += [MachineReleased(now, found.id), *_billed(found, now, preempted=False)]
        self._keep()
        self.release_claims()
        self._neighbours.leave()
        return events

    def release_claims(self) -> None:
        """Ends all that it claims, if close() has not: of a driver that fails, while its process goes on."""
        for order in self._orders.values():
            order.claim.end()
        for found in self._machines.values():
            if found.claim is not None and not found.releasing:
                found.claim.end()
        self._orders, self._machines = {}, {}

    # --- machines come and go -----------------------------------------------------------------------------

    def _found(self, node: ClusterNode, now: float) -> list[Event]:
        """A node that is nobody's; perhaps no worker fits there. One of a kind that the study may rent is rented,
        which it can be at once."""
        machine = f"node-{node.id[-8:]}"
        if type_of(node) in self._types or not self._slots(node):
            return []
        if node.id in self._left or node.drains_at is not None:
            return []
        price = self._priced(node)
        self._machines[machine] = _Machine(machine, node, price.per_hour, now, Billing())
        return [MachineReady(now, machine, price.title, self._slots(node), price.per_hour, price.known)]

    def _gone_meanwhile(
        self, machine: str, rented: Rented | None, taken: frozenset[str], now: float
    ) -> list[Event]:
        """Return the end and the bill of a machine that went while no driver ran."""
        at = now if self._driven_until is None else min(now, self._driven_until)
        if rented is None:
            return [MachineLost(at, machine, "while no driver ran, and nobody knows which node it was")]
        anothers = rented.node in taken
        why, preempted = _ANOTHERS if anothers else self._cluster.end_of(rented.node)
        rules = billing_of(rented.offer, self._types, self._catalog)
        bill = _bill(machine, rules, rented.since, at, rented.price_per_hour, preempted and not anothers)
        if rented.released:
            return [MachineReleased(at, machine), bill]
        return [MachineLost(at, machine, f"while no driver ran: {why}", revoked=preempted), bill]

    def _changed(
        self, machine: _Machine, node: ClusterNode | None, taken: frozenset[str], now: float
    ) -> list[Event]:
        if node is None or node.id in taken:
            return self._gone(machine, node is not None, now)
        if node.drains_at is None or node.drains_at == machine.notice or machine.releasing:
            return []
        machine.notice = node.drains_at
        return [MachineNotice(now, machine.id, node.drains_at if node.drains_at > 0 else now)]

    def _gone(self, machine: _Machine, anothers: bool, now: float) -> list[Event]:
        del self._machines[machine.id]
        if machine.claim is not None:
            if not machine.releasing:
                machine.claim.end()
            self._keep()
        why, preempted = _ANOTHERS if anothers else self._cluster.end_of(machine.node.id)
        if machine.releasing:
            ended = preempted and not anothers  # by its provider, before the autoscaler found it idle
            return [MachineReleased(now, machine.id), *_billed(machine, now, preempted=ended)]
        # Few providers tell Ray of a preemption: a spot node that vanishes counts as preempted.
        revoked = preempted or machine.spot or machine.notice is not None
        billed = _billed(machine, now, preempted=revoked and not anothers)
        return [MachineLost(now, machine.id, why, revoked=revoked), *billed]

    def _fill_orders(self, alive: Mapping[str, ClusterNode], taken: frozenset[str], now: float) -> list[Event]:
        events: list[Event] = []
        for machine, order in list(self._orders.items()):
            node_id = order.claim.node()
            if node_id is None:
                if now - order.since > PATIENCE_SECONDS:
                    order.claim.end()
                    del self._orders[machine]
                    why = f"none has come in {PATIENCE_SECONDS:g} s"
                    events.append(MachineRefused(now, machine, order.offer, why))
                continue
            node = alive.get(node_id)
            own = {each.node.id for each in self._machines.values() if not each.releasing}
            if node_id in taken or node_id in own:
                self._claim_anew(order, taken)
            elif node is not None:  # else it is so new that the next look will see it
                events += self._hand_over(machine, order, node, taken, now)
        return events

    def _hand_over(
        self, machine: str, order: _Order, node: ClusterNode, taken: frozenset[str], now: float
    ) -> list[Event]:
        before = next((each for each in self._machines.values() if each.node.id == node.id), None)
        events = [] if before is None else self._gone(before, anothers=False, now=now)  # released, and still there
        del self._orders[machine]
        if not self._slots(node):
            order.claim.end()
            why = f"no worker of {self._worker} fits on the node that came: it has {dict(node.resources)}"
            return [*events, MachineRefused(now, machine, order.offer, why)]
        price = self._priced(node).per_hour
        self._machines[machine] = self._own(machine, node, price, now)
        self._keep()
        # All must know that it is had before there is room on it again, or another claim finds it.
        for other in self._orders.values():
            if other.offer == order.offer and other.claim.node() is None:
                self._claim_anew(other, taken)
        order.claim.end()
        return [*events, *self._came(machine, order.offer, now)]

    def _how_many(self, offer: str, taken: frozenset[str]) -> int:
        """Nodes of a type that are somebody's, or will be. What was let go of can be had, while it is there."""
        own = {each.node.id for each in self._machines.values() if each.claim is not None and not each.releasing}
        held = sum(type_of(node) == offer and node.id in taken | own for node in self._cluster.nodes())
        return held + sum(order.offer == offer for order in self._orders.values())

    def _claim_anew(self, order: _Order, taken: frozenset[str]) -> None:
        order.claim.end()
        order.claim = self._cluster.claim(order.bundle, dict(order.labels) | self._not_on(taken))

    def _not_on(self, taken: frozenset[str]) -> dict[str, str]:
        """A label selector that leaves out the nodes that are somebody's."""
        own = {each.node.id for each in self._machines.values() if not each.releasing}
        return {NODE: f"!in({','.join(sorted(taken | own))})"} if taken or own else {}

    def _own(self, machine: str, node: ClusterNode, price: float, since: float) -> _Machine:
        rules = billing_of(type_of(node), self._types, self._catalog)
        return _Machine(machine, node, price, since, rules, self._cluster.claim(_CRUMB, {NODE: node.id}))

    def _came(self, machine: str, offer: str, now: float) -> list[Event]:
        found = self._machines[machine]
        price = self._priced(found.node)
        return [
            MachineRented(now, machine, offer, found.price_per_hour, price.on_demand, price.known),
            MachineReady(now, machine, offer, self._slots(found.node), found.price_per_hour, price.known),
        ]

    def _keep(self) -> None:
        rented = {
            each.id: Rented(each.node.id, type_of(each.node), each.price_per_hour, each.since, each.releasing)
            for each in self._machines.values()
            if each.claim is not None
        }
        self._neighbours.keep(rented)

    def _priced(self, node: ClusterNode) -> Priced:
        """Return a node's price: by its label, else as the user gave it for its type, else as priced() does."""
        found = priced(node, self._catalog)
        said = self._types.get(type_of(node))
        if said is None or said.price_per_hour is None or PRICE in node.labels:
            return found
        return found._replace(per_hour=said.price_per_hour, known=True)

    def _slots(self, node: ClusterNode) -> int:
        return workers_that_fit(node.resources, self._worker)

    # --- others ---------------------------------------------------------------------------------------------

    def _share_events(self, now: float, others: Mapping[str, Neighbour]) -> list[Event]:
        """What is rented is the study's own; the rest is shared."""
        total: dict[str, float] = {}
        rented = 0
        for machine in self._machines.values():
            if machine.releasing or machine.notice is not None:
                continue
            if machine.claim is not None:
                rented += self._slots(machine.node)
            else:
                for name, amount in machine.node.resources.items():
                    total[name] = total.get(name, 0.0) + amount
        trial = {name: self._gang * amount for name, amount in self._worker.items()}
        want = Want(trial, -(-max(0, self._wants() - rented) // self._gang))
        self._neighbours.tell(now, want)
        share, why = fair_share(total, self._neighbours.study_id, want, others)
        workers = None if share is None else share * self._gang + rented
        if workers == self._share:
            return []
        self._share = workers
        return [ShareChanged(now, workers, why)]


def _billed(machine: _Machine, now: float, *, preempted: bool) -> list[Event]:
    """Return the bill of a machine that is gone; one that is not rented has none."""
    if machine.claim is None:
        return []
    return [_bill(machine.id, machine.billing, machine.since, now, machine.price_per_hour, preempted)]


def _bill(machine: str, rules: Billing, since: float, until: float, price: float, preempted: bool) -> Event:
    """Return an estimate of what the provider charges, as the node's list price and its rules make it."""
    bill = rules.bill(since, max(since, until), price, revoked=preempted)
    return MachineBilled(until, machine, bill.dollars, float(bill.data), float(bill.refunded), estimated=True)


def _nodes_of(others: Mapping[str, Neighbour]) -> frozenset[str]:
    return frozenset().union(*(other.nodes for other in others.values()))
