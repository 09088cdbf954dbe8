"""Runs Optuna's samplers with its pruners, through ask and tell.

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
from benchmarks.stopping.methods import Snap

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Near(optuna.samplers.BaseSampler):
    """Replaces the suggestions of a sampler by the nearest of a table, before the study records them."""

    def __init__(self, sampler: optuna.samplers.BaseSampler, parameters: Any, nearest: Snap) -> None:
        self._sampler, self._nearest = sampler, nearest
        self._space = {name: _distribution(parameter) for name, parameter in parameters.items()}

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return all parameters, so that the nearest configuration can be found for all of them at once."""
        return self._space

    def sample_relative(self, study: Any, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters as a trial gets them: first those sampled jointly, then the others."""
        together = self._sampler.infer_relative_search_space(study, trial)
        config = self._sampler.sample_relative(study, trial, together)
        for name, distribution in search_space.items():
            if name not in config:
                config[name] = self._sampler.sample_independent(study, trial, name, distribution)
        return self._nearest(config)

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:  # noqa: ARG002
        raise RuntimeError(f"the nearest of a table is out of bounds: {param_name}")

    def before_trial(self, study: Any, trial: Any) -> None:
        self._sampler.before_trial(study, trial)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        self._sampler.after_trial(study, trial, state, values)


def _distribution(parameter: Any) -> optuna.distributions.BaseDistribution:
    if parameter["type"] == "choice":
        return optuna.distributions.CategoricalDistribution(parameter["choices"])
    kinds = {"int": optuna.distributions.IntDistribution, "float": optuna.distributions.FloatDistribution}
    return kinds[parameter["type"]](parameter["low"], parameter["high"], log=parameter.get("log", False))


class Method:
    version = importlib.metadata.version("optuna")

    def __init__(self, parameters: Any, steps: int, seed: int, options: dict[str, Any], nearest: Snap) -> None:
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        pruners: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
            "none": optuna.pruners.NopPruner,
            "median": optuna.pruners.MedianPruner,
            "hyperband": lambda: optuna.pruners.HyperbandPruner(max_resource=steps),
        }
        self._parameters = parameters
        self._study = optuna.create_study(
            study_name=f"race-{seed}",  # Hyperband draws a trial's bracket from it
            sampler=Near(samplers[options["sampler"]](seed=seed), parameters, nearest),
            pruner=pruners[options["pruner"]](),
        )
        self._trials: dict[int, optuna.Trial] = {}

    def suggest(self) -> int:
        trial = self._study.ask()
        suggested(trial, self._parameters)
        self._trials[trial.number] = trial
        return int(trial.number)

    def report(self, trial: int, step: int, value: float) -> bool:
        """Report with steps from 0; Optuna's manual says "pruners assume that step starts at zero"."""
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
