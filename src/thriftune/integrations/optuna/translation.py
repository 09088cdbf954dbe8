"""Conversion of Optuna's search space to a thriftune space, and of a trial's parameters to a configuration."""

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
"""The key of a trial's system attribute with the suggested parameters, in Optuna's internal representation."""

_ENQUEUED = "fixed_params"  # Optuna's key of the parameters of an enqueued trial

_MAX_DEVIATION = Decimal("0.001")
"""A value further than this share of a step from the nearest step does not belong to the distribution."""


class Translation:
    """A thriftune space for Optuna's distributions; converts parameters to configurations and back."""

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        self.distributions = dict(distributions)
        self._converters = {name: _Converter(distribution) for name, distribution in distributions.items()}
        self.space = Space({name: converter.parameter for name, converter in self._converters.items()})

    def config(self, trial: FrozenTrial) -> dict[str, Any] | None:
        """Return the trial's configuration; None if it lacks a parameter or has a value outside the space.

        A parameter's value is the one that the objective has requested, else the enqueued one, else the suggested
        one.
        """
        suggested = trial.system_attrs.get(SUGGESTED, {})
        params = {**trial.system_attrs.get(_ENQUEUED, {}), **trial.params}
        config: dict[str, Any] = {}
        for name, converter in self._converters.items():
            try:
                internal = (
                    converter.distribution.to_internal_repr(params[name]) if name in params else suggested[name]
                )
            except (KeyError, ValueError):  # no value, or one that is not a choice
                return None
            if (value := converter.to_config(internal)) is None:
                return None
            config[name] = value
        return config

    def params(self, config: Config) -> dict[str, Any]:
        """Return a configuration as Optuna's parameters."""
        return {name: self._converters[name].to_optuna(value) for name, value in config.items()}


class _Converter:
    """Converts the values of one Optuna distribution to those of a thriftune parameter and back.

    Choices and steps are represented by their index, which converts back exactly. Optuna's internal representation
    of a value is a number; for a choice, its index.
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
        # Steps are counted in decimals, as Optuna does: three steps of 0.1 are 0.3.
        self._first, self._step = Decimal(str(low)), Decimal(str(step or 0))
        steps = (Decimal(str(high)) - self._first) / self._step if self._step else math.inf
        self._is_indexed = not log and steps <= LARGEST_BOUND
        if isinstance(distribution, CategoricalDistribution):
            self.parameter = Choice(range(len(distribution.choices)))
        elif self._is_indexed:
            self.parameter = Int(0, round(steps))
        elif isinstance(distribution, IntDistribution) and high <= LARGEST_BOUND:
            self.parameter = Int(distribution.low, distribution.high, log=log)
        else:  # also an int distribution with more values than an Int can have
            self.parameter = Float(low, high, log=log)

    def to_config(self, internal: float) -> float | None:
        """Return the value in a configuration for Optuna's internal number; None if it is not a valid one."""
        if not self._low <= internal <= self._high:
            return None
        if not self._step:
            return float(internal)
        steps = (Decimal(str(internal)) - self._first) / self._step
        if abs(steps - round(steps)) > _MAX_DEVIATION:
            return None
        if self._is_indexed:
            return round(steps)
        return internal if isinstance(self.parameter, Float) else round(internal)

    def to_optuna(self, config_value: Any) -> Any:
        """Return Optuna's value for a value in a configuration."""
        if isinstance(self.distribution, CategoricalDistribution):
            return self.distribution.choices[config_value]
        if not self._step:
            return float(config_value)
        steps = config_value if self._is_indexed else round((Decimal(config_value) - self._first) / self._step)
        value = self._first + steps * self._step
        return int(value) if isinstance(self.distribution, IntDistribution) else float(value)
