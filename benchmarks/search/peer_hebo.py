"""Runs HEBO: a Gaussian process with input and output warping, three acquisition functions at once.

It knows no conditions (inactive parameters are suggested too and ignored) and nothing of pending evaluations.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import importlib.metadata
import random
from typing import Any

import numpy as np
import pandas as pd
import torch
from hebo.design_space.design_space import DesignSpace
from hebo.optimizers.hebo import HEBO

from benchmarks.search.problems import active


class Method:
    version = importlib.metadata.version("HEBO")

    def __init__(self, parameters: Any, seed: int, budget: int, parallel: int, options: dict[str, Any]) -> None:  # noqa: ARG002
        self._parameters = parameters
        random.seed(seed)
        np.random.seed(seed)  # HEBO draws from this generator
        torch.manual_seed(seed)
        space = DesignSpace().parse([_parameter(name, p) for name, p in parameters.items()])
        self._hebo = HEBO(space, scramble_seed=seed)

    def add(self, config: dict[str, Any]) -> Any:
        given = {
            name: f"c{p['choices'].index(config[name])}" if p["type"] == "choice" else config[name]
            for name, p in self._parameters.items()
        }
        return pd.DataFrame([given])

    def ask(self) -> tuple[Any, dict[str, Any]]:
        suggested = self._hebo.suggest(n_suggestions=1)
        given = suggested.iloc[0].to_dict()
        config: dict[str, Any] = {}
        for name, p in self._parameters.items():
            if p["type"] == "choice":
                config[name] = p["choices"][int(given[name][1:])]
            else:
                number = int(given[name]) if p["type"] == "int" else float(given[name])
                config[name] = min(max(number, p["low"]), p["high"])
        return suggested, active(self._parameters, config)

    def tell(self, key: Any, value: float) -> None:
        self._hebo.observe(key, np.array([[value]]))


def _parameter(name: str, p: Any) -> dict[str, Any]:
    if p["type"] == "choice":
        return {"name": name, "type": "cat", "categories": [f"c{i}" for i in range(len(p["choices"]))]}
    kinds = {"float": ("num", "pow"), "int": ("int", "pow_int")}
    return {"name": name, "type": kinds[p["type"]][bool(p.get("log"))], "lb": p["low"], "ub": p["high"]}
