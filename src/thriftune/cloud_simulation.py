"""What would it have cost? A study replayed on a cloud that is replayed, too: its prices, losses and bills."""

from __future__ import annotations

from collections.abc import Mapping

from thriftune import events as ev
from thriftune.clouds.simulated import SimulatedCloud
from thriftune.conductor import Conductor
from thriftune.engines.simulated import SimulatedEngine, VirtualClock
from thriftune.planning import Provisioner
from thriftune.provisioning.terms import Terms
from thriftune.result import Result
from thriftune.search import Searcher
from thriftune.simulation import Curves, drive
from thriftune.spec import Spec
from thriftune.stopping import Stopper


def run_on(
    cloud: SimulatedCloud,
    policy: Provisioner,
    terms: Terms,
    spec: Spec,
    curves: Curves,
    searcher: Searcher,
    stopper: Stopper | None,
    *,
    start: float = 0.0,
    speeds: Mapping[str, float] | None = None,
) -> Result:
    """Drives the study to its end with machines of the cloud, from `start` on.

    `speeds`: of steps on each kind, over what the curves say; by default, what the kinds promise.
    """
    clock = VirtualClock(start)
    engine = SimulatedEngine(
        curves,
        clock,
        terms.restart_seconds,
        save_seconds=terms.save_seconds,
        pace=lambda _, machine: 1.0 / _speed(cloud, machine, speeds),
    )
    conductor = Conductor(spec, spec.new_history(), searcher, policy, stopper)
    drive(conductor, engine, clock, cloud=cloud)
    conductor.handle([ev.DriverStopped(clock.time)], clock.time)
    return Result(spec, conductor.history)


def _speed(cloud: SimulatedCloud, machine: str, speeds: Mapping[str, float] | None) -> float:
    kind = cloud.kind_of(machine)
    return kind.speed if speeds is None else speeds[kind.name]
