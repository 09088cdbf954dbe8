"""The study of the policy benchmarks: sixteen trials with different step times."""

from __future__ import annotations

import numpy as np

from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.workload import StudyWorkload
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.traces import Trace
from thriftune.replay.what_if import ReplayedStudy
from thriftune.search.random import Random
from thriftune.space.objectives import Objective
from thriftune.space.parameters import Float
from thriftune.space.space import Space
from thriftune.state.events import Config
from thriftune.state.spec import Spec

STEPS, TRIALS = 100, 16
LONGEST = 1.3  # the longest trial, relative to the median trial
SPEED_ERROR = 0.1  # standard deviation of the log of a machine's true speed relative to its stated speed


def study(
    trace: Trace, hours: float, slack: float, *, trials: int = TRIALS, steps: int = STEPS
) -> tuple[ReplayedStudy, StudyWorkload]:
    """Return the study and its workload.

    `hours` is the time of the median trial on the on-demand machine with the fewest dollars per step. `slack` is
    the deadline relative to the longest trial on that machine.
    """
    best = min((kind for kind in trace.kinds if kind.is_on_demand), key=_dollars)
    per_step = hours * 3600.0 / steps * best.speed

    def curve(config: Config) -> Curve:
        seconds = per_step * (2.0 - LONGEST + 2.0 * (LONGEST - 1.0) * config["x"])
        reports = [{"loss": config["x"] + 1.0 / step} for step in range(1, steps + 1)]
        return Curve(range(1, steps + 1), reports, [seconds] * steps)

    space = Space({"x": Float(0.0, 1.0)})
    spec = Spec("study", space, (Objective("loss", False),), 0, trials=trials, max_steps=steps, workers=TRIALS)
    rounds = -(-trials // TRIALS)
    workload = StudyWorkload(
        at_a_time=TRIALS,
        trials=trials,
        deadline_seconds=rounds * hours * LONGEST * 3600.0 * slack,
        seconds_per_step=per_step,
        restart_seconds=30.0,
        save_seconds=10.0,
    )
    return ReplayedStudy(spec, lambda: curve, Random, lambda: None), workload


def _dollars(kind: MachineType) -> float:
    return kind.price_at(0.0) / kind.speed


def true_speeds(trace: Trace, seed: int = 7) -> dict[str, float]:
    """Return the true speed of each machine type, with the same error in all zones and markets."""
    rng = np.random.default_rng(seed)
    by_type: dict[str, float] = {}
    found: dict[str, float] = {}
    for kind in trace.kinds:
        type = kind.name.removesuffix(" on demand").split(" ")[0]
        by_type.setdefault(type, float(np.exp(SPEED_ERROR * rng.standard_normal())))
        found[kind.name] = kind.speed * by_type[type]
    return found
