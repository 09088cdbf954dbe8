"""Makes synthetic learning curves for a study file that has not been run, with the step times of its profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thriftune.errors import SettingError
from thriftune.planning.machine_types import MachineType
from thriftune.planning.profile import slowness_factors
from thriftune.replay.preemptions import LifetimePreemptions
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.traces import Trace, draw_lifetimes
from thriftune.settings.plan_file import read_plan_file
from thriftune.state.events import Config
from thriftune.stopping import STOPPERS


class SyntheticStudy(NamedTuple):
    """The arguments of `simulate(curve, cloud=cloud, **settings)`."""

    curve: Callable[[Config], Curve]
    cloud: Trace
    settings: dict[str, Any]


def read_synthetic_study(file: Path, *, rented_elsewhere: bool = False) -> SyntheticStudy:
    """Read a study file with its profile and clouds. `rented_elsewhere`: it may lack the clouds.

    Raises SettingError if the file lacks max_steps or trials, or rents functions.
    """
    plan_file = read_plan_file(file, clouds_needed=not rented_elsewhere, machine_option="--cloud TRACE")
    study, seconds_per_step = plan_file.study, plan_file.profile.seconds(1)
    if study.max_steps is None or study.trials is None:
        raise SettingError(f"{file}: max_steps and trials: give both; they determine the amount of work")
    if any(cloud.billing == "per_function" for cloud in plan_file.clouds):
        raise SettingError(
            f"{file}: cloud: a policy cannot rent functions; use `thriftune plan` to estimate their cost"
        )
    steps, metric = study.max_steps, study.metric

    def curve(config: Config) -> Curve:
        """Return a synthetic curve: the values only decide which trials the stopping rule stops."""
        level = float(sum(study.space.encode(config))) / max(1, len(study.space.names))
        metrics = [{metric: level + 1.0 / step} for step in range(1, steps + 1)]
        deviation = np.random.default_rng(int(1e9 * level)).standard_normal()
        slowness = float(slowness_factors(plan_file.profile.variation, deviation))
        return Curve(range(1, steps + 1), metrics, [slowness * seconds_per_step] * steps)

    kinds = [MachineType.of(cloud) for cloud in plan_file.clouds]
    survivals = {kind.name: kind.survival for kind in kinds if kind.survival is not None}

    def preemptions(seed: int) -> dict[str, LifetimePreemptions]:
        return draw_lifetimes(survivals, seed)

    notes = [
        f"{file.name}: the reports of trials are synthetic; steps take {seconds_per_step:g} s, as in its profile"
    ]
    if study.budget_dollars is not None:
        notes.append(f"{file.name}: the simulation ignores its budget: the costs are those of all its trials")
    trace = Trace(kinds, preemptions, 0.0, float("inf"), notes)
    goal = "maximize" if study.maximize else "minimize"
    settings = {
        "space": study.space,
        goal: metric,
        "trials": study.trials,
        "max_steps": steps,
        "deadline": study.deadline_seconds,
        "workers": study.workers,
        "stopping": STOPPERS.make(study.stopping, study.stopping_options),
        "restart_seconds": plan_file.profile.startup,
        "save_seconds": plan_file.profile.checkpoint,
    }
    return SyntheticStudy(curve, trace, settings)
