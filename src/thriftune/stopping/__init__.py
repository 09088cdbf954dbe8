"""Is this trial worth another step? The stopping rules by name; protocol.py defines their protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thriftune.common.registry import Registry
from thriftune.stopping.protocol import Stopper, Verdict

if TYPE_CHECKING:
    from thriftune.stopping.asha import ASHA
    from thriftune.stopping.auto import Auto
    from thriftune.stopping.early_curve import EarlyCurve
    from thriftune.stopping.median import Median
    from thriftune.stopping.none import Never
    from thriftune.stopping.successive_halving import Hyperband, SuccessiveHalving


__all__ = [
    "ASHA",
    "STOPPERS",
    "Auto",
    "EarlyCurve",
    "Hyperband",
    "Median",
    "Never",
    "Stopper",
    "SuccessiveHalving",
    "Verdict",
]

STOPPERS: Registry[Stopper] = Registry(
    "stopping",
    {
        "auto": (f"{__name__}.auto", "Auto"),
        "none": (f"{__name__}.none", "Never"),
        "median": (f"{__name__}.median", "Median"),
        "asha": (f"{__name__}.asha", "ASHA"),
        "halving": (f"{__name__}.successive_halving", "SuccessiveHalving"),
        "hyperband": (f"{__name__}.successive_halving", "Hyperband"),
        "early_curve": (f"{__name__}.early_curve", "EarlyCurve"),
    },
    ("judge(trial, history)", "promote(history, more)"),
)


def __getattr__(name: str) -> Any:
    return STOPPERS.of_class(name)


def __dir__() -> list[str]:
    return sorted(__all__)
