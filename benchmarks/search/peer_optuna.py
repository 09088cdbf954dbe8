"""Runs Optuna's TPE (its default) and GP samplers; conditions are define-by-run, as in its manual."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import importlib.metadata
from typing import Any

import optuna

from benchmarks.search.problems import holds

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Method:
    version = importlib.metadata.version("optuna")

    def __init__(self, parameters: Any, seed: int, budget: int, parallel: int, options: dict[str, Any]) -> None:  # noqa: ARG002
        kind = {"tpe": optuna.samplers.TPESampler, "gp": optuna.samplers.GPSampler}[options["sampler"]]
        self._parameters = parameters
        self._study = optuna.create_study(sampler=kind(seed=seed))

    def add(self, config: dict[str, Any]) -> Any:
        self._study.enqueue_trial(config)
        return self.ask()[0]

    def ask(self) -> tuple[Any, dict[str, Any]]:
        trial = self._study.ask()
        return trial, suggested(trial, self._parameters)

    def tell(self, key: Any, value: float) -> None:
        self._study.tell(key, value)


def suggested(trial: optuna.Trial, parameters: Any) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name, p in parameters.items():
        if not holds(p, config):
            continue
        if p["type"] == "choice":
            config[name] = trial.suggest_categorical(name, p["choices"])
        elif p["type"] == "int":
            config[name] = trial.suggest_int(name, p["low"], p["high"], log=p.get("log", False))
        else:
            config[name] = trial.suggest_float(name, p["low"], p["high"], log=p.get("log", False))
    return config
