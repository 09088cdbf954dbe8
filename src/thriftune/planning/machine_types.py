"""What can be rented, as one who rents sees it: a kind of machine, its price, its provider's rules, its life.

A price that moves is known up to now: whoever decides asks for nothing later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from thriftune.common.checks import check_number, check_whole
from thriftune.errors import SettingError
from thriftune.market.billing import PER_SECOND, Billing
from thriftune.market.prices import PriceSeries
from thriftune.market.survival import Survival
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.latency import Latency

_HOUR = 3600.0
_TO_THE_MOMENT = 1e-6
_BY_THE_SECOND = 60.0  # seconds of granularity: whoever bills in smaller ones does


class Revocation(Protocol):
    """A model of one market; a RevocationModel is one."""

    def probability(self, series: Any, t: Any, max_price: Any) -> Any:
        """That the price rises above `max_price` in the hour after `t`."""
        ...


@dataclass(frozen=True, eq=False)
class MachineType:
    """One kind of machine.

    - `price`: dollars an hour, or a record of them that grows.
    - `slots`: trials at a time. `speed`: of a step, over the recorded one; until steps were timed, a guess.
    - `survival`: how long a machine lives, as far as is known. `revocation`: where the price decides, how likely
      it rises above a maximum. With neither, the machine is not taken away.
    - `notice_seconds`: from the provider's warning to the loss.
    - `queue`, `init`: seconds until a machine is handed over, and then until it is ready.
    - `data_gb`: what every machine downloads once.
    - `on_demand_price`: dollars an hour of a like machine that is not taken away.
    - `most`: at a time; None: as many as are wanted.
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
    most: int | None = None
    queue_latency: Latency = field(init=False, repr=False)
    init_latency: Latency = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_whole(f"{self.name}: slots", self.slots, 1)
        if self.most is not None:
            check_whole(f"{self.name}: most", self.most, 1)
        if self.billing.by_use:
            raise SettingError(f"{self.name}: is billed by use, not by the machine: it cannot be rented")
        for name in ("speed", "notice_seconds", "data_gb"):
            check_number(f"{self.name}: {name}", getattr(self, name), above_zero=name == "speed")
        if self.on_demand_price is not None:
            check_number(f"{self.name}: on_demand_price", self.on_demand_price)
        if not isinstance(self.price, PriceSeries):
            check_number(f"{self.name}: price", self.price)
        elif self.revocation is not None and self.survival is not None:
            raise SettingError(f"{self.name}: give survival= or revocation=, not both: one of them is the cause")
        if self.revocation is not None and not isinstance(self.price, PriceSeries):
            raise SettingError(f"{self.name}: revocation= is of a price that moves; give its record as price=")
        object.__setattr__(self, "queue_latency", Latency.of(self.queue))
        object.__setattr__(self, "init_latency", Latency.of(self.init))

    @classmethod
    def of(cls, cloud: CloudProfile) -> MachineType:
        """As a plan sees it. What functions use is billed elsewhere."""
        per_instance = cloud.billing == "per_instance"
        billing = Billing(
            granularity_seconds=_TO_THE_MOMENT, least_seconds=cloud.least_billed, dollars_per_gb=cloud.data_price
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
            most=cloud.max_machines,
        )

    def cloud_at(self, now: float) -> CloudProfile:
        """As a plan sees it, with the price that it has now. What is billed by the hour costs one at least; what a
        provider lets off, and that a price decides who is taken away, is left out."""
        billing = self.billing
        granule = billing.granularity_seconds if billing.granularity_seconds > _BY_THE_SECOND else 0.0
        return CloudProfile(
            self.slots,
            self.price_at(now),
            self.queue_latency,
            self.init_latency,
            "per_instance",
            max(billing.least_seconds, granule),
            self.data_gb,
            billing.dollars_per_gb,
            self.name,
            self.survival,
            self.speed,
            self.most,
        )

    @property
    def lasts(self) -> bool:
        """It is not taken away."""
        return self.survival is None and self.revocation is None

    @property
    def ready_seconds(self) -> float:
        """From the request to the first step, on average."""
        return self.queue_latency.mean + self.init_latency.mean

    def price_at(self, now: float) -> float:
        return float(self.price.price_at(now)) if isinstance(self.price, PriceSeries) else self.price

    def mean_price(self, now: float, seconds: float = _HOUR) -> float:
        """Over the time that has just passed, as far as it is known."""
        if not isinstance(self.price, PriceSeries):
            return self.price
        return float(self.price.mean(max(self.price.start, now - seconds), now))

    def loss_probability(self, now: float, max_price: float | None) -> float:
        """Of a machine that is rented now, within an hour."""
        if self.revocation is not None:
            if max_price is None:
                raise SettingError(f"{self.name}: is taken away by its price; say at which maximum price")
            return float(self.revocation.probability(self.price, now, max_price))
        return 0.0 if self.survival is None else 1.0 - float(np.asarray(self.survival.survival(1.0)))
