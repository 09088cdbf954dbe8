"""What does a machine cost, and how long will it live?

Public names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thriftune.market import lifetime as lifetime
    from thriftune.market import revocation as revocation
    from thriftune.market.billing import Bill as Bill
    from thriftune.market.billing import Billing as Billing
    from thriftune.market.catalog import Catalog as Catalog
    from thriftune.market.catalog import Offer as Offer
    from thriftune.market.checkpoint_schedule import best_schedule as best_schedule
    from thriftune.market.lifetime.pooling import fit_lifetime as fit_lifetime
    from thriftune.market.lifetime.records import Lifetimes as Lifetimes
    from thriftune.market.price_history import PriceHistory as PriceHistory
    from thriftune.market.price_history import PriceSeries as PriceSeries
    from thriftune.market.reuse import ReuseTable as ReuseTable
    from thriftune.market.revocation import RevocationModel as RevocationModel
    from thriftune.market.running_time import expected_hours as expected_hours
    from thriftune.market.running_time import failure_probability as failure_probability
    from thriftune.market.selection import rank as rank
    from thriftune.market.survival import Survival as Survival
    from thriftune.market.synthetic import synthetic_lifetimes as synthetic_lifetimes
    from thriftune.market.synthetic import synthetic_prices as synthetic_prices

_NAMES_OF_MODULE = {
    "billing": ["Bill", "Billing"],
    "catalog": ["Catalog", "Offer"],
    "checkpoint_schedule": ["best_schedule"],
    "lifetime": ["Lifetimes", "fit_lifetime"],
    "price_history": ["PriceHistory", "PriceSeries"],
    "reuse": ["ReuseTable"],
    "revocation": ["RevocationModel"],
    "running_time": ["expected_hours", "failure_probability"],
    "selection": ["rank"],
    "survival": ["Survival"],
    "synthetic": ["synthetic_lifetimes", "synthetic_prices"],
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}
_MODULES = ("billing", "lifetime", "revocation")

__all__ = [*_MODULE_OF_NAME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF_NAME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
