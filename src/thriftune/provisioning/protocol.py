"""The provisioner protocol: policies that rent machines and place trials on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from thriftune.state.events import Decision, Event
from thriftune.state.history import History
from thriftune.state.trial_record import TrialRecord


class Provisioner(Protocol):
    """A policy over machines, called by the conductor.

    Engines and clouds carry out its decisions. Decisions follow from the history, so that a resumed study
    continues in the same way. A class that inherits from this one rents nothing and lets trials save as often as
    they like, until it overrides these methods.
    """

    backs_off: bool = False
    """Whether a failed trial waits before its retry. Rented machines would be paid for during the wait."""

    def react(self, event: Event, history: History) -> Iterable[Decision]:  # noqa: ARG002
        """Return the decisions that follow from this event: Rent, Release or Move.

        The history already contains the event. Each decision is added to the history before the next one is
        requested. A Tick event comes at the end of every cycle of the conductor, when all trials that can be
        placed are placed, and at the time that `wake_at` returns. When a study stops, its rented machines are
        released without a decision of the policy.
        """
        return ()

    def workers_for(self, trial: TrialRecord | None, history: History) -> Mapping[str, int] | None:
        """Return the machines that the trial gets now, with its workers on each.

        Returns None if the trial has to wait. The first machine runs the worker of rank 0. `trial` waits, or is
        paused and could be promoted; None stands for a new trial that could be created. The method is called only
        while a machine has a free slot.
        """
        ...

    def trials_wanted(self, history: History) -> int:  # noqa: ARG002
        """Return how many trials should run or wait for a machine.

        0 means that no machine is rented for waiting trials.
        """
        return 0

    def save_every(self, trial: TrialRecord, machine: str, history: History) -> float | None:  # noqa: ARG002
        """Return the shortest useful time between saves on this machine, in seconds.

        0 means that the trial may always save, None that it need not save before its end.
        """
        return 0.0

    def wake_at(self, history: History, now: float) -> float | None:  # noqa: ARG002
        """Return when the policy needs a Tick event even if nothing happens.

        None means never.
        """
        return None
