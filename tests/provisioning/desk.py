"""A study on rented machines, event by event: the test is the driver, the engine and the cloud."""

from __future__ import annotations

from typing import Any

from tests.support.tables import Table
from thriftune.provisioning.protocol import Provisioner
from thriftune.provisioning.renting_policy import RentingPolicy
from thriftune.state import events as ev
from thriftune.state.trial_record import TrialRecord

HOUR = 3600.0


class Desk(Table):
    """Trials of 100 steps, unless told otherwise. Machines are named by their kind and number, from 1."""

    def __init__(self, policy: Provisioner, **settings: Any) -> None:
        given = {"trials": 4, "max_steps": 100, **settings}
        super().__init__(slots=0, provisioner=policy, **given)
        self.policy = policy
        self.begun_at = self.now

    def begins(self) -> list[str]:
        return _without_creates(self(ev.DriverStarted(self.now, 1, "host")))

    def comes(self, machine: str, slots: int = 1, price: float = 1.0) -> list[str]:
        """It is handed over and ready."""
        offer = machine.rsplit("-", 1)[0]
        rented = ev.MachineRented(self.now, machine, offer, price)
        return _without_creates(self(rented, ev.MachineReady(self.now, machine, offer, slots, price)))

    def refuses(self, *machines: str) -> list[str]:
        refusals = [ev.MachineRefused(self.now, each, each.rsplit("-", 1)[0], "none") for each in machines]
        return _without_creates(self(*refusals))

    def goes(self, machine: str) -> list[str]:
        return _without_creates(self(ev.MachineReleased(self.now, machine)))

    def is_lost(self, machine: str) -> list[str]:
        return _without_creates(self(ev.MachineLost(self.now, machine, "taken away")))

    def works(self, trial: int, first: int, last: int, seconds: float, *, saved: bool = True) -> list[str]:
        """These steps, so many seconds each; what is decided meanwhile."""
        told: list[str] = []
        for step in range(first, last + 1):
            told += self.passes(seconds)
            told += self.report(trial, step, loss=0.5, saved=saved)
        return told

    def passes(self, seconds: float) -> list[str]:
        """So much time, with a turn whenever the policy wants one."""
        until, told = self.now + seconds, []
        while (at := self.conductor.wake_at(self.now)) is not None and at <= until:
            self.now = at
            told += self()
        self.now = until
        return told

    def wish(self, trial: int = 0) -> str | None:
        """Which kind it would rent for this trial now."""
        assert isinstance(self.policy, RentingPolicy)
        wish = self.policy.choose(self.trial(trial), self.history, self.now)
        return None if wish is None else wish.kind

    def one(self) -> TrialRecord:
        """A trial that waits."""
        if not self.history.trials:
            self(ev.DriverStarted(self.now, 1, "host"))
        return self.trial(0)


def _without_creates(told: list[str]) -> list[str]:
    return [each for each in told if not each.startswith("create")]
