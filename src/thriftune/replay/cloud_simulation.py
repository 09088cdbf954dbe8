"""What would it have cost? A study replayed on a cloud that is replayed, too: its prices, losses and bills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thriftune.loop.conductor import Conductor
from thriftune.provisioning.protocol import Provisioner
from thriftune.provisioning.workload import Workload
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulated_engine import SimulatedEngine, VirtualClock
from thriftune.replay.simulation import Curves, drive
from thriftune.results.result import Result
from thriftune.search.protocol import Searcher
from thriftune.state import events as ev
from thriftune.state.spec import Spec
from thriftune.stopping.protocol import Stopper


@dataclass(frozen=True)
class Replayed:
    """What came of it. `work_seconds`: by trial, how long its steps take at the recorded speed."""

    result: Result
    start: float
    dollars: float
    work_seconds: list[float]

    @property
    def seconds(self) -> float:
        return self.result.seconds

    @property
    def whole(self) -> bool:
        """Whether the study came to its end, before the cloud's record did."""
        return self.result.finished not in (None, "deadline reached")

    @property
    def steps_lost(self) -> float:
        return self.result.ledger.steps_lost


def replay(
    cloud: SimulatedCloud,
    policy: Provisioner,
    terms: Workload,
    spec: Spec,
    curves: Curves,
    searcher: Searcher,
    stopper: Stopper | None,
    *,
    start: float = 0.0,
    speeds: Mapping[str, float] | None = None,
) -> Replayed:
    """Drives the study to its end with machines of the cloud, from `start` on.

    `speeds`: of steps on each kind, over what the curves say; by default, what the kinds promise.
    """
    clock = VirtualClock(start)

    def pace(_: object, machine: str) -> float:
        kind = cloud.kind_of(machine)
        return 1.0 / (kind.speed if speeds is None else speeds[kind.name])

    saving = terms.save_seconds if terms.saves else None
    engine = SimulatedEngine(curves, clock, terms.restart_seconds, save_seconds=saving, pace=pace)
    conductor = Conductor(spec, spec.new_history(), searcher, policy, stopper)
    drive(conductor, engine, clock, cloud=cloud)
    conductor.handle([ev.DriverStopped(clock.time)], clock.time)
    work = [engine.work_seconds(trial.id, trial.step) for trial in conductor.history.trials]
    return Replayed(Result(spec, conductor.history), start, cloud.bill.dollars, work)
