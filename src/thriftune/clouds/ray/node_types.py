"""What kinds of nodes does a cluster have, and what do they cost?

A node type that can be rented is named as in "c7i.large_spot", and its nodes have labels that say the same. Ray
sends no bills: prices come from a node's label or from the catalog, and are billed by the provider's rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from thriftune.clouds.ray.cluster import INSTANCE_TYPE, MARKET, PRICE, ClusterNode, NodeType
from thriftune.errors import SettingError
from thriftune.market.billing import Billing, billing_rule
from thriftune.market.catalog import Catalog, Offer, reference_offer

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


def type_of(node: ClusterNode) -> str:
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


def billing_of(type_name: str, told: Mapping[str, NodeType], catalog: Catalog) -> Billing:
    """Return the rules by which nodes of this type are billed.

    They are those of the provider that the catalog has for it. A minimum that the user gave replaces its minimum.
    """
    name, _, market = type_name.rpartition("_")
    offer = _offer(name, catalog)
    rules = billing_rule("" if offer is None else offer.provider, spot=market == SPOT)
    least = told[type_name].least_billed if type_name in told else None
    return rules if least is None else replace(rules, least_seconds=least)


class Priced(NamedTuple):
    """The price of a node, in dollars per hour.

    `known`: False for a spot node whose spot price is not known; `per_hour` is then an on-demand price.
    """

    title: str
    per_hour: float
    on_demand: float | None  # of the same machine, if it is in the catalog
    known: bool


def priced(node: ClusterNode, catalog: Catalog) -> Priced:
    """Return the price of a node: by its label, else by the catalog, else of a machine with as many cores."""
    name, market = node.labels.get(INSTANCE_TYPE, ""), node.labels.get(MARKET, "")
    cores = node.resources.get("CPU", 0.0)
    title = f"{name} {market}".strip() if name else f"{cores:g} CPU{'' if cores == 1 else 's'} {market}".strip()
    offer = _offer(name, catalog)
    on_demand = None if offer is None else offer.price_per_hour
    if PRICE in node.labels:
        return Priced(title, _price(node), on_demand, known=True)
    if market == SPOT and offer is not None and offer.spot_price_per_hour is not None:
        return Priced(title, offer.spot_price_per_hour, on_demand, known=True)
    price = reference_offer(max(1, round(cores))).price_per_hour if on_demand is None else on_demand
    return Priced(title, price, on_demand, known=market != SPOT)


def _offer(name: str, catalog: Catalog) -> Offer | None:
    """Return the catalog's machine of this name, if it has one."""
    try:
        return catalog.find(name) if name else None
    except SettingError:
        return None


def _price(node: ClusterNode) -> float:
    try:
        price = float(node.labels[PRICE])
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise SettingError(f"node {node.id[-8:]}: label {PRICE}: {node.labels[PRICE]!r} is no price, as 0.085 is")
    return price
