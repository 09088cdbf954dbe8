"""The conversion of a probability of preemption to a lifetime distribution."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from thriftune.errors import SettingError
from thriftune.market.lifetime.forms import Exponential

# Probabilities are clipped to this range: at 0 and 1 the mean lifetime would be infinite or zero.
_MIN_PROBABILITY, _MAX_PROBABILITY = 1e-9, 1.0 - 1e-9


def as_survival(probability: float) -> Exponential:
    """Return the lifetime distribution for this hourly preemption probability.

    Prices predict the next hour only. The same probability is therefore assumed for every later hour, which makes
    the distribution exponential.
    """
    if np.ndim(probability) or not isinstance(probability, Real) or not 0.0 <= probability <= 1.0:
        raise SettingError(f"probability {probability!r} must be one number between 0 and 1")
    return Exponential(-1.0 / math.log1p(-min(max(probability, _MIN_PROBABILITY), _MAX_PROBABILITY)))
