"""Tests of the simulated engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engines.conformance import ON_THIS_MACHINE
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


def brief(events: list[Event]) -> list[tuple[object, ...]]:
    events_seen = []
    for event in events:
        entry: tuple[object, ...] = (type(event).__name__, event.at)
        events_seen.append((*entry, event.trial, event.step) if isinstance(event, Reported) else entry)
    return events_seen


def all_of(engine: Engine) -> list[tuple[object, ...]]:
    events_seen = []
    while events := engine.wait(None):
        events_seen += brief(events)
    return events_seen


def test_events_come_in_the_order_of_time(engine: SimulatedEngine) -> None:
    engine.start(run(0, 2, pace=2.0), ON_THIS_MACHINE)
    engine.start(run(1, 3, pace=1.5), ON_THIS_MACHINE)
    assert all_of(engine) == [
        ("Reported", 1.5, 1, 1),
        ("Reported", 2.0, 0, 1),
        ("Reported", 3.0, 1, 2),
        ("Reported", 4.0, 0, 2),
        ("Ended", 4.0),
        ("Reported", 4.5, 1, 3),
        ("Ended", 4.5),
    ]


def test_simultaneous_events_come_in_the_order_of_start(engine: SimulatedEngine) -> None:
    for trial in (3, 1, 2):
        engine.start(run(trial, 1), ON_THIS_MACHINE)
    assert [event[2] for event in all_of(engine) if event[0] == "Reported"] == [3, 1, 2]


def test_wait_ends_at_its_timeout(engine: SimulatedEngine, clock: VirtualClock) -> None:
    engine.start(run(0, 1), ON_THIS_MACHINE)
    assert engine.wait(0.25) == []
    assert clock.now() == 0.25
    assert brief(engine.wait(10.0)) == [("Reported", 1.0, 0, 1)]
    assert clock.now() == 1.0


def test_end_requested_at_a_report_ends_at_once(engine: SimulatedEngine) -> None:
    engine.start(run(0, 9), ON_THIS_MACHINE)
    engine.wait(None)
    engine.request_end(0, 1)
    engine.request_end(0, 1)
    engine.request_end(5, 1)
    (ended,) = engine.wait(None)
    assert isinstance(ended, Ended)
    assert (ended.at, ended.cut, ended.seconds) == (1.0, True, 1.0)
    assert engine.wait(None) == []


def test_killed_trial_reports_no_more(engine: SimulatedEngine) -> None:
    engine.start(run(0, 9), ON_THIS_MACHINE)
    engine.wait(0.5)
    engine.kill(0, 1)
    engine.kill(0, 1)
    (killed,) = engine.wait(None)
    assert isinstance(killed, Killed)
    assert killed.at == 0.5
    assert engine.wait(None) == []


def test_resumed_trial_continues_after_its_checkpoint(engine: SimulatedEngine) -> None:
    engine.start(run(0, 5, attempt=2, resume=3), ON_THIS_MACHINE)
    assert all_of(engine) == [("Reported", 1.5, 0, 4), ("Reported", 2.5, 0, 5), ("Ended", 2.5)]


def test_trial_ends_at_max_steps(engine: SimulatedEngine) -> None:
    engine.start(run(0, 5, max_steps=2), ON_THIS_MACHINE)
    assert all_of(engine)[-1] == ("Ended", 2.0)


def test_curve_with_an_error_fails(engine: SimulatedEngine) -> None:
    engine.start(run(0, 1, error="loss is nan at step 2"), ON_THIS_MACHINE)
    engine.wait(None)
    (failed,) = engine.wait(None)
    assert isinstance(failed, Failed)
    assert failed.error == "loss is nan at step 2"


def test_trial_that_ends_before_the_error_does_not_fail(engine: SimulatedEngine) -> None:
    engine.start(run(0, 3, error="later", max_steps=2), ON_THIS_MACHINE)
    assert all_of(engine)[-1] == ("Ended", 2.0)


def test_start_save_and_worker_times(clock: VirtualClock) -> None:
    engine = SimulatedEngine(
        curves, clock, 0.5, start_seconds=2.0, save_seconds=1.0, pace=lambda run, _: 1.0 / run.workers
    )
    only_at_the_end = replace(run(0, 2, pace=4.0), workers=4, save_every=None)
    engine.start(only_at_the_end, ON_THIS_MACHINE)
    assert all_of(engine) == [("Reported", 3.0, 0, 1), ("Reported", 5.0, 0, 2), ("Ended", 5.0)]
    assert engine.worker_seconds == 4 * 5.0
    engine.start(replace(run(1, 4, pace=4.0, attempt=2, resume=2), workers=2, save_every=None), ON_THIS_MACHINE)
    assert brief(engine.wait(None)) == [("Reported", 7.5, 1, 3)]
    engine.request_end(1, 2)
    assert all_of(engine) == [("Reported", 8.5, 1, 3), ("Ended", 8.5)]  # with its checkpoint
    assert engine.worker_seconds == 4 * 5.0 + 2 * 3.5


def reports_of(engine: SimulatedEngine) -> list[tuple[float, int, bool]]:
    found = []
    while events := engine.wait(None):
        found += [(event.at, event.step, event.saved) for event in events if isinstance(event, Reported)]
    return found


def test_checkpoints_are_saved_at_the_interval_of_the_run(clock: VirtualClock) -> None:
    engine = SimulatedEngine(curves, clock, save_seconds=0.5)
    engine.start(replace(run(0, 6), save_every=2.0), ON_THIS_MACHINE)
    # Steps take a second; the next save is due two seconds after the last one.
    assert reports_of(engine) == [
        (1.0, 1, False), (2.5, 2, True), (3.5, 3, False), (5.0, 4, True), (6.0, 5, False), (7.5, 6, True),
    ]  # fmt: skip


def test_end_requested_within_a_step_completes_and_saves_it(clock: VirtualClock) -> None:
    engine = SimulatedEngine(curves, clock, save_seconds=0.5)
    engine.start(replace(run(0, 9), save_every=None), ON_THIS_MACHINE)
    engine.wait(1.4)
    engine.wait(0.2)
    engine.request_end(0, 1)
    engine.request_end(0, 1)
    assert all_of(engine) == [("Reported", 2.5, 0, 2), ("Ended", 2.5)]


def test_end_requested_within_a_step_that_saves_anyway(clock: VirtualClock) -> None:
    engine = SimulatedEngine(curves, clock, save_seconds=0.5)
    engine.start(run(0, 9), ON_THIS_MACHINE)
    engine.wait(0.4)
    engine.request_end(0, 1)
    assert reports_of(engine) == [(1.5, 1, True)]


def test_lost_machine_ends_its_trials(clock: VirtualClock) -> None:
    engine = SimulatedEngine(curves, clock)
    engine.start(run(0, 3), {"a": 1})
    engine.start(run(1, 2), {"b": 1})
    engine.wait(0.5)
    engine.machine_lost("a")
    engine.machine_lost("unknown")
    assert all_of(engine) == [("Reported", 1.0, 1, 1), ("Reported", 2.0, 1, 2), ("Ended", 2.0)]
    assert engine.worker_seconds == 0.5 + 2.0
    assert engine.status() == []


def test_pace_differs_by_machine(clock: VirtualClock) -> None:
    engine = SimulatedEngine(curves, clock, pace=lambda _, machine: {"fast": 0.5, "slow": 2.0}[machine])
    engine.start(run(0, 2), {"fast": 1})
    engine.start(run(1, 1), {"slow": 1})
    assert [each[1] for each in all_of(engine)] == [0.5, 1.0, 1.0, 2.0, 2.0]
