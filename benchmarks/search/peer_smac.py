"""Runs SMAC's facade for hyperparameters (random forest, EI); conditions are ConfigSpace's."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import importlib.metadata
import logging
import tempfile
from pathlib import Path
from typing import Any

import ConfigSpace as cs
import numpy as np
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory.dataclasses import TrialValue

from benchmarks.search.problems import active, wanted


class Method:
    version = importlib.metadata.version("smac")

    def __init__(self, parameters: Any, seed: int, budget: int, parallel: int, options: dict[str, Any]) -> None:  # noqa: ARG002
        self._parameters = parameters
        self._folder = tempfile.TemporaryDirectory(prefix="smac-")  # SMAC always writes files
        # By default SMAC assumes noise and would evaluate the best configurations repeatedly.
        scenario = Scenario(
            _space(parameters, seed),
            deterministic=True,
            n_trials=budget,
            seed=seed,
            output_directory=Path(self._folder.name),
        )
        self._smac = HyperparameterOptimizationFacade(scenario, _never_called, logging_level=logging.ERROR)

    def ask(self) -> tuple[Any, dict[str, Any]]:
        info = self._smac.ask()
        given = dict(info.config)
        config = {}
        for name, p in self._parameters.items():
            if name in given:
                config[name] = p["choices"][given[name]] if p["type"] == "choice" else _plain(given[name])
        return info, active(self._parameters, config)

    def tell(self, key: Any, value: float) -> None:
        self._smac.tell(key, TrialValue(cost=value))


def _never_called(config: Any, seed: int = 0) -> float:
    raise NotImplementedError(f"{config} with {seed}: SMAC is only asked and told")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _space(parameters: Any, seed: int) -> Any:
    space = cs.ConfigurationSpace(seed=seed)
    made: dict[str, Any] = {}
    for name, p in parameters.items():
        if p["type"] == "choice":
            # Choices are given by index, because ConfigSpace restricts their types.
            made[name] = cs.CategoricalHyperparameter(name, list(range(len(p["choices"]))))
        else:
            kind = cs.UniformIntegerHyperparameter if p["type"] == "int" else cs.UniformFloatHyperparameter
            made[name] = kind(name, p["low"], p["high"], log=p.get("log", False))
    space.add(list(made.values()))
    for name, p in parameters.items():
        conditions = [
            cs.InCondition(made[name], made[other], [parameters[other]["choices"].index(v) for v in wanted(value)])
            for other, value in p.get("when", {}).items()
        ]
        if len(conditions) > 1:
            space.add(cs.AndConjunction(*conditions))
        elif conditions:
            space.add(conditions[0])
    return space
