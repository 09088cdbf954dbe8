"""Decide what happens after a preemption notice: trials learn how much time is left, and move away.

The notice reaches the training code as Trial.time_left and Trial.should_save (training/trial.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from thriftune.state import events as ev
from thriftune.state.history import History


class NoticedAttempt(NamedTuple):
    """An attempt on a machine that will be preempted, and the time that it has left."""

    trial: int
    attempt: int
    seconds_left: float


def noticed_attempts(notice: ev.MachineNotice, history: History, now: float) -> Iterator[NoticedAttempt]:
    """Yield the attempts that run on the machine of a notice."""
    machine = history.machines.get(notice.machine)
    for trial in sorted(machine.running) if machine is not None else ():
        yield NoticedAttempt(trial, history.trials[trial].attempts, max(0.0, notice.deadline - now))


def moves_away(notice: ev.MachineNotice, history: History, now: float) -> Iterator[ev.Move]:
    """Yield a decision for each trial to move away from the machine. It saves its state first."""
    for each in noticed_attempts(notice, history, now):
        yield ev.Move(now, each.trial, each.attempt, "the machine will be preempted")
