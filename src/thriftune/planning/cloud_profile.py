"""A machine type as plans see it: its slots, price, latencies and billing."""

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
    """A machine type of which a plan can rent up to `max_machines`.

    - `slots`: workers that fit on a machine: its accelerators, or else its cores.
    - `queue`, `init`: seconds until the provider hands a machine over, and then until it is ready. Each is a
      number, a sequence of recorded seconds, or a Latency.
    - `billing`: "per_instance" bills a machine from its handover to its release, for at least `minimum` seconds.
      "per_function" bills the slots of a trial while it trains.
    - `data_gb`: gigabytes that each machine downloads once, at `data_price` dollars per gigabyte.
    - `survival`: how long a spot machine lives; None for an on-demand machine.
    - `speed`: the speed of training relative to the machine on which the training function's `Profile` was
      measured; 2 means that a step takes half the time.
    - `max_machines`: the most machines that can be held at a time; None means no limit.
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
            raise SettingError(f"cloud: name: {self.name!r} must be text")
        if self.survival is not None and not callable(getattr(self.survival, "survival", None)):
            raise SettingError(
                f"cloud: survival: {self.survival!r} must be a survival model, such as "
                "market.lifetime.Exponential(4.0)"
            )
        if self.billing not in get_args(BillingMode):
            raise SettingError(
                f"cloud: billing: {self.billing!r} must be one of {', '.join(get_args(BillingMode))}"
            )
        object.__setattr__(self, "queue_latency", Latency.of(self.queue))
        object.__setattr__(self, "init_latency", Latency.of(self.init))

    @classmethod
    def of(cls, offer: Offer, billing: Billing | None = None, *, spot: bool = False, **others: Any) -> Self:
        """Return the profile of a catalog offer.

        `others` sets further fields, or replaces values of the offer.
        """
        price = offer.spot_price_per_hour if spot else offer.price_per_hour
        if "price_per_hour" in others:
            price = others.pop("price_per_hour")
        if price is None:
            raise SettingError(f"{offer.title}: no spot price is known; give price_per_hour=")
        if spot and others.get("survival") is None:
            raise SettingError(f"{offer.title}: a spot machine can be preempted; give survival=")
        rules: dict[str, Any] = {}
        if billing is not None:
            if billing.granularity_seconds > 60.0:
                raise SettingError(
                    f"{offer.title}: is billed in units of {billing.granularity_seconds:g} s; plans need "
                    "machines that are billed by the second"
                )
            mode: BillingMode = "per_function" if billing.by_use else "per_instance"
            rules = {"billing": mode, "minimum": billing.least_seconds, "data_price": billing.dollars_per_gb}
        title = f"{offer.name} spot" if spot else offer.name
        profile = cls(offer.accelerators or offer.cores, price, name=title)
        return replace(profile, **{**rules, **others})

    @property
    def dollars_per_second(self) -> float:
        """Return the price of a machine per second."""
        return self.price_per_hour / 3600.0

    @property
    def minimum_billed_seconds(self) -> float:
        """Return the minimum billed seconds of a machine.

        With billing per function there is no minimum, and the result is 0.
        """
        return self.minimum if self.billing == "per_instance" else 0.0

    def machines_needed(self, at_a_time: int, workers: int) -> int:
        """Return how many machines `at_a_time` trials of `workers` workers need.

        Trials that fit on a machine share machines and are never split. A larger trial has whole machines of its
        own.
        """
        if workers > self.slots:
            return at_a_time * -(-workers // self.slots)
        return -(-at_a_time // (self.slots // workers))


def with_default_waits(profiles: Sequence[CloudProfile], queue: float, init: float) -> list[CloudProfile]:
    """Return the profiles, with these seconds in those that have no waits.

    A profile has no waits if its `queue` and its `init` are both 0.
    """
    return [
        replace(profile, queue=queue, init=init) if profile.queue == profile.init == 0.0 else profile
        for profile in profiles
    ]
