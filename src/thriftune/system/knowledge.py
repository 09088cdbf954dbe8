"""Estimate the effects of knobs on a trial from all trials of its study.

The effect of a knob's value differs from trial to trial. The trial's own usage windows count most. The other
trials are pooled with a random-effects model: the effect that is expected of the trial has a larger error if the
other trials differ more.
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
"""The evidence for a decision: the trial's own windows, those of other trials, or the state of its worker
process."""

_MOST_TRIALS = 100
"""Only this many trials, the latest, are pooled, because a study may have thousands."""

_MOST_ERROR = 0.5
"""An effect with a larger error is ignored."""

_TRIALS_DIFFER, _USUAL_WEIGHT = 0.1, 2
"""The usual standard deviation of a knob's effect between trials, and its weight as a number of trials."""

Effects = Mapping[str, Effect]
"""Effects of knob values by their keys."""


def pool(effects: Sequence[Effect], prior: Effect) -> Effect:
    """Return the expected effect in one more trial, by a random-effects model.

    - `effects`: the effects in the trials that were measured.
    - `prior`: the mean over all trials that is expected without measurements.

    The error of the result includes the deviation between trials.
    """
    mean = _pooled(effects, prior, _TRIALS_DIFFER).log_ratio
    squares = sum(max(0.0, (each.log_ratio - mean) ** 2 - each.error**2) for each in effects)
    freedom = _USUAL_WEIGHT + max(0, len(effects) - 1)
    deviation = math.sqrt((_USUAL_WEIGHT * _TRIALS_DIFFER**2 + squares) / freedom)
    pooled = _pooled(effects, prior, deviation)
    return Effect(pooled.log_ratio, math.hypot(pooled.error, deviation))


def _pooled(effects: Sequence[Effect], prior: Effect, deviation: float) -> Effect:
    """Return the mean effect and its error.

    `deviation`: the standard deviation of the effect between trials.
    """
    weights = [1.0 / (each.error**2 + deviation**2) for each in effects]
    precision = prior.error**-2 + sum(weights)
    total = prior.log_ratio * prior.error**-2
    total += sum(weight * each.log_ratio for weight, each in zip(weights, effects, strict=True))
    return Effect(total / precision, precision**-0.5)


def _without_prior(effect: Effect, prior: Effect) -> Effect:
    """Return the effect by the measurement alone.

    `effect`: the effect by the measurement and the prior together.
    """
    precision = effect.error**-2 - prior.error**-2
    if precision < 1e-6:
        return Effect(0.0, math.inf)
    weighted = effect.log_ratio * effect.error**-2 - prior.log_ratio * prior.error**-2
    return Effect(weighted / precision, precision**-0.5)


class Knowledge:
    """Estimates effects of knobs from a study's trials.

    - `usual`: returns the effect of a setting's part, by its key, that is expected without any measurement.
    - `cost_of`: returns the cost of a step in a window.
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
        """Return the estimate for a trial from its own windows and from all other trials."""
        kind = machine_kind(trial) or self._last_kind(history)
        others = [self._own_effects(other, history) for other in self._others(trial, kind, history)]
        priors: dict[str, Effect] = {}

        def prior(part: str) -> Effect:
            if part not in priors:
                priors[part] = pool([each[part] for each in others if part in each], self._usual(part))
            return priors[part]

        return Estimate(self._costs(trial), self._evidence_of_others(trial, kind, history), prior)

    def source(self, part: str, trial: TrialRecord, history: History) -> str | None:
        """Return which trials have shown the effect of a knob's part.

        Returns OWN for the trial itself, else OTHERS for any other trial, else None.
        """
        kind = machine_kind(trial) or self._last_kind(history)
        if part in self._own_effects(trial, history):
            return OWN
        others = self._others(trial, kind, history)
        return OTHERS if any(part in self._own_effects(other, history) for other in others) else None

    def _own_effects(self, trial: TrialRecord, history: History) -> Effects:
        """Return the effects of knobs' parts that the trial's own windows show."""
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
        """Return the kind of the machine that was measured last.

        A new trial most likely runs on the same kind.
        """
        return machine_kind(history.measured_trials[-1]) if history.measured_trials else ""
