"""Format the hours and shares that the `thriftune market` commands print."""

from __future__ import annotations

import math


def format_hours(hours: float) -> str:
    """Return hours as text without their unit.

    NaN is "-". A mean lifetime without a bound is "no end".
    """
    if math.isnan(hours):
        return "-"
    return "no end" if math.isinf(hours) else f"{hours:.2f}" if hours < 100 else f"{hours:.0f}"


def format_share(share: float) -> str:
    """Return a share as a percentage; "-" for NaN."""
    return "-" if math.isnan(share) else f"{share:.1%}"
