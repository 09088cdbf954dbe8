"""SpotTune's policy (Algorithm 1): the spot machine with the lowest expected cost per step, for an hour at a time.

The maximum price is the current price plus a random delta. The market model gives the probability p that the price
passes it within the hour. The expected cost per step is M (1 - p) price (Eq. 2): M is the seconds per step seen so
far, price the mean of the last hour. A machine preempted in its first hour is free, so the policy seeks that risk.
After an hour on a machine a trial moves on. A machine that was preempted, however soon, is requested again in the
next round of the algorithm's loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from thriftune.errors import SettingError
from thriftune.market.revocation.spottune_inputs import HIGHEST_DELTA, LOWEST_DELTA
from thriftune.market.selection import spottune_eq2
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HOUR
from thriftune.provisioning.renting_policy import PATIENCE_SECONDS, MachineRequest, RentingPolicy
from thriftune.provisioning.workload import Workload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

ROUND_SECONDS = 10.0
"""The loop of Algorithm 1 sleeps this long between rounds; one kind is not requested twice in a round."""


class StepCost(RentingPolicy):
    """Rents by SpotTune's Algorithm 1."""

    def __init__(self, kinds: Sequence[MachineType], terms: Workload) -> None:
        super().__init__(kinds, terms)
        self._pool = [kind for kind in kinds if not kind.lasts]
        if not self._pool:
            raise SettingError("step_cost: no kind of machine may be taken away; give a spot machine")

    def choose(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        rng = np.random.default_rng((self.terms.seed, trial.id, trial.attempts, len(history.fleet.renting)))
        deltas = rng.uniform(LOWEST_DELTA, HIGHEST_DELTA, len(self._pool))
        best, least = None, math.inf
        for kind, delta in zip(self._pool, deltas.tolist(), strict=True):
            if now < _refused_until(kind.name, history):
                continue
            max_price = kind.price_at(now) + delta if kind.revocation is not None else None
            step = self.paces.seconds(trial, kind.name, history)
            cost = spottune_eq2(step, kind.mean_price(now), kind.loss_probability(now, max_price)) / kind.slots
            if cost < least:
                best, least = MachineRequest(kind.name, max_price), cost
        return best

    def asks_again_at(self, kind: str, history: History) -> float:
        """Return the time from which this kind may be requested again.

        Algorithm 1 has no rule for machines that live for minutes: they only wait for the next round.
        """
        lost_at = history.fleet.last_unavailable_at.get(kind, -math.inf)
        return max(lost_at + ROUND_SECONDS, _refused_until(kind, history))

    def takes(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        return machine.seconds(now) < HOUR

    def leaves(self, trial: TrialRecord, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        return machine.seconds(now) >= HOUR

    def look_at(self, history: History, now: float) -> float:  # noqa: ARG002
        """When the next machine is an hour old."""
        hours = (
            machine.started_at + HOUR
            for machine in history.machines.values()
            if machine.running and any(history.trials[i].end_request is None for i in machine.running)
        )
        return min(hours, default=math.inf)


def _refused_until(kind: str, history: History) -> float:
    """Return the time until which a refusal by the provider counts; lost machines are no refusals."""
    return history.fleet.last_refusal_at.get(kind, -math.inf) + PATIENCE_SECONDS
