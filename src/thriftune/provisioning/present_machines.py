"""A policy that rents nothing and fills the machines that are present."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from thriftune.planning.placement import choose_slots
from thriftune.provisioning.protocol import Provisioner
from thriftune.state.events import Decision, Event, Move, ShareChanged
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord


class PresentMachines(Provisioner):
    """A policy that fills the present machines, the fullest first.

    Other machines become empty and can be released. If other studies share the machines, the policy uses no more
    than this study's share.

    - `gang`: workers of each trial, on as few machines as possible.
    - `at_a_time`: the most trials that run in parallel; None means as many as fit.
    """

    backs_off: bool = True
    gang = 1
    at_a_time: int | None = None

    def __init__(self, gang: int = 1, at_a_time: int | None = None) -> None:
        self.gang = gang
        self.at_a_time = at_a_time

    def react(self, event: Event, history: History) -> Iterable[Decision]:
        """Yield moves of trials that exceed this study's share when it changes."""
        share = history.machine_share
        if type(event) is not ShareChanged or share is None or share.workers is None:
            return
        staying = [i for i in history.running if history.trials[i].end_request is None]
        # The trials that started last have the least work to lose.
        for trial_id in staying[: max(1, share.workers // self.gang) - 1 : -1]:
            trial = history.trials[trial_id]
            yield Move(event.at, trial_id, trial.attempts, f"the machines are shared: {share.why}")

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:  # noqa: ARG002
        limit, share = self.at_a_time, history.machine_share
        if share is not None and share.workers is not None:
            fair_trials = max(1, share.workers // self.gang)
            limit = fair_trials if limit is None else min(limit, fair_trials)
        if limit is not None and len(history.running) >= limit:
            return None
        free = {machine.id: slots for machine in history.machines.values() if (slots := machine.free_slots) > 0}
        if self.gang == 1:
            return {min(free, key=free.__getitem__): 1} if free else None
        return choose_slots(self.gang, free)
