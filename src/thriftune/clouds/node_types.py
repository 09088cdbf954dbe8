"""What kinds of nodes does a cluster have, and what do they cost?

A node type that can be rented is named as in "c7i.large_spot", and its nodes have labels that say the same. Nobody
bills a node here: its labels say what it costs, or the catalog does.
"""

from __future__ import annotations

from collections.abc import Mapping

from thriftune.cluster import INSTANCE_TYPE, MARKET, PRICE, Node, NodeType
from thriftune.errors import SettingError
from thriftune.market.catalog import Catalog, smallest_with

SPOT = "spot"
_MARKETS = (SPOT, "on-demand")


def labels_of(type_name: str) -> dict[str, str]:
    """By which the nodes of a type are known."""
    name, _, market = type_name.rpartition("_")
    if not name or market not in _MARKETS:
        raise SettingError(
            f"node types to rent are named as c7i.large_{SPOT} or c7i.large_on-demand; {type_name!r} is not"
        )
    return {INSTANCE_TYPE: name, MARKET: market}


def type_of(node: Node) -> str:
    """The name of its type, by its labels."""
    return f"{node.labels.get(INSTANCE_TYPE, '')}_{node.labels.get(MARKET, '')}"


def find_type(type_name: str, told: Mapping[str, NodeType], catalog: Catalog) -> NodeType:
    """Of those that are told of; else it is taken to be a machine of the catalog, and there are any number."""
    if type_name in told:
        return told[type_name]
    try:
        offer = catalog.find(labels_of(type_name)[INSTANCE_TYPE])
    except SettingError as error:
        there = f"; there are {', '.join(told)}" if told else ""
        raise SettingError(f"no such node type is known{there} ({error})") from None
    resources = {"CPU": float(offer.cores), "GPU": float(offer.accelerators)}
    return NodeType(type_name, {what: amount for what, amount in resources.items() if amount}, -1)


def priced(node: Node, catalog: Catalog) -> tuple[str, float, float | None]:
    """What a node is called, what an hour of it costs, and of one like it that is not taken away, if known.

    By its label, else by the catalog, else as much as a plain machine with so many cores.
    """
    name, market = node.labels.get(INSTANCE_TYPE, ""), node.labels.get(MARKET, "")
    cores = node.resources.get("CPU", 0.0)
    title = f"{name} {market}".strip() if name else f"{cores:g} CPU{'' if cores == 1 else 's'} {market}".strip()
    try:
        offer = catalog.find(name) if name else None
    except SettingError:
        offer = None
    on_demand = None if offer is None else offer.price_per_hour
    if PRICE in node.labels:
        return title, _price(node), on_demand
    if offer is None:
        return title, smallest_with(max(1, round(cores))).price_per_hour, None
    spot = offer.spot_price_per_hour if market == SPOT else None
    return title, offer.price_per_hour if spot is None else spot, on_demand


def _price(node: Node) -> float:
    try:
        price = float(node.labels[PRICE])
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise SettingError(f"node {node.id[-8:]}: label {PRICE}: {node.labels[PRICE]!r} is no price, as 0.085 is")
    return price
