"""The engine on a virtual clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engines.conformance import HERE
from thriftune.engines.protocol import Engine
from thriftune.replay.simulated_engine import Curve, SimulatedEngine, VirtualClock
from thriftune.state.events import Config, Ended, Event, Failed, Killed, Reported
from thriftune.training.run import Run


def curves(config: Config) -> Curve:
    count = config["steps"]
    return Curve(
        range(1, count + 1),
        [{"loss": 1.0 / k} for k in range(1, count + 1)],
        [config["pace"]] * count,
        config["error"],
    )


def run(
    trial: int, steps: int = 3, *, pace: float = 1.0, attempt: int = 1, resume: int = 0, **more: object
) -> Run:
    config = {"steps": steps, "pace": pace, "error": more.get("error")}
    return Run(trial, attempt, config, resume, ("loss",), more.get("max_steps"), 7, "", 2)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def engine(clock: VirtualClock) -> SimulatedEngine:
    return SimulatedEngine(curves, clock, restart_seconds=0.5)


def short(events: list[Event]) -> list[tuple[object, ...]]:
    told = []
    for event in events:
        what: tuple[object, ...] = (type(event).__name__, event.at)
        told.append((*what, event.trial, event.step) if isinstance(event, Reported) else what)
    return told


def all_of(engine: Engine) -> list[tuple[object, ...]]:
    told = []
    while events := engine.wait(None):
        told += short(events)
    return told


def test_it_tells_what_happens_in_the_order_of_time(engine: SimulatedEngine) -> None:
    engine.start(run(0, 2, pace=2.0), HERE)
    engine.start(run(1, 3, pace=1.5), HERE)
    assert all_of(engine) == [
        ("Reported", 1.5, 1, 1),
        ("Reported", 2.0, 0, 1),
        ("Reported", 3.0, 1, 2),
        ("Reported", 4.0, 0, 2),
        ("Ended", 4.0),
        ("Reported", 4.5, 1, 3),
        ("Ended", 4.5),
    ]


def test_what_is_at_the_same_time_comes_in_the_order_of_its_start(engine: SimulatedEngine) -> None:
    for trial in (3, 1, 2):
        engine.start(run(trial, 1), HERE)
    assert [told[2] for told in all_of(engine) if told[0] == "Reported"] == [3, 1, 2]


def test_waiting_takes_no_longer_than_it_may(engine: SimulatedEngine, clock: VirtualClock) -> None:
    engine.start(run(0, 1), HERE)
    assert engine.wait(0.25) == []
    assert clock.now() == 0.25
    assert short(engine.wait(10.0)) == [("Reported", 1.0, 0, 1)]
    assert clock.now() == 1.0


def test_told_to_end_it_ends_after_the_step_it_has_told_of(engine: SimulatedEngine) -> None:
    engine.start(run(0, 9), HERE)
    engine.wait(None)
    engine.request_end(0, 1)
    engine.request_end(0, 1)
    engine.request_end(5, 1)
    (ended,) = engine.wait(None)
    assert isinstance(ended, Ended)
    assert (ended.at, ended.cut, ended.seconds) == (1.0, True, 1.0)
    assert engine.wait(None) == []


def test_killed_it_is_gone(engine: SimulatedEngine) -> None:
    engine.start(run(0, 9), HERE)
    engine.wait(0.5)
    engine.kill(0, 1)
    engine.kill(0, 1)
    (killed,) = engine.wait(None)
    assert isinstance(killed, Killed)
    assert killed.at == 0.5
    assert engine.wait(None) == []


def test_taken_up_again_it_goes_on_after_its_checkpoint(engine: SimulatedEngine) -> None:
    engine.start(run(0, 5, attempt=2, resume=3), HERE)
    assert all_of(engine) == [("Reported", 1.5, 0, 4), ("Reported", 2.5, 0, 5), ("Ended", 2.5)]


def test_it_ends_with_the_last_step_there_is(engine: SimulatedEngine) -> None:
    engine.start(run(0, 5, max_steps=2), HERE)
    assert all_of(engine)[-1] == ("Ended", 2.0)


def test_a_curve_may_end_badly(engine: SimulatedEngine) -> None:
    engine.start(run(0, 1, error="loss is nan at step 2"), HERE)
    engine.wait(None)
    (failed,) = engine.wait(None)
    assert isinstance(failed, Failed)
    assert failed.error == "loss is nan at step 2"


def test_cut_short_of_it_a_bad_end_does_not_come(engine: SimulatedEngine) -> None:
    engine.start(run(0, 3, error="later", max_steps=2), HERE)
    assert all_of(engine)[-1] == ("Ended", 2.0)


def test_what_it_takes_to_start_to_save_and_with_more_workers(clock: VirtualClock) -> None:
    engine = SimulatedEngine(
        curves, clock, 0.5, start_seconds=2.0, save_seconds=1.0, pace=lambda run, _: 1.0 / run.workers
    )
    only_at_the_end = replace(run(0, 2, pace=4.0), workers=4, save_every=None)
    engine.start(only_at_the_end, HERE)
    assert all_of(engine) == [("Reported", 3.0, 0, 1), ("Reported", 5.0, 0, 2), ("Ended", 5.0)]
    assert engine.worker_seconds == 4 * 5.0
    engine.start(replace(run(1, 4, pace=4.0, attempt=2, resume=2), workers=2, save_every=None), HERE)
    assert short(engine.wait(None)) == [("Reported", 7.5, 1, 3)]
    engine.request_end(1, 2)
    assert all_of(engine) == [("Reported", 8.5, 1, 3), ("Ended", 8.5)]  # now with its state
    assert engine.worker_seconds == 4 * 5.0 + 2 * 3.5


def saved(engine: SimulatedEngine) -> list[tuple[float, int, bool]]:
    found = []
    while events := engine.wait(None):
        found += [(event.at, event.step, event.saved) for event in events if isinstance(event, Reported)]
    return found


def test_it_saves_as_often_as_it_is_to(clock: VirtualClock) -> None:
    engine = SimulatedEngine(curves, clock, save_seconds=0.5)
    engine.start(replace(run(0, 6), save_every=2.0), HERE)
    # Steps of a second; from one save on, two seconds pass until the next.
    assert saved(engine) == [
        (1.0, 1, False), (2.5, 2, True), (3.5, 3, False), (5.0, 4, True), (6.0, 5, False), (7.5, 6, True),
    ]  # fmt: skip


def test_told_to_end_within_a_step_it_does_that_one_and_saves(clock: VirtualClock) -> None:
    engine = SimulatedEngine(curves, clock, save_seconds=0.5)
    engine.start(replace(run(0, 9), save_every=None), HERE)
    engine.wait(1.4)
    engine.wait(0.2)
    engine.request_end(0, 1)
    engine.request_end(0, 1)
    assert all_of(engine) == [("Reported", 2.5, 0, 2), ("Ended", 2.5)]


def test_told_to_end_within_a_step_that_will_be_saved_anyhow(clock: VirtualClock) -> None:
    engine = SimulatedEngine(curves, clock, save_seconds=0.5)
    engine.start(run(0, 9), HERE)
    engine.wait(0.4)
    engine.request_end(0, 1)
    assert saved(engine) == [(1.5, 1, True)]


def test_a_machine_that_is_lost_takes_what_runs_there(clock: VirtualClock) -> None:
    engine = SimulatedEngine(curves, clock)
    engine.start(run(0, 3), {"a": 1})
    engine.start(run(1, 2), {"b": 1})
    engine.wait(0.5)
    engine.machine_lost("a")
    engine.machine_lost("never there")
    assert all_of(engine) == [("Reported", 1.0, 1, 1), ("Reported", 2.0, 1, 2), ("Ended", 2.0)]
    assert engine.worker_seconds == 0.5 + 2.0
    assert engine.status() == []


def test_machines_may_be_faster_than_others(clock: VirtualClock) -> None:
    engine = SimulatedEngine(curves, clock, pace=lambda _, machine: {"fast": 0.5, "slow": 2.0}[machine])
    engine.start(run(0, 2), {"fast": 1})
    engine.start(run(1, 1), {"slow": 1})
    assert [each[1] for each in all_of(engine)] == [0.5, 1.0, 1.0, 2.0, 2.0]
