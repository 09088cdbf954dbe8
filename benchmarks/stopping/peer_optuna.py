"""Optuna's samplers with its pruners, through ask and tell.

A trial that diverges reports NaN and is pruned. TPE ignores failed trials, which a returned NaN makes of them; but
a pruned one whose last value is NaN it takes for the worst of those that got as far.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import optuna
from optuna.trial import TrialState

from benchmarks.search.peer_optuna import suggested

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Method:
    version = importlib.metadata.version("optuna")

    def __init__(self, parameters: Any, steps: int, seed: int, options: dict[str, Any]) -> None:
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        pruners: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
            "none": optuna.pruners.NopPruner,
            "median": optuna.pruners.MedianPruner,
            "hyperband": lambda: optuna.pruners.HyperbandPruner(max_resource=steps),
        }
        self._parameters = parameters
        self._study = optuna.create_study(
            study_name=f"race-{seed}",  # Hyperband draws a trial's bracket from it
            sampler=samplers[options["sampler"]](seed=seed),
            pruner=pruners[options["pruner"]](),
        )
        self._trials: dict[int, optuna.Trial] = {}

    def suggest(self) -> tuple[int, dict[str, Any]]:
        trial = self._study.ask()
        self._trials[trial.number] = trial
        return trial.number, suggested(trial, self._parameters)

    def report(self, trial: int, step: int, value: float) -> bool:
        """Its manual: "pruners assume that step starts at zero"."""
        running = self._trials[trial]
        running.report(value, step - 1)
        if running.should_prune():
            self._study.tell(self._trials.pop(trial), state=TrialState.PRUNED)
            return False
        return True

    def completed(self, trial: int, value: float) -> None:
        self._study.tell(self._trials.pop(trial), value)

    def failed(self, trial: int, step: int) -> None:
        running = self._trials.pop(trial)
        running.report(float("nan"), step - 1)
        self._study.tell(running, state=TrialState.PRUNED)
