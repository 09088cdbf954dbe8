"""Names, prices and billing rules of the node types of a Ray cluster.

A node type consists of a machine type and the market on which it is rented: spot or on-demand. Its name contains
both, such as `m5.xlarge_spot` or `m5.xlarge_on-demand`. So do the labels of its nodes. Ray sends no bills. The
price of a node comes from its label or from the catalog. The bill is computed by the rules of the provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from thriftune.clouds.ray.cluster import INSTANCE_TYPE, MARKET, PRICE, ClusterNode, NodeType
from thriftune.errors import SettingError
from thriftune.market.billing import Billing, billing_rule
from thriftune.market.catalog import Catalog, Offer, reference_offer

SPOT, ON_DEMAND = "spot", "on-demand"
"""The values of the label MARKET, and the ends of the names of node types."""


def node_type_name(machine: str, spot: bool) -> str:
    """Return the name of the node type for a machine type of the catalog."""
    return f"{machine}_{SPOT if spot else ON_DEMAND}"


def machine_and_market(type_name: str) -> tuple[str, bool] | None:
    """Return (machine type, is spot) for a node type's name; None for other names."""
    machine, _, market = type_name.rpartition("_")
    return (machine, market == SPOT) if machine and market in (SPOT, ON_DEMAND) else None


def labels_of(type_name: str) -> dict[str, str]:
    """Return the labels that the nodes of a type have.

    Raises SettingError if this is not the name of a node type.
    """
    parsed = machine_and_market(type_name)
    if parsed is None:
        raise SettingError(
            f"{type_name!r} is no node type; names of node types to rent are like c7i.large_{SPOT} or "
            f"c7i.large_{ON_DEMAND}"
        )
    machine, spot = parsed
    return {INSTANCE_TYPE: machine, MARKET: SPOT if spot else ON_DEMAND}


def type_of(node: ClusterNode) -> str:
    """Return the name of a node's type, from its labels."""
    return f"{node.labels.get(INSTANCE_TYPE, '')}_{node.labels.get(MARKET, '')}"


def find_type(type_name: str, given: Mapping[str, NodeType], catalog: Catalog) -> NodeType:
    """Return the node type of this name.

    A type that is not in `given` is assumed to be a machine type of the catalog, with any number of nodes.
    """
    if type_name in given:
        return given[type_name]
    try:
        offer = catalog.find(labels_of(type_name)[INSTANCE_TYPE])
    except SettingError as error:
        known = f"; the known ones are {', '.join(given)}" if given else ""
        raise SettingError(f"no such node type is known{known} ({error})") from None
    resources = {"CPU": float(offer.cores), "GPU": float(offer.accelerators)}
    return NodeType(type_name, {name: amount for name, amount in resources.items() if amount}, max_nodes=None)


def billing_of(type_name: str, given: Mapping[str, NodeType], catalog: Catalog) -> Billing:
    """Return the rules by which nodes of this type are billed.

    The catalog gives the rules of the node's provider. If the user gave a minimum billed time, it replaces that of
    the provider.
    """
    name, _, market = type_name.rpartition("_")
    offer = _offer(name, catalog)
    rules = billing_rule("" if offer is None else offer.provider, spot=market == SPOT)
    least = given[type_name].least_billed if type_name in given else None
    return rules if least is None else replace(rules, least_seconds=least)


class NodePrice(NamedTuple):
    """The price of a node, in dollars per hour.

    - `title`: the machine type and the market, for users.
    - `known`: False for a spot node whose spot price is not known; `per_hour` is then an on-demand price.
    """

    title: str
    per_hour: float
    on_demand: float | None  # the on-demand price of the same machine, if it is in the catalog
    known: bool


def price_of(node: ClusterNode, catalog: Catalog) -> NodePrice:
    """Return the price of a node.

    It is the price in its label, else the price in the catalog, else the price of a machine type with as many
    cores.
    """
    name, market = node.labels.get(INSTANCE_TYPE, ""), node.labels.get(MARKET, "")
    cores = node.resources.get("CPU", 0.0)
    title = f"{name} {market}".strip() if name else f"{cores:g} CPU{'' if cores == 1 else 's'} {market}".strip()
    offer = _offer(name, catalog)
    on_demand = None if offer is None else offer.price_per_hour
    if PRICE in node.labels:
        return NodePrice(title, _price_from_label(node), on_demand, known=True)
    if market == SPOT and offer is not None and offer.spot_price_per_hour is not None:
        return NodePrice(title, offer.spot_price_per_hour, on_demand, known=True)
    price = reference_offer(max(1, round(cores))).price_per_hour if on_demand is None else on_demand
    return NodePrice(title, price, on_demand, known=market != SPOT)


def _offer(name: str, catalog: Catalog) -> Offer | None:
    """Return the catalog's offer of this name; None if it has none."""
    try:
        return catalog.find(name) if name else None
    except SettingError:
        return None


def _price_from_label(node: ClusterNode) -> float:
    try:
        price = float(node.labels[PRICE])
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise SettingError(
            f"node {node.id[-8:]}: label {PRICE}: {node.labels[PRICE]!r} is no price; write dollars per hour, "
            "such as 0.085"
        )
    return price
