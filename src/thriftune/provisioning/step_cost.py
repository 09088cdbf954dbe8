"""SpotTune's policy (Algorithm 1).

It rents the spot machine with the lowest expected cost per step, for an hour at a time. The maximum price is the
current price plus a random delta. The market model gives the probability p that the price exceeds this maximum
within the hour. The expected cost per step is M (1 - p) price (Eq. 2), where M is the measured time per step and
price the mean of the last hour. A machine preempted in its first hour is free, so the policy prefers machines that
are likely to be preempted. After an hour on a machine, a trial moves to another one. A type whose machine was
preempted, however soon, may be requested again in the next round of the algorithm's loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from thriftune.market.revocation.spottune_inputs import HIGHEST_DELTA, LOWEST_DELTA
from thriftune.market.selection import spottune_eq2
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.hazard_estimator import HOUR
from thriftune.provisioning.renting_policy import RETRY_SECONDS, MachineRequest, RentingPolicy, spot_types
from thriftune.provisioning.workload import StudyWorkload
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord

ROUND_SECONDS = 10.0
"""The loop of Algorithm 1 sleeps this long between rounds; a type is not requested twice in a round."""


class StepCost(RentingPolicy):
    """A policy that rents by SpotTune's Algorithm 1."""

    def __init__(self, machine_types: Sequence[MachineType], workload: StudyWorkload) -> None:
        super().__init__(machine_types, workload)
        self._spot = spot_types("step_cost", machine_types)

    def choose_machine(self, trial: TrialRecord, history: History, now: float) -> MachineRequest | None:
        rng = np.random.default_rng((self.workload.seed, trial.id, trial.attempts, len(history.fleet.renting)))
        deltas = rng.uniform(LOWEST_DELTA, HIGHEST_DELTA, len(self._spot))
        best, lowest = None, math.inf
        for machine_type, delta in zip(self._spot, deltas.tolist(), strict=True):
            if now < _refused_until(machine_type.name, history):
                continue
            max_price = machine_type.price_at(now) + delta if machine_type.revocation is not None else None
            seconds = self.step_times.seconds(trial, machine_type.name, history)
            probability = machine_type.loss_probability(now, max_price)
            cost = spottune_eq2(seconds, machine_type.mean_price(now), probability) / machine_type.slots
            if cost < lowest:
                best, lowest = MachineRequest(machine_type.name, max_price), cost
        return best

    def next_request_at(self, type_name: str, history: History) -> float:
        """Return the time from which this type may be requested again.

        In Algorithm 1, a type whose machine was preempted within minutes may be requested in the next round.
        """
        unavailable_at = history.fleet.last_unavailable_at.get(type_name, -math.inf)
        return max(unavailable_at + ROUND_SECONDS, _refused_until(type_name, history))

    def accepts(self, trial: TrialRecord | None, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        return machine.seconds(now) < HOUR

    def should_leave(self, trial: TrialRecord, machine: Machine, history: History, now: float) -> bool:  # noqa: ARG002
        return machine.seconds(now) >= HOUR

    def next_check_at(self, history: History, now: float) -> float:  # noqa: ARG002
        """Return when the next machine in use is an hour old."""
        hour_ends = (
            machine.started_at + HOUR
            for machine in history.machines.values()
            if machine.running and any(history.trials[i].end_request is None for i in machine.running)
        )
        return min(hour_ends, default=math.inf)


def _refused_until(type_name: str, history: History) -> float:
    """Return the time until which a refusal by the provider counts.

    Preempted machines do not count as refusals.
    """
    return history.fleet.last_refusal_at.get(type_name, -math.inf) + RETRY_SECONDS
