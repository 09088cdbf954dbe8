"""What can be rented, how soon is it there, and what does it cost? One kind of machine as a plan sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

from thriftune.common.checks import check_number, check_whole
from thriftune.errors import SettingError
from thriftune.market.billing import Billing
from thriftune.market.catalog import Offer
from thriftune.market.survival import Survival
from thriftune.planning.latency import Latency

BillingMode = Literal["per_instance", "per_function"]


@dataclass(frozen=True)
class CloudProfile:
    """A kind of machine, of which as many as are wanted can be rented.

    - `slots`: workers at a time, accelerators or cores.
    - `queue`, `init`: seconds until the provider hands machines over, and then until each is ready. A number, or
      recorded ones, or a Latency.
    - `billing`: "per_instance" bills a machine from the moment it is handed over until it is let go, `minimum`
      seconds at least; "per_function" the slots of a trial while it trains.
    - `data_gb`: what every machine downloads once, at `data_price` dollars each.
    - `survival`: of a spot machine, how long it lives; None: it is not taken away.
    - `speed`: how many times as fast as on the profile's machine a step is.
    - `max_machines`: at a time.
    """

    slots: int
    price_per_hour: float
    queue: float | Sequence[float] | Latency = 0.0
    init: float | Sequence[float] | Latency = 0.0
    billing: BillingMode = "per_instance"
    minimum: float = 0.0
    data_gb: float = 0.0
    data_price: float = 0.0
    name: str = "machine"
    survival: Survival | None = None
    speed: float = 1.0
    max_machines: int | None = None
    queue_latency: Latency = field(init=False, repr=False)
    init_latency: Latency = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_whole("cloud: slots", self.slots, 1)
        if self.max_machines is not None:
            check_whole("cloud: max_machines", self.max_machines, 1)
        for name in ("price_per_hour", "minimum", "data_gb", "data_price", "speed"):
            check_number(f"cloud: {name}", getattr(self, name), above_zero=name == "speed")
        if not isinstance(self.name, str):
            raise SettingError(f"cloud: name: {self.name!r} must be a text")
        if self.survival is not None and not callable(getattr(self.survival, "survival", None)):
            raise SettingError(
                f"cloud: survival: {self.survival!r} must be one, as market.lifetime.Exponential(4.0)"
            )
        if self.billing not in get_args(BillingMode):
            raise SettingError(
                f"cloud: billing: {self.billing!r} must be one of {', '.join(get_args(BillingMode))}"
            )
        object.__setattr__(self, "queue_latency", Latency.of(self.queue))
        object.__setattr__(self, "init_latency", Latency.of(self.init))

    @classmethod
    def of(cls, offer: Offer, billing: Billing | None = None, *, spot: bool = False, **others: Any) -> Self:
        """From the catalog: its accelerators, or else its cores, are the slots. `others`: further fields."""
        price = offer.spot_price_per_hour if spot else offer.price_per_hour
        if "price_per_hour" in others:
            price = others.pop("price_per_hour")
        if price is None:
            raise SettingError(f"{offer.title}: no spot price is known; give price_per_hour=")
        if spot and others.get("survival") is None:
            raise SettingError(f"{offer.title}: a spot machine may be taken away; give its survival=")
        rules: dict[str, Any] = {}
        if billing is not None:
            if billing.granularity_seconds > 60.0:
                raise SettingError(
                    f"{offer.title}: bills by {billing.granularity_seconds:g} s; plans are made for machines "
                    "that are billed by the second"
                )
            by: BillingMode = "per_function" if billing.by_use else "per_instance"
            rules = {"billing": by, "minimum": billing.least_seconds, "data_price": billing.dollars_per_gb}
        title = f"{offer.name} spot" if spot else offer.name
        found = cls(offer.accelerators or offer.cores, price, name=title)
        return replace(found, **{**rules, **others})

    @property
    def dollars_per_second(self) -> float:
        """Of a machine."""
        return self.price_per_hour / 3600.0

    @property
    def least_billed(self) -> float:
        """Seconds of a machine's life."""
        return self.minimum if self.billing == "per_instance" else 0.0

    def machines_for(self, at_a_time: int, workers: int) -> int:
        """Trials of so many workers: those that fit share a machine and are never split, larger ones have whole
        machines of their own."""
        if workers > self.slots:
            return at_a_time * -(-workers // self.slots)
        return -(-at_a_time // (self.slots // workers))


def with_default_waits(kinds: Sequence[CloudProfile], queue: float, init: float) -> list[CloudProfile]:
    """These kinds, where a machine takes so long to come, and to be ready; what a kind says of that itself goes
    first."""
    silent = [kind.queue == kind.init == 0.0 for kind in kinds]
    pairs = zip(kinds, silent, strict=True)
    return [replace(kind, queue=queue, init=init) if says_nothing else kind for kind, says_nothing in pairs]
