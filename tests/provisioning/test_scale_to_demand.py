"""Tests of the policy that scales a cluster to the demand of its trials."""

from __future__ import annotations

import pytest

from tests.support.tables import Table
from thriftune.loop.conductor import Conductor
from thriftune.planning.cloud_profile import CloudProfile
from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.scale_to_demand import ScaleToDemand
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulated_engine import Curve, SimulatedEngine, VirtualClock
from thriftune.replay.simulation_loop import drive
from thriftune.search.random import Random
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state import events as ev
from thriftune.state.history import History
from thriftune.state.spec import Spec

DEAR, CHEAP = CloudProfile(2, 2.0, name="dear"), CloudProfile(2, 1.0, name="cheap", max_machines=2)


class Log(History):
    """A history that records all decisions."""

    decided: list[ev.Event]

    def apply(self, event: ev.Event) -> bool:
        news = super().apply(event)
        if news and isinstance(event, (ev.Rent, ev.Release, ev.Move, ev.Place)):
            self.decided.append(event)
        return news


def driven(
    trials: int,
    most: int | None,
    *,
    gang: int = 1,
    lengths: tuple[int, ...] = (4,),
    placed: int = 0,
    cheap: int = 9,
) -> Log:
    """Run a study whose trials have these numbers of steps, repeated in order; return its history."""
    spec = Spec(
        "a", Space({"x": Float(0.0, 1.0)}), (Objective("loss", False),), 0, trials=trials, workers=most or 1
    )
    history = Log(spec.space, spec.objectives, 0)
    history.decided = []
    clock = VirtualClock()
    order: dict[float, int] = {}

    def curve(config: ev.Config) -> Curve:
        steps = lengths[order.setdefault(config["x"], len(order)) % len(lengths)]
        return Curve(range(1, steps + 1), [{"loss": 1.0}] * steps, [10.0] * steps)

    conductor = Conductor(spec, history, Random(), ScaleToDemand([DEAR, CHEAP], gang, most))
    machine_types = [
        MachineType("dear", 2.0, 2, init=5.0),
        MachineType("cheap", 1.0, 2, init=5.0, max_machines=cheap),
    ]
    present = [ev.MachineReady(0.0, f"node-{n}", "own", 2, 0.0) for n in range(placed)]
    drive(conductor, SimulatedEngine(curve, clock), clock, present, SimulatedCloud(machine_types))
    history.validate()
    assert history.finish_reason == f"all {trials} trials done"
    assert not history.fleet.present.keys() & history.fleet.rented_ids, "all that was rented went back"
    return history


def offers(history: Log) -> list[str]:
    return [each.offer for each in history.decided if isinstance(each, ev.Rent)]


def test_the_cheapest_type_is_rented_first_and_no_more_than_wanted() -> None:
    assert offers(driven(8, 4)) == ["cheap", "cheap"]
    assert offers(driven(12, 6)) == ["cheap", "cheap", "dear"]
    assert offers(driven(3, 8)) == ["cheap", "cheap"], "there are only three trials"


def test_present_machines_are_used_first() -> None:
    assert offers(driven(8, 4, placed=2)) == []
    assert offers(driven(8, 4, placed=1)) == ["cheap"]


def test_without_at_a_time_present_machines_or_one_are_used() -> None:
    assert offers(driven(6, None, placed=1)) == []
    assert offers(driven(6, None)) == ["cheap"]


def test_after_a_refusal_the_next_type_is_rented() -> None:
    assert offers(driven(8, 4, cheap=1)) == ["cheap", "cheap", "dear"]


def test_trials_are_packed_and_empty_machines_released() -> None:
    history = driven(4, 4, lengths=(40, 2, 40, 2))
    moves = [each for each in history.decided if isinstance(each, ev.Move)]
    assert len(moves) == 1
    assert moves[0].why == "its machine is to be released"
    ends = sorted(machine.ended_at or 0.0 for machine in history.fleet.past)
    assert ends[0] < ends[1] / 2, "the one that was emptied went early"
    assert all(trial.reports[-1].step in (2, 40) for trial in history.trials)


def test_an_empty_machine_with_a_notice_is_released() -> None:
    study = Table(slots=0, trials=2, workers=1, provisioner=ScaleToDemand([CHEAP], at_a_time=1))
    assert study(ev.DriverStarted(study.now, 1, "host"))[-1] == "rent cheap-1"
    rented = ev.MachineRented(study.now, "cheap-1", "cheap", 1.0)
    assert study(rented, ev.MachineReady(study.now, "cheap-1", "cheap", 2, 1.0)) == ["place 0/1 on cheap-1"]
    study.later(600.0)
    result = study(ev.MachineNotice(study.now, "cheap-1", study.now + 30.0))
    assert result == ["move 0/1", "rent cheap-2"]
    assert study.end(0, cut=True) == ["release cheap-1"]


@pytest.mark.parametrize("gang", [2, 4])
def test_gangs_have_all_their_workers_or_wait(gang: int) -> None:
    history = driven(4, 2, gang=gang)
    for place in history.decided:
        if isinstance(place, ev.Place):
            assert sum((place.workers or {place.machine: 1}).values()) == gang
    assert sum(each == "cheap" for each in offers(history)) == min(2, gang)
