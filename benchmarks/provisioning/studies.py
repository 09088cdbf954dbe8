"""What is tuned on these clouds? Sixteen trials whose steps differ, of some hours on a machine on demand."""

from __future__ import annotations

import numpy as np

from thriftune.planning.machine_types import MachineType
from thriftune.provisioning.workload import Workload
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
LONGEST = 1.3  # times the middle trial
MISJUDGED = 0.1  # how far machines are from the speed that they promise, as a standard deviation of the logarithm


def study(
    trace: Trace, hours: float, slack: float, *, trials: int = TRIALS, steps: int = STEPS
) -> tuple[ReplayedStudy, Workload]:
    """`hours`: of the middle trial, on the machine on demand with the fewest dollars a step. `slack`: of the
    deadline, over the longest trial there."""
    best = min((kind for kind in trace.kinds if kind.lasts), key=_dollars)
    per_step = hours * 3600.0 / steps * best.speed

    def curve(config: Config) -> Curve:
        seconds = per_step * (2.0 - LONGEST + 2.0 * (LONGEST - 1.0) * config["x"])
        told = [{"loss": config["x"] + 1.0 / step} for step in range(1, steps + 1)]
        return Curve(range(1, steps + 1), told, [seconds] * steps)

    space = Space({"x": Float(0.0, 1.0)})
    spec = Spec("study", space, (Objective("loss", False),), 0, trials=trials, max_steps=steps, workers=TRIALS)
    rounds = -(-trials // TRIALS)
    terms = Workload(
        at_a_time=TRIALS,
        trials=trials,
        deadline_seconds=rounds * hours * LONGEST * 3600.0 * slack,
        seconds_per_step=per_step,
        restart_seconds=30.0,
        save_seconds=10.0,
    )
    return ReplayedStudy(spec, lambda: curve, Random, lambda: None), terms


def _dollars(kind: MachineType) -> float:
    return kind.price_at(0.0) / kind.speed


def true_speeds(trace: Trace, seed: int = 7) -> dict[str, float]:
    """The same for a type in all zones and on demand."""
    rng = np.random.default_rng(seed)
    by_type: dict[str, float] = {}
    found: dict[str, float] = {}
    for kind in trace.kinds:
        type = kind.name.removesuffix(" on demand").split(" ")[0]
        by_type.setdefault(type, float(np.exp(MISJUDGED * rng.standard_normal())))
        found[kind.name] = kind.speed * by_type[type]
    return found
