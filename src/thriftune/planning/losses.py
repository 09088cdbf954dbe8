"""The time that trials take on spot machines, with preemptions.

A trial saves at a regular interval. When one of its machines is preempted, the trial waits for a replacement and
resumes from its last checkpoint. Trials that share a machine lose it together. A machine counts as new whenever a
trial starts on it. This overestimates losses, because most preemptions happen early in a machine's life.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thriftune.errors import SettingError
from thriftune.market.checkpoint_schedule import young_daly_hours
from thriftune.market.running_time import mean_hours
from thriftune.market.survival import LifetimeSampler
from thriftune.planning.allocation import StageAllocation
from thriftune.planning.profile import Profile

Floats = NDArray[np.float64]

_HOUR = 3600.0
_MAX_PREEMPTIONS = 200  # with more preemptions of a trial, its machines do not live long enough for it


def add_preemption_losses(
    work: Floats, choice: StageAllocation, profile: Profile, rng: np.random.Generator
) -> Floats:
    """Return the seconds until each trial is done, from its seconds of work.

    Both arrays are (trials, samples).

    All trials start at the same time. Raises SettingError if machines do not live long enough for a trial.
    """
    cloud, workers = choice.cloud, choice.allocation.workers
    assert cloud.survival is not None
    trials, samples = work.shape
    trials_per_machine = max(1, cloud.slots // workers)
    machines_per_trial = max(1, -(-workers // cloud.slots))
    group_of = np.arange(trials) // trials_per_machine  # trials of one group share a machine
    lifetimes = LifetimeSampler(cloud.survival)
    groups = int(group_of[-1]) + 1
    save_interval = min(save_interval_seconds(choice, profile), 2.0 * float(work.max()))
    left = work.copy()
    spent = np.zeros(work.shape)
    replacement_wait = cloud.queue_latency.mean + cloud.init_latency.mean
    for _ in range(_MAX_PREEMPTIONS):
        saves_before_end = np.maximum(np.ceil(left / save_interval) - 1.0, 0.0)
        needed = profile.startup + left + profile.checkpoint * (saves_before_end + 1.0)
        # The first of n machines is preempted at the u-quantile, where 1 - (1 - u)^n is uniform.
        quantile = -np.expm1(np.log1p(-rng.random((groups, samples))) / machines_per_trial)
        life = _HOUR * lifetimes.hours_at(quantile)[group_of]
        preempted = (life < needed) & (left > 0.0)
        spent += np.where(left > 0.0, np.where(preempted, life + replacement_wait, needed), 0.0)
        if not preempted.any():
            return spent
        trained = np.maximum(life - profile.startup, 0.0)
        saved = np.floor(trained / (save_interval + profile.checkpoint)) * save_interval
        left = np.where(preempted, np.maximum(left - saved, 0.0), 0.0)
    raise SettingError(
        f"{cloud.name}: a trial of {work.mean() / _HOUR:.3g} h was preempted {_MAX_PREEMPTIONS} times: machines "
        "of this type do not live long enough for it"
    )


def save_interval_seconds(choice: StageAllocation, profile: Profile) -> float:
    """Return the seconds of work between two saves.

    This is Young and Daly's interval, but at least one step. There is nothing to save within a step. A trial whose
    saves cost nothing saves after every step. The interval is infinite for machines that are never preempted.
    """
    cloud = choice.cloud
    assert cloud.survival is not None
    step = profile.seconds(choice.allocation.workers) / cloud.speed
    if not profile.checkpoint:
        return step
    return max(step, young_daly_hours(profile.checkpoint / _HOUR, mean_hours(cloud.survival)) * _HOUR)
