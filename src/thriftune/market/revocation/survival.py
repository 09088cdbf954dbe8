"""How long will it live, if that is how probable its loss within the hour is? What a policy over machines asks."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from thriftune.errors import SettingError
from thriftune.market.lifetime.forms import Exponential

_LEAST, _MOST = 1e-9, 1.0 - 1e-9


def as_survival(probability: float) -> Exponential:
    """A machine that is lost within the next hour with this probability, and in every hour after as probably:
    prices tell of the next hour, and nothing of what comes later."""
    if np.ndim(probability) or not isinstance(probability, Real) or not 0.0 <= probability <= 1.0:
        raise SettingError(f"probability {probability!r} must be one number between 0 and 1")
    return Exponential(-1.0 / math.log1p(-min(max(probability, _LEAST), _MOST)))
