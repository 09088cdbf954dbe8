"""How long does a trial take on machines that are taken away?

A trial saves now and then. When a machine of its own is lost it waits for another one, and goes on from what was
saved last. Trials that share a machine lose it together. Each machine counts as new when a trial starts on it:
that is the safe side, for machines mostly die young.
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
_MOST_LOSSES = 200


def with_losses(work: Floats, choice: StageAllocation, profile: Profile, rng: np.random.Generator) -> Floats:
    """Seconds until trials are done that run at the same time, from those of their work: (trials, samples)."""
    cloud, workers = choice.cloud, choice.allocation.workers
    assert cloud.survival is not None
    trials, samples = work.shape
    together = max(1, cloud.slots // workers)  # trials on a machine
    each = max(1, -(-workers // cloud.slots))  # machines of a trial
    on = np.arange(trials) // together
    lives = LifetimeSampler(cloud.survival)
    groups = int(on[-1]) + 1
    every = min(save_every_seconds(choice, profile), 2.0 * float(work.max()))
    left = work.copy()
    spent = np.zeros(work.shape)
    again = cloud.queue_latency.mean + cloud.init_latency.mean
    for _ in range(_MOST_LOSSES):
        segments = np.maximum(np.ceil(left / every) - 1.0, 0.0)
        need = profile.startup + left + profile.checkpoint * (segments + 1.0)
        # Until the first of a trial's machines is lost.
        drawn = -np.expm1(np.log1p(-rng.random((groups, samples))) / each)
        life = _HOUR * lives.hours_at(drawn)[on]
        lost = (life < need) & (left > 0.0)
        spent += np.where(left > 0.0, np.where(lost, life + again, need), 0.0)
        if not lost.any():
            return spent
        saved = np.floor(np.maximum(life - profile.startup, 0.0) / (every + profile.checkpoint)) * every
        left = np.where(lost, np.maximum(left - saved, 0.0), 0.0)
    raise SettingError(
        f"{cloud.name}: a trial of {work.mean() / _HOUR:.3g} h was lost {_MOST_LOSSES} times: such machines "
        "live too short for it"
    )


def save_every_seconds(choice: StageAllocation, profile: Profile) -> float:
    """Young and Daly's interval, but a step at least: there is nothing to save in the middle of one; where saving
    costs nothing, every step. Infinite if machines are never lost."""
    cloud = choice.cloud
    assert cloud.survival is not None
    step = profile.seconds(choice.allocation.workers) / cloud.speed
    if not profile.checkpoint:
        return step
    return max(step, young_daly_hours(profile.checkpoint / _HOUR, mean_hours(cloud.survival)) * _HOUR)
