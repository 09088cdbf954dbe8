"""How many machines, of which type, when?

The public names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thriftune.planning.cloud_profile import CloudProfile as CloudProfile
    from thriftune.planning.job import JobSpec as JobSpec
    from thriftune.planning.job import asha as asha
    from thriftune.planning.job import hyperband as hyperband
    from thriftune.planning.job import successive_halving as successive_halving
    from thriftune.planning.latency import Latency as Latency
    from thriftune.planning.plan import Plan as Plan
    from thriftune.planning.plan_finder import frontier as frontier
    from thriftune.planning.profile import Profile as Profile

_PUBLIC_NAMES = {
    "cloud_profile": ["CloudProfile"],
    "job": ["JobSpec", "asha", "hyperband", "successive_halving"],
    "latency": ["Latency"],
    "plan": ["Plan"],
    "plan_finder": ["frontier"],
    "profile": ["Profile"],
}
_MODULE_OF = {name: module for module, names in _PUBLIC_NAMES.items() for name in names}

__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
