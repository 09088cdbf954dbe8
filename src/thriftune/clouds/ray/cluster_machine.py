"""The nodes of a Ray cluster that are machines of a study, and their bills."""

from __future__ import annotations

from dataclasses import dataclass

from thriftune.clouds.ray.cluster import MARKET, ClusterNode, ResourceClaim
from thriftune.clouds.ray.node_types import SPOT
from thriftune.market.billing import Billing
from thriftune.state.events import Event, MachineBilled


@dataclass(slots=True)
class ClusterMachine:
    """A node of the cluster, as a machine of this study."""

    id: str
    node: ClusterNode
    price_per_hour: float
    since: float  # start of billing, in unix seconds
    billing: Billing
    claim: ResourceClaim | None = None  # the claim that keeps a rented node alive; None: the node is shared
    releasing: bool = False  # it was released, and its node has not ended yet
    notice_deadline: float | None = (
        None  # deadline in the last MachineNotice, as in ClusterNode.drains_at; None without a notice
    )
    reported_others: int = 0  # slots of others in the last MachineShared
    seen_others: int = 0  # slots of others at the last poll
    seen_since: float = 0.0  # when seen_others last changed, in unix seconds

    @property
    def spot(self) -> bool:
        return self.node.labels.get(MARKET) == SPOT


class MachinesById(dict[str, ClusterMachine]):
    """The machines of one study, by id, including those that are being released.

    The cloud and the engine use the same object.
    """

    def node_of(self, machine: str) -> ClusterNode:
        """Return the node of a machine."""
        return self[machine].node

    def is_own(self, machine: str) -> bool:
        """Return whether a machine is rented, so that no other study may use it."""
        return self[machine].claim is not None


def bill_events(machine: ClusterMachine, now: float, *, preempted: bool) -> list[Event]:
    """Return the bill of a machine that has ended.

    Returns an empty list for a machine that was not rented.
    """
    if machine.claim is None:
        return []
    return [bill_of(machine.id, machine.billing, machine.since, now, machine.price_per_hour, preempted)]


def bill_of(machine: str, rules: Billing, since: float, until: float, price: float, preempted: bool) -> Event:
    """Return an estimated bill, by the price and the rules of the provider.

    - `since`, `until`: the billed time, in unix seconds.
    - `price`: dollars per hour.
    """
    bill = rules.bill(since, max(since, until), price, revoked=preempted)
    return MachineBilled(until, machine, bill.dollars, float(bill.data), float(bill.refunded), estimated=True)
