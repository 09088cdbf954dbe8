"""A machine type as policies see it: its price, billing and lifetimes.

A policy may use a varying price only up to the present moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from thriftune.common.checks import check_number, check_whole
from thriftune.errors import SettingError
from thriftune.market.billing import PER_SECOND, Billing
from thriftune.market.price_history import PriceSeries
from thriftune.market.survival import Survival
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.latency import Latency

_HOUR = 3600.0
_CONTINUOUS_SECONDS = 1e-6  # a billing granularity so fine that the exact life of a machine is billed
_PER_SECOND_LIMIT = 60.0  # seconds; a finer granularity is treated as billing by the second


class Revocation(Protocol):
    """A model that predicts preemptions by price, such as RevocationModel."""

    def probability(self, series: Any, t: Any, max_price: Any) -> Any:
        """Return the probability of a price above `max_price` in the hour after `t`."""
        ...


@dataclass(frozen=True, eq=False)
class MachineType:
    """A machine type that can be rented.

    - `price`: dollars per hour, or a price series that grows while the study runs.
    - `slots`: trials that fit on a machine.
    - `speed`: the speed of training relative to the machine for which step times were recorded or stated; 2 means
      that a step takes half the time. Policies use it until steps on this type have been timed.
    - `survival`: how long machines of this type live.
    - `revocation`: the model that predicts preemptions from the price, if they depend on it. A type with neither
      `survival` nor `revocation` is on-demand.
    - `notice_seconds`: time from the provider's interruption notice to the preemption.
    - `queue`, `init`: seconds until a machine is handed over, and then until it is ready.
    - `data_gb`: gigabytes that each machine downloads once.
    - `on_demand_price`: dollars per hour of the equivalent on-demand machine.
    - `max_machines`: the most machines that can be held at a time; None means no limit.
    """

    name: str
    price: float | PriceSeries
    slots: int = 1
    speed: float = 1.0
    billing: Billing = PER_SECOND
    survival: Survival | None = None
    revocation: Revocation | None = None
    notice_seconds: float = 0.0
    queue: float | Sequence[float] | Latency = 0.0
    init: float | Sequence[float] | Latency = 0.0
    data_gb: float = 0.0
    on_demand_price: float | None = None
    max_machines: int | None = None
    queue_latency: Latency = field(init=False, repr=False)
    init_latency: Latency = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_whole(f"{self.name}: slots", self.slots, 1)
        if self.max_machines is not None:
            check_whole(f"{self.name}: max_machines", self.max_machines, 1)
        if self.billing.by_use:
            raise SettingError(
                f"{self.name}: is billed by use; only machines that are billed per instance can be rented"
            )
        for name in ("speed", "notice_seconds", "data_gb"):
            check_number(f"{self.name}: {name}", getattr(self, name), above_zero=name == "speed")
        if self.on_demand_price is not None:
            check_number(f"{self.name}: on_demand_price", self.on_demand_price)
        if not isinstance(self.price, PriceSeries):
            check_number(f"{self.name}: price", self.price)
        elif self.revocation is not None and self.survival is not None:
            raise SettingError(f"{self.name}: give survival= or revocation=, not both")
        if self.revocation is not None and not isinstance(self.price, PriceSeries):
            raise SettingError(f"{self.name}: revocation= needs a varying price; give a price series as price=")
        object.__setattr__(self, "queue_latency", Latency.of(self.queue))
        object.__setattr__(self, "init_latency", Latency.of(self.init))

    @classmethod
    def of(cls, cloud: CloudProfile) -> MachineType:
        """Return the machine type of a plan's cloud profile.

        With billing per function, the machine itself costs nothing.
        """
        per_instance = cloud.billing == "per_instance"
        billing = Billing(
            granularity_seconds=_CONTINUOUS_SECONDS,
            least_seconds=cloud.minimum_billed_seconds,
            dollars_per_gb=cloud.data_price,
        )
        return cls(
            cloud.name,
            cloud.price_per_hour if per_instance else 0.0,
            cloud.slots,
            cloud.speed,
            billing,
            cloud.survival,
            queue=cloud.queue_latency,
            init=cloud.init_latency,
            data_gb=cloud.data_gb,
            max_machines=cloud.max_machines,
        )

    def cloud_profile_at(self, now: float) -> CloudProfile:
        """Return the profile that plans are made with, at the current price.

        A machine that is billed by the hour costs at least one hour. The profile leaves out refunds, and
        preemptions that depend on the price.
        """
        billing = self.billing
        granularity = billing.granularity_seconds if billing.granularity_seconds > _PER_SECOND_LIMIT else 0.0
        return CloudProfile(
            self.slots,
            self.price_at(now),
            self.queue_latency,
            self.init_latency,
            "per_instance",
            max(billing.least_seconds, granularity),
            self.data_gb,
            billing.dollars_per_gb,
            self.name,
            self.survival,
            self.speed,
            self.max_machines,
        )

    @property
    def is_on_demand(self) -> bool:
        """Return True if machines of this type are not preempted."""
        return self.survival is None and self.revocation is None

    @property
    def ready_seconds(self) -> float:
        """Return the average seconds from the request for a machine until it is ready."""
        return self.queue_latency.mean + self.init_latency.mean

    def price_at(self, now: float) -> float:
        """Return the dollars per hour at this time."""
        return float(self.price.price_at(now)) if isinstance(self.price, PriceSeries) else self.price

    def mean_price(self, now: float, seconds: float = _HOUR) -> float:
        """Return the mean dollars per hour of the last `seconds`.

        Only the time for which the price is known counts.
        """
        if not isinstance(self.price, PriceSeries):
            return self.price
        return float(self.price.mean(max(self.price.start, now - seconds), now))

    def loss_probability(self, now: float, max_price: float | None) -> float:
        """Return the probability that a machine rented now is preempted within an hour."""
        if self.revocation is not None:
            if max_price is None:
                raise SettingError(f"{self.name}: is preempted by price; give a maximum price")
            return float(self.revocation.probability(self.price, now, max_price))
        return 0.0 if self.survival is None else 1.0 - float(np.asarray(self.survival.survival(1.0)))
