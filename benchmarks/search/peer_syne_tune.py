"""Runs Syne Tune's Bayesian optimization, the successor of AMT: a Gaussian process that fantasises pending
evaluations.

It knows no conditions: inactive parameters are suggested too and ignored.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import datetime
import importlib.metadata
import logging
from typing import Any

from syne_tune import config_space as cs
from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer.baselines import BayesianOptimization

from benchmarks.search.problems import active

logging.disable(logging.WARNING)  # a line for every trial


class Method:
    version = importlib.metadata.version("syne-tune")

    def __init__(self, parameters: Any, seed: int, budget: int, parallel: int, options: dict[str, Any]) -> None:  # noqa: ARG002
        self._parameters = parameters
        space = {name: domain(p) for name, p in parameters.items()}
        self._scheduler = BayesianOptimization(
            space, metric="value", mode="min", random_seed=seed, search_options={"debug_log": False}
        )
        self._count = 0

    def add(self, config: dict[str, Any]) -> Any:
        given = {
            name: str(p["choices"].index(config[name])) if p["type"] == "choice" else config[name]
            for name, p in self._parameters.items()
        }
        trial = Trial(trial_id=self._count, config=given, creation_time=datetime.datetime.now())
        self._scheduler.searcher.register_pending(trial_id=str(self._count), config=given)
        self._scheduler.on_trial_add(trial)
        self._count += 1
        return trial

    def ask(self) -> tuple[Any, dict[str, Any]]:
        suggestion = self._scheduler.suggest(self._count)
        trial = Trial(trial_id=self._count, config=suggestion.config, creation_time=datetime.datetime.now())
        self._scheduler.on_trial_add(trial)
        self._count += 1
        config = {
            name: p["choices"][int(trial.config[name])] if p["type"] == "choice" else trial.config[name]
            for name, p in self._parameters.items()
        }
        return trial, active(self._parameters, config)

    def tell(self, key: Any, value: float) -> None:
        self._scheduler.on_trial_complete(key, {"value": value})


def domain(p: Any) -> Any:
    if p["type"] == "choice":
        # Choices are given as their index in text; Syne Tune would treat a list of numbers as ordered.
        return cs.choice([str(i) for i in range(len(p["choices"]))])
    if p["type"] == "int":
        return (cs.lograndint if p.get("log") else cs.randint)(p["low"], p["high"])
    return (cs.loguniform if p.get("log") else cs.uniform)(p["low"], p["high"])
