"""How does Optuna's search space read as a space of ours, and a trial's parameters as a configuration?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from thriftune.space.parameters import LARGEST_BOUND, Choice, Float, Int, Parameter
from thriftune.space.space import Space
from thriftune.state.events import Config

SUGGESTED = "thriftune:suggested"
"""A trial's system attribute: the number of each parameter as suggested."""

_ENQUEUED = "fixed_params"  # Optuna's own

_OFF = Decimal("0.001")
"""A value further than this part of a step from one was not given by the distribution."""


class Translation:
    """Distributions as a space of ours; parameters as configurations and back."""

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        self.distributions = dict(distributions)
        self._axes = {name: _Axis(distribution) for name, distribution in distributions.items()}
        self.space = Space({name: axis.parameter for name, axis in self._axes.items()})

    def config(self, trial: FrozenTrial) -> dict[str, Any] | None:
        """What a trial was asked for, is fixed to or at least was suggested; None: has no place in the space."""
        suggested = trial.system_attrs.get(SUGGESTED, {})
        given = {**trial.system_attrs.get(_ENQUEUED, {}), **trial.params}
        config: dict[str, Any] = {}
        for name, axis in self._axes.items():
            try:
                number = axis.distribution.to_internal_repr(given[name]) if name in given else suggested[name]
            except (KeyError, ValueError):  # it has none, or none that there can be
                return None
            if (place := axis.place(number)) is None:
                return None
            config[name] = place
        return config

    def params(self, config: Config) -> dict[str, Any]:
        return {name: self._axes[name].value(place) for name, place in config.items()}


class _Axis:
    """A distribution as a parameter of ours. Choices and steps go by their index, which maps back exactly.

    Optuna has a number for each value, a choice's being its index; a place is what a configuration has for it.
    """

    parameter: Parameter

    def __init__(self, distribution: BaseDistribution) -> None:
        self.distribution = distribution
        low: float = 0
        high: float
        step: float | None
        if isinstance(distribution, CategoricalDistribution):
            high, log, step = len(distribution.choices) - 1, False, 1
        else:
            assert isinstance(distribution, FloatDistribution | IntDistribution)
            low, high, log, step = distribution.low, distribution.high, distribution.log, distribution.step
        self._low, self._high = low, high
        # In decimals, as Optuna counts steps: three steps of 0.1 are 0.3.
        self._first, self._step = Decimal(str(low)), Decimal(str(step or 0))
        steps = (Decimal(str(high)) - self._first) / self._step if self._step else math.inf
        self._indexed = not log and steps <= LARGEST_BOUND
        if isinstance(distribution, CategoricalDistribution):
            self.parameter = Choice(range(len(distribution.choices)))
        elif self._indexed:
            self.parameter = Int(0, round(steps))
        elif isinstance(distribution, IntDistribution) and high <= LARGEST_BOUND:
            self.parameter = Int(distribution.low, distribution.high, log=log)
        else:  # also with more steps than an Int can have
            self.parameter = Float(low, high, log=log)

    def place(self, number: float) -> float | None:
        """None: has none."""
        if not self._low <= number <= self._high:
            return None
        if not self._step:
            return float(number)
        steps = (Decimal(str(number)) - self._first) / self._step
        if abs(steps - round(steps)) > _OFF:
            return None
        return round(steps) if self._indexed else number if isinstance(self.parameter, Float) else round(number)

    def value(self, place: Any) -> Any:
        if isinstance(self.distribution, CategoricalDistribution):
            return self.distribution.choices[place]
        if not self._step:
            return float(place)
        steps = place if self._indexed else round((Decimal(place) - self._first) / self._step)
        value = self._first + steps * self._step
        return int(value) if isinstance(self.distribution, IntDistribution) else float(value)
