"""Estimate the effects of knobs on a trial from its own windows and from those of the study's other trials.

The effect of a knob's value differs from trial to trial. The other trials are pooled with a random-effects model,
so that what is expected of a trial has an error that tells how much the others differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord
from thriftune.system.estimate import (
    NO_EVIDENCE,
    Effect,
    Estimate,
    Evidence,
    WindowCost,
    comparable_windows,
    evidence,
    machine_kind,
    neutral_prior,
    window_costs,
)

OWN, OTHERS, PROCESS = "its own steps", "other trials", "its process"
"""The basis of a decision: the trial's windows, those of other trials, or the state of its worker process."""

_MOST_TRIALS = 100
"""Only the last trials of a study are pooled: there may be thousands."""

_MOST_ERROR = 0.5
"""An effect with a greater error tells next to nothing."""

_TRIALS_DIFFER, _USUAL_WEIGHT = 0.1, 2
"""The usual standard deviation of a knob's effect between trials, and its weight as a number of trials."""

Effects = Mapping[str, Effect]
"""Effects of knob values by their keys."""


def pool(effects: Sequence[Effect], prior: Effect) -> Effect:
    """Return the effect to expect in another trial, by a random-effects model.

    `prior`: the expected mean of all trials. The returned error includes the deviation between trials.
    """
    mean = _pooled(effects, prior, _TRIALS_DIFFER).log_ratio
    squares = sum(max(0.0, (each.log_ratio - mean) ** 2 - each.error**2) for each in effects)
    freedom = _USUAL_WEIGHT + max(0, len(effects) - 1)
    deviation = math.sqrt((_USUAL_WEIGHT * _TRIALS_DIFFER**2 + squares) / freedom)
    pooled = _pooled(effects, prior, deviation)
    return Effect(pooled.log_ratio, math.hypot(pooled.error, deviation))


def _pooled(effects: Sequence[Effect], prior: Effect, deviation: float) -> Effect:
    """Return the mean effect and its error."""
    weights = [1.0 / (each.error**2 + deviation**2) for each in effects]
    precision = prior.error**-2 + sum(weights)
    total = prior.log_ratio * prior.error**-2
    total += sum(weight * each.log_ratio for weight, each in zip(weights, effects, strict=True))
    return Effect(total / precision, precision**-0.5)


def _without_prior(effect: Effect, prior: Effect) -> Effect:
    """Return what the measurement alone tells, where `effect` is measurement and prior together."""
    precision = effect.error**-2 - prior.error**-2
    if precision < 1e-6:
        return Effect(0.0, math.inf)
    weighted = effect.log_ratio * effect.error**-2 - prior.log_ratio * prior.error**-2
    return Effect(weighted / precision, precision**-0.5)


class Knowledge:
    """Estimates effects of knobs from a study's trials.

    - `usual`: what is expected of each part of a setting without any measurement.
    - `cost_of`: the cost of a step in a window.
    """

    def __init__(
        self,
        usual: Callable[[str], Effect],
        cost_of: Callable[[ev.UsageMeasured], float],
    ) -> None:
        self._usual = usual
        self._cost_of = cost_of
        # Caches by trial id; the first element is the number of windows they cover.
        self._evidence: dict[int, tuple[int, Evidence]] = {}
        self._effects: dict[int, tuple[int, Effects]] = {}

    def estimate(self, trial: TrialRecord, history: History) -> Estimate:
        """Return the estimate for a trial, by all that is known."""
        kind = machine_kind(trial) or self._last_kind(history)
        others = [self._own_effects(other, history) for other in self._others(trial, kind, history)]
        priors: dict[str, Effect] = {}

        def prior(part: str) -> Effect:
            if part not in priors:
                priors[part] = pool([each[part] for each in others if part in each], self._usual(part))
            return priors[part]

        return Estimate(self._costs(trial), self._evidence_of_others(trial, kind, history), prior)

    def source(self, part: str, trial: TrialRecord, history: History) -> str | None:
        """Return OWN or OTHERS if the trial, or another one, has shown what a knob's value does, else None."""
        kind = machine_kind(trial) or self._last_kind(history)
        if part in self._own_effects(trial, history):
            return OWN
        others = self._others(trial, kind, history)
        return OTHERS if any(part in self._own_effects(other, history) for other in others) else None

    def _own_effects(self, trial: TrialRecord, history: History) -> Effects:
        """Return what the trial's own windows tell of each knob's value."""
        if self._effects.get(trial.id, (-1,))[0] != len(trial.windows):
            others = self._evidence_of_others(trial, machine_kind(trial), history)
            estimate = Estimate(self._costs(trial), others)
            effects = {part: _without_prior(estimate.part(part), neutral_prior(part)) for part in estimate.parts}
            measured = {part: effect for part, effect in effects.items() if effect.error < _MOST_ERROR}
            self._effects[trial.id] = len(trial.windows), measured
        return self._effects[trial.id][1]

    def _costs(self, trial: TrialRecord) -> list[WindowCost]:
        return window_costs(comparable_windows(trial), self._cost_of)

    def _evidence_of_others(self, trial: TrialRecord, kind: str, history: History) -> Evidence:
        total = NO_EVIDENCE
        for other in self._others(trial, kind, history):
            total = total.plus(self._evidence_of(other))
        return total

    def _evidence_of(self, trial: TrialRecord) -> Evidence:
        if self._evidence.get(trial.id, (-1,))[0] != len(trial.windows):
            self._evidence[trial.id] = len(trial.windows), evidence(self._costs(trial))
        return self._evidence[trial.id][1]

    def _others(self, trial: TrialRecord, kind: str, history: History) -> Iterator[TrialRecord]:
        """Yield the other trials that were measured last on this kind of machine."""
        for other in history.measured_trials[-_MOST_TRIALS:]:
            if other.id != trial.id and machine_kind(other) == kind:
                yield other

    def _last_kind(self, history: History) -> str:
        """Return the kind of the machine that was measured last: a new trial most likely runs on the same."""
        return machine_kind(history.measured_trials[-1]) if history.measured_trials else ""
