"""Runs Syne Tune's multi-fidelity schedulers, called as its Tuner calls them.

A trial that diverges is told of by on_trial_error, as its Tuner does when a script fails: its configuration is not
suggested again, and it takes no place on further rungs. A large value instead would be seen at rungs only, and
spoil the scale of a Gaussian process.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import datetime
import importlib.metadata
import logging
import math
from typing import Any

from syne_tune import config_space as cs
from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer import baselines
from syne_tune.optimizer.scheduler import SchedulerDecision

from benchmarks.search.peer_syne_tune import domain as domain
from benchmarks.stopping.methods import Snap

logging.disable(logging.WARNING)  # a line for every trial

_STEPS = "steps"  # the most steps of a trial; a scheduler that pauses sets it to the next rung
_STEP = "step"


class Method:
    version = importlib.metadata.version("syne-tune")

    def __init__(self, parameters: Any, steps: int, seed: int, options: dict[str, Any], nearest: Snap) -> None:
        self._parameters, self._nearest = parameters, nearest
        given = dict(options)
        scheduler, give_logs = given.pop("scheduler"), given.pop("give_logs", False)
        search_options = {"debug_log": False, **given.pop("search_options", {})}
        self._logs = {name for name, p in parameters.items() if p.get("log") and give_logs}
        space = {name: _logarithm(p) if name in self._logs else domain(p) for name, p in parameters.items()}
        self._scheduler = getattr(baselines, scheduler)(
            {**space, _STEPS: steps},
            metric="value",
            mode="min",
            resource_attr=_STEP,
            max_resource_attr=_STEPS,
            random_seed=seed,
            search_options=search_options,
            **given,
        )
        # Replace it before the scheduler records it: some register a configuration as soon as the searcher returns
        # it.
        self._get_config = self._scheduler.searcher.get_config
        self._scheduler.searcher.get_config = self._near
        self._trials: list[Trial] = []

    def _near(self, **about: Any) -> dict[str, Any] | None:
        suggested = self._get_config(**about)
        if suggested is None:
            return None
        near = self._nearest({name: self._value(name, suggested[name]) for name in self._parameters})
        return {**suggested, **{name: self._given(name, near[name]) for name in self._parameters}}

    def suggest(self) -> int | None:
        suggestion = self._scheduler.suggest(len(self._trials))
        if suggestion is None:
            return None
        if not suggestion.spawn_new_trial_id:
            trial = self._trials[suggestion.checkpoint_trial_id]
            if suggestion.config is not None:
                trial.config = suggestion.config
        else:
            trial = Trial(len(self._trials), suggestion.config, datetime.datetime.now())
            self._trials.append(trial)
            self._scheduler.on_trial_add(trial)
        return int(trial.trial_id)

    def _value(self, name: str, given: Any) -> Any:
        """Return our value for Syne Tune's."""
        p = self._parameters[name]
        if name in self._logs:
            value = min(max(math.exp(given), p["low"]), p["high"])
            return round(value) if p["type"] == "int" else value
        return p["choices"][int(given)] if p["type"] == "choice" else given

    def _given(self, name: str, value: Any) -> Any:
        """Return Syne Tune's value for ours."""
        p = self._parameters[name]
        if name in self._logs:
            return math.log(value)
        return str(p["choices"].index(value)) if p["type"] == "choice" else value

    def report(self, trial: int, step: int, value: float) -> bool:
        decision = self._scheduler.on_trial_result(self._trials[trial], {"value": value, _STEP: step})
        if decision == SchedulerDecision.CONTINUE:
            return True
        self._scheduler.on_trial_remove(self._trials[trial])
        return False

    def completed(self, trial: int, value: float) -> None:
        steps = self._scheduler.config_space[_STEPS]
        self._scheduler.on_trial_complete(self._trials[trial], {"value": value, _STEP: steps})

    def failed(self, trial: int, step: int) -> None:  # noqa: ARG002
        self._scheduler.on_trial_error(self._trials[trial])


def _logarithm(p: Any) -> Any:
    return cs.uniform(math.log(p["low"]), math.log(p["high"]))
