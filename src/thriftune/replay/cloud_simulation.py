"""Replays a study on a simulated cloud, with its prices, preemptions and bills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thriftune.loop.conductor import Conductor
from thriftune.provisioning.protocol import Provisioner
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.simulated_cloud import SimulatedCloud
from thriftune.replay.simulated_engine import SimulatedEngine, VirtualClock
from thriftune.replay.simulation_loop import Curves, drive
from thriftune.search.protocol import Searcher
from thriftune.state import events as ev
from thriftune.state.spec import Spec
from thriftune.stopping.protocol import Stopper
from thriftune.study.result import Result


@dataclass(frozen=True)
class CloudReplay:
    """The result of a study on a simulated cloud.

    - `start`: the time on the cloud's clock at which the study began.
    - `work_seconds`: by trial, the seconds of all its steps at the recorded speed.
    """

    result: Result
    start: float
    dollars: float
    work_seconds: list[float]

    @property
    def seconds(self) -> float:
        return self.result.seconds

    @property
    def completed(self) -> bool:
        """Return whether the study completed before the record of the cloud ended."""
        return self.result.finished not in (None, "deadline reached")

    @property
    def steps_lost(self) -> float:
        return self.result.ledger.steps_lost


def replay(
    cloud: SimulatedCloud,
    policy: Provisioner,
    workload: StudyWorkload,
    spec: Spec,
    curves: Curves,
    searcher: Searcher,
    stopper: Stopper | None,
    *,
    start: float = 0.0,
    speeds: Mapping[str, float] | None = None,
) -> CloudReplay:
    """Run the study to its end on machines of the cloud, from the time `start` on.

    `speeds`: by kind of machine, the speed of a step over that of the curves; by default the speed of the kind.
    """
    clock = VirtualClock(start)

    def pace(_: object, machine: str) -> float:
        kind = cloud.kind_of(machine)
        return 1.0 / (kind.speed if speeds is None else speeds[kind.name])

    save_seconds = workload.save_seconds if workload.saves else None
    engine = SimulatedEngine(curves, clock, workload.restart_seconds, save_seconds=save_seconds, pace=pace)
    conductor = Conductor(spec, spec.new_history(), searcher, policy, stopper)
    drive(conductor, engine, clock, cloud=cloud)
    conductor.handle([ev.DriverStopped(clock.time)], clock.time)
    work_seconds = [engine.work_seconds(trial.id, trial.step) for trial in conductor.history.trials]
    return CloudReplay(Result(spec, conductor.history), start, cloud.bill.dollars, work_seconds)
