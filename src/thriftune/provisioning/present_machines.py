"""A policy that rents nothing and fills the machines that are present."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from thriftune.planning.placement import choose_slots
from thriftune.provisioning.protocol import Provisioner
from thriftune.state.events import Decision, Event, Move, ShareChanged
from thriftune.state.fleet import Machine
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord


class PresentMachines(Provisioner):
    """Rents nothing: fills the machines that are there, fullest first, so that others can be let go.

    - `gang`: workers of each trial, on as few machines as can be.
    - `at_a_time`: trials; None: as many as find room.
    - `narrows`: fewer on a machine, where that is known to get more done.

    Where others want the machines, too, it keeps to its share.
    """

    backs_off: bool = True
    gang = 1
    at_a_time: int | None = None
    narrows = False

    def __init__(self, gang: int = 1, at_a_time: int | None = None, *, narrows: bool = False) -> None:
        self.gang = gang
        self.at_a_time = at_a_time
        self.narrows = narrows

    def react(self, event: Event, history: History) -> Iterable[Decision]:
        share = history.machine_share
        if type(event) is not ShareChanged or share is None or share.workers is None:
            return
        staying = [i for i in history.running if history.trials[i].end_request is None]  # others leave already
        for trial_id in staying[: max(1, share.workers // self.gang) - 1 : -1]:  # the last have the least to lose
            trial = history.trials[trial_id]
            yield Move(event.at, trial_id, trial.attempts, f"others want the machines, too: {share.why}")

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:  # noqa: ARG002
        most, share = self.at_a_time, history.machine_share
        if share is not None and share.workers is not None:
            fair = max(1, share.workers // self.gang)
            most = fair if most is None else min(most, fair)
        if most is not None and len(history.running) >= most:
            return None
        free = {machine.id: slots for machine in history.machines.values() if (slots := machine.free_slots) > 0}
        if self.narrows and history.trial_limits:
            free = {name: slots for name, slots in free.items() if not _is_narrow(history.machines[name], history)}
        if self.gang == 1:
            return {min(free, key=free.__getitem__): 1} if free else None
        return choose_slots(self.gang, free)


def _is_narrow(machine: Machine, history: History) -> bool:
    """It has room, and yet as many trials as are good for it."""
    limit = history.trial_limits.get(machine.slots)
    return limit is not None and len(machine.running) >= limit.at_a_time
