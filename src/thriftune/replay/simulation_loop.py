"""The driver of simulated studies: the real conductor, with an engine and a cloud on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thriftune.errors import ThriftuneError
from thriftune.loop.conductor import Conductor
from thriftune.loop.driver import make_run
from thriftune.provisioning.present_machines import PresentMachines
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulated_engine import Curve, SimulatedEngine, VirtualClock
from thriftune.search.protocol import Searcher
from thriftune.state import events as ev
from thriftune.state.spec import Spec
from thriftune.stopping.protocol import Stopper
from thriftune.study.result import Result

MACHINE = "simulated"

Curves = Callable[[ev.Config], Curve]


def run(
    spec: Spec,
    curves: Curves,
    searcher: Searcher,
    stopper: Stopper | None,
    *,
    price_per_hour: float = 0.0,
    restart_seconds: float = 0.0,
) -> Result:
    """Simulate the study on one machine that is never preempted, and return its result."""
    clock = VirtualClock()
    engine = SimulatedEngine(curves, clock, restart_seconds)
    conductor = Conductor(spec, spec.new_history(), searcher, PresentMachines(), stopper)
    machine = ev.MachineReady(0.0, ev.THIS_MACHINE, MACHINE, spec.workers or 1, price_per_hour)
    drive(conductor, engine, clock, [machine])
    now = clock.time
    conductor.handle([ev.MachineReleased(now, ev.THIS_MACHINE), ev.DriverStopped(now)], now)
    return Result(spec, conductor.history)


def drive(
    conductor: Conductor,
    engine: SimulatedEngine,
    clock: VirtualClock,
    machines: Sequence[ev.Event] = (),
    cloud: SimulatedCloud | None = None,
) -> None:
    """Run the conductor until its study is complete, as loop/driver.py does on real machines; store nothing.

    `machines`: the events of the machines that are present from the start.
    """
    spec, history = conductor.spec, conductor.history
    needs_timer = cloud is not None or spec.deadline_seconds or spec.budget_dollars or spec.timeout_seconds
    events: list[ev.Event] = [ev.DriverStarted(clock.time, 0, MACHINE), *machines]
    while True:
        cloud_events: list[ev.Event] = []
        for entry in conductor.handle(events, clock.time):
            if type(entry) is ev.Reported:  # by far the most frequent entry
                continue
            match entry:
                case ev.Place():
                    engine.start(make_run(spec, history, entry.trial), entry.workers or {entry.machine: 1})
                case ev.Move() | ev.Pause() | ev.Stop():
                    engine.request_end(entry.trial, entry.attempt)
                case ev.Kill():
                    engine.kill(entry.trial, entry.attempt)
                case ev.Rent() if cloud is not None:
                    cloud_events += cloud.rent(entry.machine, entry.offer, entry.max_price, clock.time)
                case ev.Release() if cloud is not None:
                    cloud_events += cloud.release(entry.machine, clock.time)
                case ev.MachineLost() | ev.MachineReleased():
                    engine.machine_lost(entry.machine)
                case _:
                    pass
        if cloud_events:
            events = cloud_events
            continue
        if history.finish_reason is not None:
            return
        wake_times = [
            conductor.wake_at(clock.time) if needs_timer or history.retrying else None,
            None if cloud is None else cloud.next_event_at(),
        ]
        wake_at = min((time for time in wake_times if time is not None), default=None)
        events = engine.wait(None if wake_at is None else max(0.0, wake_at - clock.time))
        if cloud is not None:
            events = [*events, *cloud.poll_events(clock.time)]
        if not events and wake_at is None:  # a user's stopping rule that pauses trials and promotes none
            rule = type(conductor.stopper).__name__
            raise ThriftuneError(
                f"no trial runs, and the stopping rule {rule} promotes no paused trial: the study cannot go on"
            )
