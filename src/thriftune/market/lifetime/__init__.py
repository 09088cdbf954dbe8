"""How long do machines live?

This package has lifetime distributions and their fits to recorded lifetimes.
"""

from thriftune.market.lifetime.base import Lifetime
from thriftune.market.lifetime.bathtub import Bathtub
from thriftune.market.lifetime.change_detection import Watch
from thriftune.market.lifetime.fitting import Fitted
from thriftune.market.lifetime.forms import Exponential, GompertzMakeham, Weibull
from thriftune.market.lifetime.kaplan_meier import KaplanMeier
from thriftune.market.lifetime.phases import Phases
from thriftune.market.lifetime.pooling import fit_lifetime
from thriftune.market.lifetime.records import Lifetimes

__all__ = [
    "Bathtub",
    "Exponential",
    "Fitted",
    "GompertzMakeham",
    "KaplanMeier",
    "Lifetime",
    "Lifetimes",
    "Phases",
    "Watch",
    "Weibull",
    "fit_lifetime",
]
