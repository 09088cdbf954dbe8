"""Tests of the policy that fills the present machines, with gangs and within a fair share."""

from __future__ import annotations

import pytest

from tests.support.tables import Table
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.state import events as ev
from thriftune.state.trial_record import State


def started(provisioner: PresentMachines, *slots: int, trials: int = 9) -> Table:
    """Return a started study with machines a, b, ... of these slots."""
    table = Table(slots=0, trials=trials, provisioner=provisioner)
    machines = zip("abcdef", slots, strict=False)
    ready = [ev.MachineReady(table.now, name, "node", count, 1.0) for name, count in machines]
    table(ev.DriverStarted(table.now, 1, "host"), *ready)
    return table


def share(table: Table, workers: int | None, why: str = "1 other study: b") -> list[str]:
    return table(ev.ShareChanged(table.now, workers, why))


def running(table: Table) -> list[int]:
    return list(table.history.running)


def test_the_fullest_machine_is_filled_first() -> None:
    table = started(PresentMachines(), 3, 2, trials=4)
    assert [trial.workers for trial in table.history.trials] == [{"b": 1}, {"b": 1}, {"a": 1}, {"a": 1}]


@pytest.mark.parametrize(
    ("gang", "slots", "placed"),
    [
        (2, (2, 2), [{"a": 2}, {"b": 2}]),
        (3, (2, 2), [{"a": 2, "b": 1}]),
        (2, (1, 3), [{"b": 2}, {"a": 1, "b": 1}]),
        (4, (1, 1), []),
    ],
)
def test_a_gang_uses_the_fewest_machines_or_waits(
    gang: int, slots: tuple[int, ...], placed: list[dict[str, int]]
) -> None:
    table = started(PresentMachines(gang), *slots)
    found = [dict(trial.workers) for trial in table.history.trials if trial.state is State.RUNNING]
    assert found == placed or [sorted(each.items()) for each in found] == [sorted(each.items()) for each in placed]


def test_at_a_time_limits_running_trials() -> None:
    assert len(running(started(PresentMachines(at_a_time=3), 8))) == 3
    assert len(running(started(PresentMachines(2, at_a_time=1), 8))) == 1


def test_a_study_uses_its_share_and_grows_again() -> None:
    table = started(PresentMachines(), 4)
    assert running(table) == [0, 1, 2, 3]
    assert share(table, 2) == ["move 3/1", "move 2/1"], "the last that came have the least to lose"
    for trial in (2, 3):
        table.report(trial, 1, 0.5, saved=True)
        table.end(trial, cut=True)
    assert running(table) == [0, 1]
    assert [table.trial(trial).state for trial in (2, 3)] == [State.WAITING] * 2
    assert [table.trial(trial).failures for trial in (2, 3)] == [0, 0]
    assert share(table, None, "no other study wants any") == ["place 2/2 on a from 1", "place 3/2 on a from 1"]


def test_a_trial_that_is_ending_does_not_count() -> None:
    table = started(PresentMachines(), 4)
    assert share(table, 3) == ["move 3/1"]
    assert share(table, 2) == ["move 2/1"]
    assert share(table, 1) == ["move 1/1"]


@pytest.mark.parametrize(("workers", "stay"), [(6, 3), (5, 2), (3, 1), (1, 1), (0, 1)])
def test_gangs_that_fit_the_share_stay_and_at_least_one(workers: int, stay: int) -> None:
    table = started(PresentMachines(2), 6)
    assert len(running(table)) == 3
    assert len(share(table, workers)) == 3 - stay


def test_slots_used_by_other_studies_are_not_free() -> None:
    """A trial that was placed on a shared node without free slots is placed elsewhere."""
    table = started(PresentMachines(), 1, 1, trials=3)
    assert running(table) == [0, 1]
    study = table.history.trials[0].machine
    assert study is not None
    table(
        ev.MachineShared(table.now, study, 1), ev.Ended(table.now, 0, 1, 0.0, cut=True)
    )  # the slot was used by another study
    table.history.validate()
    assert table.history.trials[0].state is State.WAITING
    assert table.history.trials[0].losses == table.history.trials[0].failures == 0
    assert table.history.fleet.free_slots == 0
    table(ev.MachineShared(table.now, study, 0))
    assert table.history.trials[0].machine == study
    table.history.validate()
