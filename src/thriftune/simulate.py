"""What would have come of it? A study's trials done again under another rule, in a moment, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable

from thriftune import events as ev
from thriftune.conductor import Conductor
from thriftune.driver import make_run
from thriftune.engines.simulated import Curve, SimulatedEngine, VirtualClock
from thriftune.planning import PresentMachines
from thriftune.result import Result
from thriftune.search import Searcher
from thriftune.spec import Spec
from thriftune.stopping import Stopper

MACHINE = "simulated"


def run(
    spec: Spec,
    curves: Callable[[ev.Config], Curve],
    searcher: Searcher,
    stopper: Stopper | None,
    *,
    price_per_hour: float = 0.0,
    restart_seconds: float = 0.0,
) -> Result:
    """Drives the study to its end by the one conductor, as driver.py does on real machines; records nothing."""
    clock = VirtualClock()
    engine = SimulatedEngine(curves, clock, restart_seconds)
    conductor = Conductor(spec, spec.new_history(), searcher, PresentMachines(), stopper)
    history = conductor.history
    limited = spec.deadline_seconds or spec.budget_dollars or spec.timeout_seconds
    events: list[ev.Event] = [
        ev.DriverStarted(0.0, 0, MACHINE),
        ev.MachineReady(0.0, ev.THIS_MACHINE, MACHINE, spec.workers, price_per_hour),
    ]
    while history.finished is None:
        for entry in conductor.handle(events, clock.time):
            match entry:
                case ev.Reported():  # what nearly all entries are
                    pass
                case ev.Place():
                    engine.start(make_run(spec, history, entry.trial), entry.machine)
                case ev.Move() | ev.Pause() | ev.Stop():
                    engine.tell_to_end(entry.trial, entry.attempt)
                case ev.Kill():
                    engine.kill(entry.trial, entry.attempt)
                case _:
                    pass
        wake_at = conductor.wake_at(clock.time) if limited else None
        events = engine.wait(None if wake_at is None else max(0.0, wake_at - clock.time))
    conductor.handle([ev.MachineReleased(clock.time, ev.THIS_MACHINE), ev.DriverStopped(clock.time)], clock.time)
    return Result(spec, history)
