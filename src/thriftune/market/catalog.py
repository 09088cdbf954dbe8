"""What machines are there to rent, and what do they cost?

AWS on-demand prices of Linux machines in us-east-1, as published for August 2026.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offer:
    """A kind of machine somebody rents out, at a price that was true at a date."""

    name: str
    cores: int
    memory_gib: float
    price_per_hour: float
    region: str
    as_of: str

    def __str__(self) -> str:
        return f"{self.name}, {self.region}, ${self.price_per_hour:g}/h on demand, {self.as_of}"


def _c7i(size: str, cores: int, price_per_hour: float) -> Offer:
    return Offer(f"AWS c7i.{size}", cores, 2.0 * cores, price_per_hour, "us-east-1", "2026-08")


GENERAL_CPU = (
    _c7i("large", 2, 0.08925),
    _c7i("xlarge", 4, 0.1785),
    _c7i("2xlarge", 8, 0.357),
    _c7i("4xlarge", 16, 0.714),
    _c7i("8xlarge", 32, 1.428),
    _c7i("12xlarge", 48, 2.142),
    _c7i("16xlarge", 64, 2.856),
    _c7i("24xlarge", 96, 4.284),
    _c7i("48xlarge", 192, 8.568),
)


def smallest_with(cores: int) -> Offer:
    """The smallest offer with so many cores, or the largest there is."""
    return next((offer for offer in GENERAL_CPU if offer.cores >= cores), GENERAL_CPU[-1])
