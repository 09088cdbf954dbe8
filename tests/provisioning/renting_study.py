"""A study on rented machines, driven event by event by a test instead of a driver, an engine and a cloud."""

from __future__ import annotations

from typing import Any

from tests.support.tables import Table
from thriftune.provisioning.protocol import Provisioner
from thriftune.provisioning.renting_policy import RentingPolicy
from thriftune.state import events as ev
from thriftune.state.trial_record import TrialRecord

HOUR = 3600.0


class RentingStudy(Table):
    """A study of trials of 100 steps by default; machines are named by their type and number, from 1.

    Every method returns the decisions that its events lead to, as text.
    """

    def __init__(self, policy: Provisioner, **settings: Any) -> None:
        given = {"trials": 4, "max_steps": 100, **settings}
        super().__init__(slots=0, provisioner=policy, **given)
        self.policy = policy
        self.begun_at = self.now

    def begin(self) -> list[str]:
        return _without_creates(self(ev.DriverStarted(self.now, 1, "host")))

    def machine_arrives(self, machine: str, slots: int = 1, price: float = 1.0) -> list[str]:
        """Let a machine be handed over and become ready."""
        offer = machine.rsplit("-", 1)[0]
        rented = ev.MachineRented(self.now, machine, offer, price)
        return _without_creates(self(rented, ev.MachineReady(self.now, machine, offer, slots, price)))

    def refuse_machines(self, *machines: str) -> list[str]:
        refusals = [ev.MachineRefused(self.now, each, each.rsplit("-", 1)[0], "none") for each in machines]
        return _without_creates(self(*refusals))

    def machine_released(self, machine: str) -> list[str]:
        return _without_creates(self(ev.MachineReleased(self.now, machine)))

    def machine_preempted(self, machine: str) -> list[str]:
        return _without_creates(self(ev.MachineLost(self.now, machine, "taken away")))

    def train_steps(self, trial: int, first: int, last: int, seconds: float, *, saved: bool = True) -> list[str]:
        """Let the trial report these steps, each after `seconds` seconds."""
        result: list[str] = []
        for step in range(first, last + 1):
            result += self.pass_time(seconds)
            result += self.report(trial, step, loss=0.5, saved=saved)
        return result

    def pass_time(self, seconds: float) -> list[str]:
        """Let time pass, with a Tick whenever the policy wants one."""
        until, result = self.now + seconds, []
        while (at := self.conductor.wake_at(self.now)) is not None and at <= until:
            self.now = at
            result += self()
        self.now = until
        return result

    def requested_type(self, trial: int = 0) -> str | None:
        """Return the type that the policy would rent for this trial now."""
        assert isinstance(self.policy, RentingPolicy)
        request = self.policy.choose_machine(self.trial(trial), self.history, self.now)
        return None if request is None else request.machine_type

    def waiting_trial(self) -> TrialRecord:
        """Return a waiting trial."""
        if not self.history.trials:
            self(ev.DriverStarted(self.now, 1, "host"))
        return self.trial(0)


def _without_creates(result: list[str]) -> list[str]:
    return [each for each in result if not each.startswith("create")]
