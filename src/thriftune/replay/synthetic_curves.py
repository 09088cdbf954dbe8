"""What would a study come to that was not run? Its curves are made up, in the seconds of its profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thriftune.errors import SettingError
from thriftune.planning.machine_types import MachineType
from thriftune.planning.profile import slownesses
from thriftune.replay.preemptions import Drawn
from thriftune.replay.simulated_engine import Curve
from thriftune.replay.traces import Trace
from thriftune.settings.machine_tables import read_plan_file
from thriftune.state.events import Config
from thriftune.stopping import STOPPERS


class NotRun(NamedTuple):
    """What `simulate` needs of it: `simulate(curve, cloud=cloud, **settings)`."""

    curve: Callable[[Config], Curve]
    cloud: Trace
    settings: dict[str, Any]


def read_not_run(file: Path, *, rented_elsewhere: bool = False) -> NotRun:
    """`rented_elsewhere`: it need not say which machines there are."""
    asked = read_plan_file(file, clouds_needed=not rented_elsewhere)
    study, per_step = asked.study, asked.profile.seconds(1)
    if study.max_steps is None or study.trials is None:
        raise SettingError(f"{file}: max_steps and trials: both must be there, to know how much there is to do")
    if any(cloud.billing == "per_function" for cloud in asked.clouds):
        raise SettingError(f"{file}: cloud: functions are not rented by a policy; see what a plan says of them")
    steps, metric = study.max_steps, study.metric

    def curve(config: Config) -> Curve:
        """Which trials are good is made up: only who is given up on goes by it."""
        level = float(sum(study.space.encode(config))) / max(1, len(study.space.names))
        told = [{metric: level + 1.0 / step} for step in range(1, steps + 1)]
        drawn = np.random.default_rng(int(1e9 * level)).standard_normal()
        slow = float(slownesses(asked.profile.variation, drawn))
        return Curve(range(1, steps + 1), told, [slow * per_step] * steps)

    kinds = [MachineType.of(cloud) for cloud in asked.clouds]
    lives = {kind.name: kind.survival for kind in kinds if kind.survival is not None}

    def fates(seed: int) -> dict[str, Drawn]:
        return {name: Drawn(each, 1000 * seed + number) for number, (name, each) in enumerate(lives.items())}

    note = f"{file.name}: what trials report is made up; steps take {per_step:g} s, as its profile says"
    notes = [note]
    if study.budget_dollars is not None:
        notes.append(f"{file.name}: its budget is not kept to here: the costs below are of all its trials")
    trace = Trace(kinds, fates, 0.0, float("inf"), notes)
    goal = "maximize" if study.maximize else "minimize"
    settings = {
        "space": study.space,
        goal: metric,
        "trials": study.trials,
        "max_steps": steps,
        "deadline": study.deadline_seconds,
        "workers": study.workers,
        "stopping": STOPPERS.make(study.stopping, study.stopping_options),
        "restart_seconds": asked.profile.startup,
        "save_seconds": asked.profile.checkpoint,
    }
    return NotRun(curve, trace, settings)
