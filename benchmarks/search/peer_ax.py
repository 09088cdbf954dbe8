"""Runs Ax's Client, which is BoTorch with its recommended settings; conditions are its dependent parameters."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import importlib.metadata
import logging
from typing import Any

from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from benchmarks.search.problems import active, wanted

logging.disable(logging.WARNING)  # a line for every trial


class Method:
    version = importlib.metadata.version("ax-platform")

    def __init__(self, parameters: Any, seed: int, budget: int, parallel: int, options: dict[str, Any]) -> None:  # noqa: ARG002
        self._parameters = parameters
        self._client = Client(random_seed=seed)
        self._client.configure_experiment([_parameter(name, parameters) for name in parameters])
        self._client.configure_optimization("-value")

    def add(self, config: dict[str, Any]) -> Any:
        given = {
            name: f"c{p['choices'].index(config[name])}" if p["type"] == "choice" else config[name]
            for name, p in self._parameters.items()
        }
        return self._client.attach_trial(given)

    def ask(self) -> tuple[Any, dict[str, Any]]:
        ((key, given),) = self._client.get_next_trials(max_trials=1).items()
        config = {
            name: p["choices"][int(given[name][1:])] if p["type"] == "choice" else given[name]
            for name, p in self._parameters.items()
            if name in given
        }
        return key, active(self._parameters, config)

    def tell(self, key: Any, value: float) -> None:
        self._client.complete_trial(key, raw_data={"value": value})


def _parameter(name: str, parameters: Any) -> Any:
    p = parameters[name]
    if p["type"] != "choice":
        scaling = "log" if p.get("log") else None
        return RangeParameterConfig(name, (p["low"], p["high"]), p["type"], scaling=scaling)
    # Choices are given as their index in text, because Ax takes no list of mixed types.
    dependent: dict[str, list[str]] = {}
    for other, q in parameters.items():
        # A parameter can depend on only one other: the last one of several, which itself depends on those before.
        if q.get("when") and list(q["when"])[-1] == name:
            for value in wanted(q["when"][name]):
                dependent.setdefault(f"c{p['choices'].index(value)}", []).append(other)
    values = [f"c{i}" for i in range(len(p["choices"]))]
    return ChoiceParameterConfig(name, values, "str", is_ordered=False, dependent_parameters=dependent or None)
