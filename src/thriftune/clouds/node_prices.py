"""What does a node of a cluster cost? Nobody bills it here, so its labels say, or the catalog does."""

from __future__ import annotations

from thriftune.cluster import INSTANCE_TYPE, MARKET, PRICE, Node
from thriftune.errors import SettingError
from thriftune.market.catalog import Catalog, smallest_with

SPOT = "spot"


def priced(node: Node, catalog: Catalog) -> tuple[str, float, float | None]:
    """What a node is called, what an hour of it costs, and of one like it that is not taken away, if known.

    By its label, else by the catalog, else as much as a plain machine with so many cores.
    """
    name, market = node.labels.get(INSTANCE_TYPE, ""), node.labels.get(MARKET, "")
    cores = node.resources.get("CPU", 0.0)
    title = f"{name} {market}".strip() if name else f"{cores:g} CPUs {market}".strip()
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
