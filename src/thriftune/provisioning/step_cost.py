"""SpotTune's policy (Algorithm 1): for each trial the spot machine with the fewest expected dollars a step, for an
hour at a time.

The maximum price is the price and a random bit; the probability p of passing it within the hour is the market
model's; a step is expected to cost M (1 - p) price (Eq. 2), with M the seconds a step as seen so far and the mean
price of the last hour. What is taken away within the hour was free, so that risk is sought; after an hour a trial
moves on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from thriftune.errors import SettingError
from thriftune.fleet import Machine
from thriftune.history import History
from thriftune.market.revocation.records import HIGHEST_DELTA, LOWEST_DELTA
from thriftune.market.selection import spottune_eq2
from thriftune.planning.kinds import Kind
from thriftune.provisioning.lives import HOUR
from thriftune.provisioning.renting import Renting, Wish
from thriftune.provisioning.terms import Terms
from thriftune.trial import TrialRecord


class StepCost(Renting):
    def __init__(self, kinds: Sequence[Kind], terms: Terms) -> None:
        super().__init__(kinds, terms)
        self._pool = [kind for kind in kinds if not kind.lasts]
        if not self._pool:
            raise SettingError("step_cost: no kind of machine may be taken away; give a spot machine")

    def choose(self, trial: TrialRecord, history: History, now: float) -> Wish | None:
        rng = np.random.default_rng((self.terms.seed, trial.id, trial.attempts, len(history.fleet.renting)))
        deltas = rng.uniform(LOWEST_DELTA, HIGHEST_DELTA, len(self._pool))
        best, least = None, math.inf
        for kind, delta in zip(self._pool, deltas.tolist(), strict=True):
            if not self.to_be_had(kind, history, now):
                continue
            max_price = kind.price_at(now) + delta if kind.revocation is not None else None
            step = self.paces.seconds(trial, kind.name, history)
            cost = spottune_eq2(step, kind.mean_price(now), kind.loss_probability(now, max_price)) / kind.slots
            if cost < least:
                best, least = Wish(kind.name, max_price), cost
        return best

    def takes(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        return machine.seconds(now) < HOUR

    def leaves(self, trial: TrialRecord, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        return machine.seconds(now) >= HOUR

    def look_at(self, history: History, now: float) -> float:  # noqa: ARG002
        """When the next machine is an hour old."""
        hours = (
            machine.since + HOUR
            for machine in history.machines.values()
            if machine.running and any(history.trials[i].asked is None for i in machine.running)
        )
        return min(hours, default=math.inf)
